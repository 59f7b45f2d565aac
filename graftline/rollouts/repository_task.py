"""Changes of whole repositories as tasks: the files at a commit and an instruction; what counts are the places that come out.

One question is asked about one block of the change, and what answers it, ast-grep rules, is applied to all of its files; or
somebody edits the files. Either way `codemod.place_score` says how many places are right.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language
from graftline.codemod.change_places import MultiFileChange, ShownPlace
from graftline.codemod.hunks import split_into_hunks
from graftline.codemod.place_score import PlaceScore, total_reward
from graftline.core.errors import DataError
from graftline.core.hashing import digest
from graftline.core.jsonl import read_lines
from graftline.datasets.language import language_of_path
from graftline.datasets.repository_changes.change import ChangedFile, RepositoryChange
from graftline.datasets.repository_changes.records import COMPRESSED, read_changes
from graftline.rollouts.answer_grading import read_actions
from graftline.rollouts.reward import BAD_FORMAT, Reward
from graftline.rollouts.task import Task
from graftline.rollouts.task_tests import verdict_of
from graftline.rollouts.teachers.answer import AnswerFormat
from graftline.sandbox.base import Request, Sandbox, TestRequest, Verdict
from graftline.sandbox.jail.spec import TestSpec

MAX_BYTES = 1 << 30
"""Of a file of tasks."""
UNDECIDED = (Verdict.WALL_TIMEOUT, Verdict.RUNNER_ERROR, Verdict.NEEDS_CLI)
"""Verdicts on one file by which nothing is known of an attempt."""


class RepositoryTask(RepositoryChange):
    """A change to be made: a line of `data/repository_changes`, or one with tests."""

    files: tuple[ChangedFile, ...] = ()
    """Those that the change changes; none where tests alone say what is right."""
    tests: TestSpec | None = Field(default=None, exclude_if=lambda tests: tests is None)
    """What has to pass once the change is made."""

    @model_validator(mode="after")
    def _can_be_judged(self) -> Self:
        if not self.files and self.tests is None:
            raise ValueError("has neither files with their text after nor tests; nothing says what is right")
        paths = [*(file.path for file in self.files), *(file.path for file in self.untouched)]
        if len({*paths}) < len(paths):
            raise ValueError("has a file twice")
        for path in paths:
            if path.startswith("/") or "\0" in path or {"..", ".", ""} & {*path.split("/")}:
                raise ValueError(f"{path[:200]!r} is no path below a folder")
        return self

    @property
    def tags(self) -> tuple[str, ...]:
        """What is said of it beside the rest: nothing."""
        return ()

    @property
    def texts(self) -> dict[str, str]:
        """All files as they are before, by path."""
        return {**{file.path: file.before for file in self.files}, **{file.path: file.text for file in self.untouched}}

    @property
    def digest(self) -> str:
        """What tells the task, as it is, from all others."""
        return digest(self.model_dump(mode="json", exclude={"instruction_source", "answerable", "answerable_by"}))

    @cached_property
    def block(self) -> Task:
        """One place of the change, the smallest, as a task: what a question shows.

        DataError if no place is small enough to be shown.
        """
        hunks = [
            (len(hunk.before), file.path, hunk)
            for file in self.files
            if (language := language_of_path(file.path)) == self.language
            for hunk in split_into_hunks(file.before, file.after, language)
        ]
        if not hunks:
            raise DataError(f"{self.id}: has no place that is small enough to be shown; leave it out")
        _, path, hunk = min(hunks, key=lambda item: item[:2])
        return self.ask_about(self.id, self.language, hunk.before, hunk.after, f" ({path}:{hunk.line})")

    def ask_about(self, id: str, language: Language, before: str, target: str, place: str = "") -> Task:
        """Return some lines of the change as a task; `place` is added to its origin."""
        return Task(
            id=id, dataset="repository_changes", language=language, instruction=self.instruction, before=before, target=target,
            license=self.license, group=self.repo, origin=f"{self.origin}{place}", instruction_source=self.instruction_source,
            answerable=self.answerable, answerable_by=self.answerable_by,
        )  # fmt: skip

    @cached_property
    def change(self) -> MultiFileChange:
        """What the files become, and the places of that which can be shown."""
        files = [(file.path, file.before, file.after) for file in self.files]
        return MultiFileChange(files, {file.path: file.text for file in self.untouched}, self.commit)


@dataclass(frozen=True, slots=True)
class RepositoryGrade:
    """What an attempt is worth."""

    reward: Reward
    """Without a value where the sandbox, or the machine, gave no verdict."""
    parts: Mapping[str, float]
    """As `total_reward`; empty without a value."""
    score: PlaceScore | None = None
    """Of the places; None where there is no gold, or nothing is known."""


def load_repository_tasks(path: Path) -> list[RepositoryTask]:
    """Return the tasks in a file of JSON lines; DataError if there is none, it is too large, or a line is no task.

    A compressed one has commits, as `datasets.repository_changes.records` reads them.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DataError(f"{path}: has more than {MAX_BYTES} bytes; split it")
        if path.name.endswith(COMPRESSED):
            return [RepositoryTask.model_validate(change.model_dump(mode="json")) for change in read_changes(path)]
        return list(read_lines(path, RepositoryTask))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); expected changes, one line of JSON each") from None
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, fault["loc"])) or "the whole"
        raise DataError(f"{path}: a line is no change of a repository ({location}: {fault['msg']})") from None


