"""The functions of a file, by qualified name.

A function has a name of its own or is the value of a key: declarations, methods, constructors, named function
expressions, `key: function () {}` and `key: (…) => …`. Lambdas and functions that are only assigned to a variable have
no name of their own and are part of the function round them. Of a Python function the decorators are part, of a Java
method the annotations; a Java method need not have a body.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from textwrap import dedent

from graftline.astgrep.binding import Language, Node, Tree, parse
from graftline.core.errors import DataError

_JAVASCRIPT_FUNCTIONS = (
    *("function_declaration", "generator_function_declaration", "function_expression", "generator_function"),
    *("method_definition", "pair"),
)
_FUNCTIONS: Mapping[Language, tuple[str, ...]] = {
    "python": ("function_definition",),
    "javascript": _JAVASCRIPT_FUNCTIONS,
    "typescript": _JAVASCRIPT_FUNCTIONS,
    "tsx": _JAVASCRIPT_FUNCTIONS,
    "java": ("method_declaration", "constructor_declaration", "compact_constructor_declaration"),
}
_TYPES: Mapping[Language, tuple[str, ...]] = {
    "python": ("class_definition",),
    "javascript": ("class_declaration",),
    "typescript": ("class_declaration", "abstract_class_declaration", "internal_module"),
    "tsx": ("class_declaration", "abstract_class_declaration", "internal_module"),
    "java": (
        *("class_declaration", "interface_declaration", "enum_declaration", "record_declaration"),
        "annotation_type_declaration",
    ),
}
_FUNCTION_VALUES = ("function_expression", "generator_function", "arrow_function")


@dataclass(frozen=True, slots=True)
class Function:
    """A function as it stands in its file."""

    qualified_name: str
    """Names of the types and functions round it and its own, joined by dots."""
    text: str
    """Whole, and as far to the left as it goes; a Python one ends with a line break, as its file would."""


def functions_in(text: str, language: Language) -> list[Function]:
    """Return the functions of a file in the order of the text, outer ones before those in them.

    Raises:
        DataError: the parser does not understand all of `text`, or it is larger or nested deeper than is safe.
    """
    tree = parse(text, language)
    if not tree.is_clean:
        raise DataError(f"source is not {language} that the parser understands")
    return list(_below(tree, tree.root, ()))


def _below(tree: Tree, node: Node, scope: tuple[str, ...]) -> Iterator[Function]:
    is_function = node.kind in _FUNCTIONS[tree.language] and _is_function(node)
    if (is_function or node.kind in _TYPES[tree.language]) and (name := _name(tree, node)):
        scope = (*scope, name)
        if is_function:
            yield Function(".".join(scope), _text(tree, node))
    for child in node.children:
        yield from _below(tree, child, scope)


def _is_function(node: Node) -> bool:
    value = node.handle.field("value") if node.kind == "pair" else None
    return node.kind != "pair" or (value is not None and value.kind() in _FUNCTION_VALUES)


def _name(tree: Tree, node: Node) -> str:
    named = node.handle.field("key" if node.kind == "pair" else "name")
    # a named function that is the value of a key is that key's
    is_value = node.parent is not None and node.parent.kind == "pair" and node.kind in _FUNCTION_VALUES
    return "" if named is None or is_value else named.text()


def _text(tree: Tree, node: Node) -> str:
    whole = node.parent if node.parent is not None and node.parent.kind == "decorated_definition" else node
    line = tree.text[tree.text.rfind("\n", 0, whole.start) + 1 : whole.start]
    margin = line[: len(line) - len(line.lstrip())]
    return dedent(margin + tree.of(whole)) + ("\n" if tree.language == "python" else "")
