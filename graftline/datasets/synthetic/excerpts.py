"""Parts of long texts that can stand alone: for models that are trained on little code at a time."""

from collections.abc import Iterator, Sequence
from textwrap import dedent

from graftline.astgrep.binding import Language, Node, Tree, parse
from graftline.core.errors import DataError
from graftline.datasets.edit import Edit
from graftline.datasets.language import is_clean

_LEAST_CHARACTERS = 24
STATEMENTS = frozenset({"module", "program", "block", "statement_block", "class_body", "constructor_body"})
"""Nodes whose children are statements, in the grammars of all languages."""


def split_into_excerpts(edits: Sequence[Edit], language: Language, most_characters: int) -> list[Edit]:
    """Return edits whose texts before have at most so many characters: those of `edits`, in runs of whole statements.

    An excerpt is named after its edit and where it starts. It parses, and its lines are moved to the left. Of a statement that
    is too long, and of what does not parse by itself, such as a method without its class, the statements inside are taken;
    where it has none, it is left out. The texts after are not those of an excerpt: what is made of it is made by templates.
    """
    excerpts = []
    for edit in edits:
        if len(edit.pre) <= most_characters:
            excerpts.append(edit)
            continue
        try:
            tree = parse(edit.pre, language)
            parts = list(_excerpts(tree, tree.root, most_characters))
        except DataError:  # nested deeper than ast-grep may be asked to go
            continue
        excerpts += [edit.model_copy(update={"id": f"{edit.id}/{start}", "pre": text}) for start, text in parts]
    return excerpts


def _excerpts(tree: Tree, node: Node, most: int) -> Iterator[tuple[int, str]]:
    """Yield the excerpts below `node`, each with where it starts."""
    if node.kind not in STATEMENTS:
        for child in node.children:
            yield from _excerpts(tree, child, most)
        return
    run: list[Node] = []
    for child in node.children:
        if not child.is_named:
            continue
        if run and len(_text_of_run(tree, run[0], child)) > most:
            yield from _excerpt(tree, run, most)
            run = []
        if len(_text_of_run(tree, child, child)) <= most:
            run.append(child)
        else:
            yield from _excerpts(tree, child, most)
    yield from _excerpt(tree, run, most)


def _excerpt(tree: Tree, run: Sequence[Node], most: int) -> Iterator[tuple[int, str]]:
    if not run or len(text := _text_of_run(tree, run[0], run[-1])) < _LEAST_CHARACTERS:
        return
    if is_clean(text + "\n", tree.language):
        yield run[0].start, text + "\n"
        return
    for node in run:
        yield from _excerpts(tree, node, most)


def _text_of_run(tree: Tree, first: Node, last: Node) -> str:
    return dedent(tree.text[line_start(tree, first) : last.end])


def line_start(tree: Tree, node: Node) -> int:
    """Return where the line of `node` starts, or `node` itself where something else stands before it."""
    start = tree.text.rfind("\n", 0, node.start) + 1
    return node.start if tree.text[start : node.start].strip() else start
