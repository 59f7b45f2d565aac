"""From one example (text before, text after) to ast-grep rules that make the change, without a language model.

    1  the difference of the two trees gives sites                                            (`rules.diff`)
    2  regions round the first site: the nodes that cover it, the neighbour of an insertion
    3  every region under every policy gives a pattern and its rewrite                        (`rules.anti_unify`)
    4  one call of the sandbox applies all of them; a candidate survives if every edit it makes is a wanted one
    5  the survivor with the shortest description per site fixed is the step; then again, until nothing is left

Getafix (https://arxiv.org/abs/1902.06111) and Refazer (https://arxiv.org/abs/1608.09000) anti-unify as well; here the
judge of a candidate is ast-grep itself, run on the text, rather than a model of what the pattern would match.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from graftline.actions.action import MAX_TEXT, PatternAction, RuleAction
from graftline.actions.astgrep import Language, Node, matches, parse
from graftline.errors import DataError
from graftline.rules.anti_unify import POLICIES, VARIABLE, Change, bound_names, template
from graftline.rules.contexts import context_of
from graftline.rules.diff import Site, differences, is_sequence
from graftline.rules.diff import replaced as replaced_sites
from graftline.rules.equality import without_blanks
from graftline.sandbox.base import Match, Sandbox, SandboxResult, Verdict, decided

MAX_REGION_CHARACTERS = 2_500
_MAX_LEVELS = 6
_MAX_SITES_TRIED = 6
_MAX_REJECTED = 2
_TOKENS = re.compile(r"(\$+[A-Z]\w*)|(\w+)|([^\s\w])")
_LEAVES = re.compile(r"identifier|comment|string_(content|fragment)")
_DEFINITIONS = re.compile(r"^(function|class|method|constructor|interface)_(definition|declaration)$")


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate that would also change what must stay."""

    action: PatternAction | RuleAction
    unwanted: int
    """Number of matches it would change wrongly."""
    line: int
    """Line of the first of them, from 1."""


