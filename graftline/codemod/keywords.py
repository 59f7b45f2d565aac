"""Words that say nothing of one program, by language: the reserved ones, and those that stand for a value everywhere.

Sources: the Python reference, 2.3.1; ECMA-262, 12.7.2; TypeScript's scanner; the Java Language Specification, 3.9.
Words that are reserved in some places only (`get`, `match`, `of` and the like) are here where they are hardly ever the
name of something.
"""

from collections.abc import Mapping

from graftline.astgrep.binding import Language

_JAVASCRIPT = frozenset({
    "await", "break", "case", "catch", "class", "const", "continue", "debugger", "default", "delete", "do", "else",
    "enum", "export", "extends", "false", "finally", "for", "function", "if", "import", "in", "instanceof", "new",
    "null", "return", "super", "switch", "this", "throw", "true", "try", "typeof", "var", "void", "while", "with",
    "yield",
    # in strict mode
    "implements", "interface", "let", "package", "private", "protected", "public", "static",
    # in some places
    "async", "constructor", "of", "undefined",
})  # fmt: skip
_TYPESCRIPT = _JAVASCRIPT | {"abstract", "as", "boolean", "is", "type"}

KEYWORDS: Mapping[Language, frozenset[str]] = {
    "python": frozenset({
        "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
        "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda",
        "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
        # by custom
        "cls", "self",
    }),
    "javascript": _JAVASCRIPT,
    "typescript": _TYPESCRIPT,
    "tsx": _TYPESCRIPT,
    "java": frozenset({
        "abstract", "assert", "boolean", "break", "byte", "case", "catch", "char", "class", "const", "continue",
        "default", "do", "double", "else", "enum", "extends", "false", "final", "finally", "float", "for", "goto",
        "if", "implements", "import", "instanceof", "int", "interface", "long", "native", "new", "null", "package",
        "private", "protected", "public", "return", "short", "static", "strictfp", "super", "switch", "synchronized",
        "this", "throw", "throws", "transient", "true", "try", "void", "volatile", "while",
        # in some places
        "var", "yield",
    }),
}  # fmt: skip
