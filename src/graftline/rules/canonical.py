"""One form for actions that mean the same but for the names of their variables and the order of their keys."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from graftline.actions.action import ACTION, PatternAction, RuleAction
from graftline.actions.astgrep import Language
from graftline.hashing import canonical_json
from graftline.rules.contexts import context_of

_VARIABLE = re.compile(r"(?<!\$)(\${1,3})([A-Z][A-Z0-9_]*)")
_META = re.compile(r"\$+[A-Z_][A-Z0-9_]*")
_WORD = re.compile(r"\w+")
_WHOLE_WORD = re.compile(r"\^(\w+)\$")
_NOT_CODE = frozenset(("kind", "regex", "field", "selector", "strictness", "replace", "by", "toCase", "matches"))
_NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def canonical(action: PatternAction | RuleAction) -> PatternAction | RuleAction:
    """Return `action` with its variables named A, B, C in the order in which they come, and its keys sorted.

    What is named in `utils` stays as it is, for its variables may be those of several places.
    """
    tree = json.loads(canonical_json(action.model_dump()))
    if "utils" in tree:
        return ACTION.validate_python(tree)
    first = [tree[key] for key in ("pattern", "rule", "constraints", "transform", "rewrite", "fix") if key in tree]
    found = dict.fromkeys(name for part in first for name in _variables(part))
    names = {name: _NAMES[number] if number < 26 else f"V{number}" for number, name in enumerate(found)}
    return ACTION.validate_python({key: _renamed(value, names, key) for key, value in tree.items()})


def key_of(action: PatternAction | RuleAction) -> str:
    """Return a text that is the same for actions that `canonical` makes the same."""
    return canonical_json(canonical(action).model_dump())


def words_of(text: str) -> frozenset[str]:
    """Return the words of a source text."""
    return frozenset(_WORD.findall(text))


def needed_words(action: PatternAction | RuleAction, language: Language) -> frozenset[str]:
    """Return words that a text must have for `action` to match in it; perhaps not all of them."""
    if isinstance(action, RuleAction):
        return frozenset(_words_of_rule(action.rule))
    if action.strictness == "signature":
        return frozenset()
    return _words_of_pattern(
        action.pattern if not action.selector else _within(action.pattern, action.selector, language)
    )


def _within(pattern: str, selector: str, language: Language) -> str:
    """Return what stands in a context of ours; nothing where the context is another's, whose words need not be there."""
    before, hole, after = (context_of(selector, language) or "").partition("@")
    is_ours = hole and len(pattern) >= len(before + after) and pattern.startswith(before) and pattern.endswith(after)
    return pattern[len(before) : len(pattern) - len(after)] if is_ours else ""


def _words_of_pattern(pattern: str) -> frozenset[str]:
    return words_of(_META.sub(" ", pattern))


def _words_of_rule(rule: Any) -> Iterator[str]:
    if not isinstance(rule, Mapping):
        return
    for key, value in rule.items():
        if key == "pattern" and isinstance(value, str):
            yield from _words_of_pattern(value)
        elif key == "regex" and (word := _WHOLE_WORD.fullmatch(str(value))):
            yield word[1]
        elif key in ("has", "inside", "precedes", "follows"):
            yield from _words_of_rule(value)
        elif key == "all" and isinstance(value, list):
            for inner in value:
                yield from _words_of_rule(inner)


def _variables(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, str):
        if key not in _NOT_CODE:
            yield from (name for _, name in _VARIABLE.findall(value))
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _variables(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _variables(inner, key)


def _renamed(value: Any, names: Mapping[str, str], key: str) -> Any:
    if isinstance(value, str):
        return (
            value if key in _NOT_CODE else _VARIABLE.sub(lambda found: found[1] + names.get(found[2], found[2]), value)
        )
    if isinstance(value, Mapping):
        is_by_name = key in ("constraints", "transform")
        return {
            names.get(name, name) if is_by_name else name: _renamed(inner, names, name) for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_renamed(inner, names, key) for inner in value]
    return value
