"""Where the tasks of an evaluation come from: a split, template families, a file of pairs, a benchmark with tests, repositories.

The same tasks are taken every time: texts in an order that says nothing of them, groups in turns. Synthetic tasks, whose right
action is known, get a held-out example, which is what that action makes of other code: an action that repeats its example
solves the task and nothing else, and fails there.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self, assert_never

from pydantic import Field, model_validator

from graftline.agent.single_places import says_enough, take_turns
from graftline.astgrep.action import PatternAction
from graftline.astgrep.binding import Language
from graftline.core.config import Config
from graftline.core.errors import DataError
from graftline.core.hashing import digest, sha256_text
from graftline.core.jsonl import read_lines
from graftline.core.paths import Paths, portable
from graftline.core.record import DatasetRecord, load_record
from graftline.datasets.edit import Edit
from graftline.datasets.splits import Split
from graftline.datasets.synthetic import synthesize
from graftline.datasets.synthetic.apply import ActionSequence, apply_sequences
from graftline.datasets.synthetic.excerpts import split_into_excerpts
from graftline.datasets.synthetic.families import OF_FAMILY, is_held_out
from graftline.datasets.synthetic.short_texts import collect_vocabulary, fill_pattern, parse_clean
from graftline.evals.canitedit import Detail, read_problems
from graftline.evals.cases import Case, HeldOutExample, case_of, case_of_repository, cases_of_places, read_pairs
from graftline.rollouts.repository_task import load_repository_tasks
from graftline.rollouts.shards import read_shards, sealed_shards
from graftline.rollouts.task import (
    Instructions,
    Task,
    ToldInstructions,
    describe_left_out,
    select_for_agents,
    select_told,
    validate_tasks,
)
from graftline.rollouts.task_selection import OVERSAMPLING, balance, template_of
from graftline.sandbox.base import Sandbox

AttemptFolders = Callable[[Language, Split], Iterable[Path]]
"""Returns the folders of attempts at the tasks of a split, one per teacher."""
_SITES = 2
"""Of a held-out example: places at which its action matches."""


class SplitSource(Config):
    """Tasks of the pipeline (`data/tasks`)."""

    kind: Literal["split"] = "split"
    languages: tuple[Language, ...] = Field(default=("python",), min_length=1)
    split: Split = "test"
    of: Literal["all", "real", "synthetic"] = "all"
    """Kind of the edits."""
    most_characters: int | None = Field(default=None, ge=40)
    """Of a text before."""
    in_one_step: bool = False
    """Whether those alone are taken that some stored attempt solved by one action: what one answer can say."""
    instructions: Instructions = "answerable"
    """Which of them: those that can be done from their instruction, or all that have one."""
    most: int = Field(default=200, ge=1, le=100_000)
    """Tasks, languages and classes in turns."""


class FamiliesSource(Config):
    """Synthetic tasks of template families, on snippets of a split (`data/processed`): one right action is known for each."""

    kind: Literal["families"] = "families"
    languages: tuple[Language, ...] = Field(default=("python",), min_length=1)
    split: Split = "test"
    of: Literal["held_out", "trained", "all"] = "held_out"
    """`held_out`: families that nothing is trained on; `trained`: the others, on snippets that nothing is trained on."""
    templates: tuple[str, ...] = ()
    """Of those, these alone: ids of docs/synthetic.md, inverses too."""
    most: int = Field(default=200, ge=1, le=100_000)
    """Tasks, languages and templates in turns."""
    most_characters: int = Field(default=240, ge=40)
    """Of a text before; longer snippets are cut into runs of whole statements."""
    per_snippet: int = Field(default=2, ge=1)
    seed: int = 0

    @property
    def chosen(self) -> tuple[str, ...]:
        """The templates that tasks are made of."""
        of_kind = (name for name in OF_FAMILY if self.of == "all" or is_held_out(name) == (self.of == "held_out"))
        return tuple(name for name in of_kind if not self.templates or name in self.templates)

    @model_validator(mode="after")
    def _knows_its_templates(self) -> Self:
        if unknown := sorted({*self.templates} - {*OF_FAMILY}):
            raise ValueError(f"templates: {unknown[0]!r} is unknown; docs/synthetic.md lists them")
        if other := sorted({*self.templates} - {*self.chosen}):
            raise ValueError(f"templates: {other[0]!r} is not {self.of}; leave it out, or ask for `of: all`")
        if self.split == "train" and self.of != "trained":
            raise ValueError("split: held-out families have no instances in train; take dev or test")
        return self


class PairsSource(Config):
    """A file of pairs (`evals.cases`)."""

    kind: Literal["pairs"] = "pairs"
    path: str
    """From the root."""
    most: int = Field(default=10_000, ge=1, le=100_000)
    """Pairs, languages and classes in turns."""

    @model_validator(mode="after")
    def _is_below_the_root(self) -> Self:
        try:
            portable(self.path)
        except DataError as error:
            raise ValueError(str(error)) from None
        return self


class BenchmarkSource(Config):
    """Problems of a published benchmark with tests, which `graftline data fetch` brings; nothing may be trained on them."""

    kind: Literal["benchmark"] = "benchmark"
    dataset: str = "canitedit"
    """Of `configs/datasets.yaml`, with the reader `evaluation`; of the shape of CanItEdit."""
    details: tuple[Detail, ...] = Field(default=("descriptive", "lazy"), min_length=1)
    """How much an instruction says; each is a task of its own."""
    most: int = Field(default=10_000, ge=1, le=100_000)
    """Tasks, details in turns."""


class RepositoriesSource(Config):
    """Changes of whole repositories, all of each or single places of it."""

    kind: Literal["repositories"] = "repositories"
    split: Split = "test"
    """Of `data/repository_changes`."""
    path: str = ""
    """A file of changes, from the root, in place of the split: tasks, with tests where they have some, or, compressed, commits with
    both sides of their files (`.jsonl.gz`, `.jsonl.xz`)."""
    unit: Literal["repositories", "places"] = "repositories"
    """What is attempted: all places of a change, or one place after the other, whose lines are shown."""
    places: int = Field(default=2, ge=1, le=6)
    """Of a change, at most, where they are attempted alone."""
    languages: tuple[Language, ...] = ()
    """Of changes; empty: all."""
    instructions: ToldInstructions = "answerable"
    """As of a split; of places also `told`: where nobody tried, those whose instruction, or lines before, have every word of the
    lines after."""
    most: int = Field(default=100, ge=1, le=10_000)
    """Changes or places, languages in turns."""

    @model_validator(mode="after")
    def _is_of_places(self) -> Self:
        if self.instructions == "told" and self.unit != "places":
            raise ValueError("instructions: told is of places; say unit: places, or instructions: all")
        return self

    @model_validator(mode="after")
    def _is_below_the_root(self) -> Self:
        if self.path:
            try:
                portable(self.path)
            except DataError as error:
                raise ValueError(str(error)) from None
        return self

    def file(self, paths: Paths) -> Path:
        """Return the file of the changes."""
        return paths.root / self.path if self.path else paths.repository_changes / f"{self.split}.jsonl"


TaskSource = Annotated[
    SplitSource | FamiliesSource | PairsSource | BenchmarkSource | RepositoriesSource, Field(discriminator="kind")
]


def load_cases(
    source: TaskSource,
    paths: Paths,
    attempt_folders: AttemptFolders,
    sandbox: Callable[[], Sandbox],
    left_out: Counter[str],
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> list[Case]:
    """Return the cases of a source, whose artifacts have to be here; synthetic ones are made, and tried, in the sandbox.

    Tasks that are not for whoever is told what to do are counted in `left_out`.

    Raises:
        DataError: the file of pairs has a fault, or there is nothing that fits.
        SandboxError: the sandbox failed.
    """
    match source:
        case SplitSource():
            cases = _load_split(source, paths, attempt_folders, left_out)
        case FamiliesSource():
            cases = _make_synthetic(source, paths, sandbox(), advance)
        case PairsSource():
            cases = _select(read_pairs(paths.root / source.path), source.most)
        case BenchmarkSource():
            folder = paths.raw(source.dataset)
            record = load_record(folder)
            license = record.license if isinstance(record, DatasetRecord) else "NOASSERTION"
            cases = _select(read_problems(folder, source.dataset, license, source.details), source.most)
        case RepositoriesSource():
            cases = _load_repositories(source, paths, left_out)
        case _:
            assert_never(source)
    if not cases:
        cause = describe_left_out(left_out)
        advice = f" ({cause})" if cause else ""
        raise DataError(f"tasks: nothing fits {source.model_dump_json()}{advice}; ask for more, or for another split")
    return cases


def source_artifacts(source: TaskSource, paths: Paths, attempt_folders: AttemptFolders) -> dict[str, Path]:
    """Return the artifacts that the tasks of a source are made from, by stage and partition; a file of one's own has none."""
    if isinstance(source, PairsSource):
        return {}
    if isinstance(source, RepositoriesSource):
        return {} if source.path else {"repository_changes.all": paths.repository_changes}
    if isinstance(source, BenchmarkSource):
        return {f"raw.{source.dataset}": paths.raw(source.dataset)}
    stage, name = ("tasks", "tasks") if isinstance(source, SplitSource) else ("splits", "processed")
    artifacts = {
        f"{stage}.{language}.{source.split}": paths.partition(name, language, source.split)
        for language in source.languages
    }
    if isinstance(source, SplitSource) and source.in_one_step:
        for language in source.languages:
            for folder in attempt_folders(language, source.split):
                artifacts[f"teacher_trajectories.{language}.{source.split}.{folder.name}"] = folder
    return artifacts


