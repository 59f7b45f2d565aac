"""Families about statements: guards, branches, returns, declarations."""

from typing import Any

from graftline.astgrep.binding import Language
from graftline.datasets.synthetic.family import (
    JAVA,
    JAVASCRIPT,
    PYTHON,
    TYPESCRIPT,
    Action,
    Family,
    Form,
    rule,
    there_and_back,
)


def _first_statement(
    languages: tuple[Language, ...], bodies: tuple[str, ...], definitions: tuple[str, ...], guard: str
) -> Form:
    """Return the form that puts `guard` before the first statement of the function `{name}`, and takes it off."""
    function = {"any": [{"kind": kind} for kind in definitions], "has": {"field": "name", "regex": "^{name}$"}}
    body = {"any": [{"kind": kind} for kind in bodies], "inside": function}
    # a block that is captured and matched at once: the statement is kept, however long it is
    there = rule(f"{guard}\n$S", pattern="$S", kind="{key}", nthChild=1, inside=body)
    back = rule(
        {"template": "$S", "expandEnd": {"pattern": "$S"}}, pattern=guard, inside=body, precedes={"pattern": "$S"}
    )
    return Form(languages, (there,), (back,))


def _inverted_if(languages: tuple[Language, ...], alternative: dict[str, Any]) -> Form:
    """Return the form that keeps both blocks as they are written, which a pattern of statements would not."""
    consequence = {"has": {"field": "consequence", "pattern": "$A"}}

    def inverted(condition: str, fix: str) -> Action:
        test = {"context": f"if {condition} {{}}", "selector": "parenthesized_expression"}
        parts = [{"has": {"field": "condition", "pattern": test}}, consequence, alternative]
        return rule(fix, kind="if_statement", all=parts)

    there, back = inverted("($C)", "if (!($C)) $B else $A"), inverted("(!($C))", "if ($C) $B else $A")
    return Form(languages, (there,), (back,))


