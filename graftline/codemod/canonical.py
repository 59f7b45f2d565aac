"""One form for actions that mean the same but for the names of their variables and the order of their keys."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any

from graftline.astgrep.action import ACTION, PatternAction, RuleAction, rule_of, template_of
from graftline.astgrep.binding import Language
from graftline.codemod.anti_unify import VARIABLE
from graftline.codemod.grammar import CONTEXTS
from graftline.core.hashing import canonical_json

_VARIABLE = re.compile(r"(?<!\$)(\${1,3})([A-Z][A-Z0-9_]*)")
_WORD = re.compile(r"\w+")
_WHOLE_WORD = re.compile(r"\^(\w+)\$")
_RELATIONS = ("has", "inside", "precedes", "follows")
_NOT_CODE = frozenset(("kind", "regex", "field", "selector", "strictness", "replace", "by", "toCase", "matches"))
_PARTS = ("pattern", "rule", "rewrite", "fix", "constraints", "transform", "utils")
"""In this order variables are named."""
_KEYED_BY_VARIABLES = ("constraints", "transform")
_NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def canonicalize(action: PatternAction | RuleAction) -> PatternAction | RuleAction:
    """Return `action` with its variables named A, B, C in the order in which they come, and its keys sorted.

    Variables that capture nothing (`$_`) keep their names.
    """
    tree = json.loads(canonical_json(action.model_dump()))
    names = _names(tree)
    return ACTION.validate_python({key: _rename(value, names, key) for key, value in tree.items()})


def canonical_text(action: PatternAction | RuleAction) -> str:
    """Return the canonical form of `action` as JSON, with its blanks collapsed.

    {"pattern": "f($X,  $Y)", "rewrite": "$Y"}  ->  {"pattern": "f($A, $B)", "rewrite": "$B"}
    """
    return json.dumps(_collapse(canonicalize(action).model_dump()), sort_keys=True, ensure_ascii=False)


def key_of(action: PatternAction | RuleAction) -> str:
    """Return a text that is the same for actions that `canonicalize` makes the same."""
    return canonical_json(canonicalize(action).model_dump())


def words_of(text: str) -> frozenset[str]:
    """Return the words of a source text."""
    return frozenset(_WORD.findall(text))


def list_required_words(action: PatternAction | RuleAction, language: Language) -> frozenset[str]:
    """Return words that a text must have for `action` to match in it; perhaps not all of them."""
    if isinstance(action, RuleAction):
        return frozenset(_words_of_rule(action.rule))
    if action.strictness == "signature":
        return frozenset()
    return _words_of_pattern(
        action.pattern if not action.selector else strip_context(action.pattern, action.selector, language)
    )


def words_within(action: PatternAction | RuleAction, language: Language) -> frozenset[str]:
    """Return words that every match of `action` has itself; perhaps not all of them."""
    return (
        frozenset(_words_of_rule(action.rule, ("has",)))
        if isinstance(action, RuleAction)
        else list_required_words(action, language)
    )


def list_replaced_words(action: PatternAction | RuleAction, language: Language) -> frozenset[str]:
    """Return words that go with every match of `action`: it quotes them of what it replaces, and does not write them."""
    quoted = (
        frozenset(_words_of_rule(action.rule, ()))
        if isinstance(action, RuleAction)
        else list_required_words(action, language)
    )
    # who may write parts of words may write them as well
    return quoted - written if (written := list_written_words(action)) else frozenset()


def list_written_words(action: PatternAction | RuleAction) -> frozenset[str]:
    """Return words that stand in every text that `action` wrote; none where it may write parts of words."""
    rule = rule_of(action)
    fix = template_of(rule["fix"])
    pieces = VARIABLE.split(f" {fix} ")
    is_whole = not any(before[-1:].isalnum() or after[:1].isalnum() for before, after in pairwise(pieces))
    return words_of(" ".join(pieces)) if is_whole and not rule.get("transform") else frozenset()


def strip_context(pattern: str, selector: str, language: Language) -> str:
    """Return what stands in a context of ours; nothing where the context is another's, whose words need not be there."""
    before, hole, after = (CONTEXTS[language].get(selector) or "").partition("@")
    is_ours = hole and len(pattern) >= len(before + after) and pattern.startswith(before) and pattern.endswith(after)
    return pattern[len(before) : len(pattern) - len(after)] if is_ours else ""


