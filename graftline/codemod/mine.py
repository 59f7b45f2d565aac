"""Rules that the history of a repository repeats, and the journal by which an interrupted mining goes on.

    1  every change of a file is split into small ones                                             (`codemod.hunks`)
    2  rules are induced from each of them, and from those that remove and add the same words      (`codemod.induce`)
    3  rules that mean the same become one                                                         (`codemod.canonical`)
    4  each is tried on both texts of every small change: what it makes of the text before was made by people, or was
       not; what it would make of the text after was not
    5  those that hold often enough are tried on the files of the newest commit: what they would still change there, nobody
       changed
    6  of those that remain, the ones that explain most are kept, until the rest explains nothing new

Imports have no rules: what is imported follows from what is used.

Revisar (https://arxiv.org/abs/1803.03806) and Getafix (https://arxiv.org/abs/1902.06111) cluster edits by how they
anti-unify; here rules are compared by what they do to all edits.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from graftline.astgrep.action import Action, PatternAction, RuleAction, rule_of
from graftline.astgrep.binding import Language
from graftline.codemod import background
from graftline.codemod.canonical import canonicalize, key_of, required_words, words_of
from graftline.codemod.change import Change
from graftline.codemod.cost import description_length, is_general, patterns_of
from graftline.codemod.equality import normalize_blank_lines
from graftline.codemod.history import FileChange
from graftline.codemod.hunks import split_into_hunks
from graftline.codemod.induce import InductionConfig, induce
from graftline.codemod.induce_many import induce_many
from graftline.codemod.judge import judge
from graftline.codemod.learn import extract_example
from graftline.codemod.rule_file import Example, FileRule
from graftline.codemod.source_files import SourceFile
from graftline.core.config import Config
from graftline.core.errors import DataError
from graftline.core.hashing import code_version, digest, sha256_text
from graftline.core.jsonl import Journal
from graftline.core.processes import Workers
from graftline.sandbox.actions import SandboxConfig, open_sandbox
from graftline.sandbox.base import Request, Sandbox, SandboxResult, ensure_decided

_MAX_CANDIDATES = 4_000
_MAX_EXAMPLES = 3
_MAX_TOGETHER = 4
_BATCH = 64
_MAX_GROUPS = 400
_IMPORT = re.compile(r"\s*(?:import\b|from\s+\S+\s+import\b|(?:const|let|var)\b[^=\n]*=\s*require\()")
_DEFINITIONS = {
    "test": re.compile(r"\bdef test|@Test\b|^\s*(?:it|test|describe)\(", re.MULTILINE),
    "definition": re.compile(
        r"\b(?:def|class|function|interface|enum)\s|^\s*(?:public|private|protected|static)\b.*\(", re.MULTILINE
    ),
}
_CONTRADICTION_COST, _BACKGROUND_COST = 2.0, 3.0

_Keyed = tuple[Language, PatternAction | RuleAction]
_Answers = list[tuple[int, SandboxResult]]


class MiningConfig(Config):
    """Which rules are kept."""

    min_support: int = Field(default=2, ge=1)
    """Small changes in which a rule does something, and nothing but what was done."""
    min_precision: float = Field(default=0.9, ge=0, le=1)
    """Of the places that it would change, the share that was changed just so."""
    needs_general: bool = False
    """Leaves out rules without variables."""


class Pair(Config):
    """A small change, where it was made, and rules for it."""

    commit: str
    path: str
    line: int
    language: Language
    before: str
    after: str
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True, slots=True)
class MinedRules:
    """What a history came to."""

    rules: tuple[FileRule, ...]
    """The one that explains most first."""
    pairs: int
    candidates: int


@dataclass(slots=True)
class CollectedPairs:
    """The small changes of a history."""

    pairs: list[Pair] = field(default_factory=list)
    changes: int = 0
    is_interrupted: bool = False
    """Whether these are not all of them, for somebody had enough."""


@dataclass(frozen=True, slots=True)
class _Support:
    """A rule, and where it did what people did."""

    action: PatternAction | RuleAction
    language: Language
    right: frozenset[tuple[int, int]]
    """Pairs in which it did nothing else, and the sites of them that it fixed."""
    places: int
    contradictions: int
    """Places that people left as they were, or changed otherwise."""
    background: int = 0
    """Places it would change in code that the history is not about."""

    @property
    def pairs(self) -> frozenset[int]:
        return frozenset(pair for pair, _ in self.right)

    @property
    def rank(self) -> tuple[float, float, str]:
        """The less the better: what it explains, less what speaks against it; then what it takes to say it."""
        breadth = math.log2(1 + self.background)
        explained = len(self.right) - _CONTRADICTION_COST * self.contradictions - breadth
        return -explained, description_length(self.action) + _BACKGROUND_COST * breadth, key_of(self.action)

    def is_enough(self, config: MiningConfig) -> bool:
        precision = self.places / max(1, self.places + self.contradictions)
        is_repeated = len(self.pairs) >= config.min_support and precision >= config.min_precision
        return is_repeated and (is_general(self.action) or not config.needs_general)


class Entry(Config):
    """What was induced from one change, in a journal; its key names the code as well, so that older code's is not found."""

    key: str
    pairs: tuple[Pair, ...]