def _load_split(
    source: SplitSource, paths: Paths, attempt_folders: AttemptFolders, left_out: Counter[str]
) -> list[Case]:
    tasks: list[Task] = []
    for language in source.languages:
        solved: set[str] | None = None
        if source.in_one_step:
            folders = attempt_folders(language, source.split)
            shards = [shard for folder in folders for shard in sealed_shards(folder)]
            solved = {attempt.task_id for attempt in read_shards(shards) if attempt.is_solved_in_one_step}
        tasks += [
            task
            for task in read_lines(paths.partition("tasks", language, source.split) / "tasks.jsonl", Task)
            if (source.of == "all" or ("synthetic" in task.tags) == (source.of == "synthetic"))
            and (source.most_characters is None or len(task.before) <= source.most_characters)
            and (solved is None or task.id in solved)
        ]
    return _select(map(case_of, select_for_agents(tasks, source.instructions, left_out)), source.most)


def _load_repositories(source: RepositoriesSource, paths: Paths, left_out: Counter[str]) -> list[Case]:
    tasks = [
        task
        for task in load_repository_tasks(source.file(paths))
        if (not source.languages or task.language in source.languages)
    ]
    chosen = sorted(select_told(tasks, source.instructions, left_out), key=lambda task: sha256_text(task.id))
    ordered = balance(chosen, len(chosen), lambda task: task.language)
    if source.unit == "repositories":
        return [case_of_repository(task) for task in ordered[: source.most]]
    # one place of each change before the second of one
    places = [
        [case for case in cases_of_places(task) if source.instructions != "told" or says_enough(case.task)]
        for task in ordered
    ]
    return take_turns(places, source.places)[: source.most]