def is_repository_task(row: Any) -> bool:
    """Return whether an object of JSON is meant as one of these tasks, not as one of a single text."""
    return isinstance(row, dict) and "repo" in row


def holds_repository_tasks(path: Path) -> bool:
    """Return whether the first line of a file is meant as one of these tasks."""
    try:
        with path.open("rb") as stream:
            return is_repository_task(json.loads(stream.readline(MAX_BYTES)))
    except (OSError, ValueError):
        return False


def rewrite_all(
    task: RepositoryTask, actions: Sequence[PatternAction | RuleAction], sandbox: Sandbox
) -> dict[str, str] | Verdict:
    """Return the texts of `task`, by path, that `actions` change, one after the other; a verdict where there is none.

    A file that an action cannot be applied to stays as it was.
    """
    texts = task.texts
    for action in actions:
        paths = [path for path in texts if language_of_path(path) == task.language]
        requests = [Request(texts[path], task.language, (action,)) for path in paths]
        for path, [result] in zip(paths, sandbox.apply_each(requests), strict=True):
            if result.verdict in UNDECIDED:
                return result.verdict
            if result.verdict is Verdict.OK and result.after is not None:
                texts[path] = result.after
    before = task.texts
    return {path: text for path, text in texts.items() if text != before[path]}


def grade_texts(
    task: RepositoryTask, produced: Mapping[str, str], sandbox: Sandbox, shown: Sequence[ShownPlace] = ()
) -> RepositoryGrade:
    """Return what the texts of `produced` are worth; tests run in the jail of the sandbox.

    Places of the change that were `shown` to whoever made the texts do not count.

    Raises:
        SandboxError: the task has tests, and the sandbox has no jail, or it failed.
    """
    passes = None
    if task.tests is not None:
        files = {path: text.encode("utf-8", "surrogatepass") for path, text in {**task.texts, **produced}.items()}
        try:
            [result] = sandbox.run_tests([TestRequest(files, task.tests)])
        except DataError:  # no interpreter, or files that no jail takes
            return RepositoryGrade(Reward(value=None, cause="tests_refused"), {})
        verdict = verdict_of(result)
        if verdict.passes is None:
            return RepositoryGrade(Reward(value=None, cause=verdict.cause), {})
        passes = verdict.passes
    score = task.change.score(produced, shown) if task.files else None
    parts = total_reward(score, passes)
    return RepositoryGrade(Reward(value=parts["reward"], cause="places" if task.files else "tests"), parts, score)


def grade_actions(
    task: RepositoryTask, actions: Sequence[PatternAction | RuleAction], sandbox: Sandbox
) -> RepositoryGrade:
    """Return what rules are worth that are applied to all files."""
    produced = rewrite_all(task, actions, sandbox)
    if isinstance(produced, Verdict):
        return RepositoryGrade(Reward(value=None, cause=str(produced)), {})
    return grade_texts(task, produced, sandbox)


def grade_repository_answer(
    task: RepositoryTask, text: str, answer_format: AnswerFormat, sandbox: Sandbox
) -> tuple[bool, Reward]:
    """Return whether the answer of a model can be read, and what its rule is worth in the whole repository."""
    actions = read_actions(task.block, text, answer_format, sandbox)
    if actions is None:
        return False, Reward(value=0.0, cause=BAD_FORMAT)
    return True, grade_actions(task, actions, sandbox).reward
