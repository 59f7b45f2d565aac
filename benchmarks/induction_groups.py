"""Several pairs of one change: one list of rules for all of them, and what it does to the pairs it was not made on."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.induction_pairs import Pair
from benchmarks.induction_solving import percent
from benchmarks.induction_text import learned, replaced
from benchmarks.induction_unseen import edits
from graftline.astgrep.binding import Language
from graftline.codemod.equality import compare_texts, normalize_whitespace
from graftline.codemod.induce import ScoredAction
from graftline.codemod.induce_many import induce_many
from graftline.core.errors import DataError
from graftline.core.hashing import digest
from graftline.core.progress import Progress
from graftline.sandbox import Sandbox, Verdict

LEARNED_ON = (1, 2, 3)
"""Pairs that a list is made on before it meets the rest of its group."""
_KINDRED: Mapping[Language, str] = {"python": "python", "java": "java"}
OUTCOMES = ("solved", "nearer", "untouched", "wrong")
"""`nearer`: some of what is wanted and nothing else is changed; `wrong`: something else is."""


def groups_of(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Return the groups of at least two pairs of one change: of one collection, with one name, in one language."""
    groups: dict[tuple[str, str, str], list[Pair]] = {}
    for pair in pairs:
        groups.setdefault((pair.origin, pair.rule, _KINDRED.get(pair.language, "script")), []).append(pair)
    # in the order of a digest, so that the first of them are a fair sample
    return [_in_one_language(groups[key]) for key in sorted(groups, key=digest) if len(groups[key]) > 1]


def _in_one_language(group: Sequence[Pair]) -> list[Pair]:
    """Return `group` as it is, or where only some of it carries types or JSX, all of it in the language that has both."""
    languages = {pair.language for pair in group}
    return list(group) if len(languages) == 1 else [replace(pair, language="tsx") for pair in group]


def shared(groups: Sequence[Sequence[Pair]], sandbox: Sandbox, progress: Progress) -> dict[str, Any]:
    """Return in how many groups one list solves all pairs, by language and by number of pairs.

    Raises:
        SandboxError: the sandbox failed.
    """
    progress.start("induction", "groups")
    every: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    pairs = solved_pairs = rules = 0
    for number, group in enumerate(groups, 1):
        found = induce_many([(pair.before, pair.after) for pair in group], group[0].language, sandbox)
        names = ("all", group[0].language, f"{len(group)} pairs")
        every.update(names)
        whole.update(names if found.is_verified else ())
        pairs += len(group)
        solved_pairs += sum(level.is_verified for level in found.levels)
        rules += len(found.actions)
        progress.advance(number, len(groups))
    progress.finish(f"{len(groups)} groups")
    return {
        "groups": len(groups),
        "all_pairs_solved_percent": {name: percent(whole[name], every[name]) for name in sorted(every)},
        "pairs_solved_percent": percent(solved_pairs, pairs),
        "mean_rules": round(rules / len(groups), 2) if groups else None,
    }


def transfer(groups: Sequence[Sequence[Pair]], sandbox: Sandbox, progress: Progress) -> dict[str, Any]:
    """Return, for lists made on the first pairs of a group, what becomes of its other pairs.

    Raises:
        SandboxError: the sandbox failed.
    """
    figures: dict[str, Any] = {}
    for learned_on in LEARNED_ON:
        larger = [group for group in groups if len(group) > learned_on]
        progress.start("induction", f"transfer from {learned_on}")
        became: Counter[str] = Counter()
        for number, group in enumerate(larger, 1):
            known, rest = group[:learned_on], group[learned_on:]
            found = induce_many([(pair.before, pair.after) for pair in known], group[0].language, sandbox)
            became.update(outcome(pair, applied(pair, found.actions, sandbox)) for pair in rest)
            progress.advance(number, len(larger))
        progress.finish(f"{len(larger)} groups")
        figures[f"learned_on_{learned_on}"] = {"groups": len(larger)} | _shares(became)
    return figures


def text_transfer(groups: Sequence[Sequence[Pair]]) -> dict[str, Any]:
    """Return the same for literal search and replace, learned on the first pair of each group."""
    became: Counter[str] = Counter()
    for known, *rest in groups:
        replacements = learned(known.before, known.after) or ()
        became.update(outcome(pair, replaced(pair.before, replacements)) for pair in rest)
    return {"groups": len(groups)} | _shares(became)


def _shares(became: Counter[str]) -> dict[str, Any]:
    shares = {f"{name}_percent": percent(became[name], became.total()) for name in OUTCOMES}
    return {"other_pairs": became.total()} | shares


def applied(pair: Pair, actions: Sequence[ScoredAction], sandbox: Sandbox) -> str:
    """Return the text before of `pair` after `actions`, one after the other.

    Raises:
        SandboxError: the sandbox failed.
    """
    text = pair.before
    for scored in actions:
        [result] = sandbox.apply_many(text, pair.language, [scored.action])
        if result.verdict is Verdict.OK and result.after is not None:
            text = result.after
    return text


def outcome(pair: Pair, text: str) -> str:
    """Return what became of `pair` when its text before was changed to `text`."""
    if normalize_whitespace(text) == normalize_whitespace(pair.before):
        return "untouched"
    try:
        if compare_texts(text, pair.after, pair.language).is_verified:
            return "solved"
    except DataError:
        return "wrong"
    wanted = edits(pair.before, pair.after, pair.language)
    return "nearer" if edits(pair.before, text, pair.language) <= wanted else "wrong"
