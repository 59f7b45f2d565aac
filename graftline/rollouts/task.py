"""A task: an instruction, the text before, and what counts as done.

A task is valid only if its gold passes and the unedited text fails; everything else is counted and left out, for it
would teach that nothing, or anything, is right.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from graftline.astgrep.action import Action, PatternAction, RuleAction
from graftline.astgrep.binding import Language
from graftline.codemod.equality import compare_texts
from graftline.core.errors import DataError, SandboxError
from graftline.core.hashing import digest
from graftline.datasets.edit import Edit, Label
from graftline.datasets.instruction_source import (
    FIELDS,
    AnswerableBy,
    InstructionSource,
    default_answerable,
    default_answerable_by,
    default_source,
)
from graftline.rollouts.task_tests import CAUSES_OF_MACHINE, TaskTests, TestVerdict, run_tests
from graftline.sandbox.base import Sandbox, Verdict, ensure_decided

WORDS_ALONE = "comment-only"
"""Tag of a task that changes comments or docstrings and no code: there is nothing that ast-grep is for."""

EVALUATION_ONLY = "evaluation-only"
"""Tag of a task that models are judged by, and that nothing may be trained on."""


def check_trainable(tags: Iterable[str], name: str) -> None:
    """Raise DataError if what has these tags, a task or an attempt at one, may not be trained on; `name` is what it is called."""
    if EVALUATION_ONLY in tags:
        raise DataError(f"{name}: is of an evaluation, and nothing may be trained on it; leave it out")


Instructions = Literal["answerable", "all"]
"""Which tasks are for whoever is told what to do: those of which it is known that they can be done from what they say, and that change
code; or all that say anything."""
ToldInstructions = Instructions | Literal["told"]
"""`told`: also those that nobody tried, where the words of instruction and text before suffice (`agent.single_places.says_enough`)."""
_LEFT_OUT = "not_kept."
UNTRIED = "untried"
_REASONS: Mapping[str, str] = {
    "no_instruction": "have no instruction",
    UNTRIED: "have an instruction that nobody tried",
    "unanswerable": "cannot be done from their instruction",
    "comment_only": "change no code",
    "forbidden_by_terms": "may not be trained on, by the terms of their teacher",
}
FORBIDDEN_BY_TERMS = f"{_LEFT_OUT}forbidden_by_terms"
"""Count of attempts that no training row may be made of."""
_WHATEVER_THE_INSTRUCTION = ("no_instruction", "forbidden_by_terms")


class Instructed(Protocol):
    """A task, or an attempt at one."""

    @property
    def tags(self) -> tuple[str, ...]: ...
    @property
    def instruction_source(self) -> InstructionSource: ...
    @property
    def answerable(self) -> bool | None: ...


InstructedT = TypeVar("InstructedT", bound=Instructed)


def reason_left_out(task: Instructed, instructions: Instructions) -> str:
    """Return why `task` is none for whoever is told what to do, a key of `_REASONS`; empty where it is one."""
    if task.instruction_source == "none":
        return "no_instruction"
    if instructions == "all":
        return ""
    if WORDS_ALONE in task.tags:
        return "comment_only"
    return "" if task.answerable else UNTRIED if task.answerable is None else "unanswerable"


def select_for_agents(
    tasks: Iterable[InstructedT], instructions: Instructions, left_out: Counter[str]
) -> list[InstructedT]:
    """Return those of `tasks` that are for whoever is told what to do; the others are counted in `left_out`, by reason."""
    chosen = []
    for task in tasks:
        if reason := reason_left_out(task, instructions):
            left_out[_LEFT_OUT + reason] += 1
        else:
            chosen.append(task)
    return chosen


def select_told(
    tasks: Iterable[InstructedT], instructions: ToldInstructions, left_out: Counter[str]
) -> list[InstructedT]:
    """Return what `select_for_agents` does; with `told` those that nobody tried as well, whose texts are to be looked at."""
    if instructions != "told":
        return select_for_agents(tasks, instructions, left_out)
    chosen = []
    for task in tasks:
        if (reason := reason_left_out(task, "answerable")) in ("", UNTRIED):
            chosen.append(task)
        else:
            left_out[_LEFT_OUT + reason] += 1
    return chosen


def describe_left_out(left_out: Mapping[str, int], things: str = "tasks") -> str:
    """Return in words what `select_for_agents`, and whoever looks at terms, counted; empty where that is nothing."""
    parts = [
        f"{left_out[_LEFT_OUT + reason]} {words}"
        for reason, words in _REASONS.items()
        if left_out.get(_LEFT_OUT + reason)
    ]
    if not parts:
        return ""
    could = any(left_out.get(_LEFT_OUT + reason) for reason in _REASONS if reason not in _WHATEVER_THE_INSTRUCTION)
    advice = "; `instructions: all` takes all that have an instruction" if could else ""
    return f"{things} left out: {', '.join(parts)}{advice}"


class Task(BaseModel):
    """One checkable edit."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, validate_by_name=True, serialize_by_alias=True
    )

    id: str
    """That of the edit."""
    dataset: str
    language: Language
    instruction: str
    before: str
    target: str = Field(validation_alias="wanted", serialization_alias="wanted")
    """The text that counts as done; for grading and privileged teachers, never part of a prompt."""
    gold_action: Action | None = None
    """The action that makes it, or the first of several, where it is known."""
    gold_next: tuple[Action, ...] = ()
    """The actions after that, each on what the one before made."""
    license: str = Field(validation_alias=AliasChoices("license", "licence"))
    group: str
    origin: str
    """The row it comes from, as the edit names it."""
    tags: tuple[str, ...] = ()
    instruction_source: InstructionSource = Field(default_factory=default_source)
    answerable: bool | None = Field(default_factory=default_answerable)
    """Whether the change can be done from the instruction and the text before; None where nobody has tried."""
    answerable_by: AnswerableBy | None = Field(default_factory=default_answerable_by)
    """How that was decided."""
    tests: TaskTests | None = Field(default=None, exclude_if=lambda tests: tests is None)
    """What judges a text that is not the target; without it, only the target counts."""

    @property
    def gold_actions(self) -> tuple[PatternAction | RuleAction, ...]:
        """All known actions, in order; empty where none is known."""
        return () if self.gold_action is None else (self.gold_action, *self.gold_next)

    @property
    def digest(self) -> str:
        """What tells the task, as it is, from all others."""
        # what becomes known of an instruction makes no other task of it
        values = self.model_dump(mode="json", exclude={*FIELDS})
        # as version 0.1.0 spelled it: attempts at its tasks count for the same tasks here
        values["licence"] = values.pop("license")
        values["tags"] = [tag.replace("license:", "licence:") for tag in values["tags"]]
        return digest(values)


