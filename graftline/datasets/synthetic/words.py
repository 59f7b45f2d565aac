"""What other code has that a rewrite or a text may be put together of."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from graftline.astgrep.binding import Language, Tree, parse
from graftline.core.errors import DataError
from graftline.datasets.edit import Edit
from graftline.datasets.synthetic.frames import Frame, frames_in
from graftline.datasets.synthetic.holes import ARGUMENTS, CALLS, READS

_NUMBERS = frozenset({"integer", "number", "decimal_integer_literal"})
_NOT_ARGUMENTS = frozenset({
    "keyword_argument", "spread_element", "list_splat", "dictionary_splat", "comment", "line_comment", "arrow_function",
    "lambda_expression", "generator_expression",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Words:
    """What other code has: names that are called, other names, numbers, and short arguments; at least one of each."""

    called: Sequence[str]
    names: Sequence[str]
    numbers: Sequence[str]
    arguments: Sequence[str]
    frames: Sequence[Frame] = ()
    """Statements in which an expression can stand, as often as the code has them."""


def read_tree(edit: Edit, language: Language) -> Tree | None:
    """Return the tree of the text before of `edit`; None where it does not parse as `language`."""
    try:
        tree = parse(edit.pre, language)
    except DataError:  # nested deeper than ast-grep may be asked to go
        return None
    return tree if tree.is_clean else None


def words_in(trees: Iterable[Tree]) -> Words:
    """Return the words of some code."""
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
    return Words(sorted(called), sorted(names), sorted(numbers), sorted(arguments), frames)
