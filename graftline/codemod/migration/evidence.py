"""Which rules the edits shown speak for, and at which of their places."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from graftline.codemod.change import Change
from graftline.codemod.diff import Site
from graftline.codemod.judge import Judgment, judge
from graftline.codemod.migration.lost_parts import LostParts
from graftline.codemod.migration.option import Option
from graftline.codemod.migration.options import guard_option
from graftline.codemod.migration.places import Place, apply_options, cut
from graftline.codemod.migration.surroundings import find_covering_chain
from graftline.codemod.migration.traits import find_module, traits_of
from graftline.codemod.migration.units import Unit, strip_layout
from graftline.sandbox.base import Match, Sandbox, SandboxResult, ensure_decided

_LEAST_RIGHT = 4
"""Places that an option puts right for each that it would change otherwise."""
_CALL = ("call", "call_expression", "method_invocation", "generic_type")
_ARGUMENTS = ("argument_list", "arguments", "type_parameter", "type_arguments")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Options that explain an edit, with what they do to all that are shown."""

    options: list[Option]
    traits: list[Mapping[str, str]]
    """Of the places shown that they put right."""
    units: int
    """Units that have such places."""
    further: int
    """Edits that no option makes."""


@dataclass(frozen=True, slots=True)
class _Fit:
    fixed: frozenset[int]
    """Sites that an option puts right, by their number among those of the change."""
    wrong: int
    """Places that it gets wrong."""
    loses_parts: bool = False
    """Whether it loses code at the sites, as the edit does."""


def weigh_evidence(
    options: Sequence[Option],
    site: Site,
    focus: Unit,
    units: Sequence[tuple[Unit, Change]],
    sandbox: Sandbox,
    follows_shown: bool,
) -> Evidence:
    """Return the options that explain something of `focus`, contradict hardly a unit and leave alone what is edited.

    With `follows_shown`, places of the units that are not edited may be changed.
    """
    change = next(change for unit, change in units if unit is focus)
    fits = _judge(options, change, sandbox, follows_shown)
    pairs = [(option, fit) for option, fit in zip(options, fits, strict=True) if fit.fixed and not fit.wrong]
    call = _list_sites_of_call(change, site)
    pairs = [(option, fit) for option, fit in pairs if call <= fit.fixed] or pairs
    chosen = [replace(option, support=len(fit.fixed), loses_parts=fit.loses_parts) for option, fit in pairs]
    places = [(focus, change, frozenset[int]().union(*(fit.fixed for _, fit in pairs)))]
    for unit, other in units:
        if unit.before != focus.before:
            fits = _judge(chosen, other, sandbox, follows_shown)
            chosen = [
                replace(
                    o,
                    support=o.support + len(fit.fixed),
                    contradictions=o.contradictions + fit.wrong,
                    loses_parts=o.loses_parts or fit.loses_parts,
                )
                for o, fit in zip(chosen, fits, strict=True)
            ]
            if any(fit.fixed for fit in fits):
                chosen = [
                    o if fit.fixed else replace(o, missed=o.missed + 1) for o, fit in zip(chosen, fits, strict=True)
                ]
            places.append((unit, other, frozenset[int]().union(*(fit.fixed for fit in fits))))
    chosen = [option for option in chosen if option.contradictions * _LEAST_RIGHT <= option.support]
    chosen = [option for option in chosen if not option.guesses] or chosen
    # who writes a body again moves its lines, who joins lines of the edit joins those of others
    chosen = [option for option in chosen if not option.rewrites_lines] or chosen
    counts = sorted(text.count("\n") for text in (focus.before, focus.after))
    results = apply_options(focus.before, focus.language, chosen, sandbox)
    kept_lines = [counts[0] <= text.count("\n") <= counts[1] for text in results]
    chosen = [option for option, is_kept in zip(chosen, kept_lines, strict=True) if is_kept] or chosen
    traits: list[Mapping[str, str]] = [
        {
            **traits_of(unit.path, unit.before, place.start, place.end),
            "module": find_module(unit.file_before, unit.before, place.start),
        }
        for unit, other, numbers in places
        for n in sorted(numbers)
        if (place := _place_of(unit, other.sites[n])) is not None
    ]
    guarded = list(_guard_options(chosen, change, sandbox, follows_shown))
    explained = {unit.before: numbers for unit, _, numbers in places}
    remaining: list[tuple[Unit, Site]] = []
    for unit, other in units:
        if not (fixed := explained.get(unit.before, ())):
            remaining += [(unit, own) for own in other.code_sites[:1]]
        elif unit.before != focus.before:
            remaining += [(unit, other.sites[number]) for number in _list_code_sites(other) if number not in fixed]
    counts_fixed = Counter(number for _, fit in pairs for number in fit.fixed)
    remaining += [(focus, change.sites[n]) for n in _list_code_sites(change) if counts_fixed[n] * 2 <= len(pairs)]
    further = {(unit.before[other.start : other.end], other.text) for unit, other in remaining}
    further.discard((focus.before[site.start : site.end], site.text))
    return Evidence(guarded, traits, sum(map(bool, explained.values())), len(further))


