"""Short texts in which a pattern matches: its metavariables filled from other code, in statements of other code.

They show several places that differ, as people show an example, and hold an action to code that it was not made from.
"""

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import dedent
from typing import NamedTuple

from graftline.astgrep.binding import Language, Node, Tree, parse
from graftline.core.errors import DataError
from graftline.datasets.edit import Edit
from graftline.datasets.synthetic.excerpts import STATEMENTS, line_start
from graftline.datasets.synthetic.patterns import ARGUMENTS, CALLS, READS

_FREE = re.compile(r"\$\$\$[A-Z]+|\$[A-Z]+")
_STATEMENT = re.compile(r"(?:return|raise|throw|assert|const|let|var|if|final|with)\b|.*;$", re.DOTALL)
_BESIDE: Mapping[Language, Sequence[str]] = {
    "python": (" or ", " and ", ", "),
    "javascript": (" || ", " && ", ", "),
    "typescript": (" || ", " && ", ", "),
    "tsx": (" || ", " && ", ", "),
    "java": (" || ", " && "),
}
"""What stands between two places in a statement."""
_ON_ONE_LINE, _IN_LIKE_STATEMENTS = 0.2, 0.5
_SEVERAL = (0, 1, 2, 3)
"""How many nodes a metavariable of any number stands for; there are as many sites at most."""
_LONGEST_FRAME = 60
_ANY_CHILD = frozenset({*ARGUMENTS, "return_statement", "parenthesized_expression", "expression_statement"})
_LAST_CHILD = frozenset({"assignment", "assignment_expression", "variable_declarator"})
_FIRST_CHILD = frozenset({"if_statement", "while_statement"})
_NO_EXPRESSIONS = frozenset({
    "keyword_argument", "spread_element", "list_splat", "dictionary_splat", "parenthesized_expression", "assignment",
    "assignment_expression", "augmented_assignment", "comment", "line_comment", "block_comment", "string",
})  # fmt: skip
_GAP = "\0"
"""No text of an edit has it."""
_NUMBERS = frozenset({"integer", "number", "decimal_integer_literal"})
_NOT_ARGUMENTS = frozenset({
    "keyword_argument", "spread_element", "list_splat", "dictionary_splat", "comment", "line_comment", "arrow_function",
    "lambda_expression", "generator_expression",
})  # fmt: skip


class Frame(NamedTuple):
    """What stands before the expression, and after it."""

    before: str
    after: str

    def around(self, expression: str) -> str:
        """Return the statement with `expression` in it."""
        return f"{self.before}{expression}{self.after}"


