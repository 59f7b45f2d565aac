"""Which tasks an evaluation is of: those of a split, instances of template families, or a file of pairs.

What is taken is the same every time: texts in an order that says nothing of them, groups in turns.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Literal, Self, assert_never

from pydantic import Field, model_validator

from graftline.astgrep.binding import Language
from graftline.core.config import Config
from graftline.core.errors import DataError
from graftline.core.hashing import sha256_text
from graftline.core.jsonl import read_lines
from graftline.core.paths import Paths, portable
from graftline.datasets.division import Split
from graftline.datasets.edit import Edit
from graftline.datasets.synthetic import synthesize
from graftline.datasets.synthetic.held_out import OF_FAMILY, is_held_out
from graftline.datasets.synthetic.pieces import in_pieces
from graftline.evals.cases import Case, case_of
from graftline.evals.pairs import read_pairs
from graftline.evals.unseen import with_unseen
from graftline.rollouts.shards import read_shards, sealed_shards
from graftline.rollouts.task import Task, sound_tasks
from graftline.rollouts.task_selection import OVERSAMPLING, balance, template_of
from graftline.sandbox.base import Sandbox

Attempted = Callable[[Language, Split], Iterable[Path]]
"""Tells the folders of attempts at the tasks of a split, one per teacher."""


class SplitSource(Config):
    """Tasks of the lineage (`data/tasks`)."""

    kind: Literal["split"] = "split"
    languages: tuple[Language, ...] = Field(default=("python",), min_length=1)
    split: Split = "test"
    of: Literal["all", "real", "synthetic"] = "all"
    """Kind of the edits."""
    most_characters: int | None = Field(default=None, ge=40)
    """Of a text before."""
    in_one_step: bool = False
    """Whether those alone are taken that some stored attempt solved by one action: what one answer can say."""
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
    """A file of pairs (`evals.pairs`)."""

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


TaskSource = Annotated[SplitSource | FamiliesSource | PairsSource, Field(discriminator="kind")]


def cases_of(
    source: TaskSource,
    paths: Paths,
    attempted: Attempted,
    sandbox: Callable[[], Sandbox],
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> list[Case]:
    """Return the cases of a source; synthetic ones are made, and tried, in the sandbox. What it is of has to be here.

    Raises:
        DataError: the file of pairs has a fault, or there is nothing that fits.
        SandboxError: the sandbox failed.
    """
    match source:
        case SplitSource():
            found = _of_split(source, paths, attempted)
        case FamiliesSource():
            found = _of_families(source, paths, sandbox(), advance)
        case PairsSource():
            found = _chosen(read_pairs(paths.root / source.path), source.most)
        case _:
            assert_never(source)
    if not found:
        raise DataError(f"tasks: nothing fits {source.model_dump_json()}; ask for more, or for another split")
    return found


def stored_in(source: TaskSource, paths: Paths, attempted: Attempted) -> dict[str, Path]:
    """Return the artifacts that the tasks of a source are of, by stage and partition; none of a file of pairs."""
    match source:
        case SplitSource():
            stage, where = "tasks", "tasks"
        case FamiliesSource():
            stage, where = "splits", "processed"
        case PairsSource():
            return {}
        case _:
            assert_never(source)
    found = {
        f"{stage}.{language}.{source.split}": paths.partition(where, language, source.split)
        for language in source.languages
    }
    if isinstance(source, SplitSource) and source.in_one_step:
        for language in source.languages:
            for folder in attempted(language, source.split):
                found[f"teacher_trajectories.{language}.{source.split}.{folder.name}"] = folder
    return found


def _of_split(source: SplitSource, paths: Paths, attempted: Attempted) -> list[Case]:
    tasks: list[Task] = []
    for language in source.languages:
        solved = _solved_in_one_step(attempted(language, source.split)) if source.in_one_step else None
        tasks += [
            task
            for task in read_lines(paths.partition("tasks", language, source.split) / "tasks.jsonl", Task)
            if (source.of == "all" or ("synthetic" in task.tags) == (source.of == "synthetic"))
            and (source.most_characters is None or len(task.before) <= source.most_characters)
            and (solved is None or task.id in solved)
        ]
    return _chosen(map(case_of, tasks), source.most)


def _solved_in_one_step(folders: Iterable[Path]) -> set[str]:
    shards = [shard for folder in folders for shard in sealed_shards(folder)]
    return {one.task_id for one in read_shards(shards) if one.is_solved_in_one_step}


def _of_families(
    source: FamiliesSource, paths: Paths, sandbox: Sandbox, advance: Callable[[int, int], None]
) -> list[Case]:
    share = -(-source.most * OVERSAMPLING // len(source.languages))
    made: list[Edit] = []
    read: dict[Language, list[Edit]] = {}
    for language in source.languages:
        edits = list(read_lines(paths.partition("processed", language, source.split) / "edits.jsonl", Edit))
        pieces = in_pieces(edits, language, source.most_characters)
        read[language] = pieces
        of_language = synthesize(
            pieces, language, share, source.seed, sandbox, source.split, source.per_snippet, source.chosen
        )
        for edit in of_language:
            made.append(edit)
            advance(len(made), share * len(source.languages))
    tasks = [task for task in sound_tasks(made, sandbox).tasks if not task.gold_next and _is_chosen(task, source)]
    return with_unseen(_chosen(map(case_of, tasks), source.most), read, sandbox)


def _is_chosen(task: Task, source: FamiliesSource) -> bool:
    # a family brings its way back, whichever of the two was asked for
    return template_of(task) in source.chosen


def _chosen(cases: Iterable[Case], most: int) -> list[Case]:
    """Return at most so many, of languages and classes in turns, in an order that has nothing to do with where texts come from."""
    ordered = sorted(cases, key=lambda case: sha256_text(case.id))
    return balance(ordered, most, lambda case: case.task.language, lambda case: case.edit_class)