def _journal_key(change: FileChange) -> str:
    sides = sha256_text(change.before), sha256_text(change.after)
    return digest([code_version("graftline.codemod.mine"), change.commit, change.path, change.language, *sides])


def collect_pairs(
    changes: Iterable[FileChange],
    journal_path: Path | None,
    count: int,
    sandbox: SandboxConfig,
    advance: Callable[[FileChange], None] = lambda change: None,
) -> CollectedPairs:
    """Return the small changes of `changes`, in their order, with what is induced from them on `count` processes.

    Where there is a journal, what it holds is not induced again, and what is new is written to it. An interrupt (Ctrl-C)
    ends it with what there is until then. DataError if the journal is no file that can be written; RecordError if it is
    a file of something else.
    """
    pairs_by_number: dict[int, Sequence[Pair]] = {}
    pending: list[int] = []
    pairs_by_key: dict[str, tuple[Pair, ...]] = {}
    is_interrupted = False

    def skip_known() -> Iterator[FileChange]:
        for number, change in enumerate(changes):
            stored = pairs_by_key.get(_journal_key(change)) if pairs_by_key else None
            if stored is None:
                pending.append(number)
                yield change
            else:
                pairs_by_number[number] = stored
                advance(change)

    with _open_journal(journal_path) as journal:
        if journal:
            pairs_by_key |= {entry.key: entry.pairs for entry in journal.rows}
        try:
            for number, (change, pairs) in enumerate(induce_pairs(skip_known(), count, sandbox)):
                pairs_by_number[pending[number]] = pairs
                if journal:
                    journal.append(Entry(key=_journal_key(change), pairs=tuple(pairs)))
                advance(change)
        except KeyboardInterrupt:
            is_interrupted = True
    ordered = [pair for number in sorted(pairs_by_number) for pair in pairs_by_number[number]]
    return CollectedPairs(ordered, len(pairs_by_number), is_interrupted)


@contextmanager
def _open_journal(path: Path | None) -> Iterator[Journal[Entry] | None]:
    with ExitStack() as stack:
        try:
            journal = stack.enter_context(Journal(path, Entry)) if path else None
        except OSError as error:
            raise DataError(f"{path}: cannot be kept as a journal ({error.strerror}); name a file") from None
        yield journal


def induce_pairs(
    changes: Iterable[FileChange], count: int, config: SandboxConfig
) -> Iterator[tuple[FileChange, list[Pair]]]:
    """Yield every change with its small ones and what was induced from them, on `count` processes (0: this one)."""
    if not count:
        with closing(open_sandbox(config)) as sandbox:
            yield from map(partial(_induce_from_change, sandbox), changes)
        return
    with Workers[FileChange, tuple[FileChange, list[Pair]]](count, partial(_open_inducer, config)) as workers:
        yield from workers.map(changes)


def _open_inducer(config: SandboxConfig) -> Callable[[FileChange], tuple[FileChange, list[Pair]]]:
    return partial(_induce_from_change, open_sandbox(config))  # it goes with the process


def _induce_from_change(sandbox: Sandbox, change: FileChange) -> tuple[FileChange, list[Pair]]:
    pairs = []
    for hunk in split_into_hunks(change.before, change.after, change.language):
        induction = induce(hunk.before, hunk.after, change.language, sandbox, InductionConfig(max_steps=6))
        scored = [action for step in induction.steps for action in (step.chosen, *step.alternatives)]
        actions = {key_of(action.action): canonicalize(action.action) for action in scored}
        pairs.append(
            Pair(
                commit=change.commit,
                path=change.path,
                line=hunk.line,
                language=change.language,
                before=hunk.before,
                after=hunk.after,
                actions=tuple(actions.values()),
            )
        )
    return change, pairs


