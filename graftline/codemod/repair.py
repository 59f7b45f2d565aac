"""What can be added to a rule that changes too much, so that it changes what is wanted and nothing else."""

from collections.abc import Iterator, Sequence
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
    """Yield `candidate` with constraints on what its variables capture, and restricted to a definition by its name.

    Only what tells the right matches of `judgment` from the wrong ones is tried.
    """
    rule = rule_of(candidate.action)
    rule.pop("constraints", None)
    if not judgment.right:
        return
    for variable, constraint in _constraints(change, rule, judgment):
        yield _with(candidate, {**rule, "constraints": {variable: constraint}}, 0.0)
    for cost, place in (*_definitions(candidate, judgment), *_neighborhoods(change, candidate, judgment)):
        yield _with(candidate, {**rule, "rule": {"all": [rule["rule"], place]}}, cost)


def _definitions(candidate: Candidate, judgment: Judgment) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield the definitions, by kind and name, that hold the right matches and not all of the wrong ones."""
    for enclosing in _enclosing(candidate.region.first):
        name = enclosing.handle.field("name")
        if name is None or not all(_is_within(match.start, match.end, enclosing) for match in judgment.right):
            continue
        if all(_is_within(match.start, match.end, enclosing) for match in judgment.wrong):
            continue
        named = {"kind": enclosing.kind, "has": {"field": "name", "regex": f"^{rust_regex(name.text())}$"}}
        yield _INSIDE_COST, {"inside": {**named, "stopBy": "end"}}


def _neighborhoods(change: Change, candidate: Candidate, judgment: Judgment) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield what stands before or after the statement of a match, and as last resort which child of its list it is."""
    node, depth = candidate.region.first, 0
    while node.parent is not None and not is_sequence(node.parent):
        node, depth = node.parent, depth + 1
    if node.parent is None:
        return
    siblings = [child for child in node.parent.children if child.is_named]
    place = siblings.index(node) if node in siblings else -1
    if place < 0:
        return
    relations = []
    if place > 0:
        relations.append((_BESIDE_COST, {"follows": _quoted(change, siblings[place - 1])}))
    if place + 1 < len(siblings):
        relations.append((_BESIDE_COST, {"precedes": _quoted(change, siblings[place + 1])}))
    if (len(judgment.right) + len(judgment.wrong)) * len(siblings) <= _MAX_COUNTED:
        number = place + 1 - sum("comment" in child.kind for child in siblings[:place])
        counted = {"position": number, "ofRule": {"not": {"regex": "^(#|//|/\\*)"}}}
        relations.append((_COUNTED_COST, {"nthChild": counted}))
    for cost, relation in relations:
        yield cost, relation if depth == 0 else {"inside": {"kind": node.kind, **relation, "stopBy": "end"}}


def _quoted(change: Change, node: Node) -> dict[str, Any]:
    text = change.before.of(node)
    if len(text) <= _MAX_QUOTED and "\n" not in text:
        return by_text(node.kind, text)
    return by_name(change.before, node)


def _with(candidate: Candidate, rule: dict[str, Any], more: float) -> Candidate:
    given = {key: rule[key] for key in ("rule", "fix", "constraints", "transform") if rule.get(key)}
    action = RuleAction(**{"fix": "", **given})
    extra = candidate.cost - description_length(candidate.action)
    return replace(candidate, action=action, cost=description_length(action) + extra + more)


def _constraints(change: Change, rule: dict[str, Any], judgment: Judgment) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield a variable and what its captures are in right matches and never in wrong ones: a kind, or one of few texts."""
    names = sorted({name[1:] for name in VARIABLE.findall(str(rule["rule"])) if not name.startswith("$$")})
    found = captures_of(change.before.root, rule, names)
    right = [found.get(match.start) for match in judgment.right]
    wrong = [found.get(match.start) for match in judgment.wrong]
    if None in right or None in wrong:
        return
    for name in names:
        good = [captured[name] for captured in right if captured and name in captured]
        bad = [captured[name] for captured in wrong if captured and name in captured]
        kinds, texts = sorted({kind for kind, _ in good}), sorted({text for _, text in good})
        if good and not set(kinds) & {kind for kind, _ in bad} and len(kinds) == 1:
            yield name, {"kind": kinds[0]}
        if good and not set(texts) & {text for _, text in bad} and _are_short(texts):
            yield name, {"regex": f"^({'|'.join(map(rust_regex, texts))})$"}


def _are_short(texts: Sequence[str]) -> bool:
    return len(texts) <= _MAX_ALTERNATIVES and all("\n" not in text and len(text) <= 80 for text in texts)


def _enclosing(node: Node) -> Iterator[Node]:
    above = node.parent
    while above is not None:
        if DEFINITION.match(above.kind):
            yield above
        above = above.parent


def _is_within(start: int, end: int, node: Node) -> bool:
    return node.start <= start and end <= node.end
