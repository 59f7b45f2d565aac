"""Differences between two syntax trees as places in the text.

Children are aligned recursively: equal runs at both ends first, then a weighted longest common subsequence in which
equal text counts most and nodes of one kind count by the tokens they share. The result is a list of `Site`s with the
invariant that replacing every site in the text before gives the text after.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from graftline.astgrep.binding import Node, Tree

_MAX_ALIGNED_PAIRS = 40_000
_LEAST_SIMILARITY = 0.35
_MAX_WEIGHT = 60
_MAX_COUNTED = 8_000
_TOKENS = re.compile(r"\w+|[^\w\s]")
_SEQUENCES = (
    "argument_list", "arguments", "parameters", "block", "body", "module", "program", "list", "array", "tuple",
    "dictionary", "object", "set", "named_imports", "import_list", "initializer", "clause_list", "jsx_element",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Site:
    """One difference: characters `start` to `end` before become characters `new_start` to `new_end` after."""

    start: int
    end: int
    new_start: int
    new_end: int
    text: str
    """The new text."""
    is_blank: bool
    """Whether both sides are white space only."""

    @property
    def is_insertion(self) -> bool:
        """Whether nothing is taken away and more than white space is put in."""
        return self.start == self.end and not self.is_blank


def is_sequence(node: Node) -> bool:
    """Return whether `node` is a list of like things (arguments, statements) rather than a form with fixed parts."""
    return node.kind.endswith(_SEQUENCES)


def diff_trees(before: Tree, after: Tree) -> list[Site]:
    """Return the sites at which `before` has to change to become `after`, in the order of the text.

    The two ends of each site are outside white space wherever that is possible.
    """
    sites = list(_Comparison(before, after).between(before.root, after.root))
    assert apply_sites(before.text, sites) == after.text, "the sites of a difference must make the text after"
    return sites


def apply_sites(text: str, sites: Sequence[Site], start: int = 0, end: int | None = None) -> str:
    """Return characters `start` to `end` of `text` with `sites` (in order, all inside) replaced."""
    pieces, position = [], start
    for site in sites:
        pieces += [text[position : site.start], site.text]
        position = site.end
    return "".join(pieces) + text[position : len(text) if end is None else end]


class _Comparison:
    """One comparison; holds the token counts of the nodes already weighed."""

    def __init__(self, before: Tree, after: Tree) -> None:
        self._before, self._after = before, after
        self._counted: dict[Node, Counter[str]] = {}

    def between(self, old: Node, new: Node) -> Iterator[Site]:
        """Yield the sites between two nodes that stand for each other."""
        if self._before.of(old) == self._after.of(new):
            return
        if self._is_wrapping(old, new):
            yield self._site(old.start, old.end, new.start, new.end)
            return
        pairs = self._align(old.children, new.children) if old.kind == new.kind else []
        if not pairs and (old.kind != new.kind or old.parent is not None or not (old.children and new.children)):
            yield self._site(old.start, old.end, new.start, new.end)
            return
        last_old, last_new, first = old.start, new.start, 0
        for i, j in [*pairs, (len(old.children), len(new.children))]:
            is_end = i == len(old.children)
            next_old = old.end if is_end else old.children[i].start
            next_new = new.end if is_end else new.children[j].start
            yield from self._gap(old.children[first:i], last_old, next_old, last_new, next_new)
            first = i + 1
            if not is_end:
                yield from self.between(old.children[i], new.children[j])
                last_old, last_new = old.children[i].end, new.children[j].end

    def _is_wrapping(self, old: Node, new: Node) -> bool:
        # without this, a call that gains a receiver shifts every level of its left-deep chain by one
        if not (old.parent and old.is_named and old.children and new.children) or old.kind != new.kind:
            return False
        if is_sequence(old):
            return False
        text, new_text = self._before.of(old), self._after.of(new)
        if len(text) < len(new_text):
            return text in new_text and any(self._after.of(node) == text for node in _below(new))
        return new_text in text and any(self._before.of(node) == new_text for node in _below(old))

    def _gap(self, gone: Sequence[Node], start: int, end: int, new_start: int, new_end: int) -> Iterator[Site]:
        """Yield the sites of what lies between two aligned children: the nodes `gone`, and blanks."""
        old, new = self._before.text[start:end], self._after.text[new_start:new_end]
        if old == new:
            return
        if not old.strip() and not new.strip():
            yield self._site(start, end, new_start, new_end)
            return
        front = _common_blanks(old, new)
        back = _common_blanks(old[front:][::-1], new[front:][::-1])
        start, end, new_start, new_end = start + front, end - back, new_start + front, new_end - back
        old, new = self._before.text[start:end], self._after.text[new_start:new_end]
        if old and not old.strip():
            # blanks that go where something comes are a site of their own: rules put things beside nodes
            yield self._site(start, start, new_start, new_end)
            yield self._site(start, end, new_end, new_end)
        elif old and not new.strip():
            yield from self._split_deletion(gone, start, end, new_start, new_end)
        else:
            first, last = start + len(old) - len(old.lstrip()), start + len(old.rstrip())
            if start < first < end and not new[:1].isspace():
                yield self._site(start, first, new_start, new_start)
                start = first
            if start < last < end and not new[-1:].isspace():
                yield self._site(start, last, new_start, new_end)
                start, new_start = last, new_end
            yield self._site(start, end, new_start, new_end)

    def _split_deletion(
        self, gone: Sequence[Node], start: int, end: int, new_start: int, new_end: int
    ) -> Iterator[Site]:
        """Yield the sites of a deletion: one for each thing if all are named nodes, and those of the blanks round them.

        Blanks are sites of their own, for ast-grep removes nodes, not lines.
        """
        old = self._before.text[start:end]
        first, last = start + len(old) - len(old.lstrip()), start + len(old.rstrip())
        pieces = [(node.start, node.end) for node in gone] if all(node.is_named for node in gone) else [(first, last)]
        if not pieces or (pieces[0][0], pieces[-1][1]) != (first, last):
            pieces = [(first, last)]
        if start < first or new_start < new_end:
            yield self._site(start, first, new_start, new_end)
        position = first
        for piece_start, piece_end in [*pieces, (end, end)]:
            for site_start, site_end in ((position, piece_start), (piece_start, piece_end)):
                if site_start < site_end:
                    yield self._site(site_start, site_end, new_end, new_end)
            position = piece_end

    def _site(self, start: int, end: int, new_start: int, new_end: int) -> Site:
        text = self._after.text[new_start:new_end]
        is_blank = not self._before.text[start:end].strip() and not text.strip()
        return Site(start, end, new_start, new_end, text, is_blank)

    def _align(self, old: Sequence[Node], new: Sequence[Node]) -> list[tuple[int, int]]:
        """Return pairs of indices of children that stand for each other, ascending on both sides."""
        front, back = common_ends(list(map(self._before.of, old)), list(map(self._after.of, new)))
        middle_old, middle_new = old[front : len(old) - back], new[front : len(new) - back]
        middle: list[tuple[int, int]] = []
        if 0 < len(middle_old) * len(middle_new) <= _MAX_ALIGNED_PAIRS:
            middle = [(front + i, front + j) for i, j in self._heaviest(middle_old, middle_new)]
        elif middle_old and middle_new:
            middle = [(front + i, front + j) for i, j in self._between_equal(middle_old, middle_new)]
        ends = [(len(old) - back + k, len(new) - back + k) for k in range(back)]
        return [(i, i) for i in range(front)] + middle + ends

    def _between_equal(self, old: Sequence[Node], new: Sequence[Node]) -> Iterator[tuple[int, int]]:
        """Yield pairs of many children: those of the same text, and between them the heaviest where it is small."""
        texts, new_texts = list(map(self._before.of, old)), list(map(self._after.of, new))
        counts, new_counts = Counter(texts), Counter(new_texts)
        places = {text: j for j, text in enumerate(new_texts) if new_counts[text] == 1}
        anchors = [(i, places[text]) for i, text in enumerate(texts) if counts[text] == 1 and text in places]
        i = j = 0
        for anchor in [*pick_ascending(anchors), (len(old), len(new))]:
            if 0 < (anchor[0] - i) * (anchor[1] - j) <= _MAX_ALIGNED_PAIRS:
                yield from ((i + a, j + b) for a, b in self._heaviest(old[i : anchor[0]], new[j : anchor[1]]))
            if anchor[0] < len(old):
                yield anchor
            i, j = anchor[0] + 1, anchor[1] + 1

    def _heaviest(self, old: Sequence[Node], new: Sequence[Node]) -> Iterator[tuple[int, int]]:
        """Yield the common subsequence of the greatest total similarity."""
        weight = [[self._similarity(a, b) for b in new] for a in old]
        best = [[0.0] * (len(new) + 1) for _ in range(len(old) + 1)]
        for i in reversed(range(len(old))):
            for j in reversed(range(len(new))):
                together = best[i + 1][j + 1] + weight[i][j] if weight[i][j] else 0.0
                best[i][j] = max(best[i + 1][j], best[i][j + 1], together)
        i = j = 0
        while i < len(old) and j < len(new):
            if weight[i][j] and best[i][j] == best[i + 1][j + 1] + weight[i][j]:
                yield i, j
                i, j = i + 1, j + 1
            elif best[i][j] == best[i + 1][j]:
                i += 1
            else:
                j += 1

    def _tokens(self, tree: Tree, node: Node) -> Counter[str]:
        if node not in self._counted:
            text = tree.of(node)
            if len(text) > _MAX_COUNTED:
                text = text[: _MAX_COUNTED // 2] + text[-_MAX_COUNTED // 2 :]
            self._counted[node] = Counter(_TOKENS.findall(text))
        return self._counted[node]

    def _similarity(self, old: Node, new: Node) -> float:
        """Return 0 for nodes that cannot stand for each other, and more the more they share."""
        if self._before.of(old) == self._after.of(new):
            return 2.0 + min(self._tokens(self._before, old).total(), _MAX_WEIGHT)
        if old.kind != new.kind or not old.is_named:
            return 0.0
        if not (old.children and new.children):
            return 0.2 if "comment" in old.kind else 0.4
        left, right = self._tokens(self._before, old), self._tokens(self._after, new)
        dice = 2 * (left & right).total() / (left.total() + right.total())
        return dice * min(left.total(), right.total(), _MAX_WEIGHT) if dice >= _LEAST_SIMILARITY else 0.0


def pick_ascending(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence of `pairs`, ascending on the left, that ascends on the right as well."""
    ends: list[int] = []
    before: dict[tuple[int, int], tuple[int, int] | None] = {}
    tops: list[tuple[int, int]] = []
    for pair in pairs:
        at = bisect_left(ends, pair[1])
        before[pair] = tops[at - 1] if at else None
        ends[at : at + 1], tops[at : at + 1] = [pair[1]], [pair]
    ascending, last = [], tops[-1] if tops else None
    while last is not None:
        ascending.append(last)
        last = before[last]
    return ascending[::-1]


def _below(node: Node) -> Iterator[Node]:
    for child in node.children:
        yield from child.walk()


def common_length(left: Iterable[str], right: Iterable[str]) -> int:
    """Return how many items two series begin with that are the same in both."""
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length


def common_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Return how many items two series have in common at their start, and behind that at their end."""
    front = common_length(old, new)
    return front, common_length(old[front:][::-1], new[front:][::-1])


def _common_blanks(left: str, right: str) -> int:
    return common_length(left[: len(left) - len(left.lstrip())], right)
