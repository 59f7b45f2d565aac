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
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import Field

from graftline.astgrep.action import Action, PatternAction, RuleAction, rule_of
from graftline.astgrep.binding import Language
from graftline.codemod import background
from graftline.codemod.canonical import canonicalize, key_of, required_words, words_of, written_words
from graftline.codemod.change import Change
from graftline.codemod.cost import description_length, is_general, patterns_of
from graftline.codemod.equality import normalize_blank_lines
from graftline.codemod.grammar import KEYWORDS
from graftline.codemod.history import FileChange
from graftline.codemod.hunks import split_into_hunks
from graftline.codemod.induce import InductionConfig, induce
from graftline.codemod.induce_many import induce_many
from graftline.codemod.judge import Judgment, judge
from graftline.codemod.learn import extract_example
from graftline.codemod.migration.imports import IMPORT_KINDS
from graftline.codemod.migration.options import generate_options
from graftline.codemod.rule_file import Example, FileRule
from graftline.codemod.source_files import SourceFile
from graftline.core.config import Config
from graftline.core.errors import DataError
from graftline.core.hashing import canonical_json, code_version, digest, sha256_text
from graftline.core.jsonl import Journal
from graftline.core.processes import Workers
from graftline.sandbox.actions import SandboxConfig, open_sandbox
from graftline.sandbox.base import Request, Sandbox, SandboxResult, ensure_decided

_MAX_CANDIDATES = 3_000
_MAX_EXAMPLES = 3
_MAX_TOGETHER = 4
_MAX_SITES, _MAX_OPTIONS, _BROAD = 3, 6, frozenset(("any", "kind", "role"))
_MAX_CONTEXT = 4
"""Words that a rule may quote of what stays: with more of them it is about one place."""
_BATCH = 64
_MAX_GROUPS = 400
_FIRST_PART = 16
"""Candidates that are tried first where time is short."""
_IMPORT = re.compile(r"^\s*(?:import\b|from\s+\S+\s+import\b|(?:const|let|var)\b[^=\n]*=\s*require\()", re.MULTILINE)
_STRING = re.compile(r"""\"[^\"\n]*\"|'[^'\n]*'|`[^`\n]*`""")
_LONG_STRING = re.compile(r"""(["'`])(?=[^"'`\n]*\s|[^"'`\n]{16})[^"'`\n]*\1""")
_IMPORT_KIND = re.compile(r"'kind': '\w*import")
_DEFINED = re.compile(
    r"\b(?:def|class|function|interface|enum)\s+(\w+)|^[\w<>\[\], ]*\b(\w+)\([^()]*\)[^;=]*\{", re.MULTILINE
)
_DEFINITIONS = {
    "test": re.compile(r"\bdef test|@Test\b|^\s*(?:it|test|describe)\(", re.MULTILINE),
    "definition": re.compile(
        r"\b(?:def|class|function|interface|enum)\s|^\s*(?:public|private|protected|static)\b.*\(", re.MULTILINE
    ),
}
_CONTRADICTION_COST, _BACKGROUND_COST = 2.0, 3.0

_Keyed = tuple[Language, PatternAction | RuleAction]
ItemT = TypeVar("ItemT", FileChange, "_Group")


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
    shared: list[_Keyed] = field(default_factory=list)
    """What is induced from several of them that remove and add the same words."""
    is_interrupted: bool = False
    """Whether these are not all of them, for somebody had enough."""


@dataclass(frozen=True, slots=True)
class _Support:
    """A rule, and where it did what people did."""

    action: PatternAction | RuleAction
    language: Language
    right: frozenset[tuple[int, int]]
    """Pairs in which it did nothing else, and the sites of them that it fixed."""
    distinct: int
    """Places in which it was right; the same text of the same file in another commit is a copy of one."""
    files: int
    """Files that these are in."""
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
        if self.places < config.min_precision * (self.places + self.contradictions):
            return False
        # twice in one file is a habit of that file
        is_repeated = self.distinct >= config.min_support + (self.files == 1)
        return is_repeated and (is_general(self.action) or not config.needs_general)


