"""Parts of long texts that can stand alone: for models that are trained on little code at a time."""

from collections.abc import Iterator, Sequence
from textwrap import dedent

from graftline.astgrep.binding import Language, Node, Tree, parse
from graftline.core.errors import DataError
from graftline.datasets.edit import Edit
from graftline.datasets.syntax import is_clean

_LEAST_CHARACTERS = 24
STATEMENTS = frozenset({"module", "program", "block", "statement_block", "class_body", "constructor_body"})
"""Nodes whose children are statements, in the grammars of all languages."""


def in_pieces(edits: Sequence[Edit], language: Language, most_characters: int) -> list[Edit]:
    """Return edits whose texts before have at most so many characters: those of `edits`, in runs of whole statements.

    A piece is named after its edit and where it starts. It parses, and its lines are moved to the left. Of a statement that
    is too long, and of what does not parse by itself, such as a method without its class, the statements inside are taken;
    where it has none, it is left out. The texts after are not those of a piece: what is made of it is made by templates.
    """
    found = []
    for edit in edits:
        if len(edit.pre) <= most_characters:
            found.append(edit)
            continue
        try:
            tree = parse(edit.pre, language)
            pieces = list(_pieces(tree, tree.root, most_characters))
        except DataError:  # nested deeper than ast-grep may be asked to go
            continue
        found += [edit.model_copy(update={"id": f"{edit.id}/{start}", "pre": text}) for start, text in pieces]
    return found


def _pieces(tree: Tree, node: Node, most: int) -> Iterator[tuple[int, str]]:
    """Yield the pieces below `node`, each with where it starts."""
    if node.kind not in STATEMENTS:
        for child in node.children:
            yield from _pieces(tree, child, most)
        return
    run: list[Node] = []
    for child in node.children:
        if not child.is_named:
            continue
        if run and len(_text(tree, run[0], child)) > most:
            yield from _piece(tree, run, most)
            run = []
        if len(_text(tree, child, child)) <= most:
            run.append(child)
        else:
            yield from _pieces(tree, child, most)
    yield from _piece(tree, run, most)


def _piece(tree: Tree, run: Sequence[Node], most: int) -> Iterator[tuple[int, str]]:
    if not run or len(text := _text(tree, run[0], run[-1])) < _LEAST_CHARACTERS:
        return
    if is_clean(text + "\n", tree.language):
        yield run[0].start, text + "\n"
        return
    for node in run:
        yield from _pieces(tree, node, most)


def _text(tree: Tree, first: Node, last: Node) -> str:
    start = tree.text.rfind("\n", 0, first.start) + 1
    if tree.text[start : first.start].strip():
        start = first.start
    return dedent(tree.text[start : last.end])
