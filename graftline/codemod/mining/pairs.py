"""The small changes of a history and what is induced from them, and the journal by which an interrupted mining goes on."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from graftline.astgrep.action import Action, PatternAction, RuleAction, rule_of
from graftline.astgrep.binding import Language
from graftline.codemod.canonical import canonicalize, key_of, words_of
from graftline.codemod.change import Change
from graftline.codemod.history import FileChange
from graftline.codemod.hunks import split_into_hunks
from graftline.codemod.induce import InductionConfig, induce
from graftline.codemod.induce_many import induce_many
from graftline.codemod.migration.imports import IMPORT_KINDS
from graftline.codemod.migration.option import Option
from graftline.codemod.migration.options import generate_options, guard_option
from graftline.core.config import Config
from graftline.core.errors import DataError
from graftline.core.hashing import code_version, digest, sha256_text
from graftline.core.jsonl import Journal
from graftline.core.processes import Workers
from graftline.sandbox.actions import SandboxConfig, open_sandbox
from graftline.sandbox.base import Sandbox, ensure_decided

_MAX_TOGETHER, _MAX_GROUPS = 4, 400
_MAX_SITES, _MAX_OPTIONS, _BROAD = 3, 6, frozenset(("any", "kind", "role"))

KeyedAction = tuple[Language, PatternAction | RuleAction]
ItemT = TypeVar("ItemT", FileChange, "_Group")


class Pair(Config):
    """A small change, where it was made, and rules for it."""

    commit: str
    path: str
    line: int
    language: Language
    before: str
    after: str
    actions: tuple[Action, ...] = ()


@dataclass(slots=True)
class CollectedPairs:
    """The small changes of a history."""

    pairs: list[Pair] = field(default_factory=list)
    changes: int = 0
    shared: list[KeyedAction] = field(default_factory=list)
    """What is induced from several of them that remove and add the same words."""
    is_interrupted: bool = False
    """Whether these are not all of them, for somebody had enough."""


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
        broad = _generate_broad(hunk.before, hunk.after, item.language, sandbox)
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


def _generate_broad(
    before: str, after: str, language: Language, sandbox: Sandbox
) -> Iterator[PatternAction | RuleAction]:
    """Yield rules that say as little as may be of what stands around the first edits of a small change.

    Those that would make the edit again where it is made say in what it leaves them (`guard_option`).
    """
    options = list[Option]()
    try:
        change = Change.between(before, after, language)
        for site in change.code_sites[:_MAX_SITES]:
            broad = (option for option in generate_options(change, site) if option.context in _BROAD)
            options += [option for option in islice(broad, _MAX_OPTIONS) if len(option.actions) == 1]
    except DataError:
        return  # a side that cannot be read has no rules
    results = sandbox.apply_many(after, language, [option.actions[0] for option in options]) if options else []
    for option, result in zip(options, results, strict=True):
        matches = ensure_decided(result).matches
        starts = [match.start for match in matches if match.replacement != after[match.start : match.end]]
        guarded = (guard_option(option, change, starts) if starts else None) or option
        action = guarded.actions[0]
        yield action if option.renamed or option.kind != "name" else _leave_imports(action, language)


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