class Entry(Config):
    """What was induced from a change or a group, in a journal; its key names the code as well, so that older code's is not found."""

    key: str
    pairs: tuple[Pair, ...] = ()
    """Of a change."""
    actions: tuple[Action, ...] = ()
    """Of a group."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Texts before and after of small changes that remove and add the same words."""

    language: Language
    texts: tuple[tuple[str, str], ...]

    @property
    def key(self) -> str:
        return digest([code_version(__name__), self.language, self.texts])


def _journal_key(change: FileChange) -> str:
    sides = sha256_text(change.before), sha256_text(change.after)
    return digest([code_version(__name__), change.commit, change.path, change.language, *sides])


def collect_pairs(
    changes: Iterable[FileChange],
    journal_path: Path | None,
    count: int,
    sandbox: SandboxConfig,
    advance: Callable[[FileChange], None] = lambda change: None,
    advance_groups: Callable[[int, int], None] = lambda done, total: None,
) -> CollectedPairs:
    """Return the small changes of `changes`, in their order, with what is induced from them on `count` processes (0: this one).

    Where there is a journal, what it holds is not induced again, and what is new is written to it. An interrupt (Ctrl-C)
    ends it with what there is until then. DataError if the journal is no file that can be written; RecordError if it is
    a file of something else.
    """
    collected, pairs_by_number = CollectedPairs(), dict[int, Sequence[Pair]]()
    with _open_journal(journal_path) as journal:
        entries = {entry.key: entry for entry in journal.rows} if journal else {}

        def add(entry: Entry) -> None:
            if journal:
                journal.append(entry)

        def skip_stored() -> Iterator[FileChange]:
            for number, change in enumerate(changes):
                stored = entries.get(_journal_key(change)) if entries else None
                if stored is None:
                    pending.append(number)
                    yield change
                else:
                    pairs_by_number[number] = stored.pairs
                    advance(change)

        pending: list[int] = []
        try:
            with Workers[FileChange | _Group, Entry](count, partial(_open_inducer, sandbox)) as workers:
                for number, (change, entry) in enumerate(_map_with(workers, skip_stored())):
                    pairs_by_number[pending[number]] = entry.pairs
                    add(entry)
                    advance(change)
                groups = _group_pairs([pair for number in sorted(pairs_by_number) for pair in pairs_by_number[number]])
                missing = [group for group in groups if group.key not in entries]
                for done, (group, entry) in enumerate(_map_with(workers, missing), 1):
                    entries[group.key] = entry
                    add(entry)
                    advance_groups(done, len(missing))
                collected.shared += [
                    (group.language, action) for group in groups for action in entries[group.key].actions
                ]
        except KeyboardInterrupt:
            collected.is_interrupted = True
    collected.pairs += [pair for number in sorted(pairs_by_number) for pair in pairs_by_number[number]]
    collected.changes = len(pairs_by_number)
    return collected


def _map_with(workers: Workers[ItemT | _Group, Entry], items: Iterable[ItemT]) -> Iterator[tuple[ItemT, Entry]]:
    """Yield every item with what was induced from it, in order."""
    pending = deque[ItemT]()

    def remember() -> Iterator[ItemT]:
        for item in items:
            pending.append(item)
            yield item

    for entry in workers.map(remember()):
        yield pending.popleft(), entry


@contextmanager
def _open_journal(path: Path | None) -> Iterator[Journal[Entry] | None]:
    with ExitStack() as stack:
        try:
            journal = stack.enter_context(Journal(path, Entry)) if path else None
        except OSError as error:
            raise DataError(f"{path}: cannot be kept as a journal ({error.strerror}); name a file") from None
        yield journal


def _open_inducer(config: SandboxConfig) -> Callable[[FileChange | _Group], Entry]:
    return partial(_induce, open_sandbox(config))  # it goes with the process


def _induce(sandbox: Sandbox, item: FileChange | _Group) -> Entry:
    if isinstance(item, _Group):
        shared = induce_many(item.texts, item.language, sandbox).actions
        return Entry(key=item.key, actions=tuple(canonicalize(scored.action) for scored in shared))
    pairs = []
    for hunk in split_into_hunks(item.before, item.after, item.language):
        induction = induce(hunk.before, hunk.after, item.language, sandbox, InductionConfig(max_steps=6))
        scored = [action for step in induction.steps for action in (step.chosen, *step.alternatives)]
        broad = _generate_broad(hunk.before, hunk.after, item.language)
        actions = {key_of(action): canonicalize(action) for action in (*(own.action for own in scored), *broad)}
        pairs.append(
            Pair(
                commit=item.commit,
                path=item.path,
                line=hunk.line,
                language=item.language,
                before=hunk.before,
                after=hunk.after,
                actions=tuple(actions.values()),
            )
        )
    return Entry(key=_journal_key(item), pairs=tuple(pairs))


