"""Families about expressions: operators, literals, types and annotations, and two ways to say the same."""

from typing import Any

from graftline.astgrep.action import PatternAction
from graftline.astgrep.binding import Language
from graftline.datasets.synthetic.family import (
    ALL,
    JAVA,
    JAVASCRIPT,
    PYTHON,
    TYPESCRIPT,
    Family,
    Form,
    one_way,
    rule,
    there_and_back,
)

_C_LIKE = (*JAVASCRIPT, *JAVA)


def _comparison(before: str, after: str) -> tuple[Form, ...]:
    """Return the forms of two comparisons; alone, Java takes what stands before `<` for a type with arguments."""
    there, back = (
        PatternAction(pattern=f"if ({pattern}) {{}}", rewrite=rewrite, selector="binary_expression")
        for pattern, rewrite in ((before, after), (after, before))
    )
    return there_and_back((*PYTHON, *JAVASCRIPT), before, after), Form(JAVA, (there,), (back,))


def _flag(languages: tuple[Language, ...], value: str, on: str, off: str, context: str, selector: str) -> Form:
    """Return the form that turns `value` from `on` to `off`; `context` is where it parses as what it is."""
    lit, dark = f"{value}{on}", f"{value}{off}"
    return Form(
        languages,
        (PatternAction(pattern=context.replace("@", lit), rewrite=dark, selector=selector),),
        (PatternAction(pattern=context.replace("@", dark), rewrite=lit, selector=selector),),
    )


OPERATORS: tuple[Family, ...] = (
    Family("less_to_greater", "operator", _comparison("$A < $B", "$B > $A"), inverse="greater_to_less"),
    Family("include_bound", "operator", _comparison("$A < $B", "$A <= $B"), inverse="exclude_bound"),
    Family("include_lower_bound", "operator", _comparison("$A > $B", "$A >= $B"), inverse="exclude_lower_bound"),
    Family("equal_to_unequal", "operator", (there_and_back((*PYTHON, *_C_LIKE), "$A == $B", "$A != $B"),),
        inverse="unequal_to_equal"),
    Family("and_to_or", "operator",
        (there_and_back(PYTHON, "$A and $B", "$A or $B"), there_and_back(_C_LIKE, "$A && $B", "$A || $B")),
        inverse="or_to_and"),
    Family("plus_to_minus", "operator", (there_and_back(ALL, "$A + $B", "$A - $B"),), inverse="minus_to_plus"),
    Family("distribute_not", "operator", (
            there_and_back(PYTHON, "not ($A and $B)", "not $A or not $B"),
            there_and_back(_C_LIKE, "!($A && $B)", "!($A) || !($B)"),
        ), inverse="collect_not"),
    Family("assign_in_place", "operator", (there_and_back(ALL, "$X = $X + $Y", "$X += $Y"),), inverse="assign_sum"),
    Family("increment", "operator", (there_and_back(_C_LIKE, "$X++", "$X += 1"),), inverse="add_one"),
    Family("swap_equality", "operator", (
            there_and_back((*PYTHON, *JAVA), "$A == {name}", "{name} == $A"),
            there_and_back(JAVASCRIPT, "$A === {name}", "{name} === $A"),
        ), "variable", inverse="swap_equality_back"),
    Family("strict_to_loose", "operator", (there_and_back(JAVASCRIPT, "$A === $B", "$A == $B"),),
        inverse="loose_to_strict"),
    Family("loose_unequal_to_strict", "operator", (there_and_back(JAVASCRIPT, "$A != $B", "$A !== $B"),),
        inverse="strict_unequal_to_loose"),
    Family("flip_flag", "literal", (
            _flag(PYTHON, "{name}=", "True", "False", "f(@)", "keyword_argument"),
            _flag(JAVASCRIPT, "{name}: ", "true", "false", "({ @ })", "pair"),
        ), "keyword", fits=lambda site: site.key == "true", inverse="flag_on"),
    Family("optional_or_nullish", "operator", (there_and_back(JAVASCRIPT, "$A || $B", "$A ?? $B"),),
        inverse="nullish_to_or"),
    Family("negate_return", "operator", (
            there_and_back(PYTHON, "return {name}($$$A)", "return not {name}($$$A)"),
            there_and_back(_C_LIKE, "return {name}($$$A);", "return !{name}($$$A);"),
        ), "function", inverse="affirm_return"),
    Family("multiply_to_divide", "operator", (one_way(ALL, "$A * $B", "$A / $B"),)),
)  # fmt: skip


