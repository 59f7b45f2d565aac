"""The template families, and which of them are kept from training."""

from graftline.datasets.synthetic.families.calls import ARGUMENTS, CALLS, IMPORTS
from graftline.datasets.synthetic.families.expressions import IDIOMS, OPERATORS, TYPES
from graftline.datasets.synthetic.families.statements import PLACES, STATEMENTS
from graftline.datasets.synthetic.family import Family

FAMILIES: tuple[Family, ...] = (
    *CALLS, *ARGUMENTS, *PLACES, *STATEMENTS, *OPERATORS, *TYPES, *IDIOMS, *IMPORTS,
)  # fmt: skip

HELD_OUT: frozenset[str] = frozenset({
    "rename_method_of_receiver", "rename_variable", "wrap_method", "await_method",
    "drop_method_argument", "positional_to_keyword", "repeat_as_options",
    "method_to_attribute", "go_through_attribute", "rename_called_with_one", "rename_method_in_try",
    "invert_if", "let_for_var", "refuse_null", "less_to_greater", "plus_to_minus",
    "number_of_argument", "make_async", "final_local", "builtin_generic", "declare_var", "unknown_for_any",
    "not_none_by_equality", "length_is_zero", "includes", "is_array", "null_safe_equals", "replace_imported",
})  # fmt: skip
"""About a fifth of the families, at least one of each kind: they and their ways back make tasks of dev and test only."""