def _words_of_pattern(pattern: str) -> frozenset[str]:
    return words_of(VARIABLE.sub(" ", pattern))


def _words_of_rule(rule: Any, relations: Sequence[str] = _RELATIONS) -> Iterator[str]:
    """Yield the words of a rule, and of what is said of nodes in `relations` to the one that it matches."""
    if not isinstance(rule, Mapping):
        return
    for key, value in rule.items():
        if key == "pattern" and isinstance(value, str):
            yield from _words_of_pattern(value)
        elif key == "regex" and (word := _WHOLE_WORD.fullmatch(str(value))):
            yield word[1]
        elif key in relations:
            yield from _words_of_rule(value, relations)
        elif key == "all" and isinstance(value, list):
            for inner in value:
                yield from _words_of_rule(inner, relations)


def _names(tree: Mapping[str, Any]) -> dict[str, str]:
    names: dict[str, str] = {}
    for part in (part for part in _PARTS if part in tree):
        for name in _variables(_order_by_variables(tree[part], part, names), part):
            number = len(names)
            names.setdefault(name, _NAMES[number] if number < len(_NAMES) else f"V{number}")
    return names


def _order_by_variables(value: Any, part: str, names: Mapping[str, str]) -> Any:
    """Return `value` with what is keyed by variables as pairs, in an order that does not depend on their names."""
    if part not in _KEYED_BY_VARIABLES or not isinstance(value, Mapping):
        return value

    def place(name: str) -> str:
        # those not yet named come last, by what is said of them
        return json.dumps([names.get(name, "~"), _rename(value[name], names, "", "_")], sort_keys=True)

    return [[f"${name}", value[name]] for name in sorted(value, key=place)]


def _variables(value: Any, key: str) -> Iterator[str]:
    if isinstance(value, str):
        if key not in _NOT_CODE:
            yield from (name for _, name in _VARIABLE.findall(value))
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _variables(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _variables(inner, key)


def _rename(value: Any, names: Mapping[str, str], key: str, unknown: str = "") -> Any:
    """Return `value` with the names of variables replaced; those without a new name keep theirs, or get `unknown`."""
    if isinstance(value, str):
        return (
            value
            if key in _NOT_CODE
            else _VARIABLE.sub(lambda match: match[1] + names.get(match[2], unknown or match[2]), value)
        )
    if isinstance(value, Mapping):
        is_keyed = key in _KEYED_BY_VARIABLES
        return {
            names.get(name, name) if is_keyed else name: _rename(inner, names, name, unknown)
            for name, inner in value.items()
        }
    if isinstance(value, list):
        return [_rename(inner, names, key, unknown) for inner in value]
    return value


def _collapse(value: Any, key: str = "") -> Any:
    if isinstance(value, str):
        return value if key in _NOT_CODE else " ".join(value.split())
    if isinstance(value, Mapping):
        return {name: _collapse(inner, name) for name, inner in value.items()}
    return [_collapse(inner, key) for inner in value] if isinstance(value, list) else value


MAX_COMPARED_CHARACTERS = 4_000
"""Of one canonical form; matching takes time in the square of it."""


def similarity(action: PatternAction | RuleAction, golds: Sequence[PatternAction | RuleAction]) -> float | None:
    """Return the similarity of `action` to the nearest of `golds`, from 0 to 1; None where it cannot be told.

    It cannot where there is no gold, or a canonical form is longer than `MAX_COMPARED_CHARACTERS`.
    """
    forms = [canonical_text(gold) for gold in golds]
    own = canonical_text(action)
    if own in forms:
        return 1.0
    if not forms or max(map(len, (own, *forms))) > MAX_COMPARED_CHARACTERS:
        return None
    return round(max(SequenceMatcher(None, own, form, autojunk=False).ratio() for form in forms), 6)
