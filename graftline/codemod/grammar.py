"""What is known of each language: its keywords, and where a piece of code that is no program by itself can stand.

Keywords are the reserved words and those that stand for a value everywhere. Sources: the Python reference, 2.3.1; ECMA-262,
12.7.2; TypeScript's scanner; the Java Language Specification, 3.9. Words that are reserved in some places only (`get`,
`match`, `of` and the like) are here where they are hardly ever the name of something.
"""

from collections.abc import Mapping

from graftline.astgrep.binding import Language

_JAVASCRIPT_KEYWORDS = frozenset({
    "await", "break", "case", "catch", "class", "const", "continue", "debugger", "default", "delete", "do", "else",
    "enum", "export", "extends", "false", "finally", "for", "function", "if", "import", "in", "instanceof", "new",
    "null", "return", "super", "switch", "this", "throw", "true", "try", "typeof", "var", "void", "while", "with",
    "yield",
    # in strict mode
    "implements", "interface", "let", "package", "private", "protected", "public", "static",
    # in some places
    "async", "constructor", "of", "undefined",
})  # fmt: skip
_TYPESCRIPT_KEYWORDS = _JAVASCRIPT_KEYWORDS | {"abstract", "as", "boolean", "is", "type"}

KEYWORDS: Mapping[Language, frozenset[str]] = {
    "python": frozenset({
        "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
        "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda",
        "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
        # by custom
        "cls", "self",
    }),
    "javascript": _JAVASCRIPT_KEYWORDS,
    "typescript": _TYPESCRIPT_KEYWORDS,
    "tsx": _TYPESCRIPT_KEYWORDS,
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


def _contexts(*lines: tuple[str, str]) -> dict[str, str]:
    return {kind: context for context, kinds in lines for kind in kinds.split()}


_JAVASCRIPT_CONTEXTS = _contexts(
    ("f@", "arguments"),
    ("(@)", "arrow_function function_expression object ternary_expression"),
    ("async () => @", "await_expression"),
    ("try {} @", "catch_clause finally_clause"),
    ("class A @", "class_body"),
    ("if (x) {} @", "else_clause"),
    ("export @", "export_clause"),
    ("export { @ }", "export_specifier"),
    ("class A { @ }", "field_definition method_definition public_field_definition"),
    ("function f@ {}", "formal_parameters"),
    ('import @ from "m"', "import_clause named_imports"),
    ('import { @ } from "m"', "import_specifier"),
    ("<a @ />", "jsx_attribute"),
    ("let @ = x", "object_pattern"),
    ("function f(@) {}", "optional_parameter required_parameter"),
    ("({@})", "pair shorthand_property_identifier"),
    ("let {@} = x", "pair_pattern shorthand_property_identifier_pattern"),
    ("if @ {}", "parenthesized_expression"),
    ("a.@", "property_identifier"),
    ("f(@)", "spread_element"),
    ("function f() @", "statement_block"),
    ('"@"', "string_fragment"),
    ("switch (x) { @ }", "switch_case switch_default"),
    ("let x@", "type_annotation"),
    ("let x: A@", "type_arguments"),
    ("let x: @", "type_identifier"),
    ("let @", "variable_declarator"),
)
CONTEXTS: Mapping[Language, Mapping[str, str]] = {
    "python": _contexts(
        ("import @", "aliased_import dotted_name"),
        ("f@", "argument_list"),
        ("match x:\n    @", "case_clause"),
        ("@\ndef f(): pass", "decorator"),
        ("def f(@): pass", "default_parameter typed_default_parameter typed_parameter"),
        ("if x: pass\n@", "elif_clause else_clause"),
        ("try:\n    pass\n@", "except_clause"),
        ("try: pass\n@", "finally_clause"),
        ("[x @]", "for_in_clause"),
        ("[x for x in y @]", "if_clause"),
        ('f"@"', "interpolation"),
        ("f(@)", "keyword_argument"),
        ("f(*@)", "list_splat"),
        ("{@}", "pair"),
        ("def f@: pass", "parameters"),
        ("x: @", "type"),
        ("with @: pass", "with_clause with_item"),
    ),
    "javascript": _JAVASCRIPT_CONTEXTS,
    "typescript": _JAVASCRIPT_CONTEXTS,
    "tsx": _JAVASCRIPT_CONTEXTS,
    "java": _contexts(
        ("@ class A {}", "annotation marker_annotation modifiers"),
        ("f@;", "argument_list"),
        ("@ x;", "array_type generic_type scoped_type_identifier type_identifier"),
        ("@;", "assignment_expression"),
        (
            "Object x = @;",
            "binary_expression cast_expression class_literal field_access identifier instanceof_expression"
            " lambda_expression method_invocation method_reference object_creation_expression"
            " parenthesized_expression string_literal ternary_expression unary_expression",
        ),
        ("class A { void f() @ }", "block"),
        ("try {} @", "catch_clause"),
        ("class A @", "class_body"),
        ("class A { @ }", "constructor_declaration field_declaration method_declaration"),
        ("class A { void f(@) {} }", "formal_parameter"),
        ("class A { void f@ {} }", "formal_parameters"),
        ("class A { void f() @ {} }", "throws"),
        ("A@ x;", "type_arguments"),
        ("int @;", "variable_declarator"),
    ),
}
"""By the kind of a node, code in which it parses as such; `@` is its place. Used as `pattern: {context: …, selector: <kind>}`."""