@dataclass
class TaskValidation:
    """The valid tasks and, by reason, the number of edits that make none."""

    tasks: list[Task] = field(default_factory=list)
    invalid: Counter[str] = field(default_factory=Counter)


def validate_tasks(edits: Iterable[Edit], sandbox: Sandbox) -> TaskValidation:
    """Return the tasks of `edits` whose gold passes and whose unedited text fails."""
    validation = TaskValidation()
    for task in map(task_of, edits):
        if reason := invalid_reason(task, sandbox):
            validation.invalid[reason] += 1
        else:
            validation.tasks.append(task)
    return validation


def task_of(edit: Edit) -> Task:
    """Return `edit` as a task, unchecked."""
    names = Edit.model_fields.keys() & Task.model_fields.keys()
    return Task(before=edit.pre, target=edit.post, **{name: getattr(edit, name) for name in names})


def invalid_reason(task: Task, sandbox: Sandbox) -> str:
    """Return why `task` is not valid; empty when it is."""
    result_text = task.before if task.gold_actions else task.target
    for action in task.gold_actions:
        [result] = map(ensure_decided, sandbox.apply_many(result_text, task.language, [action]))
        if result.verdict is not Verdict.OK or result.after is None:
            return f"gold_{result.verdict}"
        result_text = result.after
    try:
        if not compare_texts(result_text, task.target, task.language).is_verified:
            return "gold_fails"
        if compare_texts(task.before, task.target, task.language).is_verified:
            return "unedited_passes"
    except DataError:
        return "ungradable"
    return invalid_reasons_by_tests([task], sandbox)[0].partition(":")[0]


def invalid_reasons_by_tests(tasks: Sequence[Task], sandbox: Sandbox) -> list[str]:
    """Return why each of `tasks` is not valid by its tests, with how the first of them fails; empty when it is, or has none.

    The same text is tested once, whichever tasks have it, and all in one call.

    Raises:
        SandboxError: the sandbox has no jail, it failed, or a busy machine decided: which tasks there are must not depend on it.
    """
    questions = {
        (task.tests.model_dump_json(), text): (task.tests, text)
        for task in tasks
        if task.tests is not None
        for text in (task.target, task.before)
    }
    verdicts = dict(zip(questions, run_tests([*questions.values()], sandbox), strict=True))
    reasons = []
    for task in tasks:
        key = "" if task.tests is None else task.tests.model_dump_json()
        gold, unedited = (verdicts[key, text] if key else None for text in (task.target, task.before))
        reasons.append("" if gold is None or unedited is None else _why_tests_are_no_use(task.id, gold, unedited))
    return reasons


def _why_tests_are_no_use(id: str, gold: TestVerdict, unedited: TestVerdict) -> str:
    if cause := gold.cause or unedited.cause:
        if cause in CAUSES_OF_MACHINE:
            raise SandboxError(f"{id}: its tests say nothing ({cause}); free the machine and start again")
        return cause
    if gold.passes:
        return "unedited_passes_tests" if unedited.passes else ""
    return ": ".join(["gold_fails_tests", *next(iter(gold.failures.items()), ())])


class OpenTask(BaseModel):
    """What a label asks for, with no text that counts as done.

    A detector or a person has to judge what a teacher makes of it; it is never compared with a text, and never an edit.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    id: str
    """That of the label."""
    dataset: str
    language: Language
    instruction: str
    before: str
    label: str
    """What is said of the text: a smell that should go, or a refactoring that should be done."""
    holds: bool | None
    """Whether people agree on it; of a disputed refactoring the known text after is not one that counts as done."""
    subject: str = ""
    """What in the text it is said of; empty for the whole."""
    license: str = Field(validation_alias=AliasChoices("license", "licence"))
    group: str
    origin: str
    tags: tuple[str, ...] = ()


def open_task_of(label: Label) -> OpenTask:
    """Return the task of `label`."""
    names = Label.model_fields.keys() & OpenTask.model_fields.keys()
    return OpenTask(before=label.pre, **{name: getattr(label, name) for name in names})