def _make_synthetic(
    source: FamiliesSource, paths: Paths, sandbox: Sandbox, advance: Callable[[int, int], None]
) -> list[Case]:
    share = -(-source.most * OVERSAMPLING // len(source.languages))
    edits: list[Edit] = []
    snippets: dict[Language, list[Edit]] = {}
    for language in source.languages:
        stored = list(read_lines(paths.partition("processed", language, source.split) / "edits.jsonl", Edit))
        snippets[language] = split_into_excerpts(stored, language, source.most_characters)
        for edit in synthesize(
            snippets[language],
            language,
            share,
            source.seed,
            sandbox,
            source.split,
            source.per_snippet,
            source.chosen,
        ):
            edits.append(edit)
            advance(len(edits), share * len(source.languages))
    # a family brings its way back, whichever of the two was asked for
    tasks = [
        task
        for task in validate_tasks(edits, sandbox).tasks
        if not task.gold_next and template_of(task) in source.chosen
    ]
    return add_held_out_examples(_select(map(case_of, tasks), source.most), snippets, sandbox)


def _select(cases: Iterable[Case], most: int) -> list[Case]:
    """Return at most so many, languages and classes in turns, in an order that has nothing to do with where texts come from."""
    ordered = sorted(cases, key=lambda case: sha256_text(case.id))
    return balance(ordered, most, lambda case: case.task.language, lambda case: case.edit_class)


def add_held_out_examples(
    cases: Sequence[Case], snippets: Mapping[Language, Sequence[Edit]], sandbox: Sandbox
) -> list[Case]:
    """Return `cases`, those of one pattern with code in which it matches, made of words of `snippets` in its language.

    Cases for which no such code can be made stay as they are.

    Raises:
        SandboxError: the sandbox failed.
    """
    by_id = {case.id: case for case in cases}
    for language in dict.fromkeys(case.task.language for case in cases):
        words = collect_vocabulary(
            tree for edit in snippets[language] if (tree := parse_clean(edit, language)) is not None
        )
        trials: dict[str, ActionSequence] = {}
        for case in cases:
            action = case.task.gold_action
            if case.task.language != language or not isinstance(action, PatternAction) or action.selector:
                continue
            text = fill_pattern(
                action.pattern, False, language, _SITES, words, random.Random(digest(["unseen", case.id]))
            )
            if text is not None:
                trials[case.id] = ActionSequence(text, (action,))
        results = apply_sequences([*trials.values()], language, sandbox)
        for (id, trial), outcome in zip(trials.items(), results, strict=True):
            if outcome is not None:
                example = HeldOutExample(pre=trial.text, post=outcome.post)
                by_id[id] = by_id[id].model_copy(update={"unseen": example})
    return [*by_id.values()]