STATEMENTS: tuple[Family, ...] = (
    Family(
        "guard_call", "statement",
        (
            "Call `{name}` only on objects that are there.",
            "Guard every statement that only calls `{name}`: the object may be missing.",
            "Check the object before its method `{name}` is called for its effect.",
        ),
        (
            there_and_back(
                PYTHON, "$O.{name}($$$A)", "if $O is not None:\n    $O.{name}($$$A)", "expression_statement"
            ),
            there_and_back(
                JAVASCRIPT, "$O.{name}($$$A);", "if ($O) {\n  $O.{name}($$$A);\n}"
            ),
            there_and_back(JAVA, "$O.{name}($$$A);", "if ($O != null) {\n    $O.{name}($$$A);\n}"),
        ), "method", fits=lambda site: site.is_statement, inverse="unguard_call",
        inverse_says=(
            "The object is always there: call `{name}` without asking.",
            "Take the check off that stands around calls of `{name}`.",
            "Remove the guard before the method `{name}`, which its own object needs no more.",
        ),
    ),
    Family(
        "return_early", "statement",
        (
            "Let `{name}` return at once when `{owner}` is missing.",
            "Start `{name}` with a check of `{owner}`: without it there is nothing to do.",
            "Add an early return to `{name}` for the case that `{owner}` is not given.",
        ),
        (
            _first_statement(PYTHON, ("block",), ("function_definition",), "if {owner} is None:\n    return None"),
            _first_statement(
                JAVASCRIPT, ("statement_block",), ("function_declaration", "method_definition", "function_expression"),
                "if (!{owner}) {\n  return;\n}",
            ),
        ), "definition", fits=lambda site: bool(site.owner and site.key), inverse="drop_early_return",
        inverse_says=(
            "`{owner}` is always given to `{name}`: take the early return out.",
            "Remove the check of `{owner}` at the start of `{name}`.",
            "`{name}` need not look whether `{owner}` is missing.",
        ),
    ),
    Family(
        "refuse_null", "statement",
        (
            "Let `{name}` throw when `{owner}` is null.",
            "Start `{name}` with a null check of `{owner}` that throws.",
            "Add a check to `{name}`: null for `{owner}` is an illegal argument.",
        ),
        (
            _first_statement(
                JAVA, ("block",), ("method_declaration",),
                'if ({owner} == null) {\n    throw new IllegalArgumentException("{owner}");\n}',
            ),
        ), "definition", fits=lambda site: bool(site.owner and site.key), inverse="accept_null",
        inverse_says=(
            "Remove the null check of `{owner}` at the start of `{name}`.",
            "`{name}` need not refuse null for `{owner}` any more.",
            "Take the check that throws for `{owner}` out of `{name}`.",
        ),
    ),
    Family(
        "invert_if", "statement",
        (
            "Negate the conditions of if statements that have an else, and change the branches over.",
            "Put the else branch first, under the opposite condition.",
            "Invert every if with an else.",
        ),
        (
            there_and_back(
                PYTHON, "if $C:\n    $$$A\nelse:\n    $$$B", "if not ($C):\n    $$$B\nelse:\n    $$$A"
            ),
            _inverted_if(JAVASCRIPT, {"has": {"kind": "else_clause", "has": {"kind": "statement_block", "pattern": "$B"}}}),
            _inverted_if(JAVA, {"has": {"field": "alternative", "kind": "block", "pattern": "$B"}}),
        ), inverse="uninvert_if",
        inverse_says=(
            "Say what is tested positively: drop the negation and change the branches over.",
            "If statements with an else should not start from a negated condition.",
            "Where a negated condition has an else, test the plain condition and exchange the branches.",
        ),
    ),
    Family(
        "if_to_conditional", "statement",
        (
            "Where both branches only return, return a conditional expression.",
            "Replace an if and else that each return a value by one return.",
            "Fold two returns under an if and its else into one.",
        ),
        (
            there_and_back(
                PYTHON, "if $C:\n    return $A\nelse:\n    return $B", "return $A if $C else $B"
            ),
            there_and_back(
                (*JAVASCRIPT, *JAVA), "if ($C) {\n    return $A;\n} else {\n    return $B;\n}", "return $C ? $A : $B;"
            ),
        ), inverse="conditional_to_if",
        inverse_says=(
            "Spell a returned conditional expression out as an if with two returns.",
            "Return from two branches and not by a conditional expression.",
            "Unfold returned conditional expressions into statements.",
        ),
    ),
    Family(
        "invert_conditional", "operator",
        (
            "Negate the conditions of conditional expressions and exchange the two values.",
            "Invert conditional expressions: the other value first, under the opposite condition.",
            "Turn conditional expressions round.",
        ),
        (
            there_and_back(PYTHON, "$A if $C else $B", "$B if not ($C) else $A"),
            there_and_back((*JAVASCRIPT, *JAVA), "$C ? $A : $B", "!($C) ? $B : $A"),
        ), inverse="uninvert_conditional",
        inverse_says=(
            "Conditional expressions should not test a negation: exchange the values.",
            "Drop the negation in conditional expressions and change the values over.",
            "Turn conditional expressions with a negated condition round.",
        ),
    ),
    Family(
        "bare_return", "statement",
        (
            "Functions that end early should not name the empty value.",
            "Leave the empty value out where it is handed back.",
            "Shorten statements that hand back what functions give anyway.",
        ),
        (
            there_and_back(PYTHON, "return None", "return"),
            there_and_back(JAVASCRIPT, "return undefined;", "return;"),
        ), inverse="explicit_return",
        inverse_says=(
            "Functions that end early should name the empty value.",
            "Say what is handed back where nothing is said.",
            "Spell the value out that is left to the language.",
        ),
    ),
    Family(
        "let_for_const", "statement",
        (
            "Declare constants in a way that lets them change.",
            "Use `let` where `const` declares one name.",
            "Turn `const` into `let`.",
        ),
        (there_and_back(JAVASCRIPT, "const $A = $B;", "let $A = $B;"),), inverse="const_for_let",
        inverse_says=(
            "Names that are given a value by `let` should be constants.",
            "Use `const` where `let` declares one name with its value.",
            "Turn `let` with a value into `const`.",
        ),
    ),
    Family(
        "let_for_var", "statement",
        (
            "Declare variables in the scope of their block.",
            "Use `let` where `var` declares one name with its value.",
            "Get rid of `var` where it gives a value.",
        ),
        (there_and_back(JAVASCRIPT, "var $A = $B;", "let $A = $B;"),), inverse="var_for_let",
        inverse_says=(
            "Declare variables in the scope of their function.",
            "Use `var` where `let` declares one name with its value.",
            "Old engines know no `let`: go back to `var`.",
        ),
    ),
    Family(
        "declare_var", "type",
        (
            "Let the compiler infer the type of local variables of type `{name}`.",
            "Declare locals of type `{name}` with `var`.",
            "Leave `{name}` out where a local variable is given its value at once.",
        ),
        (there_and_back(JAVA, "{name} $X = $E;", "var $X = $E;"),), "type",
        fits=lambda site: site.key == "local" and site.name != "var", inverse="declare_type",
        inverse_says=(
            "State the type of local variables, which is `{name}`.",
            "Declare locals as `{name}` in place of `var`.",
            "Inferred types of locals should be written down: they are `{name}`.",
        ),
    ),
    Family(
        "final_local", "annotation",
        (
            "Local variables of type `{name}` do not change: make them final.",
            "Declare locals of type `{name}` as final.",
            "Add the modifier that forbids changes to locals of type `{name}`.",
        ),
        (there_and_back(JAVA, "{name} $X = $E;", "final {name} $X = $E;"),), "type",
        fits=lambda site: site.key == "local", inverse="plain_local",
        inverse_says=(
            "Local variables of type `{name}` need not be final.",
            "Drop the modifier that forbids changes from locals of type `{name}`.",
            "Declare locals of type `{name}` without saying that they stay.",
        ),
    ),
    Family(
        "raise_from_none", "statement",
        (
            "Raise `{name}` without the error that led to it.",
            "Hide the cause where `{name}` is raised.",
            "Errors of the class `{name}` should not show what was handled before.",
        ),
        (there_and_back(PYTHON, "raise {name}($$$A)", "raise {name}($$$A) from None"),), "class",
        fits=lambda site: site.key == "constructed", inverse="raise_with_context",
        inverse_says=(
            "Show the cause where `{name}` is raised.",
            "`{name}` should be raised in the plain way, its context included.",
            "Do not suppress what led to `{name}`.",
        ),
    ),
    Family(
        "arrow_function", "statement",
        (
            "Write functions that only return as arrow functions.",
            "Use arrows for anonymous functions that are one return.",
            "Shorten anonymous functions whose body is a return.",
        ),
        (there_and_back(JAVASCRIPT, "function ($$$A) { return $E; }", "($$$A) => $E"),), inverse="plain_function",
        inverse_says=(
            "Write arrow functions of one expression as functions that return it.",
            "Use no arrows: anonymous functions return their value.",
            "Spell arrow functions out.",
        ),
    ),
    Family(
        "type_assertion", "type",
        (
            "Take values for `{name}` by `as` and not by a prefix.",
            "Write assertions of the type `{name}` behind the value.",
            "The prefix form of asserting `{name}` is not allowed in markup files; use the other one.",
        ),
        (there_and_back(TYPESCRIPT, "<{name}>$E", "$E as {name}"),), "type", inverse="prefix_assertion",
        inverse_says=(
            "Write assertions of the type `{name}` in front of the value.",
            "Take values for `{name}` by a prefix in place of `as`.",
            "Use the older form of asserting `{name}`.",
        ),
    ),
)  # fmt: skip