def _generate_broad(before: str, after: str, language: Language) -> Iterator[PatternAction | RuleAction]:
    """Yield rules that say as little as may be of what stands around the first edits of a small change."""
    try:
        change = Change.between(before, after, language)
        for site in change.code_sites[:_MAX_SITES]:
            options = (option for option in generate_options(change, site) if option.context in _BROAD)
            for option in islice(options, _MAX_OPTIONS):
                if len(option.actions) == 1:
                    action = option.actions[0]
                    yield action if option.renamed or option.kind != "name" else _leave_imports(action, language)
    except DataError:
        return  # a side that cannot be read has no rules


def _leave_imports(action: PatternAction | RuleAction, language: Language) -> RuleAction:
    """Return a rule that writes no name over names, but not in imports, where only names may stand."""
    kinds = [{"kind": kind} for kind in IMPORT_KINDS.get(language, ("import_statement",))]
    rule = rule_of(action)
    rule["rule"] = {"all": [rule["rule"], {"not": {"inside": {"any": kinds, "stopBy": "end"}}}]}
    return RuleAction.model_validate(rule)


def _group_pairs(pairs: Sequence[Pair]) -> list[_Group]:
    """Return the texts of small changes that remove and add the same words, where these are several."""
    groups: dict[tuple[Language, frozenset[str], frozenset[str]], dict[tuple[str, str], None]] = defaultdict(dict)
    for pair in pairs:
        old, new = words_of(pair.before), words_of(pair.after)
        groups[pair.language, old - new, new - old][pair.before, pair.after] = None
    several = [_Group(key[0], tuple(texts)[:_MAX_TOGETHER]) for key, texts in groups.items() if len(texts) > 1]
    return several[:_MAX_GROUPS]


