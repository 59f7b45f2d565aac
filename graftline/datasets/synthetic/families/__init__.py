"""The template families, which of them are kept from training, and the actions of their forms, wherever those come from."""

import re
from functools import cache

from graftline.astgrep.action import PatternAction
from graftline.astgrep.binding import Language
from graftline.datasets.synthetic.families.calls import ARGUMENTS, CALLS, IMPORTS
from graftline.datasets.synthetic.families.expressions import IDIOMS, OPERATORS, TYPES
from graftline.datasets.synthetic.families.statements import PLACES, STATEMENTS
from graftline.datasets.synthetic.family import SLOT, Action, Family

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


OF_FAMILY = {name: family.id for family in FAMILIES for name in (family.id, family.inverse) if name}
"""The family of every template, ways back among them."""
_PART = re.compile(rf"{SLOT.pattern}|(?P<variable>\${{1,3}}[A-Z]+)|(?P<blank>\s+)|(?P<sign>.)")
_ONE = r"\$[A-Z]"
_SEVERAL = rf"(?:\$\$\$[A-Z]|{_ONE}(?:, {_ONE})*|)"
_NAME, _LITERAL = r"\w+", r"[^\s$]+"


def is_held_out(template: str) -> bool:
    """Return whether no row of train may be an instance of `template`."""
    return OF_FAMILY.get(template) in HELD_OUT


def has_held_out_form(action: Action, language: Language) -> bool:
    """Return whether pattern and rewrite of an action are those of a family that is held out, or of its way back.

    Slots stand for any name, metavariables for metavariables:

        {owner}.{name}($$$A) => {owner}.{new}($$$A)   is the form of   log.warn($A, $B) => log.warning($A, $B)
    """
    if not isinstance(action, PatternAction):
        return False
    return any(form.fullmatch(_text(action)) for form in _forms(language))


@cache
def _forms(language: Language) -> tuple[re.Pattern[str], ...]:
    forms = [form for family in FAMILIES if family.id in HELD_OUT if (form := family.form(language)) is not None]
    # of several actions, one after the other, each may be that of a family that is trained on
    alone = [actions[0] for form in forms for actions in (form.there, form.back) if len(actions) == 1]
    return tuple(re.compile(_expression(_text(action))) for action in alone if isinstance(action, PatternAction))


def _text(action: PatternAction) -> str:
    return f"{action.pattern} => {action.rewrite}"


def _expression(form: str) -> str:
    """Return the regular expression of a form, in which whatever comes again has to be what it was before."""
    groups, parts = dict[str, str](), list[str]()
    for part in _PART.finditer(form):
        text = part[0]
        if part["blank"]:
            parts.append(r"\s+")
        elif part["sign"]:
            parts.append(re.escape(text))
        elif text in groups:
            parts.append(f"(?P={groups[text]})")
        else:
            groups[text] = f"part_{len(groups)}"
            parts.append(f"(?P<{groups[text]}>{_part_expression(text)})")
    return "".join(parts)


def _part_expression(part: str) -> str:
    if part.startswith("{"):
        return _LITERAL if part in ("{value}", "{key}") else _NAME
    return _SEVERAL if part.startswith("$$$") else _ONE
