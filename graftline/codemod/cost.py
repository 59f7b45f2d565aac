"""How long it takes to say a rule: the measure by which one that holds is preferred to another.

Words count 1, metavariables 0.5 and signs 0.3, of what is matched and of what is written; then what makes a rule brittle
or hard to read is added. Minimum description length in the sense of Rissanen (1978), with a code that is fixed.
"""

import json
import re
from typing import Any

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.codemod.anti_unify import VARIABLE

_TOKEN = re.compile(r"(\$+[A-Z]\w*)|(\w+)|([^\s\w])")
_WORD, _VARIABLE, _SIGN = 1.0, 0.5, 0.3
_LINE, _LITERAL, _SELECTOR, _CONSTRAINTS, _LONG_REGEX = 4.0, 14.0, 4.0, 6.0, 3.0


def description_length(action: PatternAction | RuleAction) -> float:
    """Return the length of `action`; lower is simpler."""
    matcher, fix = _matcher(action), _fix(action)
    length = _tokens(matcher) + _tokens(fix) + _LINE * matcher.count("\n")
    if not VARIABLE.search(matcher):
        length += _LITERAL
    if isinstance(action, PatternAction):
        return length + (_SELECTOR if action.selector else 0.0)
    if action.constraints:
        length += _CONSTRAINTS + _tokens(_as_text(action.constraints))
    if action.transform:
        length += _tokens(_as_text(action.transform))
    return length + (_LONG_REGEX if len(str(action.rule.get("regex", ""))) > 40 else 0.0)


def _matcher(action: PatternAction | RuleAction) -> str:
    return action.pattern if isinstance(action, PatternAction) else _as_text(action.rule)


def _fix(action: PatternAction | RuleAction) -> str:
    if isinstance(action, PatternAction):
        return action.rewrite
    return action.fix if isinstance(action.fix, str) else _as_text(action.fix)


def _as_text(value: Any) -> str:
    # what is quoted stays as it is, so that a line of a pattern is a line here
    return json.dumps(value, ensure_ascii=False, sort_keys=True).replace("\\n", "\n")


def _tokens(text: str) -> float:
    return sum(_VARIABLE if variable else _WORD if word else _SIGN for variable, word, _ in _TOKEN.findall(text))