_FUNCTION: dict[str, Any] = {"kind": "function_definition", "has": {"field": "name", "regex": "^{name}$"}}


def _prefix(languages: tuple[Language, ...], kind: str, prefix: str, taken_off: str) -> Form:
    """Return the form that writes `prefix` before the definition of `{name}`, and takes it off by the regex `taken_off`."""
    own: dict[str, Any] = {"kind": kind, "has": {"field": "name", "regex": "^{name}$"}}
    there = rule(f"{prefix}$D", pattern="$D", **own, **_unless({"regex": taken_off}))
    without = {"REST": {"replace": {"source": "$D", "replace": taken_off, "by": ""}}}
    back = rule("$REST", without, pattern="$D", **own, regex=taken_off)
    return Form(languages, (there,), (back,))


def _unless(condition: dict[str, Any]) -> dict[str, Any]:
    return {"not": condition}


TYPES: tuple[Family, ...] = (
    Family("optional_to_union", "type",
        (Form(PYTHON, (rule("$T | None", pattern={"context": "x: Optional[$T]", "selector": "generic_type"}),),
              (rule("Optional[$T]", kind="binary_operator", pattern="$T | None"),)),), inverse="union_to_optional"),
    Family("builtin_generic", "type",
        (Form(PYTHON, (rule("list[$T]", pattern={"context": "x: List[$T]", "selector": "generic_type"}),),
              (rule("List[$T]", pattern={"context": "x: list[$T]", "selector": "generic_type"}),)),),
        inverse="typing_generic"),
    Family("builtin_dict_generic", "type",
        (Form(PYTHON, (rule("dict[$K, $V]", pattern={"context": "x: Dict[$K, $V]", "selector": "generic_type"}),),
              (rule("Dict[$K, $V]", pattern={"context": "x: dict[$K, $V]", "selector": "generic_type"}),)),),
        inverse="typing_dict_generic"),
    Family("array_shorthand", "type",
        (Form(TYPESCRIPT, (rule("$T[]", pattern={"context": "let x: Array<$T>", "selector": "generic_type"}),),
              (rule("Array<$T>", pattern={"context": "let x: $T[]", "selector": "array_type"}),)),),
        inverse="array_generic"),
    Family("replace_type", "type", (
            Form(JAVA, (rule("{new}", kind="type_identifier", regex="^{name}$", **_unless({"inside": {"kind": "object_creation_expression"}})),)),
            Form(TYPESCRIPT, (rule("{new}", kind="type_identifier", regex="^{name}$"),)),
            Form(PYTHON, (rule("{new}", kind="identifier", regex="^{name}$", inside={"kind": "type"}),)),
        ), "type", "class"),
    Family("unknown_for_any", "type", (Form(TYPESCRIPT, (rule("unknown", kind="predefined_type", regex="^any$"),),
              (rule("any", kind="predefined_type", regex="^unknown$"),)),), inverse="any_for_unknown"),
    Family("diamond", "type", (there_and_back(JAVA, "new {name}<{key}>($$$A)", "new {name}<>($$$A)"),), "class",
        fits=lambda site: bool(site.key) and site.key != "constructed", inverse="type_arguments"),
    Family("add_decorator", "annotation", (
            Form(
                PYTHON, (rule("@{new}\n$D", pattern="$D", **_FUNCTION, **_unless({"inside": {"kind": "decorated_definition"}})),),
                (rule("$D", kind="decorated_definition", all=[
                    {"has": {"kind": "decorator", "regex": "^@{new}$"}},
                    {"has": {"field": "definition", "pattern": "$D", **_FUNCTION}},
                ]),),
            ),
        ), "definition", "decorator", inverse="remove_decorator"),
    Family("rename_decorator", "annotation", (
            Form(PYTHON, (rule("@{new}", kind="decorator", regex="^@{name}$"),)),
            Form(TYPESCRIPT, (rule("@{new}($$$A)", pattern={"context": "class A { @{name}($$$A) f() {} }", "selector": "decorator"}),)),
            Form(JAVA, (rule("@{new}", kind="marker_annotation", regex="^@{name}$"),)),
        ), "decorator", "decorator"),
    Family("add_annotation", "annotation", (_prefix(JAVA, "method_declaration", "@{new}\n", "^@{new}\\s+"),),
        "definition", "decorator", inverse="remove_annotation"),
    Family("make_async", "annotation", (
            _prefix(PYTHON, "function_definition", "async ", "^async\\s+"),
            _prefix(JAVASCRIPT, "function_declaration", "async ", "^async\\s+"),
        ), "definition", inverse="make_synchronous"),
    Family("async_method", "annotation", (_prefix(JAVASCRIPT, "method_definition", "async ", "^async\\s+"),),
        "definition", inverse="synchronous_method"),
    Family("export_function", "annotation",
        (Form(JAVASCRIPT, (rule("export $D", pattern="$D", kind="function_declaration", has={"field": "name", "regex": "^{name}$"}, inside={"kind": "program"}),),
              (rule("$D", kind="export_statement", has={"field": "declaration", "pattern": "$D", "has": {"field": "name", "regex": "^{name}$"}}),)),),
        "definition", inverse="unexport_function"),
    Family("protected_method", "annotation",
        (Form(JAVA, (rule("$REST", {"REST": {"replace": {"source": "$M", "replace": "\\bprivate\\b", "by": "protected"}}},
                          pattern="$M", kind="modifiers", regex="\\bprivate\\b", inside={"kind": "method_declaration"}),),
              (rule("$REST", {"REST": {"replace": {"source": "$M", "replace": "\\bprotected\\b", "by": "private"}}},
                    pattern="$M", kind="modifiers", regex="\\bprotected\\b", inside={"kind": "method_declaration"}),)),),
        inverse="narrow_method"),
    Family("cast_type", "type",
        (one_way(JAVA, "({name}) $E", "({new}) $E"), one_way(TYPESCRIPT, "$E as {name}", "$E as {new}")), "type",
        "class"),
)  # fmt: skip