@dataclass(frozen=True, slots=True)
class Step:
    """One induced action and what it does to the text it was induced on."""

    action: PatternAction | RuleAction
    after: str
    matches: int
    sites_fixed: int
    sites_left: int
    variables: int
    """Metavariables in its pattern; 0 says that it memorises the example."""
    rejected: tuple[Rejected, ...]
    """The cheapest candidates that failed, cheapest first."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    action: PatternAction | RuleAction
    variables: int
    cost: float
    preference: int


@dataclass(frozen=True, slots=True)
class _Judged:
    """A candidate and what it does to the text."""

    candidate: _Candidate
    result: SandboxResult
    after: str
    fixed: frozenset[int]
    """Indices of the sites it fixes, of which there is one at least."""
    real: int
    """Number of those that are more than blanks."""
    wrong: tuple[Match, ...]

    @property
    def is_right(self) -> bool:
        """Whether everything it changes is wanted, and more than blanks is."""
        return not self.wrong and self.real > 0

    @property
    def rank(self) -> tuple[float, int]:
        """The less the better: its cost per site it fixes, then how general it is."""
        return self.candidate.cost / (self.real + 0.1 * (len(self.fixed) - self.real)), self.candidate.preference


def next_step(before: str, after: str, language: Language, sandbox: Sandbox) -> Step | None:
    """Return the best single action on the way from `before` to `after`; None when no candidate holds.

    Raises:
        DataError: a text cannot be parsed within the bounds of `parse`.
        SandboxError: the sandbox failed.
    """
    old, new = parse(before, language), parse(after, language)
    change = Change(old, new, differences(old, new), bound_names(old))
    wanted = [site for site in change.sites if not site.is_blank]
    failed: list[_Judged] = []
    for site in wanted[:_MAX_SITES_TRIED]:
        candidates = list(_candidates(change, site))
        results = map(decided, sandbox.apply_many(before, language, [candidate.action for candidate in candidates]))
        judged = [found for pair in zip(candidates, results, strict=True) if (found := _judged(change, *pair))]
        failed += [found for found in judged if found.wrong]
        right = [found for found in judged if found.is_right]
        if right:
            return _step(before, min(right, key=lambda found: found.rank), failed, len(wanted))
    return None


def _step(before: str, best: _Judged, failed: Sequence[_Judged], wanted: int) -> Step:
    cheapest = sorted(failed, key=lambda found: found.candidate.cost)[:_MAX_REJECTED]
    return Step(
        action=best.candidate.action,
        after=best.after,
        matches=len(best.result.matches),
        sites_fixed=best.real,
        sites_left=wanted - best.real,
        variables=best.candidate.variables,
        rejected=tuple(
            Rejected(found.candidate.action, len(found.wrong), before.count("\n", 0, found.wrong[0].start) + 1)
            for found in cheapest
        ),
    )


def induce(
    before: str, after: str, language: Language, sandbox: Sandbox, max_steps: int = 12
) -> tuple[list[Step], str]:
    """Return steps from `before` towards `after`, and the text they reach; equal but for blanks is the end.

    Raises:
        SandboxError: the sandbox failed.
    """
    steps: list[Step] = []
    text, seen = before, {before}
    while len(steps) < max_steps and without_blanks(text) != without_blanks(after):
        try:
            step = next_step(text, after, language, sandbox)
        except DataError:
            break
        if step is None or step.after in seen:
            break
        steps.append(step)
        text = step.after
        seen.add(text)
    return steps, text


def _candidates(change: Change, site: Site) -> Iterator[_Candidate]:
    seen: set[str] = set()
    for region in _regions(change, site):
        for candidate in (*_special(change, site, region), *_general(change, region)):
            key = candidate.action.model_dump_json()
            if key not in seen:
                seen.add(key)
                yield candidate


def _regions(change: Change, site: Site) -> Iterator[Node]:
    """Yield the nodes that cover `site`, inside out, then the neighbours of an insertion or the nodes it consists of."""
    root = change.before.root
    node, chain = root, [root]
    while (inner := _covering_child(node, site)) is not None:
        node = inner
        chain.append(node)
    span = None
    levels = 0
    for covering in reversed(chain):
        if covering.parent is None or covering.end - covering.start > MAX_REGION_CHARACTERS or levels == _MAX_LEVELS:
            break
        if span != (covering.start, covering.end):
            yield covering
            levels += 1
        span = covering.start, covering.end
    named = [child for child in node.children if child.is_named]
    yield from (child for child in named if site.start <= child.start and child.end <= site.end)
    yield from [child for child in named if child.end <= site.start][-1:]
    yield from [child for child in named if child.start >= site.end][:1]


def _covering_child(node: Node, site: Site) -> Node | None:
    for child in node.children:
        is_at_edge = site.start == site.end and site.start in (child.start, child.end)
        if child.start <= site.start and site.end <= child.end and child.start < child.end and not is_at_edge:
            return child
    return None


def _general(change: Change, region: Node) -> Iterator[_Candidate]:
    if region.end - region.start > MAX_REGION_CHARACTERS:
        return
    for preference, (policy, lists) in enumerate(POLICIES):
        found = template(change, region, policy, lists)
        if found is None or max(len(found.pattern), len(found.rewrite)) > MAX_TEXT:
            continue
        action = _action(change, region, found.pattern, found.rewrite)
        if action is not None:
            cost = _cost(found.pattern, found.rewrite, found.variables, action, region)
            yield _Candidate(action, found.variables, cost, preference)


def _action(change: Change, region: Node, pattern: str, rewrite: str) -> PatternAction | RuleAction | None:
    """Return the shortest form in which `pattern` matches `region`: plain, in a context, or by kind and text."""
    is_literal = not VARIABLE.search(pattern)
    if is_literal and not region.children and _LEAVES.search(region.kind):
        return RuleAction(rule=_by_text(region.kind, change.before.of(region)), fix=rewrite)
    nodes = list(_same_span(region))
    if any(matches(node, {"pattern": pattern}) for node in nodes):
        return PatternAction(pattern=pattern, rewrite=rewrite)
    surroundings = context_of(region.kind, change.before.language)
    if surroundings is not None:
        context = surroundings.replace("@", pattern)
        if any(matches(node, {"pattern": {"context": context, "selector": region.kind}}) for node in nodes):
            return PatternAction(pattern=context, rewrite=rewrite, selector=region.kind)
    if is_literal and region.is_named and len(pattern) < 160 and "\n" not in pattern:
        return RuleAction(rule=_by_text(region.kind, change.before.of(region)), fix=rewrite)
    return None


def _special(change: Change, site: Site, region: Node) -> Iterator[_Candidate]:
    """Yield what needs no quotation of a large node: deletion by name, insertion beside a node that captures itself."""
    if region.parent is None or not region.is_named or len(change.within(region.start, region.end)) != 1:
        return
    if (site.start, site.end, site.text) == (region.start, region.end, ""):
        action = RuleAction(rule=_by_name(change, region), fix="")
        yield _Candidate(action, 0, _cost(str(action.rule), "", 0, action, region), len(POLICIES))
    is_beside = site.start == site.end and site.start in (region.start, region.end)
    if is_beside and not VARIABLE.search(site.text) and is_sequence(region.parent):
        new = site.text
        indent = _column(change.before.text, region.start)
        new = re.sub(rf"\n {{{indent}}}", "\n", new) if indent else new
        fix = new + "$A" if site.start == region.start else "$A" + new
        action = RuleAction(rule={"pattern": "$A", **_by_name(change, region)}, fix=fix)
        yield _Candidate(action, 0, _cost(str(action.rule), fix, 0, action, region), len(POLICIES))


def _judged(change: Change, candidate: _Candidate, result: SandboxResult) -> _Judged | None:
    """Return which sites a candidate fixes and what else it changes; None when it fixes none."""
    if result.verdict is not Verdict.OK or result.after is None:
        return None
    fixed: set[int] = set()
    wrong = []
    for match in result.matches:
        if match.replacement == change.before.text[match.start : match.end]:
            continue
        sites = _explaining(change, match)
        if sites is None:
            wrong.append(match)
        else:
            fixed |= sites
    real = sum(not change.sites[index].is_blank for index in fixed)
    return _Judged(candidate, result, result.after, frozenset(fixed), real, tuple(wrong)) if fixed else None


def _explaining(change: Change, match: Match) -> set[int] | None:
    """Return the sites whose replacement is what `match` does; None when it does something else."""
    inside: list[tuple[int, Site]] = []
    for index, site in enumerate(change.sites):
        if match.start <= site.start and site.end <= match.end:
            inside.append((index, site))
        elif site.start < match.end and match.start < site.end:
            return None
        else:
            moved = _moved_over_blanks(site, change.before.text, match)
            if moved is not None:
                inside.append((index, moved))
    inside.sort(key=lambda pair: pair[1].start)
    wanted = without_blanks(match.replacement)
    for chosen in _subsets(inside):
        made = replaced_sites(change.before.text, [site for _, site in chosen], match.start, match.end)
        if chosen and without_blanks(made) == wanted:
            return {index for index, _ in chosen}
    return None


def _subsets(sites: Sequence[tuple[int, Site]]) -> Iterator[Sequence[tuple[int, Site]]]:
    yield sites
    yield [pair for pair in sites if not pair[1].is_blank]
    if len(sites) <= 6:
        for size in range(len(sites) - 1, 0, -1):
            yield from combinations(sites, size)


def _moved_over_blanks(site: Site, text: str, match: Match) -> Site | None:
    """Return an insertion at the other end of the blanks it stands in, if that is an end of `match`."""
    if site.start != site.end or not site.text.strip():
        return None
    before = text[: site.start]
    left = len(before.rstrip())
    if left == match.end:
        return Site(left, left, site.new_start, site.new_end, before[left:] + site.text.rstrip(), False)
    rest = text[site.start :]
    right = site.start + len(rest) - len(rest.lstrip())
    if right == match.start:
        return Site(right, right, site.new_start, site.new_end, site.text.strip() + text[site.start : right], False)
    return None


def _cost(pattern: str, rewrite: str, variables: int, action: PatternAction | RuleAction, region: Node) -> float:
    """Return the description length of a candidate: words 1, variables 0.5, signs 0.3, and what makes it brittle."""
    length = sum(
        0.5 if variable else 1.0 if word else 0.3
        for text in (pattern, rewrite)
        for variable, word, _ in _TOKENS.findall(text)
    )
    length += 4.0 * pattern.count("\n")
    length += 0 if variables else 8
    length += 15 if _DEFINITIONS.match(region.kind) else 0
    return length + (4 if isinstance(action, PatternAction) and action.selector else 0)


def _same_span(node: Node) -> Iterator[Node]:
    yield node
    while len(node.children) == 1 and (node.children[0].start, node.children[0].end) == (node.start, node.end):
        node = node.children[0]
        yield node


def _by_text(kind: str, text: str) -> dict[str, str]:
    return {"kind": kind, "regex": f"^{_rust_regex(text)}$"}


def _by_name(change: Change, node: Node) -> dict[str, object]:
    name = node.handle.field("name")
    if name is not None:
        return {"kind": node.kind, "has": {"field": "name", "regex": f"^{_rust_regex(name.text())}$"}}
    first_line = change.before.of(node).partition("\n")[0][:80]
    return {"kind": node.kind, "regex": f"^{_rust_regex(first_line)}"}


def _rust_regex(text: str) -> str:
    # Python also escapes blanks, which the regex crate refuses
    return re.escape(text).replace("\\ ", " ").replace("\\\n", "\\n").replace("\\\t", "\\t")


def _column(text: str, offset: int) -> int:
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    return len(line) - len(line.lstrip(" "))
