"""One change of one text: its two trees, the places at which they differ, and the regions a rule may be made of."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from graftline.astgrep.binding import Language, Node, Tree, outline
from graftline.codemod.diff import Site, diff_trees, is_sequence

_MAX_REGION_CHARACTERS = 20_000
_MAX_LEVELS = 6
_BINDING = re.compile(
    r"parameter|^(assignment|variable_declarator|for_statement|for_in_statement|enhanced_for_statement"
    r"|named_expression|for_in_clause|as_pattern|augmented_assignment|catch_clause|resource)$"
)


@dataclass(frozen=True, slots=True)
class Region:
    """Neighboring nodes from `first` to `last`; mostly one."""

    first: Node
    last: Node

    @property
    def start(self) -> int:
        """Its first character."""
        return self.first.start

    @property
    def end(self) -> int:
        """The character after its last one."""
        return self.last.end

    @property
    def is_single(self) -> bool:
        """Whether it is one node."""
        return self.first is self.last

    @property
    def nodes(self) -> list[Node]:
        """Its nodes, tokens between them included."""
        if self.is_single or self.first.parent is None:
            return [self.first]
        return self.first.parent.children[self.first.index : self.last.index + 1]


class Change:
    """What becomes of one text."""

    def __init__(self, before: Tree, after: Tree) -> None:
        self.before, self.after = before, after
        self.sites = diff_trees(before, after)
        self._moved = [
            (self._left_of_blanks(site), self._right_of_blanks(site)) if site.is_insertion else (None, None)
            for site in self.sites
        ]

    @classmethod
    def between(cls, before: str, after: str, language: Language) -> "Change":
        """Parse both and compare them.

        DataError if a text cannot be parsed within the bounds of `parse`; also when more of a tree is looked at.
        """
        return cls(outline(before, language), outline(after, language))

    @cached_property
    def new_nodes(self) -> list[list[Node]]:
        """For each site, the named nodes of the text after that lie within its new text."""
        return [list(_iterate_named(self.after.root, site.new_start, site.new_end)) for site in self.sites]

    @property
    def language(self) -> Language:
        """The language of both texts."""
        return self.before.language

    @property
    def code_sites(self) -> list[Site]:
        """The sites that are more than blanks."""
        return [site for site in self.sites if not site.is_blank]

    @cached_property
    def bound(self) -> frozenset[str]:
        """The names that the text before binds."""
        return frozenset(bound_names(self.before))

    def inside(self, start: int, end: int) -> list[tuple[int, Site]] | None:
        """Return the sites within characters `start` to `end`, with their indices; None where one is cut in two.

        An insertion between blanks is the same at both ends of them: where nothing else is, one that can be moved to an
        edge is inside.
        """
        inside, movable = [], []
        for index, site in enumerate(self.sites):
            if start <= site.start and site.end <= end:
                inside.append((index, site))
            elif site.start < end and start < site.end:
                return None
            else:
                left, right = self._moved[index]
                if left is not None and left.start == end:
                    movable.append((index, left))
                elif right is not None and right.start == start:
                    movable.append((index, right))
        return sorted(inside or movable, key=lambda pair: pair[1].start)

    def _left_of_blanks(self, site: Site) -> Site | None:
        text, new = self.before.text, self.after.text
        start = len(text[: site.start].rstrip())
        blanks = text[start : site.start]
        if not blanks or new[site.new_start - len(blanks) : site.new_start] != blanks:
            return None
        trailing = site.text[len(site.text.rstrip()) :]
        if not site.text.endswith(blanks) and not ("\n" in blanks and "\n" in trailing):
            return None
        length = len(site.text) if site.text.endswith(blanks) else len(blanks) + len(site.text.rstrip())
        new_start = site.new_start - len(blanks)
        return Site(start, start, new_start, new_start + length, new[new_start : new_start + length], False)

    def _right_of_blanks(self, site: Site) -> Site | None:
        text, new = self.before.text, self.after.text
        start = site.start + len(text[site.start :]) - len(text[site.start :].lstrip())
        blanks = text[site.start : start]
        if not blanks or new[site.new_end : site.new_end + len(blanks)] != blanks:
            return None
        leading = site.text[: len(site.text) - len(site.text.lstrip())]
        if not site.text.startswith(blanks) and not ("\n" in blanks and "\n" in leading):
            return None
        skipped = len(blanks) if site.text.startswith(blanks) else len(leading)
        new_start, new_end = site.new_start + skipped, site.new_end + len(blanks)
        return Site(start, start, new_start, new_end, new[new_start:new_end], False)

    def regions(self, site: Site) -> Iterator[Region]:
        """Yield what a rule for `site` may match, best guesses first.

        The nodes that cover it, inside out; the nodes it consists of, one or a run; the neighbors of an insertion.
        """
        chain = self._covering(site)
        node = chain[-1]
        named = [child for child in node.children if child.is_named]
        inner = [child for child in named if site.start <= child.start and child.end <= site.end]
        beside = [child for child in named if child.end <= site.start][-1:]
        beside += [child for child in named if child.start >= site.end][:1]
        if inner and (len(inner) == 1 or is_sequence(node)):
            yield Region(inner[0], inner[-1])
        yield from self._find_deleted_run(site, chain)
        if not inner and is_sequence(node):
            yield from (Region(child, child) for child in beside)
        levels, span = 0, (-1, -1)
        for covering in reversed(chain):
            is_large = covering.end - covering.start > _MAX_REGION_CHARACTERS
            if covering.parent is None or is_large or levels == _MAX_LEVELS:
                break
            is_new = span != (covering.start, covering.end)
            # an expression that is a statement: the statement is what has neighbors
            if is_new or is_sequence(covering.parent):
                yield Region(covering, covering)
            levels += is_new
            span = covering.start, covering.end
        if not inner and not is_sequence(node):
            yield from (Region(child, child) for child in beside)
        if len(inner) > 1:
            yield from (Region(child, child) for child in inner)
        elif inner and inner[0].index + 1 < len(node.children):
            yield from (Region(child, child) for child in beside)

    def _find_deleted_run(self, site: Site, chain: Sequence[Node]) -> Iterator[Region]:
        """Yield the run of neighbors that go, if `site` is the deletion of the first of several."""
        node = next((covering for covering in chain if (covering.start, covering.end) == (site.start, site.end)), None)
        if site.text or node is None or node.parent is None:
            return
        end = site.start
        for other in self.sites[self.sites.index(site) :]:
            if other.text or other.start != end:
                break
            end = other.end
        last = [
            child for child in node.parent.children if child.is_named and node.start <= child.start and child.end <= end
        ]
        if len(last) > 1:
            yield Region(node, last[-1])

    def neighbors(self, site: Site) -> tuple[Node | None, Node | None]:
        """Return the nodes before and after `site`, named or not, if there is nothing else but blanks between them."""
        node = self._covering(site)[-1]
        left = next((child for child in reversed(node.children) if child.end <= site.start), None)
        right = next((child for child in node.children if child.start >= site.end), None)
        start, end = left.end if left else node.start, right.start if right else node.end
        return (None, None) if self.before.text[start:end].strip() else (left, right)

    def _covering(self, site: Site) -> list[Node]:
        node, chain = self.before.root, [self.before.root]
        while (inner := _covering_child(node, site)) is not None:
            node = inner
            chain.append(node)
        return chain


def bound_names(tree: Tree) -> Iterator[str]:
    """Yield the names that `tree` binds: parameters, assignments, loops, exception handlers."""
    for node in tree.root.walk():
        if not _BINDING.search(node.kind):
            continue
        for child in node.children or [node]:
            if tree.of(child) in ("=", "in", ":", "of"):
                break
            yield from (
                tree.of(leaf) for leaf in child.walk() if leaf.kind.endswith(("identifier", "identifier_pattern"))
            )


def column(text: str, offset: int) -> int:
    """Return the number of blanks that the line of character `offset` starts with."""
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    return len(line) - len(line.lstrip(" "))


def dedent(text: str, indent: int) -> str:
    """Return `text` with its lines but the first moved left: ast-grep moves them right by the column of the match."""
    return re.sub(rf"\n {{{indent}}}", "\n", text) if indent else text


def _covering_child(node: Node, site: Site) -> Node | None:
    for child in node.children:
        is_at_edge = site.start == site.end and site.start in (child.start, child.end)
        if child.start <= site.start and site.end <= child.end and child.start < child.end and not is_at_edge:
            return child
    return None


def _iterate_named(node: Node, start: int, end: int) -> Iterator[Node]:
    if node.is_named and start <= node.start and node.end <= end:
        yield node
    for child in node.children if node.end > start and node.start < end else ():
        if child.end > start and child.start < end:
            yield from _iterate_named(child, start, end)