def _idiom(languages: tuple[Language, ...], id: str, inverse: str, there: tuple[str, str]) -> Family:
    return Family(id, "idiom", (there_and_back(languages, *there),), inverse=inverse)


_OF_PYTHON: tuple[Family, ...] = (
    _idiom(PYTHON, "none_by_equality", "none_by_identity", ("$A is None", "$A == None")),
    _idiom(PYTHON, "not_none_by_equality", "not_none_by_identity", ("$A is not None", "$A != None")),
    _idiom(PYTHON, "get_item", "subscript_item", ("$D[$K]", "$D.get($K)")),
    _idiom(PYTHON, "not_in", "not_before_in", ("not $A in $B", "$A not in $B")),
    _idiom(PYTHON, "length_is_zero", "falsy_is_empty", ("len($A) == 0", "not $A")),
    _idiom(PYTHON, "type_to_isinstance", "isinstance_to_type", ("type($A) == $B", "isinstance($A, $B)")),
    _idiom(PYTHON, "isinstance_union", "isinstance_tuple", ("isinstance($X, ($A, $B))", "isinstance($X, $A | $B)")),
    _idiom(PYTHON, "join_paths", "join_path_texts", ("os.path.join($A, $B)", "Path($A) / $B")),
    _idiom(PYTHON, "list_literal", "list_call", ("list()", "[]")),
    _idiom(PYTHON, "dict_literal", "dict_call", ("dict()", "{}")),
    _idiom(PYTHON, "keys_of_dictionary", "view_of_keys", ("$D.keys()", "list($D)")),
    _idiom(PYTHON, "raise_for_assert", "assert_for_raise", ("assert $C", "if not $C:\n    raise AssertionError")),
    _idiom(PYTHON, "assert_equal", "plain_assert_equal", ("assert $A == $B", "self.assertEqual($A, $B)")),
    _idiom(PYTHON, "set_default", "say_default", ("$D.get($K, None)", "$D.get($K)")),
    _idiom(PYTHON, "map_to_comprehension", "comprehension_to_map", ("list(map($F, $X))", "[$F(item) for item in $X]")),
)  # fmt: skip
_OF_JAVASCRIPT: tuple[Family, ...] = (
    _idiom(JAVASCRIPT, "object_is", "equality_operator", ("$A === $B", "Object.is($A, $B)")),
    _idiom(JAVASCRIPT, "typeof_undefined", "compare_undefined", ("$A === undefined", "typeof ($A) === 'undefined'")),
    _idiom(JAVASCRIPT, "includes", "index_of", ("$A.indexOf($B) !== -1", "$A.includes($B)")),
    _idiom(JAVASCRIPT, "own_property", "own_property_method", ("$O.hasOwnProperty($K)", "Object.hasOwn($O, $K)")),
    _idiom(JAVASCRIPT, "spread_object", "assign_object", ("Object.assign({}, $A)", "{ ...$A }")),
    _idiom(JAVASCRIPT, "is_array", "instance_of_array", ("$X instanceof Array", "Array.isArray($X)")),
    _idiom(JAVASCRIPT, "empty_length", "length_is_nothing", ("$A.length === 0", "!$A.length")),
    _idiom(JAVASCRIPT, "last_item", "item_by_length", ("$A[$A.length - 1]", "$A.at(-1)")),
    _idiom(JAVASCRIPT, "optional_chain", "guarded_read", ("$A && $A.$B", "$A?.$B")),
    _idiom(JAVASCRIPT, "power_operator", "power_function", ("Math.pow($A, $B)", "$A ** $B")),
    _idiom(JAVASCRIPT, "void_zero", "named_undefined", ("$A = undefined", "$A = void 0")),
    _idiom(JAVASCRIPT, "null_or_undefined", "loose_null", ("$A == null", "$A === null || $A === undefined")),
)  # fmt: skip
_OF_JAVA: tuple[Family, ...] = (
    _idiom(JAVA, "is_null", "equals_null", ("$A == null", "Objects.isNull($A)")),
    _idiom(JAVA, "is_not_null", "differs_from_null", ("$A != null", "Objects.nonNull($A)")),
    _idiom(JAVA, "null_safe_equals", "plain_equals", ("$A.equals($B)", "Objects.equals($A, $B)")),
    _idiom(JAVA, "is_empty", "size_is_zero", ("$A.size() == 0", "$A.isEmpty()")),
    _idiom(JAVA, "text_is_empty", "length_is_no_character", ("$A.length() == 0", "$A.isEmpty()")),
    _idiom(JAVA, "new_list", "construct_list", ("new ArrayList<>($$$A)", "Lists.newArrayList($$$A)")),
    _idiom(JAVA, "value_of", "to_string", ("$A.toString()", "String.valueOf($A)")),
    _idiom(JAVA, "join_appends", "append_twice", ("$B.append($A).append($C)", "$B.append($A + $C)")),
    _idiom(JAVA, "require_non_null", "validate_not_null",
        ("Validate.notNull($A, $B)", "Objects.requireNonNull($A, $B)")),
    _idiom(JAVA, "lambda_reference", "reference_lambda", ("() -> $A.get()", "$A::get")),
)  # fmt: skip

IDIOMS: tuple[Family, ...] = (*_OF_PYTHON, *_OF_JAVASCRIPT, *_OF_JAVA)
