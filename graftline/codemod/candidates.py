"""Candidates for one place of a change: every region under every policy, and forms that quote less than a pattern."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any, Literal

from graftline.astgrep.action import MAX_TEXT, PatternAction, RuleAction
from graftline.astgrep.binding import Language, Node, Tree, matches
from graftline.codemod.anti_unify import POLICIES, VARIABLE, make_template
from graftline.codemod.change import Change, Region, column, dedent
from graftline.codemod.cost import count_free_parts, description_length
from graftline.codemod.diff import Site, apply_sites, common_ends, is_sequence
from graftline.codemod.grammar import CONTEXTS, KEYWORDS

Forms = Literal["all", "plain", "literal"]
"""Which candidates are form: all, those that are a pattern and a rewrite and nothing else, or those without variables."""

DEFINITION = re.compile(r"^(function|class|method|constructor|interface)_(definition|declaration)$")
_TEXTS = re.compile(r"comment|string_(content|fragment)|character_data|jsx_text|^string$|string_literal|heredoc")
_DEFINITION_COST, _NAMELESS_COST, _NAMED_COST, _SPECIAL = 6.0, 10.0, 3.0, len(POLICIES)
_MAX_PATTERN_CHARACTERS, _MAX_PATTERN_LINES = 2_500, 40
_MAX_FRAGMENTS, _MAX_FRAGMENT_CHARACTERS = 8, 160
_MAX_QUOTED = 300
_MAX_COMPARED = 4_000_000
_TOKENS = re.compile(r"\w+|\W")
_TELLING = re.compile(r"\w.{6,}\w", re.DOTALL)
"""What a fragment must hold to say where it is from: eight characters, if the text has them."""
_WORDS = re.compile(r"\b[^\W\d]\w*")
_QUOTES = re.compile(r"""(['"`])(?:\\.|(?!\1)[^\\])*\1""", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rule that may be the step, and what speaks for it before anything has been tried."""

    action: PatternAction | RuleAction
    free: int
    """Parts of its matches that it leaves free (`codemod.cost`)."""
    cost: float
    preference: int
    """Place of its policy among `POLICIES`; the special forms come after them."""
    region: Region
    words: frozenset[str]
    """Words that a text must have for the rule to match in it."""


def generate_candidates(change: Change, site: Site, forms: Forms = "all") -> Iterator[Candidate]:
    """Yield the candidates for `site`, each action once."""
    emitted = set()
    for candidate in (*_spacings(change, site), *_of_regions(change, site)):
        is_plain = isinstance(candidate.action, PatternAction) and not candidate.action.selector
        is_allowed = forms == "all" or (is_plain if forms == "plain" else candidate.free == 0)
        key = candidate.action.model_dump_json()
        if key not in emitted and is_allowed:
            emitted.add(key)
            yield candidate


def _of_regions(change: Change, site: Site) -> Iterator[Candidate]:
    for region in change.regions(site):
        yield from _special(change, region)
        yield from _general(change, region)


def _general(change: Change, region: Region) -> Iterator[Candidate]:
    """Yield the templates of `region`."""
    emitted = set()
    is_large = region.end - region.start > _MAX_PATTERN_CHARACTERS
    templates = {
        key: None if is_large and key[0] == "literal" else make_template(change, region, *key) for key in POLICIES
    }
    named = templates["named", "long_runs"]
    has_names = named is not None and bool(_names(VARIABLE.sub("", named.pattern), change.before.language))
    for preference, ((policy, _), form) in enumerate(templates.items()):
        if form is None or len(form.rewrite) > MAX_TEXT or len(form.pattern) > _MAX_PATTERN_CHARACTERS:
            continue
        if form.pattern.count("\n") > _MAX_PATTERN_LINES or form in emitted:
            continue
        emitted.add(form)
        rule = matcher_of(change.before, region.first, form.pattern)
        if rule is None:
            continue
        fix: str | dict[str, Any] = form.rewrite
        if not region.is_single:
            text = change.before.of(region.last)
            last = matcher_of(change.before, region.last, dedent(text, column(change.before.text, region.last.start)))
            if last is None:
                continue
            fix = {"template": form.rewrite, "expandEnd": {**last, "stopBy": "end"}}
        quoted = VARIABLE.sub("", form.pattern)
        candidate = _candidate(region, rule, fix, preference, quoted)
        # names could have been kept, and all of them are left free: one place is little evidence for that
        is_careless = (has_names or not region.first.children) and not _names(quoted, change.before.language)
        more = _NAMELESS_COST if is_careless else _NAMED_COST if policy == "named" else 0.0
        yield replace(candidate, cost=candidate.cost + more)


def _names(text: str, language: Language) -> frozenset[str]:
    return frozenset(_WORDS.findall(text)) - KEYWORDS[language]


def _candidate(
    region: Region,
    rule: Mapping[str, Any],
    fix: str | dict[str, Any],
    preference: int,
    quoted: str,
    transform: dict[str, Any] | None = None,
) -> Candidate:
    action = action_of(rule, fix, transform)
    # how a string is escaped does not count where it is matched
    words = frozenset(_WORDS.findall(_QUOTES.sub(" ", quoted) if "\\" in quoted else quoted))
    cost = description_length(action) + (_DEFINITION_COST if DEFINITION.match(region.first.kind) else 0.0)
    return Candidate(action, count_free_parts(action), cost, preference, region, words)


def action_of(
    rule: Mapping[str, Any], fix: str | dict[str, Any], transform: dict[str, Any] | None = None
) -> PatternAction | RuleAction:
    """Return the action of a rule object, in the shorter of the two forms that can say it."""
    pattern = rule.get("pattern")
    if len(rule) == 1 and pattern and isinstance(fix, str) and not transform:
        if isinstance(pattern, str):
            return PatternAction(pattern=pattern, rewrite=fix)
        return PatternAction(pattern=pattern["context"], rewrite=fix, selector=pattern["selector"])
    return RuleAction(rule=dict(rule), fix=fix, transform=transform)


def _special(change: Change, region: Region) -> Iterator[Candidate]:
    """Yield what needs no quotation of a large node."""
    node = region.first
    if node.parent is None or not node.is_named:
        return
    sites = [site for _, site in change.inside(region.start, region.end) or ()]
    if not apply_sites(change.before.text, sites, region.start, region.end):
        yield from _deletions(change, region)
        return
    if not region.is_single:
        return
    is_within = all(
        node.start <= site.start < site.end <= node.end or node.start < site.start < node.end for site in sites
    )
    if sites and is_within and _TEXTS.search(node.kind):
        yield from _text_edits(change, region, sites)
    is_beside = len(sites) == 1 and sites[0].start == sites[0].end and sites[0].start in (node.start, node.end)
    if is_beside and is_sequence(node.parent):
        yield from _insertions(change, region, sites[0])


def _deletions(change: Change, region: Region) -> Iterator[Candidate]:
    first, last = region.first, region.last
    if first.parent is None:
        return
    quoted = _name_text(first)
    if region.is_single:
        yield _candidate(region, by_name(change.before, first), "", _SPECIAL, quoted)
    if not is_sequence(first.parent):
        return
    # a fix that takes a neighbor along and writes it again deletes the line between them as well
    siblings = [child for child in first.parent.children if child.is_named]
    ends = list(zip(_matchers(change, first), _matchers(change, last), strict=False))
    if region.is_single:
        ends += [(rule, rule) for rule in _patterns(change, region)]
    for head, tail in ends:
        if last is not siblings[-1]:
            following = _beyond("$N", "follows", region, tail)
            fix: dict[str, Any] = {"template": "$N", "expandEnd": following}
            yield _candidate(region, {"all": [head, {"precedes": following}]}, fix, _SPECIAL, quoted)
        if first is not siblings[0]:
            preceding = _beyond("$P", "precedes", region, head)
            fix = {"template": "$P", "expandStart": preceding}
            yield _candidate(region, {"all": [tail, {"follows": preceding}]}, fix, _SPECIAL, quoted)


def _patterns(change: Change, region: Region) -> Iterator[dict[str, Any]]:
    """Yield the rules of the patterns of a region that are not literal."""
    emitted = set()
    for policy, lists in POLICIES:
        form = make_template(change, region, policy, lists)
        if form is not None and form.variables and form.pattern not in emitted:
            emitted.add(form.pattern)
            rule = matcher_of(change.before, region.first, form.pattern)
            if rule is not None:
                yield rule


def _beyond(variable: str, relation: str, region: Region, edge: dict[str, Any]) -> dict[str, Any]:
    """Return the rule for the neighbor of a region, seen from its other end."""
    if region.is_single:
        return {"pattern": variable}
    return {"all": [{"pattern": variable}, {relation: edge}], "stopBy": "end"}


def _matchers(change: Change, node: Node) -> list[dict[str, Any]]:
    """Return rules for `node`: by its name or first line, and, of a small one, by its text."""
    rules: list[dict[str, Any]] = [by_name(change.before, node)]
    if node.end - node.start < _MAX_QUOTED:
        text = dedent(change.before.of(node), column(change.before.text, node.start))
        rules += [rule for rule in [matcher_of(change.before, node, text)] if rule is not None]
    return rules


def _spacings(change: Change, site: Site) -> Iterator[Candidate]:
    """Yield the writing of the blanks between two neighbors, each of which captures itself."""
    if not site.is_blank:
        return
    left, right = change.neighbors(site)
    text = change.before.text
    # what captures itself is the left neighbor if it has a name, else the right one; the other is written again
    node = left if left is not None and left.is_named else right
    if left is None or node is None or not node.is_named:
        return
    indent, quoted = column(text, node.start), _name_text(node)
    rule = {"pattern": "$A", **by_name(change.before, node)}
    if right is None:
        if site.start == site.end == left.end:
            yield _candidate(Region(node, node), rule, "$A" + site.text, _SPECIAL, quoted)
        return
    blanks = dedent(apply_sites(text, [site], left.end, right.start), indent)
    if node is right:
        token = change.before.of(left)
        fix = {"template": f"{token}{blanks}$A", "expandStart": {"regex": f"^{rust_regex(token)}$"}}
    elif right.is_named:
        rule["precedes"] = {"pattern": "$N"}
        fix = {"template": f"$A{blanks}$N", "expandEnd": {"pattern": "$N"}}
    else:
        token = change.before.of(right)
        fix = {"template": f"$A{blanks}{token}", "expandEnd": {"regex": f"^{rust_regex(token)}$"}}
    yield _candidate(Region(node, node), rule, fix, _SPECIAL, quoted)


def _insertions(change: Change, region: Region, site: Site) -> Iterator[Candidate]:
    """Yield an insertion beside a node that captures itself."""
    node = region.first
    if VARIABLE.search(site.text):
        return
    new = dedent(site.text, column(change.before.text, node.start))
    fix = "$A" + new if site.start == node.end else new + "$A"
    rule = {"pattern": "$A", **by_name(change.before, node)}
    yield _candidate(region, rule, fix, _SPECIAL, _name_text(node))


def _text_edits(change: Change, region: Region, sites: Sequence[Site]) -> Iterator[Candidate]:
    """Yield edits of a comment or a string: fragments of it, or all of it where its lines cannot be told apart."""
    node = region.first
    old = change.before.of(node)
    new = apply_sites(change.before.text, sites, node.start, node.end)
    yield from _fragments(region, old, new)
    indent = column(change.before.text, node.start)
    if "\n" in old and not VARIABLE.search(old + new) and len(new) <= MAX_TEXT:
        for line in old.splitlines():
            if len(line.strip()) > 3 and "\n" not in line:
                rule = {"kind": node.kind, "regex": rust_regex(line.strip()[:_MAX_FRAGMENT_CHARACTERS])}
                yield _candidate(region, rule, dedent(new, indent), _SPECIAL, "")
                break
    elif not node.children and not VARIABLE.search(new):
        yield _candidate(region, by_text(node.kind, old), dedent(new, indent), _SPECIAL, old)


def _fragments(region: Region, old: str, new: str) -> Iterator[Candidate]:
    """Yield the replacement of the fragments of a text that change, each widened until the text holds it once."""
    old_tokens, new_tokens = _TOKENS.findall(old), _TOKENS.findall(new)
    front, back = common_ends(old_tokens, new_tokens)
    middle, new_middle = old_tokens[front : len(old_tokens) - back], new_tokens[front : len(new_tokens) - back]
    if len(middle) * len(new_middle) > _MAX_COMPARED:
        return
    matcher = SequenceMatcher(None, middle, new_middle, autojunk=False)
    changes = [
        (front + i, front + j, front + k, front + m) for tag, i, j, k, m in matcher.get_opcodes() if tag != "equal"
    ]
    if not 1 <= len(changes) <= _MAX_FRAGMENTS:
        return
    transform: dict[str, Any] = {}
    source, current, first = "$A", old, ""
    for number, (i, j, k, m) in enumerate(changes):
        low, high = i, j
        while not _TELLING.search(fragment := "".join(old_tokens[low:high])) or current.count(fragment) != 1:
            if low == 0 and high == len(old_tokens) and current.count(fragment) == 1:
                break
            if len(fragment) > _MAX_FRAGMENT_CHARACTERS or (low == 0 and high == len(old_tokens)):
                return
            low, high = max(0, low - 1), min(len(old_tokens), high + 1)
        replacement = "".join(old_tokens[low:i]) + "".join(new_tokens[k:m]) + "".join(old_tokens[j:high])
        name = f"T{number}"
        by = replacement.replace("$", "$$")
        transform[name] = {"replace": {"source": source, "replace": rust_regex(fragment), "by": by}}
        source, first = f"${name}", first or rust_regex(fragment)
        current = current.replace(fragment, replacement)
    if current == new:
        rule = {"pattern": "$A", "kind": region.first.kind, "regex": first}
        yield _candidate(region, rule, source, _SPECIAL, "", transform)


def _name_text(node: Node) -> str:
    name = node.handle.field("name")
    return name.text() if name is not None else ""


_LEAVES = re.compile(r"identifier|comment|string_(content|fragment)")
_MAX_LITERAL = 160
_FIRST_LINE = 80


def matcher_of(tree: Tree, node: Node, pattern: str) -> dict[str, Any] | None:
    """Return the rule by which `pattern` matches `node`; None where no form does.

    Some patterns are no program alone: they are put where they can stand, and the kind of the node selected there.
    """
    is_literal = not VARIABLE.search(pattern)
    if is_literal and not node.children and _LEAVES.search(node.kind):
        return by_text(node.kind, tree.of(node))
    nodes = list(same_span(node))
    rule: dict[str, Any] = {"pattern": pattern}
    if any(matches(inner, rule) for inner in nodes):
        return rule
    surroundings = CONTEXTS[tree.language].get(node.kind)
    if surroundings is not None:
        rule = {"pattern": {"context": surroundings.replace("@", pattern), "selector": node.kind}}
        if any(matches(inner, rule) for inner in nodes):
            return rule
    if is_literal and node.is_named and len(pattern) < _MAX_LITERAL and "\n" not in pattern:
        return by_text(node.kind, tree.of(node))
    return None


def by_text(kind: str, text: str) -> dict[str, str]:
    """Return the rule that matches nodes of `kind` whose text is `text`."""
    return {"kind": kind, "regex": f"^{rust_regex(text)}$"}


def by_name(tree: Tree, node: Node) -> dict[str, Any]:
    """Return a rule for `node` that does not quote it: its kind and name, else its kind and first line."""
    name = node.handle.field("name")
    if name is not None:
        return {"kind": node.kind, "has": {"field": "name", "regex": f"^{rust_regex(name.text())}$"}}
    line = tree.of(node).partition("\n")[0]
    end = "$" if line == tree.of(node) and len(line) <= _FIRST_LINE else ""
    return {"kind": node.kind, "regex": f"^{rust_regex(line[:_FIRST_LINE])}{end}"}


def rust_regex(text: str) -> str:
    """Return a regular expression of Rust's `regex` for `text` itself."""
    # Python also escapes blanks, which the regex crate refuses
    escaped = re.escape(text).replace("\\ ", " ")
    return escaped.replace("\\\n", "\\n").replace("\\\t", "\\t").replace("\\\r", "\\r")


def same_span(node: Node) -> Iterator[Node]:
    """Yield `node` and the nodes below it that hold the same text: a pattern may match any of them."""
    yield node
    while len(node.children) == 1 and (node.children[0].start, node.children[0].end) == (node.start, node.end):
        node = node.children[0]
        yield node
