"""Which files of an EngineBench task are the card, its stub, its hidden tests and its solution.

A card is one file of a crate that the tasks do not hold themselves. Its path is the first Rust file that the instruction
names between backticks, below `/app/` there; `card_file` in the task's metadata says it where that is another one.
"""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from graftline.core.errors import DataError
from graftline.harbor.contract import HarborLimits
from graftline.harbor.task_format.importing import PlacedTask, StagedTasks, place_task, stage_tasks
from graftline.harbor.task_format.task_folder import (
    HarborTask,
    TaskFile,
    plain_files,
    read_dockerfile,
    read_task,
    read_tasks,
    task_folders,
)

REWARD_KEY = "score"
_NAMED = re.compile(r"`(?:/app/)?([\w./-]+\.rs)`")
_NOT_OF_THE_CRATE = ("target/", ".git/")


class Card(NamedTuple):
    """The files of one card, relative to the crate, and to the folders of its task that hold its stub, tests and solution."""

    task: HarborTask
    card_file: str
    stub: str
    tests: str
    solution: str
    """Empty where there is none."""

    @property
    def module(self) -> str:
        """The Rust module that the file is."""
        return PurePosixPath(self.card_file).stem


def card_of(task: HarborTask) -> Card:
    """Return the card of an EngineBench task. Raises DataError where it is none."""
    named = _NAMED.search(task.instruction)
    path = str(task.toml.metadata.get("card_file") or (named[1] if named else ""))
    if not path.endswith(".rs") or path.startswith("/") or ".." in path.split("/"):
        raise DataError(
            f"{task.id}: names no card; expected `/app/src/….rs` in instruction.md, or card_file in [metadata]"
        )
    stem = PurePosixPath(path).stem
    stub = _the_one(task, "environment", f"{stem}.rs")
    tests = _the_one(task, "tests", f"{stem}_eval.rs")
    if not stub or not tests:
        raise DataError(
            f"{task.id}: is no card; expected {stem}.rs below environment/ and {stem}_eval.rs below tests/, and leave out"
            " what is no card by include"
        )
    return Card(task, path, stub, tests, _the_one(task, "solution", f"{stem}.rs"))


def read_cards(folder: Path, include: Sequence[str] = ("*",)) -> list[Card]:
    """Return the cards in `folder` whose names match one of `include`, by name.

    Raises:
        DataError: there is none, or one of them is none.
    """
    folders = [path for path in task_folders(folder) if any(fnmatchcase(path.name, glob) for glob in include)]
    if not folders:
        raise DataError(f"{folder}: no task's name matches {', '.join(include)}")
    return read_tasks(folders, lambda path: card_of(read_task(path)))


def stage_cards(
    cards: Sequence[Card],
    crate: Path,
    dockerfile: Path,
    folder: Path,
    *,
    agent: str = "codex",
    package: str = "",
    limits: HarborLimits | None = None,
    verifier_timeout_s: int | None = None,
) -> StagedTasks:
    """Write the contexts of `cards`, files of `crate` each, below `folder`, as `stage_tasks` does.

    `package` is the member of a workspace that is built, all of it where none is named; `verifier_timeout_s` is that of
    `cargo check` and `cargo test` together.
    """
    base, text = crate_files(crate), read_dockerfile(dockerfile)
    return stage_tasks(
        [_place_card(card, base, package, verifier_timeout_s) for card in cards],
        folder,
        agent=agent,
        dockerfile=text,
        program="cargo_tests",
        reward_key=REWARD_KEY,
        base=base,
        limits=limits,
        verifier_timeout_s=verifier_timeout_s,
    )


def crate_files(crate: Path) -> dict[str, TaskFile]:
    """Return the files of a crate, without what cargo made of them.

    Raises:
        DataError: it is none, or is out of bounds.
    """
    files = {path: file for path, file in plain_files(crate, skip=_NOT_OF_THE_CRATE)}
    if "Cargo.toml" not in files:
        raise DataError(f"{crate}: has no Cargo.toml; expected the crate that the cards are files of")
    return files


def _place_card(card: Card, base: Mapping[str, TaskFile], package: str, verifier_timeout_s: int | None) -> PlacedTask:
    common = place_task(card.task)
    module_file = str(PurePosixPath(card.card_file).with_name("mod.rs"))
    if module_file not in base:
        raise DataError(f"{card.task.id}: the crate has no {module_file}, in which its module is to be named")
    for_agent = {
        **common.for_agent,
        "lay": {card.card_file: card.stub},
        "append": {module_file: f"pub mod {card.module};"},
        "submission": [card.card_file],
    }
    for_verifier = {
        **common.for_verifier,
        "card_file": card.card_file,
        "tests": card.tests,
        "solution": card.solution,
        "package": package,
    }
    if verifier_timeout_s is not None:
        # the box is ended then, and says nothing; the program is to be done a little before
        for_verifier["verifier_timeout_s"] = max(1, verifier_timeout_s - 5)
    return PlacedTask(card.task, for_agent, for_verifier)


def _the_one(task: HarborTask, part: str, name: str) -> str:
    files = [path for path in task.part(part) if PurePosixPath(path).name == name]
    return files[0] if len(files) == 1 else ""
