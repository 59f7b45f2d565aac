"""What an action leaves free: whether it can match another text than the one it was made for."""

from collections.abc import Iterator, Mapping
from typing import Any

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.codemod.anti_unify import VARIABLE


def free_parts(action: PatternAction | RuleAction) -> int:
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
    return free_parts(action) > 0


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
