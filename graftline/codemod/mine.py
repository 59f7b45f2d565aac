"""Rules that the history of a repository repeats.

    1  every change of a file is divided into small ones                                        (`rules.hunks`)
    2  rules are induced from each of them, and from those that take away and put in the same words  (`rules.induce`)
    3  rules that mean the same become one                                                      (`rules.canonical`)
    4  each is tried on both texts of every small change: what it makes of the text before was made by people, or was
       not; what it would make of the text after was not
    5  of those that hold often enough, the ones that explain most are kept, until the rest explains nothing new

Revisar (https://arxiv.org/abs/1803.03806) and Getafix (https://arxiv.org/abs/1902.06111) cluster edits by how they
anti-unify; here rules are compared by what they do to all edits.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Self

from pydantic import Field, ValidationError

from graftline.astgrep.action import Action, PatternAction, RuleAction, rule_of
from graftline.astgrep.binding import Language
from graftline.codemod import background
from graftline.codemod.canonical import canonicalize, key_of, required_words, words_of
from graftline.codemod.change import Change
from graftline.codemod.cost import description_length, is_general
from graftline.codemod.equality import normalize_blank_lines
from graftline.codemod.history import FileChange
from graftline.codemod.hunks import split_into_hunks
from graftline.codemod.induce import InductionConfig, induce
from graftline.codemod.induce_many import induce_many
from graftline.codemod.judge import judge
from graftline.codemod.learn import extract_example
from graftline.codemod.rule_file import Example, FileRule
from graftline.core.config import Config
from graftline.core.errors import DataError
from graftline.core.hashing import code_version, digest, sha256_text
from graftline.core.processes import Workers
from graftline.sandbox.actions import SandboxConfig, open_sandbox
from graftline.sandbox.base import Request, Sandbox, SandboxResult, ensure_decided

_MAX_CANDIDATES = 4_000
_MAX_EXAMPLES = 3
_MAX_TOGETHER = 4
_BATCH = 64
_MAX_GROUPS = 400
_CONTRADICTION_COST, _BACKGROUND_COST = 2.0, 3.0


class MiningConfig(Config):
    """What is kept."""

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


@dataclass(frozen=True, slots=True)
class _Tried:
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
    def precision(self) -> float:
        return self.places / max(1, self.places + self.contradictions)

    @property
    def rank(self) -> tuple[float, float, str]:
        """The less the better: what it explains, less what speaks against it; then what it takes to say it."""
        breadth = math.log2(1 + self.background)
        explained = len(self.right) - _CONTRADICTION_COST * self.contradictions - breadth
        return -explained, description_length(self.action) + _BACKGROUND_COST * breadth, key_of(self.action)


def induce_pairs(
    changes: Iterable[FileChange], count: int, config: SandboxConfig
) -> Iterator[tuple[FileChange, list[Pair]]]:
    """Yield every change with its small ones and what was induced from them, on `count` processes (0: this one).

    Raises:
        SandboxError: the sandbox failed.
    """
    if not count:
        with closing(open_sandbox(config)) as sandbox:
            yield from map(partial(_induced, sandbox), changes)
        return
    with Workers[FileChange, tuple[FileChange, list[Pair]]](count, partial(_inducer, config)) as workers:
        yield from workers.map(changes)


def _inducer(config: SandboxConfig) -> Callable[[FileChange], tuple[FileChange, list[Pair]]]:
    return partial(_induced, open_sandbox(config))  # it goes with the process


def _induced(sandbox: Sandbox, change: FileChange) -> tuple[FileChange, list[Pair]]:
    return change, list(_pairs(change, sandbox))


def _pairs(change: FileChange, sandbox: Sandbox) -> Iterator[Pair]:
    for hunk in split_into_hunks(change.before, change.after, change.language):
        found = induce(hunk.before, hunk.after, change.language, sandbox, InductionConfig(max_steps=6))
        scored = [one for step in found.steps for one in (step.chosen, *step.alternatives)]
        actions = {key_of(one.action): canonicalize(one.action) for one in scored}
        yield Pair(
            commit=change.commit,
            path=change.path,
            line=hunk.line,
            language=change.language,
            before=hunk.before,
            after=hunk.after,
            actions=tuple(actions.values()),
        )


def mine_rules(
    pairs: Sequence[Pair],
    mining: MiningConfig,
    sandbox: Sandbox,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> MinedRules:
    """Return the rules that `pairs` have in common; `advance` is told how many of them were looked at.

    Raises:
        SandboxError: the sandbox failed.
    """
    readable = [(pair, change) for pair in pairs if (change := _change(pair)) is not None]
    candidates = _candidates([pair for pair, _ in readable], sandbox)
    tried = _tried(readable, candidates, sandbox, advance)
    good = [replace(one, background=_hits(one)) for one in tried if _is_kept(one, mining)]
    kept = list(_explaining(sorted(good, key=lambda one: one.rank), mining.min_support))
    rules = tuple(_rule(one, readable, sandbox) for one in kept)
    return MinedRules(rules, len(pairs), len(candidates))


def _change(pair: Pair) -> Change | None:
    try:
        return Change.between(pair.before, pair.after, pair.language)
    except DataError:
        return None


def _candidates(pairs: Sequence[Pair], sandbox: Sandbox) -> list[tuple[Language, PatternAction | RuleAction]]:
    """Return what may hold in more than one pair, commonest first."""
    seen: Counter[tuple[Language, str]] = Counter()
    actions: dict[tuple[Language, str], PatternAction | RuleAction] = {}
    for language, action in ((pair.language, action) for pair in pairs for action in pair.actions):
        key = language, key_of(action)
        seen[key] += 1
        actions[key] = action
    for language, action in _shared(pairs, sandbox):
        key = language, key_of(action)
        seen[key] += 1
        actions[key] = canonicalize(action)
    repeated = [key for key in actions if seen[key] > 1 or is_general(actions[key])]
    repeated.sort(key=lambda key: (-seen[key], description_length(actions[key]), key))
    return [(key[0], actions[key]) for key in repeated[:_MAX_CANDIDATES]]


def _shared(pairs: Sequence[Pair], sandbox: Sandbox) -> Iterator[tuple[Language, PatternAction | RuleAction]]:
    """Yield what is induced from pairs together that take away and put in the same words."""
    groups: dict[tuple[Any, ...], dict[tuple[str, str], None]] = defaultdict(dict)
    for pair in pairs:
        old, new = words_of(pair.before), words_of(pair.after)
        groups[pair.language, tuple(sorted(old - new)), tuple(sorted(new - old))][pair.before, pair.after] = None
    several = [(key[0], list(texts)[:_MAX_TOGETHER]) for key, texts in groups.items() if len(texts) > 1]
    for language, texts in several[:_MAX_GROUPS]:
        for scored in induce_many(texts, language, sandbox).actions:
            yield language, scored.action


def _tried(
    readable: Sequence[tuple[Pair, Change]],
    candidates: Sequence[tuple[Language, PatternAction | RuleAction]],
    sandbox: Sandbox,
    advance: Callable[[int, int], None],
) -> list[_Tried]:
    """Return what every candidate did, over all pairs."""
    words = [required_words(action, language) for language, action in candidates]
    right: dict[int, set[tuple[int, int]]] = defaultdict(set)
    places: Counter[int] = Counter()
    contradictions: Counter[int] = Counter()
    for start in range(0, len(readable), _BATCH):
        batch = readable[start : start + _BATCH]
        for index, ((_, change), answers) in enumerate(
            zip(batch, _answers(batch, candidates, words, sandbox), strict=True), start
        ):
            for number, result in answers[0]:
                sites, good, bad = _compared(change, result)
                if sites and not bad:
                    right[number] |= {(index, site) for site in sites}
                places[number] += good
                contradictions[number] += bad
            for number, result in answers[1]:
                # what people wrote, and would be written anew
                contradictions[number] += sum(
                    match.replacement != change.after.text[match.start : match.end] for match in result.matches
                )
        advance(start + len(batch), len(readable))
    return [
        _Tried(action, language, frozenset(right[number]), places[number], contradictions[number])
        for number, (language, action) in enumerate(candidates)
    ]


_Answers = list[tuple[int, SandboxResult]]


def _answers(
    batch: Sequence[tuple[Pair, Change]],
    candidates: Sequence[tuple[Language, PatternAction | RuleAction]],
    words: Sequence[frozenset[str]],
    sandbox: Sandbox,
) -> Iterator[tuple[_Answers, _Answers]]:
    """Yield what the candidates that may match do to the text before and to the text after of every pair."""
    texts = [(text, pair.language) for pair, _ in batch for text in (pair.before, pair.after)]
    chosen = [
        [number for number, one in enumerate(candidates) if one[0] == language and words[number] <= known]
        for known, language in ((words_of(text), language) for text, language in texts)
    ]
    requests = [
        Request(text, language, tuple(candidates[number][1] for number in numbers))
        for (text, language), numbers in zip(texts, chosen, strict=True)
    ]
    answers = [
        list(zip(numbers, map(ensure_decided, results), strict=True))
        for numbers, results in zip(chosen, sandbox.apply_each(requests), strict=True)
    ]
    yield from zip(answers[::2], answers[1::2], strict=True)


def _compared(change: Change, result: SandboxResult) -> tuple[list[int], int, int]:
    """Return the sites that are fixed, the number of places that were changed just so, and that of those that were not.

    A place within code that was rewritten as a whole is neither: nobody knows what would have become of it.
    """
    found = judge(change, result)
    sites = [index for index in sorted(found.fixed) if not change.sites[index].is_blank]
    wrong = [match for match in found.wrong if change.inside(match.start, match.end) is not None]
    return sites, len(found.right), len(wrong)


def _hits(tried: _Tried) -> int:
    return background.hits(rule_of(tried.action), tried.language, required_words(tried.action, tried.language))


def _is_kept(tried: _Tried, mining: MiningConfig) -> bool:
    is_repeated = len(tried.pairs) >= mining.min_support and tried.precision >= mining.min_precision
    return is_repeated and (is_general(tried.action) or not mining.needs_general)


def _explaining(ranked: Sequence[_Tried], min_support: int) -> Iterator[_Tried]:
    """Yield the rules that explain what those before them do not, in enough pairs."""
    explained: set[tuple[int, int]] = set()
    for one in ranked:
        if len({pair for pair, _ in one.right - explained}) >= min_support:
            explained |= one.right
            yield one


def _rule(tried: _Tried, readable: Sequence[tuple[Pair, Change]], sandbox: Sandbox) -> FileRule:
    pairs = [readable[index][0] for index in sorted(tried.pairs)]
    facts: Mapping[str, Any] = {
        "general": is_general(tried.action),
        "support": {
            "changes": len(pairs),
            "places": tried.places,
            "commits": len({pair.commit for pair in pairs}),
            "files": len({pair.path for pair in pairs}),
            "contradictions": tried.contradictions,
        },
        "background": tried.background,
    }
    examples: dict[tuple[str, str], Example] = {}
    for pair in sorted(pairs, key=lambda pair: (len(pair.before), pair.commit, pair.path, pair.line)):
        if len(examples) < _MAX_EXAMPLES:
            result = ensure_decided(*sandbox.apply_many(pair.before, pair.language, [tried.action]))
            source = f"{pair.commit[:12]} {pair.path}:{pair.line}"
            found = extract_example(
                pair.before, normalize_blank_lines(pair.before, result), tried.action, pair.language, sandbox, source
            )
            if found is not None:
                examples.setdefault((found.before, found.after), found)
    return FileRule(tried.action, tried.language, examples=tuple(examples.values()), facts=facts)


class _Line(Config):
    key: str
    pairs: tuple[Pair, ...]


class Journal:
    """A file with one line per change; lines of other code than this are not looked at."""

    def __init__(self, path: Path | None) -> None:
        """Without a path, nothing is kept."""
        self._path = path
        self._known: dict[str, tuple[Pair, ...]] = {}
        self._stream: IO[str] | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            try:
                if self._path.exists():
                    self._known = dict(_lines(self._path))
                self._stream = self._path.open("a", encoding="utf-8")
                if self._stream.tell() and not self._path.read_bytes().endswith(b"\n"):
                    self._stream.write("\n")  # after the line that an interrupt cut
            except OSError as error:
                raise DataError(f"{self._path}: cannot be kept as a journal ({error.strerror}); name a file") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def get(self, change: FileChange) -> tuple[Pair, ...] | None:
        """Return what was induced from `change` before."""
        return self._known.get(_key(change)) if self._known else None

    def add(self, change: FileChange, pairs: Sequence[Pair]) -> None:
        """Keep what was induced from `change`."""
        if self._stream is not None:
            line = _Line(key=_key(change), pairs=tuple(pairs))
            self._stream.write(line.model_dump_json() + "\n")
            self._stream.flush()


@dataclass(slots=True)
class CollectedPairs:
    """The small changes of a history."""

    pairs: list[Pair] = field(default_factory=list)
    changes: int = 0
    is_interrupted: bool = False
    """Whether these are not all of them, for somebody had enough."""


def collect_pairs(
    changes: Iterable[FileChange],
    journal: Journal,
    count: int,
    config: SandboxConfig,
    advance: Callable[[FileChange], None] = lambda change: None,
) -> CollectedPairs:
    """Return the small changes of `changes`, in their order, with what is induced from them on `count` processes.

    An interrupt (Ctrl-C) ends it with what there is until then.

    Raises:
        SandboxError: the sandbox failed.
    """
    found: dict[int, Sequence[Pair]] = {}
    waiting: list[int] = []

    def unknown() -> Iterator[FileChange]:
        for number, change in enumerate(changes):
            known = journal.get(change)
            if known is None:
                waiting.append(number)
                yield change
            else:
                found[number] = known
                advance(change)

    is_interrupted = False
    try:
        for number, (change, pairs) in enumerate(induce_pairs(unknown(), count, config)):
            found[waiting[number]] = pairs
            journal.add(change, pairs)
            advance(change)
    except KeyboardInterrupt:
        is_interrupted = True
    ordered = [pair for number in sorted(found) for pair in found[number]]
    return CollectedPairs(ordered, len(found), is_interrupted)


def _lines(path: Path) -> Iterator[tuple[str, tuple[Pair, ...]]]:
    with path.open("rb") as stream:
        for line in stream:
            try:
                row = _Line.model_validate_json(line)
            except ValidationError:
                continue  # the line that an interrupt cut, or one of another version
            yield row.key, row.pairs


def _key(change: FileChange) -> str:
    sides = sha256_text(change.before), sha256_text(change.after)
    return digest([code_version("graftline.codemod.mine"), change.commit, change.path, change.language, *sides])
