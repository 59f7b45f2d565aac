"""Families about operators: flipped, negated, written shorter or longer."""

from graftline.astgrep.action import PatternAction
from graftline.astgrep.binding import Language
from graftline.datasets.synthetic.family import ALL, JAVA, JAVASCRIPT, PYTHON, Family, Form, one_way, there_and_back

_C_LIKE = (*JAVASCRIPT, *JAVA)


def _compared(before: str, after: str) -> tuple[Form, ...]:
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
    Family(
        "less_to_greater", "operator",
        (
            "Write comparisons by less-than the other way round.",
            "Put the larger side first in comparisons that ask for less.",
            "Turn comparisons round so that they ask for greater.",
        ),
        _compared("$A < $B", "$B > $A"), inverse="greater_to_less",
        inverse_says=(
            "Write comparisons by greater-than the other way round.",
            "Put the smaller side first in comparisons that ask for greater.",
            "Turn comparisons round so that they ask for less.",
        ),
    ),
    Family(
        "include_bound", "operator",
        (
            "Comparisons by less-than should include the bound.",
            "Where something must be less, let it be equal too.",
            "Make upper bounds inclusive.",
        ),
        _compared("$A < $B", "$A <= $B"), inverse="exclude_bound",
        inverse_says=(
            "Upper bounds are exclusive: equal is not enough.",
            "Where something may be less or equal, let it be less only.",
            "Take the bound out of comparisons by less-or-equal.",
        ),
    ),
    Family(
        "include_lower_bound", "operator",
        (
            "Comparisons by greater-than should include the bound.",
            "Where something must be greater, let it be equal too.",
            "Make lower bounds inclusive.",
        ),
        _compared("$A > $B", "$A >= $B"), inverse="exclude_lower_bound",
        inverse_says=(
            "Lower bounds are exclusive: equal is not enough.",
            "Where something may be greater or equal, let it be greater only.",
            "Take the bound out of comparisons by greater-or-equal.",
        ),
    ),
    Family(
        "equal_to_unequal", "operator",
        (
            "Ask for difference where the code asks for equality.",
            "Negate tests for equality.",
            "Every test for equal values is the wrong way: it should hold when they differ.",
        ),
        (
            there_and_back((*PYTHON, *_C_LIKE), "$A == $B", "$A != $B"),
        ), inverse="unequal_to_equal",
        inverse_says=(
            "Ask for equality where the code asks for difference.",
            "Negate tests for difference.",
            "Every test that values differ is the wrong way: it should hold when they are equal.",
        ),
    ),
    Family(
        "and_to_or", "operator",
        (
            "One of two conditions is enough where both are asked for.",
            "Turn conjunctions into disjunctions.",
            "Join conditions by or in place of and.",
        ),
        (
            there_and_back(PYTHON, "$A and $B", "$A or $B"),
            there_and_back(_C_LIKE, "$A && $B", "$A || $B"),
        ), inverse="or_to_and",
        inverse_says=(
            "Both conditions must hold where one is enough.",
            "Turn disjunctions into conjunctions.",
            "Join conditions by and in place of or.",
        ),
    ),
    Family(
        "plus_to_minus", "operator",
        (
            "Subtract where the code adds.",
            "Sums should be differences.",
            "Turn every addition into a subtraction.",
        ),
        (there_and_back(ALL, "$A + $B", "$A - $B"),), inverse="minus_to_plus",
        inverse_says=(
            "Add where the code subtracts.",
            "Differences should be sums.",
            "Turn every subtraction into an addition.",
        ),
    ),
    Family(
        "distribute_not", "operator",
        (
            "Pull negations into conjunctions, by De Morgan.",
            "A negated conjunction should be a disjunction of negations.",
            "Distribute negations over joined conditions.",
        ),
        (
            there_and_back(PYTHON, "not ($A and $B)", "not $A or not $B"),
            there_and_back(_C_LIKE, "!($A && $B)", "!($A) || !($B)"),
        ), inverse="collect_not",
        inverse_says=(
            "Take negations out of disjunctions, by De Morgan.",
            "A disjunction of two negations should be one negated conjunction.",
            "Collect two negations into one.",
        ),
    ),
    Family(
        "assign_in_place", "operator",
        (
            "Add to variables in place.",
            "Use the short form where a variable gets itself plus something.",
            "Shorten assignments that add to their own target.",
        ),
        (there_and_back(ALL, "$X = $X + $Y", "$X += $Y"),), inverse="assign_sum",
        inverse_says=(
            "Spell assignments out that add in place.",
            "Use the long form where something is added to a variable.",
            "An addition to a variable should name it on both sides.",
        ),
    ),
    Family(
        "increment", "operator",
        (
            "Do not count up by the short operator; add one.",
            "Replace increments after the name by an addition of one.",
            "Write increments as assignments.",
        ),
        (there_and_back(_C_LIKE, "$X++", "$X += 1"),), inverse="add_one",
        inverse_says=(
            "Count up by the short operator where one is added.",
            "Write an addition of one to a variable as an increment.",
            "Use the increment operator, after the name.",
        ),
    ),
    Family(
        "swap_equality", "operator",
        (
            "Exchange the two sides of tests for equality with `{name}`, which come last.",
            "Put `{name}` first where something is tested to be equal to it.",
            "`{name}` belongs on the left of tests for equality.",
        ),
        (
            there_and_back((*PYTHON, *JAVA), "$A == {name}", "{name} == $A"),
            there_and_back(JAVASCRIPT, "$A === {name}", "{name} === $A"),
        ), "variable", inverse="swap_equality_back",
        inverse_says=(
            "Put `{name}` last where something is tested to be equal to it.",
            "Exchange the two sides of tests for equality that start with `{name}`.",
            "`{name}` belongs on the right of tests for equality.",
        ),
    ),
    Family(
        "strict_to_loose", "operator",
        (
            "Compare without regard to types.",
            "Strict equality is too much: let values be converted.",
            "Use the loose test for equality.",
        ),
        (there_and_back(JAVASCRIPT, "$A === $B", "$A == $B"),), inverse="loose_to_strict",
        inverse_says=(
            "Compare with regard to types.",
            "Values must not be converted before they are compared.",
            "Use the strict test for equality.",
        ),
    ),
    Family(
        "loose_unequal_to_strict", "operator",
        (
            "Values must not be converted before they are found to differ.",
            "Use the strict test for difference.",
            "Tests that values differ should look at types too.",
        ),
        (there_and_back(JAVASCRIPT, "$A != $B", "$A !== $B"),), inverse="strict_unequal_to_loose",
        inverse_says=(
            "Let values be converted before they are found to differ.",
            "Use the loose test for difference.",
            "Tests that values differ need not look at types.",
        ),
    ),
    Family(
        "flip_flag", "literal",
        (
            "Turn the option `{name}` off where it is on.",
            "`{name}` should be false wherever true is given for it.",
            "Switch `{name}` off.",
        ),
        (
            _flag(PYTHON, "{name}=", "True", "False", "f(@)", "keyword_argument"),
            _flag(JAVASCRIPT, "{name}: ", "true", "false", "({ @ })", "pair"),
        ), "keyword", fits=lambda site: site.key == "true", inverse="flag_on",
        inverse_says=(
            "Turn the option `{name}` on where it is off.",
            "`{name}` should be true wherever false is given for it.",
            "Switch `{name}` on.",
        ),
    ),
    Family(
        "optional_or_nullish", "operator",
        (
            "Use the default only for values that are missing, not for all that are falsy.",
            "Defaults after or should come after the nullish operator.",
            "Empty texts and zero are values: let defaults stand for null and undefined only.",
        ),
        (there_and_back(JAVASCRIPT, "$A || $B", "$A ?? $B"),), inverse="nullish_to_or",
        inverse_says=(
            "Use the default for all that is falsy.",
            "Defaults after the nullish operator should come after or.",
            "Old engines know no nullish operator; use or.",
        ),
    ),
    Family(
        "negate_return", "operator",
        (
            "Return the opposite of what `{name}` says.",
            "Negate calls of `{name}` where they are what is returned.",
            "A returned `{name}` has to be turned round.",
        ),
        (
            there_and_back(PYTHON, "return {name}($$$A)", "return not {name}($$$A)"),
            there_and_back(_C_LIKE, "return {name}($$$A);", "return !{name}($$$A);"),
        ), "function", inverse="affirm_return",
        inverse_says=(
            "Return what `{name}` says and not its opposite.",
            "Take the negation off calls of `{name}` that are returned.",
            "A returned `{name}` should not be turned round.",
        ),
    ),
    Family(
        "multiply_to_divide", "operator",
        (
            "Divide where the code multiplies.",
            "Products should be quotients.",
            "Turn every multiplication into a division.",
        ),
        (one_way(ALL, "$A * $B", "$A / $B"),),
    ),
)  # fmt: skip
