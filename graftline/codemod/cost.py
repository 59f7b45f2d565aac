"""How long it takes to say a rule: the measure by which one that holds is preferred to another.

Words count 1, metavariables 0.5 and signs 0.3, of what is matched and of what is written; then what makes a rule brittle
or hard to read is added. Minimum description length in the sense of Rissanen (1978), with a code that is fixed.
"""

import json
import re
from collections.abc import Iterator, Mapping
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


def count_free_parts(action: PatternAction | RuleAction) -> int:
    """Return how many parts of what it matches `action` leaves free; 0 says that it memorises its example.

    The metavariables of its patterns; one that captures the whole match, to keep what something is put beside, frees
    nothing. Without any, 1 if it knows its matches by kind, by name or by a fragment of their text, so that the rest of
    them is free.
    """
    if isinstance(action, PatternAction):
        return len(set(VARIABLE.findall(action.pattern)))
    parts = list(_parts(action.rule))
    patterns = [text for text in patterns_of(action.rule) if not VARIABLE.fullmatch(text.strip())]
    variables = {name for pattern in patterns for name in VARIABLE.findall(pattern)}
    if variables or patterns:
        return len(variables)
    return 0 if any(_is_whole(str(part.get("regex", ""))) for part in parts) else 1


def is_general(action: PatternAction | RuleAction) -> bool:
    """Return whether `action` leaves something free."""
    return count_free_parts(action) > 0


def patterns_of(rule: Any) -> Iterator[str]:
    """Yield the patterns that a match of `rule` itself has to fit, of which there may be several."""
    for part in _parts(rule):
        pattern = part.get("pattern")
        text = pattern.get("context") if isinstance(pattern, Mapping) else pattern
        if isinstance(text, str):
            yield text


def _parts(rule: Any) -> Iterator[Mapping[str, Any]]:
    """Yield what is asked of the match itself, of neighbors and surroundings nothing; a rule may be of any form."""
    if not isinstance(rule, Mapping):
        return
    yield rule
    for key in ("all", "any"):
        parts = rule.get(key)
        for part in parts if isinstance(parts, list) else ():
            yield from _parts(part)


def _is_whole(regex: str) -> bool:
    return regex.startswith("^") and regex.endswith("$") and not regex.endswith("\\$")