BARE = Frame("", "")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What other code has: names that are called, other names, numbers, and short arguments; at least one of each."""

    called: Sequence[str]
    names: Sequence[str]
    numbers: Sequence[str]
    arguments: Sequence[str]
    frames: Sequence[Frame] = ()
    """Statements in which an expression can stand, as often as the code has them."""


def parse_clean(edit: Edit, language: Language) -> Tree | None:
    """Return the tree of the text before of `edit`; None where it does not parse as `language`."""
    try:
        tree = parse(edit.pre, language)
    except DataError:  # nested deeper than ast-grep may be asked to go
        return None
    return tree if tree.is_clean else None


def collect_vocabulary(trees: Iterable[Tree]) -> Vocabulary:
    """Return what some code has."""
    called, names, numbers, arguments = {"apply"}, {"item"}, {"1"}, {"value"}
    frames: list[Frame] = []
    for tree in trees:
        frames += frames_in(tree)
        for node in tree.root.walk():
            text, parent = tree.of(node), node.parent.kind if node.parent else ""
            if node.kind in ("identifier", "property_identifier") and len(text) <= 18:
                (called if parent in CALLS | READS else names).add(text)
            elif node.kind in _NUMBERS and len(text) <= 3:
                numbers.add(text)
            if node.is_named and parent in ARGUMENTS and node.kind not in _NOT_ARGUMENTS and len(text) <= 22:
                arguments.update({text} if "\n" not in text else ())
    return Vocabulary(sorted(called), sorted(names), sorted(numbers), sorted(arguments), frames)


def frames_in(tree: Tree) -> Iterator[Frame]:
    """Yield the frames of all short statements of some code, those that stand there several times as often."""
    for statement in tree.root.walk():
        if not statement.is_named or statement.parent is None or statement.parent.kind not in STATEMENTS:
            continue
        if statement.end - statement.start <= _LONGEST_FRAME:
            yield from (_frame(tree, statement, node) for node in statement.walk() if _is_place(node))


def _is_place(node: Node) -> bool:
    parent = node.parent
    if parent is None or not node.is_named or node.kind in _NO_EXPRESSIONS:
        return False
    named = [child.index for child in parent.children if child.is_named]
    return (
        parent.kind in _ANY_CHILD
        or (parent.kind in _LAST_CHILD and len(named) > 1 and node.index == named[-1])
        or (parent.kind in _FIRST_CHILD and node.index == named[0])
    )


def _frame(tree: Tree, statement: Node, node: Node) -> Frame:
    start = line_start(tree, statement)
    text = dedent(f"{tree.text[start : node.start]}{_GAP}{tree.text[node.end : statement.end]}")
    before, _, after = text.partition(_GAP)
    return Frame(before, after)


def fill_pattern(
    pattern: str, is_statement: bool, language: Language, sites: int, vocabulary: Vocabulary, rng: random.Random
) -> str | None:
    """Return a text of so many `sites` of `pattern`, each filled otherwise; None where nothing in it is free."""
    free = sorted(metavariables(pattern))
    if not free:
        return None
    texts = [_fill(pattern, free, counts, vocabulary, rng) for counts in _counts(free, sites, rng)]
    if is_statement or _STATEMENT.match(pattern) or not vocabulary.frames:
        frames = [BARE] * sites
    elif sites > 1 and rng.random() < _ON_ONE_LINE:
        texts, frames = [rng.choice(_BESIDE[language]).join(texts)], [rng.choice(vocabulary.frames)]
    else:
        frames = _choose_frames(vocabulary.frames, sites, rng)
    statements = [frame.around(text) for frame, text in zip(frames, texts, strict=True)]
    return _between(statements, rng).join(statements) + "\n"


def metavariables(pattern: str) -> frozenset[str]:
    """Return the metavariables of a pattern or a rewrite, each with its signs."""
    return frozenset(_FREE.findall(pattern))


def _choose_frames(frames: Sequence[Frame], sites: int, rng: random.Random) -> list[Frame]:
    if rng.random() < _IN_LIKE_STATEMENTS:
        return [rng.choice(frames)] * sites
    return [rng.choice(frames) for _ in range(sites)]


def _between(statements: Sequence[str], rng: random.Random) -> str:
    """Return what parts statements: some of those that say themselves where they end stand on one line."""
    are_short = all(text.endswith((";", "}")) and "\n" not in text for text in statements)
    return " " if are_short and rng.random() < _ON_ONE_LINE else "\n"


def _counts(free: Sequence[str], sites: int, rng: random.Random) -> Iterator[Sequence[int]]:
    """Yield how many nodes each metavariable stands for at each site.

    Where one stands for any number, no two sites have as many, or they would look like those of one that stands for a node.
    """
    several = {name: rng.sample(_SEVERAL, sites) for name in free if name.startswith("$$$")}
    for site in range(sites):
        yield [several[name][site] if name in several else 1 for name in free]


def _fill(pattern: str, free: Sequence[str], counts: Sequence[int], vocabulary: Vocabulary, rng: random.Random) -> str:
    values = {name: _nodes(count, vocabulary, rng) for name, count in zip(free, counts, strict=True)}
    return _FREE.sub(lambda match: values[match[0]], pattern)


def _nodes(count: int, vocabulary: Vocabulary, rng: random.Random) -> str:
    return ", ".join(rng.choice(rng.choice((vocabulary.arguments, vocabulary.names))) for _ in range(count))