def mine_rules(
    pairs: Sequence[Pair],
    config: MiningConfig,
    sandbox: Sandbox,
    newest: Sequence[SourceFile] = (),
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> MinedRules:
    """Return the rules that `pairs` have in common; what they would change in the `newest` files speaks against them.

    `advance` is called with the small changes and files that every rule was tried on, and with their number.
    """
    changes: list[tuple[Pair, Change]] = []
    for pair in pairs:
        try:
            changes.append((pair, Change.between(pair.before, pair.after, pair.language)))
        except DataError:
            continue  # a side that cannot be read has no rules
    candidates = _gather_candidates([pair for pair, _ in changes], sandbox)
    total = len(changes) + len(newest)
    supports = _try_all(changes, candidates, sandbox, lambda done: advance(done, total))
    supports = [support for support in supports if support.is_enough(config)]
    supports = _count_unchanged(supports, newest, sandbox, lambda done: advance(len(changes) + done, total))
    supports = [support for support in supports if support.is_enough(config)]
    weighed = [replace(support, background=_count_hits(support)) for support in supports]
    rules = []
    explained: set[tuple[int, int]] = set()
    for support in sorted(weighed, key=lambda support: support.rank):
        if len({pair for pair, _ in support.right - explained}) >= config.min_support:
            explained |= support.right
            rules.append(_make_rule(support, changes, sandbox))
    return MinedRules(tuple(rules), len(pairs), len(candidates))


def _count_unchanged(
    supports: Sequence[_Support], newest: Sequence[SourceFile], sandbox: Sandbox, advance: Callable[[int], None]
) -> list[_Support]:
    """Return `supports` with the places that each would change in the newest files as further contradictions."""
    keyed = [(support.language, support.action) for support in supports]
    words = [required_words(action, language) for language, action in keyed]
    unchanged = Counter[int]()
    for start in range(0, len(newest), _BATCH):
        batch = newest[start : start + _BATCH]
        answers = _apply_candidates([(file.text, file.language) for file in batch], keyed, words, sandbox)
        for file, answer in zip(batch, answers, strict=True):
            for number, result in answer:
                unchanged[number] += _count_changed(file.text, result)
        advance(start + len(batch))
    return [
        replace(support, contradictions=support.contradictions + unchanged[number])
        for number, support in enumerate(supports)
    ]


def _count_changed(text: str, result: SandboxResult) -> int:
    return sum(match.replacement != text[match.start : match.end] for match in result.matches)


def _count_hits(support: _Support) -> int:
    words = required_words(support.action, support.language)
    return background.hits(rule_of(support.action), support.language, words)


def _gather_candidates(pairs: Sequence[Pair], sandbox: Sandbox) -> list[_Keyed]:
    """Return what may hold in more than one pair, commonest first."""
    counts: Counter[tuple[Language, str]] = Counter()
    actions: dict[tuple[Language, str], PatternAction | RuleAction] = {}
    own = ((pair.language, action) for pair in pairs for action in pair.actions)
    for language, action in (*own, *_induce_together(pairs, sandbox)):
        if _is_of_imports(action):
            continue
        key = language, key_of(action)
        counts[key] += 1
        actions[key] = action
    repeated = [key for key in actions if counts[key] > 1 or is_general(actions[key])]
    repeated.sort(key=lambda key: (-counts[key], description_length(actions[key]), key))
    return [(key[0], actions[key]) for key in repeated[:_MAX_CANDIDATES]]


def _is_of_imports(action: PatternAction | RuleAction) -> bool:
    rule = rule_of(action)["rule"]
    kind = str(rule.get("kind", "")) if isinstance(rule, Mapping) else ""
    return "import" in kind or any(_IMPORT.match(pattern) for pattern in patterns_of(rule))


def _induce_together(pairs: Sequence[Pair], sandbox: Sandbox) -> Iterator[_Keyed]:
    """Yield what is induced from pairs together that remove and add the same words."""
    groups: dict[tuple[Any, ...], dict[tuple[str, str], None]] = defaultdict(dict)
    for pair in pairs:
        old, new = words_of(pair.before), words_of(pair.after)
        groups[pair.language, tuple(sorted(old - new)), tuple(sorted(new - old))][pair.before, pair.after] = None
    several = [(key[0], list(texts)[:_MAX_TOGETHER]) for key, texts in groups.items() if len(texts) > 1]
    for language, texts in several[:_MAX_GROUPS]:
        for scored in induce_many(texts, language, sandbox).actions:
            yield language, canonicalize(scored.action)


def _try_all(
    changes: Sequence[tuple[Pair, Change]],
    candidates: Sequence[_Keyed],
    sandbox: Sandbox,
    advance: Callable[[int], None],
) -> list[_Support]:
    """Return what every candidate did, over all pairs."""
    words = [required_words(action, language) for language, action in candidates]
    right: dict[int, set[tuple[int, int]]] = defaultdict(set)
    places: Counter[int] = Counter()
    contradictions: Counter[int] = Counter()
    for start in range(0, len(changes), _BATCH):
        batch = changes[start : start + _BATCH]
        texts = [(text, pair.language) for pair, _ in batch for text in (pair.before, pair.after)]
        answers = _apply_candidates(texts, candidates, words, sandbox)
        sides = zip(batch, answers[::2], answers[1::2], strict=True)
        for index, ((_, change), on_before, on_after) in enumerate(sides, start):
            for number, result in on_before:
                judgment = judge(change, result)
                sites = {site for site in judgment.fixed if not change.sites[site].is_blank}
                # a place within code that was rewritten as a whole is neither: nobody knows what would have become of it
                wrong = [match for match in judgment.wrong if change.inside(match.start, match.end) is not None]
                if not wrong:
                    right[number] |= {(index, site) for site in sites}
                places[number] += len(judgment.right)
                contradictions[number] += len(wrong)
            for number, result in on_after:
                # what people wrote, and would be written anew
                contradictions[number] += _count_changed(change.after.text, result)
        advance(start + len(batch))
    return [
        _Support(action, language, frozenset(right[number]), places[number], contradictions[number])
        for number, (language, action) in enumerate(candidates)
    ]


def _apply_candidates(
    texts: Sequence[tuple[str, Language]],
    candidates: Sequence[_Keyed],
    words: Sequence[frozenset[str]],
    sandbox: Sandbox,
) -> list[_Answers]:
    """Return what the candidates that may match do to every text."""
    requests, chosen = [], []
    for text, text_language in texts:
        present = words_of(text)
        numbers = [
            number
            for number, (language, _) in enumerate(candidates)
            if language == text_language and words[number] <= present
        ]
        chosen.append(numbers)
        requests.append(Request(text, text_language, tuple(candidates[number][1] for number in numbers)))
    return [
        list(zip(numbers, map(ensure_decided, results), strict=True))
        for numbers, results in zip(chosen, sandbox.apply_each(requests), strict=True)
    ]


def _name_removed_kind(support: _Support) -> str:
    """Return whether a rule takes away a `test` or a `definition`; empty if neither."""
    fix = rule_of(support.action)["fix"]
    for kind, pattern in _DEFINITIONS.items():
        texts = patterns_of(rule_of(support.action)["rule"])
        if any(pattern.search(text) for text in texts) and not pattern.search(str(fix)):
            return kind
    return ""


def _make_rule(support: _Support, changes: Sequence[tuple[Pair, Change]], sandbox: Sandbox) -> FileRule:
    pairs = [changes[index][0] for index in sorted(support.pairs)]
    counts = {
        "changes": len(pairs),
        "places": support.places,
        "commits": len({pair.commit for pair in pairs}),
        "files": len({pair.path for pair in pairs}),
        "contradictions": support.contradictions,
    }
    facts = {"general": is_general(support.action), "support": counts, "background": support.background}
    if removed := _name_removed_kind(support):
        facts["removes"] = removed
    examples: dict[tuple[str, str], Example] = {}
    for pair in sorted(pairs, key=lambda pair: (len(pair.before), pair.commit, pair.path, pair.line)):
        if len(examples) < _MAX_EXAMPLES:
            result = ensure_decided(*sandbox.apply_many(pair.before, pair.language, [support.action]))
            after, source = normalize_blank_lines(pair.before, result), f"{pair.commit[:12]} {pair.path}:{pair.line}"
            example = extract_example(pair.before, after, support.action, pair.language, sandbox, source)
            if example is not None:
                examples.setdefault((example.before, example.after), example)
    return FileRule(support.action, support.language, examples=tuple(examples.values()), facts=facts)
