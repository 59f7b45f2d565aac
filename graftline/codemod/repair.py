"""What can be added to a rule that changes too much, so that it makes the change and nothing else."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from graftline.astgrep.action import RuleAction, rule_of
from graftline.astgrep.binding import Node, captures_of
from graftline.codemod.anti_unify import VARIABLE
from graftline.codemod.candidates import DEFINITION, Candidate, by_name, by_text, rust_regex
from graftline.codemod.change import Change
from graftline.codemod.cost import description_length
from graftline.codemod.diff import is_sequence
from graftline.codemod.judge import Judgment

_MAX_ALTERNATIVES = 3
_INSIDE_COST, _BESIDE_COST, _COUNTED_COST = 8.0, 10.0, 20.0
_MAX_QUOTED = 120
_MAX_COUNTED = 250_000
"""Matches times siblings beyond which a match is not known by its number: ast-grep counts from the first every time."""


def repair(change: Change, candidate: Candidate, judgment: Judgment) -> Iterator[Candidate]:
    """Yield `candidate` with constraints on what its variables capture, and restricted to where its right matches are.

    Only what tells the right matches of `judgment` from the wrong ones is tried.
    """
    rule = rule_of(candidate.action)
    rule.pop("constraints", None)
    if not judgment.right:
        return
    for variable, constraint in _constraints(change, rule, judgment):
        yield _restrict(candidate, {**rule, "constraints": {variable: constraint}}, 0.0)
    for cost, place in (*_definitions(candidate, judgment), *_neighborhoods(change, candidate, judgment)):
        yield _restrict(candidate, {**rule, "rule": {"all": [rule["rule"], place]}}, cost)


def _restrict(candidate: Candidate, rule: dict[str, Any], extra_cost: float) -> Candidate:
    parts = {key: rule[key] for key in ("rule", "fix", "constraints", "transform") if rule.get(key)}
    action = RuleAction(**{"fix": "", **parts})
    surcharge = candidate.cost - description_length(candidate.action)
    return replace(candidate, action=action, cost=description_length(action) + surcharge + extra_cost)


def _constraints(change: Change, rule: dict[str, Any], judgment: Judgment) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield a variable and what its captures are in right matches and never in wrong ones: a kind, or one of few texts."""
    names = sorted({name[1:] for name in VARIABLE.findall(str(rule["rule"])) if not name.startswith("$$")})
    captures = captures_of(change.before.root, rule, names)
    right = [captures.get(match.start) for match in judgment.right]
    wrong = [captures.get(match.start) for match in judgment.wrong]
    if None in right or None in wrong:
        return
    for name in names:
        good = [captured[name] for captured in right if captured and name in captured]
        bad = [captured[name] for captured in wrong if captured and name in captured]
        kinds, texts = sorted({kind for kind, _ in good}), sorted({text for _, text in good})
        if good and not set(kinds) & {kind for kind, _ in bad} and len(kinds) == 1:
            yield name, {"kind": kinds[0]}
        are_short = len(texts) <= _MAX_ALTERNATIVES and all("\n" not in text and len(text) <= 80 for text in texts)
        if good and not set(texts) & {text for _, text in bad} and are_short:
            yield name, {"regex": f"^({'|'.join(map(rust_regex, texts))})$"}


def _definitions(candidate: Candidate, judgment: Judgment) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield the definitions, by kind and name, that hold the right matches and not all of the wrong ones."""
    node = candidate.region.first.parent
    while node is not None:
        start, end = node.start, node.end
        name = node.handle.field("name") if DEFINITION.match(node.kind) else None
        holds_right = all(start <= match.start and match.end <= end for match in judgment.right)
        holds_wrong = all(start <= match.start and match.end <= end for match in judgment.wrong)
        if name is not None and holds_right and not holds_wrong:
            has_name = {"field": "name", "regex": f"^{rust_regex(name.text())}$"}
            yield _INSIDE_COST, {"inside": {"kind": node.kind, "has": has_name, "stopBy": "end"}}
        node = node.parent


def _neighborhoods(change: Change, candidate: Candidate, judgment: Judgment) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield what stands before or after the statement of a match, and as last resort which child of its list it is."""
    node, depth = candidate.region.first, 0
    while node.parent is not None and not is_sequence(node.parent):
        node, depth = node.parent, depth + 1
    siblings = [child for child in node.parent.children if child.is_named] if node.parent else []
    if node not in siblings:
        return
    place = siblings.index(node)
    relations = []
    if place > 0:
        relations.append((_BESIDE_COST, {"follows": _matcher(change, siblings[place - 1])}))
    if place + 1 < len(siblings):
        relations.append((_BESIDE_COST, {"precedes": _matcher(change, siblings[place + 1])}))
    if (len(judgment.right) + len(judgment.wrong)) * len(siblings) <= _MAX_COUNTED:
        number = place + 1 - sum("comment" in child.kind for child in siblings[:place])
        position = {"position": number, "ofRule": {"not": {"regex": "^(#|//|/\\*)"}}}
        relations.append((_COUNTED_COST, {"nthChild": position}))
    for cost, relation in relations:
        yield cost, relation if depth == 0 else {"inside": {"kind": node.kind, **relation, "stopBy": "end"}}


def _matcher(change: Change, node: Node) -> dict[str, Any]:
    text = change.before.of(node)
    is_short = len(text) <= _MAX_QUOTED and "\n" not in text
    return by_text(node.kind, text) if is_short else by_name(change.before, node)
