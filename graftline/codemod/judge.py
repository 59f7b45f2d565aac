"""What a candidate did, held against what it should have done."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from graftline.codemod.change import Change
from graftline.codemod.diff import Site, apply_sites, common_length
from graftline.codemod.equality import normalize_whitespace
from graftline.sandbox.base import Match, SandboxResult, Verdict

_MAX_COMBINED = 6
_EDGE = "\0"
_LINE_ENDS = re.compile(r"[ \t]+(?=\n|$)")


@dataclass(frozen=True, slots=True)
class Judgment:
    """Which sites of a change an action fixes, and what else it changes."""

    fixed: frozenset[int]
    """Indices of the sites."""
    real: int
    """Number of those that are more than blanks."""
    right: tuple[Match, ...]
    """Matches whose every edit is part of the change."""
    wrong: tuple[Match, ...]
    untidy: int
    """Places where the blanks around a right edit are not those of the target."""

    @property
    def holds(self) -> bool:
        """Whether something is fixed and nothing else changed."""
        return bool(self.fixed) and not self.wrong


def judge(change: Change, result: SandboxResult) -> Judgment:
    """Return what `result`, of an action on the text before, means for `change`.

    A match that leaves its text as it was is neither right nor wrong.
    """
    fixed: set[int] = set()
    right, wrong, untidy = [], [], 0
    ends = [site.end for site in change.sites]
    for match in result.matches if result.verdict is Verdict.OK else ():
        if match.replacement == change.before.text[match.start : match.end]:
            continue
        explanation = _explain(change, match) if _is_near_site(change, ends, match) else None
        if explanation is None:
            wrong.append(match)
        else:
            right.append(match)
            fixed |= explanation[0]
            untidy += not explanation[1]
    real = sum(not change.sites[index].is_blank for index in fixed)
    return Judgment(frozenset(fixed), real, tuple(right), tuple(wrong), untidy + _count_orphans(change, fixed))


def _is_near_site(change: Change, ends: Sequence[int], match: Match) -> bool:
    """Return whether a site is within a match or beside it, blanks between them aside; `ends` are those of the sites."""
    text, start, end = change.before.text, match.start, match.end
    while start > 0 and text[start - 1].isspace():
        start -= 1
    while end < len(text) and text[end].isspace():
        end += 1
    first = bisect_left(ends, start)
    return first < len(ends) and change.sites[first].start <= end


def _explain(change: Change, match: Match) -> tuple[set[int], bool] | None:
    """Return the sites whose replacement is what `match` does, and whether it gets the blanks right as well.

    None when it does something else.
    """
    untidy = None
    for start, end in dict.fromkeys(_extents(change, match)):
        explanation = _explain_within(change, match, start, end)
        if explanation is not None and explanation[1]:
            return explanation
        untidy = untidy or explanation
    return untidy


def _explain_within(change: Change, match: Match, start: int, end: int) -> tuple[set[int], bool] | None:
    text = change.before.text
    inside = change.inside(start, end)
    if not inside:
        return None
    # outside of the match or its two ends the text stays the same
    new = match.replacement[max(0, start - match.start) : len(match.replacement) - max(0, match.end - end)]
    rewritten = text[start : match.start] + new + text[match.end : end]
    target = _normalize_piece(text, start, end, rewritten)
    for chosen in _subsets(inside):
        edited = apply_sites(text, [site for _, site in chosen], start, end)
        if chosen and _normalize_piece(text, start, end, edited) == target:
            fixed = {index for index, _ in chosen}
            tidy = apply_sites(text, [site for index, site in inside if site.is_blank or index in fixed], start, end)
            return fixed, _LINE_ENDS.sub("", tidy) == _LINE_ENDS.sub("", rewritten)
    return None


def _extents(change: Change, match: Match) -> Iterator[tuple[int, int]]:
    """Yield the whole match, what remains of it without what stays the same at its two ends, and more than all of it.

    More: the blanks beside it that go. To take a line with the break before it is to take it with the one after it.
    """
    yield match.start, match.end
    old, new = change.before.text[match.start : match.end], match.replacement
    for is_end_first in (True, False):
        front = 0 if is_end_first else common_length(old, new)
        back = common_length(old[front:][::-1], new[front:][::-1])
        front = front or common_length(old[: len(old) - back], new[: len(new) - back])
        start, end = match.start + front, match.end - back
        for site in change.sites:
            if match.start <= site.start <= end and start <= site.end <= match.end:
                start, end = min(start, site.start), max(end, site.end)
        yield start, end
    blanks = [site for site in change.sites if site.is_blank]
    yield (
        min((site.start for site in blanks if site.end == match.start), default=match.start),
        max((site.end for site in blanks if site.start == match.end), default=match.end),
    )


def _normalize_piece(text: str, start: int, end: int, new: str) -> str:
    """Return `new`, which takes the place of characters `start` to `end` of `text`, without blanks that say nothing."""
    # at its two ends they may be indentation, unless the line ends there
    front = "\n" if text[:start].endswith("\n") else ""
    back = "\n" if text[end : end + 1] in ("\n", "") else ""
    return normalize_whitespace(f"{_EDGE}{front}{new}{back}{_EDGE}")


def _count_orphans(change: Change, fixed: set[int]) -> int:
    """Return the number of blank sites that touch a fixed one and are left behind."""
    sites = change.sites
    return sum(
        index not in fixed
        and site.is_blank
        and (
            (index - 1 in fixed and sites[index - 1].end == site.start)
            or (index + 1 in fixed and sites[index + 1].start == site.end)
        )
        for index, site in enumerate(sites)
    )


def _subsets(sites: Sequence[tuple[int, Site]]) -> Iterator[Sequence[tuple[int, Site]]]:
    yield sites
    yield [pair for pair in sites if not pair[1].is_blank]
    if len(sites) <= _MAX_COMBINED:
        for size in range(len(sites) - 1, 0, -1):
            yield from combinations(sites, size)
