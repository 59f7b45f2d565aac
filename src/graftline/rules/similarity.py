"""How alike two actions are as texts: a number beside the outcome of an action, and never in its place.

SRL (https://arxiv.org/abs/2510.25992) rewards an action by 2M/T, M being the characters in the blocks that match those of
the expert's and T those of both, as `difflib.SequenceMatcher` counts them. Deviations:

1. Actions are compared in a canonical form, so that neither the names of metavariables nor blanks nor the order of
   keys count.
2. `autojunk` is off: it would leave out the commonest characters of texts of 200 characters or more.
3. The nearest of several right actions counts, for an edit has more than one.

SRL's -1 for an answer that cannot be read is `trajectories.reward.rl_reward`'s. On ast-grep actions this similarity does
not tell right from wrong ones: a rule that matches too much differs from the gold by a word.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from graftline.actions.action import ACTION, PatternAction, RuleAction

MAX_COMPARED_CHARACTERS = 4_000
"""Of one canonical form; matching takes time in the square of it."""
_VARIABLE = re.compile(r"(\$+)([A-Z_][A-Z0-9_]*)")
_PARTS = ("pattern", "rule", "rewrite", "fix", "constraints", "transform", "utils")
"""In this order metavariables are numbered."""
_KEYED_BY_VARIABLES = ("constraints", "transform")
_WITHOUT_VARIABLES = ("regex", "kind", "field", "selector", "strictness")


def srl(action: PatternAction | RuleAction, golds: Sequence[PatternAction | RuleAction]) -> float | None:
    """Return the similarity of `action` to the nearest of `golds`, from 0 to 1; None where it cannot be told.

    It cannot where there is no gold, or a canonical form is longer than `MAX_COMPARED_CHARACTERS`.
    """
    forms = [canonical(gold) for gold in golds]
    own = canonical(action)
    if own in forms:
        return 1.0
    if not forms or max(map(len, (own, *forms))) > MAX_COMPARED_CHARACTERS:
        return None
    return round(max(SequenceMatcher(None, own, form, autojunk=False).ratio() for form in forms), 6)


def canonical(action: PatternAction | RuleAction) -> str:
    """Return `action` as JSON that is the same for actions that differ in names of metavariables and blanks alone.

    {"pattern": "f($X,  $Y)", "rewrite": "$Y"}  ->  {"pattern": "f($V1, $V2)", "rewrite": "$V2"}
    """
    given = ACTION.dump_python(action, mode="json")
    names: dict[str, str] = {}
    for part in _PARTS:
        for name in _appearing(_ordered(given.get(part), part, names), part):
            names.setdefault(name, f"V{len(names) + 1}")
    renamed = {part: _renamed(value, part, names) for part, value in given.items()}
    return json.dumps(renamed, sort_keys=True, ensure_ascii=False)


def _ordered(value: Any, part: str, names: Mapping[str, str]) -> Any:
    """Return `value` with what is keyed by metavariables as pairs, in an order that does not depend on new names."""
    if part not in _KEYED_BY_VARIABLES or not isinstance(value, Mapping):
        return value

    def place(name: str) -> str:
        # those not yet named come last, by what is said of them
        return json.dumps([names.get(name, "~"), _renamed(value[name], "", names)], sort_keys=True)

    return [[f"${name}", value[name]] for name in sorted(value, key=place)]


def _appearing(value: Any, key: str) -> Iterator[str]:
    """Yield the metavariables below `value` that have a name to keep."""
    if isinstance(value, Mapping):
        for inner in sorted(value):
            yield from _appearing(value[inner], inner)
    elif isinstance(value, list):
        for item in value:
            yield from _appearing(item, key)
    elif isinstance(value, str) and key not in _WITHOUT_VARIABLES:
        yield from (name for _, name in _VARIABLE.findall(value) if not name.startswith("_"))


def _renamed(value: Any, key: str, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        is_keyed = key in _KEYED_BY_VARIABLES
        return {names.get(k, "_") if is_keyed else k: _renamed(inner, k, names) for k, inner in value.items()}
    if isinstance(value, list):
        return [_renamed(item, key, names) for item in value]
    if not isinstance(value, str) or key in _WITHOUT_VARIABLES:
        return value
    return _VARIABLE.sub(lambda found: found[1] + names.get(found[2], "_"), " ".join(value.split()))