def mine_rules(
    collected: CollectedPairs,
    config: MiningConfig,
    sandbox: Sandbox,
    newest: Sequence[SourceFile] = (),
    advance: Callable[[int, int], None] = lambda done, total: None,
    time_limit_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> MinedRules:
    """Return the rules that small changes have in common; what they would change in the `newest` files speaks against them.

    `advance` is called with the small changes and files that every rule was tried on, and with their number. With
    `time_limit_s`, what is tried is as many rules as there is time for, the commonest first.
    """
    start, pairs = clock(), collected.pairs
    candidates = _gather_candidates(collected)
    trial = _Trial(pairs, newest, config, sandbox)
    supports, first, size = list[_Support](), 0, _FIRST_PART if time_limit_s else max(1, len(candidates))
    while first < len(candidates):
        began = clock()
        supports += trial.run(candidates[first : first + size], advance)
        first, size = first + size, 2 * size
        # the next part is twice as large
        if time_limit_s and clock() + 2 * (clock() - began) > start + time_limit_s:
            break
    weighed = [replace(support, background=_count_hits(support)) for support in supports]
    rules = []
    explained: set[tuple[int, int]] = set()
    for support in sorted(weighed, key=lambda support: support.rank):
        if len({pair for pair, _ in support.right - explained}) >= config.min_support:
            explained |= support.right
            rules.append(_make_rule(support, pairs, sandbox))
    return MinedRules(tuple(rules), len(pairs), min(first, len(candidates)))


def _count_changed(text: str, result: SandboxResult) -> int:
    return sum(match.replacement != text[match.start : match.end] for match in result.matches)


def _count_hits(support: _Support) -> int:
    words = required_words(support.action, support.language)
    return background.hits(rule_of(support.action), support.language, words)


def _gather_candidates(collected: CollectedPairs) -> list[_Keyed]:
    """Return what may hold in more than one pair, commonest first."""
    counts: Counter[tuple[Language, str]] = Counter()
    actions: dict[tuple[Language, str], PatternAction | RuleAction] = {}
    own = ((pair.language, action) for pair in collected.pairs for action in pair.actions)
    for language, action in (*own, *collected.shared):
        if _is_of_imports(action) or _is_of_one_place(action, language):
            continue
        key = language, canonical_json(action.model_dump())  # they are canonical already
        counts[key] += 1
        actions[key] = action
    repeated = [key for key in actions if counts[key] > 1 or is_general(actions[key])]
    repeated.sort(key=lambda key: (-counts[key], description_length(actions[key]), key))
    return [(key[0], actions[key]) for key in repeated[:_MAX_CANDIDATES]]


def _is_of_imports(action: PatternAction | RuleAction) -> bool:
    rule = rule_of(action)["rule"]
    parts = [part for part in rule["all"] if "not" not in part] if isinstance(rule.get("all"), list) else rule
    return bool(_IMPORT_KIND.search(str(parts))) or any(_IMPORT.search(text) for text in _list_quoted(rule))


def _list_quoted(rule: Any) -> list[str]:
    """Return the code that a rule quotes, be it as a regular expression."""
    parts = [rule, *rule["all"]] if isinstance(rule.get("all"), list) else [rule]
    regexes = (str(part["regex"]) for part in parts if part.get("regex"))
    return [
        *patterns_of(rule),
        *(re.sub(r"\\(.)", r"\1", regex.removeprefix("^").removesuffix("$")) for regex in regexes),
    ]


def _is_of_one_place(action: PatternAction | RuleAction, language: Language) -> bool:
    """Return whether a rule is about a definition of a name that it leaves as it is, or quotes much that stays."""
    rule = rule_of(action)
    written = words_of(str(rule["fix"]))
    if len((required_words(action, language) & written) - KEYWORDS[language]) > _MAX_CONTEXT:
        return True
    texts = _list_quoted(rule["rule"])
    # what is said in strings and comments is of one program
    whole = str(rule["fix"])
    fix = _STRING.sub("", whole).strip()
    is_of_string = fix != whole.strip() and any(fix in _STRING.sub("", text) for text in texts)
    if is_of_string or re.search("string|comment", str(rule["rule"].get("kind", ""))):
        return True
    if any(match[0] in str(rule["fix"]) for text in texts for match in _LONG_STRING.finditer(text)):
        return True
    names = {
        name for pattern in _list_whole_patterns(rule["rule"]) for pair in _DEFINED.findall(pattern) for name in pair
    }
    return bool(names & written)


def _list_whole_patterns(rule: Any) -> Iterator[str]:
    """Yield the patterns of a rule whose code is its own, and no context that makes it a program."""
    parts = [rule, *rule["all"]] if isinstance(rule.get("all"), list) else [rule]
    return (part["pattern"] for part in parts if isinstance(part.get("pattern"), str))


class _Tally:
    """What a candidate did so far."""

    def __init__(self, language: Language, action: PatternAction | RuleAction) -> None:
        self.action, self.language = action, language
        self.required, self.written = required_words(action, language), written_words(action)
        self.right: set[tuple[int, int]] = set()
        self.spots: Counter[tuple[str, str, str, str]] = Counter()
        """Places in which it was right: commit, path, text and new text."""
        self.places = self.contradictions = 0

    def is_precise(self, config: MiningConfig) -> bool:
        return self.places >= config.min_precision * (self.places + self.contradictions)

    @property
    def support(self) -> _Support:
        most: dict[tuple[str, ...], int] = {}
        for (_, *spot), count in self.spots.items():
            most[*spot] = max(count, most.get((*spot,), 0))
        distinct, files = sum(most.values()), len({path for path, *_ in most})
        return _Support(
            self.action, self.language, frozenset(self.right), distinct, files, self.places, self.contradictions
        )


class _Text(NamedTuple):
    """What candidates are tried on."""

    text: str
    language: Language
    words: frozenset[str]
    pair: int = -1
    """The number of the small change of which it is the text before; -1 of others, in which nothing was changed."""


class _Trial:
    """Tries candidates on small changes and files: first where they may be right, and those that are, everywhere."""

    def __init__(
        self, pairs: Sequence[Pair], newest: Sequence[SourceFile], config: MiningConfig, sandbox: Sandbox
    ) -> None:
        self._pairs, self._config, self._sandbox = pairs, config, sandbox
        self._before = [_Text(p.before, p.language, words_of(p.before), index) for index, p in enumerate(pairs)]
        # what people wrote, and would be written anew, and what they left
        self._after = [_Text(pair.after, pair.language, words_of(pair.after)) for pair in pairs]
        self._newest = [_Text(file.text, file.language, words_of(file.text)) for file in newest]
        self._changes: dict[int, Change | None] = {}

    def run(self, candidates: Sequence[_Keyed], advance: Callable[[int, int], None]) -> list[_Support]:
        """Return the candidates that are right in enough small changes, and seldom wrong."""
        texts = [*self._before, *self._after, *self._newest]
        total = len(self._before) + len(texts)
        tallies = [_Tally(*keyed) for keyed in candidates]
        near = [
            [tally for tally in _choose(tallies, before) if tally.written <= after.words]
            for before, after in zip(self._before, self._after, strict=True)
        ]
        counts = Counter(tally for own in near for tally in own)
        near = [[tally for tally in own if counts[tally] >= self._config.min_support] for own in near]
        for start in range(0, len(near), _BATCH):
            self._try(self._before[start : start + _BATCH], near[start : start + _BATCH])
            advance(min(start + _BATCH, len(near)), total)
        tallies = [tally for tally in tallies if tally.support.is_enough(self._config)]
        former = [frozenset(own) for own in near]
        for start in range(0, len(texts), _BATCH):
            # what is contradicted too often already is tried no further
            tallies = [tally for tally in tallies if tally.is_precise(self._config)]
            batch = texts[start : start + _BATCH]
            chosen = [
                [tally for tally in _choose(tallies, text) if text.pair < 0 or tally not in former[text.pair]]
                for text in batch
            ]
            self._try(batch, chosen)
            advance(len(near) + min(start + _BATCH, len(texts)), total)
        return [support for tally in tallies if (support := tally.support).is_enough(self._config)]

    def _try(self, texts: Sequence[_Text], chosen: Sequence[Sequence[_Tally]]) -> None:
        requests = [
            Request(text.text, text.language, tuple(tally.action for tally in own))
            for text, own in zip(texts, chosen, strict=True)
        ]
        for text, own, results in zip(texts, chosen, self._sandbox.apply_each(requests), strict=True):
            for tally, result in zip(own, map(ensure_decided, results), strict=True):
                if text.pair < 0:
                    tally.contradictions += _count_changed(text.text, result)
                elif result.matches and (change := self._compare(text.pair)) is not None:
                    self._count(tally, text.pair, change, judge(change, result))

    def _count(self, tally: _Tally, index: int, change: Change, judgment: Judgment) -> None:
        # a place within code that was rewritten as a whole is neither: nobody knows what would have become of it
        wrong = [match for match in judgment.wrong if change.inside(match.start, match.end) is not None]
        if not wrong:
            pair = self._pairs[index]
            tally.right |= {(index, site) for site in judgment.fixed if not change.sites[site].is_blank}
            tally.spots.update(
                (pair.commit, pair.path, pair.before[match.start : match.end], match.replacement)
                for match in judgment.right
            )
        tally.places += len(judgment.right)
        tally.contradictions += len(wrong)

    def _compare(self, index: int) -> Change | None:
        """Return a small change as two trees; None where a side cannot be read."""
        if index not in self._changes:
            pair = self._pairs[index]
            try:
                self._changes[index] = Change.between(pair.before, pair.after, pair.language)
            except DataError:
                self._changes[index] = None
        return self._changes[index]


def _choose(tallies: Iterable[_Tally], text: _Text) -> list[_Tally]:
    return [tally for tally in tallies if tally.language == text.language and tally.required <= text.words]


def _name_removed_kind(support: _Support) -> str:
    """Return whether a rule takes away a `test` or a `definition`; empty if neither."""
    fix = rule_of(support.action)["fix"]
    for kind, pattern in _DEFINITIONS.items():
        rule = rule_of(support.action)["rule"]
        texts = [*_list_whole_patterns(rule), *([] if rule.get("pattern") else _list_quoted(rule))]
        if any(pattern.search(text) for text in texts) and not pattern.search(str(fix)):
            return kind
    return ""


def _make_rule(support: _Support, all_pairs: Sequence[Pair], sandbox: Sandbox) -> FileRule:
    pairs = [all_pairs[index] for index in sorted(support.pairs)]
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