def _place_of(unit: Unit, site: Site) -> Place | None:
    return cut(unit.path, unit.before, Match(site.start, site.end, site.text))


def _list_sites_of_call(change: Change, site: Site) -> frozenset[int]:
    """Return the sites that are one edit with `site`: the name of a call or of a type, and arguments that come or go."""
    chain = find_covering_chain(change.before, site)
    call = next((node for node in reversed(chain) if node.kind in _CALL), None)
    if call is None:
        return frozenset()
    callee, arguments = set[int](), set[int]()
    for number, other in enumerate(change.sites):
        if other.is_blank or not (call.start <= other.start and other.end <= call.end):
            continue
        own = find_covering_chain(change.before, other)
        if next((node for node in reversed(own) if node.kind in _CALL), None) is call:
            below = own[next(level for level, node in enumerate(own) if node is call) + 1 :]
            if not any(node.kind in _ARGUMENTS for node in below):
                callee.add(number)
            elif below[-1].kind in _ARGUMENTS or not other.text:
                arguments.add(number)
    is_one = callee and arguments and change.sites.index(site) in callee | arguments
    return frozenset(callee | arguments) if is_one else frozenset()


def _list_code_sites(change: Change) -> frozenset[int]:
    return frozenset(number for number, site in enumerate(change.sites) if not site.is_blank)


def _judge(options: Sequence[Option], change: Change, sandbox: Sandbox, follows_shown: bool) -> list[_Fit]:
    actions = [action for option in options for action in option.actions]
    remaining = iter(sandbox.apply_many(change.before.text, change.language, actions) if actions else ())
    results = [[ensure_decided(next(remaining)) for _ in option.actions] for option in options]
    judgments = [[judge(change, result) for result in own] for own in results]
    wrong = [
        [m for n, judgment in enumerate(own) for m in judgment.wrong if not _is_within(m, own[:n])] for own in judgments
    ]
    lossy = [
        any(
            LostParts(change.before.text, action, change.language).has_any(match)
            for action, judgment in zip(option.actions, own, strict=True)
            for match in judgment.right
        )
        for option, own in zip(options, judgments, strict=True)
    ]
    edited = [(site.start, site.end) for site in change.code_sites]
    sites = _list_code_sites(change)
    target = strip_layout(change.after.text)
    return [
        _Fit(sites, 0, is_lossy)
        if any(strip_layout(result.after or "") == target for result in own_results)
        else _Fit(
            frozenset(n for j in own for n in j.fixed if not change.sites[n].is_blank),
            sum(not follows_shown or _meets(match, edited) for match in own_wrong),
            is_lossy,
        )
        for own, own_wrong, own_results, is_lossy in zip(judgments, wrong, results, lossy, strict=True)
    ]


def _is_within(match: Match, earlier: Sequence[Judgment]) -> bool:
    """Return whether rules before it write a match otherwise: where `!a` is changed, the rule for `a` has nothing to do."""
    return any(
        right.start <= match.start and match.end <= right.end for judgment in earlier for right in judgment.right
    )


def _guard_options(options: Sequence[Option], focus: Change, sandbox: Sandbox, follows_shown: bool) -> Iterable[Option]:
    """Yield the options that leave alone what is edited already, if need be with a condition (`guard_option`)."""
    after = focus.after.text
    edited = [(site.new_start, site.new_end) for site in focus.code_sites]

    def list_starts(result: SandboxResult) -> list[int]:
        return [
            match.start
            for match in ensure_decided(result).matches
            if match.replacement != after[match.start : match.end] and not (follows_shown and not _meets(match, edited))
        ]

    actions = [action for option in options for action in option.actions]
    results = iter(sandbox.apply_many(after, focus.language, actions) if actions else ())
    for option in options:
        starts = [start for _ in option.actions for start in list_starts(next(results))]
        if not starts:
            yield option
        elif (guarded := guard_option(option, focus, starts)) is not None:
            [result] = sandbox.apply_many(after, focus.language, guarded.actions[:1])
            if not list_starts(result):
                yield guarded


def _meets(match: Match, spans: Sequence[tuple[int, int]]) -> bool:
    return any(start <= match.end and match.start <= end for start, end in spans)
