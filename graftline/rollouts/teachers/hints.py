"""Hints of the critic: why ast-grep refuses an action, what is nearest to a pattern without a match, and which pattern
would match more (`wider` makes those that are tried).

A hint knows the action and the text before it, never the target. What might match instead is tried in the sandbox.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from string import ascii_uppercase
from typing import Any

from graftline.astgrep.action import PatternAction, RuleAction, rule_of
from graftline.astgrep.binding import Language, Node, Tree, parse
from graftline.codemod.anti_unify import VARIABLE
from graftline.codemod.cost import patterns_of
from graftline.codemod.grammar import CONTEXTS, KEYWORDS
from graftline.core.errors import DataError
from graftline.rollouts.teachers.wording import join_words, line_of, lines_with, quote
from graftline.sandbox.base import Match, Sandbox, Verdict, ensure_decided

_TOKEN = re.compile(r"\w+|[^\w\s]")
_OBJECTS = {"cls", "self", "super", "this"}
_MIXED = re.compile(r"\$[A-Z_]+[a-z]\w*")
_MIXED_PYTHON = re.compile(r"\$[A-Z_]*[a-z]\w*")
"""As `_MIXED`; elsewhere, names in small letters may begin with the sign."""
_WORD = re.compile(r"[^\W\d]\w+")
_BAD_KIND = re.compile(r"Kind `([^`]*)` is invalid")
_UNBOUND = re.compile(r"meta var `([^`]*)` used in `(\w+)`")
_ARGUMENTS = re.compile(r"\(.+\)$", re.DOTALL)
_SINGLE = re.compile(r"(?<!\$)\$(?=[A-Z_])")
_MAX_NODE_CHARACTERS = 1_000
_MAX_KINDS = 3
_LEAST_OVERLAP = 0.3


def invalid_hint(action: PatternAction | RuleAction, error: str, tree: Tree) -> str:
    """Return what to do about `error`, by which ast-grep refused `action`; empty where the message says it all."""
    sign = _MIXED_PYTHON if tree.language == "python" else _MIXED
    if mixed := sign.search(json.dumps(action.model_dump(mode="json"), ensure_ascii=False)):
        return f"`{mixed[0]}` is no metavariable: their names have capital letters, digits and `_` alone."
    if "Multiple AST nodes" in error:
        return f"A pattern has to be one node. {_in_context(action, tree)}".strip()
    if "No AST root" in error:
        return "A pattern cannot be empty: write the code that is to be matched."
    if bad := _BAD_KIND.search(error):
        return _kinds_like(bad[1], tree)
    if unbound := _UNBOUND.search(error):
        bound = sorted({name for text in patterns_of(rule_of(action)["rule"]) for name in VARIABLE.findall(text)})
        names = f"the pattern has {join_words(bound)}" if bound else "the pattern has no metavariable"
        return f"`{unbound[2]}` uses ${unbound[1].lstrip('$')}, but {names}."
    if "any kind" in error and isinstance(action, PatternAction):
        if VARIABLE.fullmatch(action.pattern.strip()):
            return "A metavariable alone matches anything: write the code that stands round it, too."
        return "The pattern is no whole piece of code: write an expression or a statement."
    if "any kind" in error or "positive matcher" in error:
        return "Add `pattern` or `kind`, so that it is known which nodes are meant."
    if "regex" in error:
        return "A `regex` is one of Rust: escape `( ) [ ] { } . * + ? | ^ $` and `\\`, and use no look-around."
    return ""


def empty_match_hint(action: PatternAction | RuleAction, tree: Tree, sandbox: Sandbox) -> str:
    """Return why `action` matches nothing in `tree`: the part that fails, and the nearest code."""
    rule = rule_of(action)["rule"]
    failing = _failing_part(rule, tree, sandbox)
    if failing:
        return failing
    patterns = list(patterns_of(rule))
    if not patterns:
        kind = rule.get("kind")
        is_absent = kind and all(node.kind != kind for node in tree.root.walk())
        return _kinds_like(str(kind), tree) if is_absent else ""
    return _pattern_hint(patterns[0], rule, tree, sandbox)


def more_matches_hint(
    action: PatternAction | RuleAction, matches: Sequence[Match], tree: Tree, sandbox: Sandbox
) -> str:
    """Return which pattern, freer than that of `action`, matches most besides its `matches`; empty where none does."""
    patterns = wider(action.pattern, tree.language) if isinstance(action, PatternAction) else []
    actions = [PatternAction(pattern=pattern, rewrite="") for pattern in patterns]
    best, more = "", list[Match]()
    for pattern, result in zip(
        patterns, sandbox.apply_many(tree.text, tree.language, actions) if actions else [], strict=True
    ):
        extra = [
            match
            for match in ensure_decided(result).matches
            if not any(match.start < other.end and other.start < match.end for other in matches)
        ]
        if len(extra) > len(more):
            best, more = pattern, extra
    if not best:
        return ""
    return f"If places like it are meant, use {quote(best)}: it also matches {_place(more[0], tree)}."


def broken_hint(action: PatternAction | RuleAction, language: Language) -> str:
    """Return what in the rewrite of `action` is no code in `language`, as far as that is plain; empty if nothing is."""
    fix = str(rule_of(action)["fix"])
    if "..." in fix:
        return "`...` is written as it stands: use a metavariable of the pattern."
    if language == "python" and re.search(r"\{\s", fix):
        return "Python has no braces round blocks: end the first line with a colon, and indent the next by four blanks."
    if isinstance(action, PatternAction):
        ends = [text.rstrip().endswith(";") for text in (action.pattern, action.rewrite)]
        if ends[0] != ends[1]:
            ending, bare = ("pattern", "rewrite") if ends[0] else ("rewrite", "pattern")
            return f"The {ending} ends with `;`, and the {bare} does not."
    return ""


def left_out_hint(action: PatternAction | RuleAction, language: Language) -> str:
    """Return which names of its pattern the rewrite of `action` does not repeat; empty where it repeats all."""
    if not isinstance(action, PatternAction):
        return ""
    rewritten, grammar = {*_WORD.findall(action.rewrite)}, KEYWORDS[language] - _OBJECTS
    words = dict.fromkeys(_WORD.findall(VARIABLE.sub(" ", action.pattern)))
    # one that is almost there was renamed
    left_out = [f"`{word}`" for word in words if word not in grammar and not get_close_matches(word, rewritten)]
    return f"The rewrite leaves {join_words(left_out)} out: repeat in it what has to stay." if left_out else ""


def _place(span: Match | Node, tree: Tree) -> str:
    return f"{quote(tree.text[span.start : span.end])} on line {line_of(tree.text, span.start)}"


def _pattern_hint(pattern: str, rule: Mapping[str, Any], tree: Tree, sandbox: Sandbox) -> str:
    words = list(dict.fromkeys(_WORD.findall(VARIABLE.sub(" ", pattern))))
    absent = [word for word in words if not lines_with(tree.text, word)]
    if absent:
        return _absent(absent, tree)
    relaxed = _try_variants(pattern, rule, tree, sandbox)
    if relaxed:
        return relaxed
    nearest = _nearest(pattern, tree)
    if nearest is None:
        return ""
    hint = f"The nearest code is {_place(nearest, tree)}, of kind `{nearest.kind}`."
    read = _kind_of_pattern(pattern, tree.language)
    if read and read != nearest.kind and "selector" not in str(rule.get("pattern")):
        hint += f" The pattern is read as `{read}`.{_selecting(pattern, nearest.kind, tree.language)}"
    return hint


def _absent(absent: list[str], tree: Tree) -> str:
    present = sorted(set(_WORD.findall(tree.text)))
    near = get_close_matches(absent[0], present, n=1)
    suggestion = f" Did you mean `{near[0]}`, on line {lines_with(tree.text, near[0])[0]}?" if near else ""
    return f"{join_words([f'`{word}`' for word in absent])} {'is' if len(absent) == 1 else 'are'} not in the text.{suggestion}"


def _try_variants(pattern: str, rule: Mapping[str, Any], tree: Tree, sandbox: Sandbox) -> str:
    """Return what small change of `pattern` would make it match; empty where none that is tried does."""
    if rule.get("pattern") != pattern:
        return ""
    numbers = iter(range(len(pattern)))
    variants = {
        "$A stands for one node, $$$A for any number": _SINGLE.sub("$$$", pattern),
        "a metavariable that stands twice needs the same code twice": VARIABLE.sub(
            lambda name: f"{name[0]}_{next(numbers)}", pattern
        ),
        "the quotes are others": pattern.translate(str.maketrans("'\"", "\"'")),
        "a `;` at the end is too much": pattern.rstrip().rstrip(";"),
        "`...` stands for itself, $$$ARGS for any number of nodes": pattern.replace("...", "$$$ARGS"),
        "the arguments are others": _ARGUMENTS.sub("($$$ARGS)", pattern),
    }
    actions = [(why, text) for why, text in variants.items() if text != pattern and text.strip()]
    if not actions:
        return ""
    results = sandbox.apply_many(
        tree.text, tree.language, [PatternAction(pattern=text, rewrite="") for _, text in actions]
    )
    for (why, text), result in zip(actions, results, strict=True):
        if ensure_decided(result).verdict is Verdict.OK:
            return f"Use {quote(text)}: it matches {_place(result.matches[0], tree)} ({why})."
    return ""


def _failing_part(rule: Mapping[str, Any], tree: Tree, sandbox: Sandbox) -> str:
    """Return which conditions of a rule of several match alone; empty where its pattern or kind alone fails."""
    base = {key: rule[key] for key in ("pattern", "kind") if key in rule}
    conditions = [key for key in rule if key not in base]
    if not base or not conditions:
        return ""
    actions = [
        RuleAction(rule=base, fix=""),
        *(RuleAction(rule={**base, key: rule[key]}, fix="") for key in conditions),
    ]
    alone, *alone_results = (ensure_decided(result) for result in sandbox.apply_many(tree.text, tree.language, actions))
    if alone.verdict is not Verdict.OK:
        return ""
    place = _place(alone.matches[0], tree)
    failing = [
        f"`{key}`" for key, result in zip(conditions, alone_results, strict=True) if result.verdict is not Verdict.OK
    ]
    names = " and ".join(f"`{key}`" for key in base)
    culprit = join_words(failing) if failing else "the others together"
    hint = f"{names} alone would match {place}; {culprit} {'rules' if len(failing) == 1 else 'rule'} it out."
    relations = (rule[key] for key in ("inside", "has") if key in rule)
    if any(isinstance(relation, Mapping) and "stopBy" not in relation for relation in relations):
        hint += " `inside` and `has` look one level far unless `stopBy: end` is given."
    return hint


def _in_context(action: PatternAction | RuleAction, tree: Tree) -> str:
    """Return in which context a pattern that is no node by itself can stand, judged by the nearest code."""
    patterns = list(patterns_of(rule_of(action)["rule"]))
    parts = statements(patterns[0], tree.language) if patterns else []
    if len(parts) > 1:
        return f"These are {len(parts)}: use one of them alone, {quote(parts[0])}, of which every match is rewritten."
    nearest = _nearest(patterns[0], tree) if patterns else None
    if nearest is None:
        return "Match the whole expression or statement, or give a context in which it stands and a `selector`."
    place = _place(nearest, tree)
    advice = _selecting(patterns[0], nearest.kind, tree.language) or " Match all of it, or one part at a time."
    return f"The nearest one is {place}, of kind `{nearest.kind}`.{advice}"


def _selecting(pattern: str, kind: str, language: Language) -> str:
    surroundings = CONTEXTS[language].get(kind)
    if surroundings is None:
        return ""
    context = surroundings.replace("@", pattern)
    return f" To match that, use the pattern {quote(context)} with the selector `{kind}`."


def _kinds_like(kind: str, tree: Tree) -> str:
    kinds = Counter(node.kind for node in tree.root.walk() if node.is_named)
    near = get_close_matches(kind, sorted(kinds), n=_MAX_KINDS, cutoff=0.5)
    if near:
        return (
            f"No node of the text is of kind `{kind}`; kinds like it are {join_words([f'`{name}`' for name in near])}."
        )
    common = [f"`{name}`" for name, _ in kinds.most_common(6)]
    return f"No node of the text is of kind `{kind}`; the commonest are {join_words(common, 6)}."


def _nearest(pattern: str, tree: Tree) -> Node | None:
    """Return the smallest node that shares most tokens with `pattern`; None where none shares enough."""
    tokens = Counter(_TOKEN.findall(VARIABLE.sub(" ", pattern)))
    words = Counter({token: 3 * number for token, number in tokens.items() if _WORD.fullmatch(token)})
    weights = tokens | words
    best: tuple[float, int, Node] | None = None
    for node in tree.root.walk():
        if not node.is_named or node.parent is None or node.end - node.start > _MAX_NODE_CHARACTERS:
            continue
        node_tokens = Counter(_TOKEN.findall(tree.of(node)))
        shared = sum(min(weight, weight * node_tokens[token]) for token, weight in weights.items())
        score = shared / max(1, weights.total())
        rank = (score, node.start - node.end, node)
        if best is None or rank[:2] > best[:2]:
            best = rank
    return best[2] if best is not None and best[0] >= _LEAST_OVERLAP else None


def _kind_of_pattern(pattern: str, language: Language) -> str:
    """Return the kind of node that `pattern` is read as alone; empty where it is several."""
    try:
        node = whole(parse(readable(pattern, language), language).root)
    except DataError:
        return ""
    return "" if node.kind in WRAPPERS else node.kind


WRAPPERS = ("module", "program", "expression_statement")
"""Kinds of nodes that stand round a pattern because it is parsed as a program."""
_LISTS = ("argument_list", "arguments")
_MAX_PARTS = 6
_ANY_NUMBER = re.compile(r"\$\$\$[A-Z_][A-Z0-9_]*")
_FREE = re.compile(r"[$µ]+[A-Z_][A-Z0-9_]*")


def wider(pattern: str, language: Language) -> list[str]:
    """Return patterns with one of the parts of `pattern` left free, all of them, any number; none where it is no code.

    f(x, 1)  ->  f($A, 1), f(x, $A), f($A, $B), f($$$ARGS)
    """
    text = readable(pattern, language)
    try:
        node = whole(parse(text, language).root)
        parts = [] if node.kind in WRAPPERS else list(_parts(node, text))[:_MAX_PARTS]
    except DataError:
        return []
    used = {name.lstrip("$") for name in VARIABLE.findall(pattern)}
    names = [f"${letter}" for letter in ascii_uppercase if letter not in used]
    single = [_free_parts(pattern, [part], names) for part in parts]
    every = [_free_parts(pattern, parts, names)] if len(parts) > 1 else []
    return list(dict.fromkeys([*single, *every, *_any_number(node, pattern)]))


def statements(pattern: str, language: Language) -> list[str]:
    """Return the statements of which `pattern` consists, the signs at their ends aside; none where it is no code."""
    text = readable(pattern, language)
    try:
        tree = parse(text, language)
    except DataError:
        return []
    root = whole(tree.root)
    if not tree.is_clean or root.kind not in WRAPPERS:
        return []
    return [pattern[child.start : child.end].rstrip("; ") for child in root.children if child.is_named]


def readable(pattern: str, language: Language) -> str:
    """Return `pattern` as code of the same length, which its language can parse."""
    # ast-grep, too, puts a letter for the sign that is none of Python's
    return pattern.replace("$", "µ") if language == "python" else pattern


def whole(node: Node) -> Node:
    """Return the node that a pattern is read as, of the root of its tree."""
    while node.kind in WRAPPERS and len(named := [child for child in node.children if child.is_named]) == 1:
        node = named[0]
    return node


def _any_number(node: Node, pattern: str) -> Iterator[str]:
    for child in node.children:
        inside = [argument for argument in child.children if argument.is_named] if child.kind in _LISTS else []
        if inside and not _ANY_NUMBER.fullmatch(pattern[inside[0].start : inside[-1].end]):
            yield f"{pattern[: inside[0].start]}$$$ARGS{pattern[inside[-1].end :]}"


def _parts(node: Node, text: str) -> Iterator[tuple[int, int]]:
    """Yield where the operands of `node` are, or the arguments if it is a call; not what is free already."""
    children = [child for child in node.children if child.is_named]
    lists = [child for child in children if child.kind in _LISTS]
    operands = [child for child in lists[-1].children if child.is_named] if lists else children
    for operand in operands:
        if not _FREE.fullmatch(text[operand.start : operand.end]):
            yield operand.start, operand.end


def _free_parts(text: str, parts: list[tuple[int, int]], names: list[str]) -> str:
    pieces, place = [], 0
    for (start, end), name in zip(parts, names, strict=False):
        pieces += [text[place:start], name]
        place = end
    return "".join([*pieces, text[place:]])
