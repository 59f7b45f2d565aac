"""How many tasks a model solves, with and without an adapter: one answer to each, the most probable one."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from graftline.core.errors import TrainingError
from graftline.core.markdown import plain_table
from graftline.rollouts.answer_grading import GradedAnswer, first_question, grade_answer
from graftline.rollouts.reward import RewardWeights
from graftline.rollouts.task import Task
from graftline.rollouts.task_selection import template_of
from graftline.rollouts.teachers.prompt import Prompt
from graftline.sandbox.base import Sandbox
from graftline.training.questions import Drawing, Questions
from graftline.training.service import Sampler, TrainingService

Row = dict[str, object]


def solve(
    service: TrainingService,
    sampler: Sampler,
    tasks: Sequence[Task],
    prompt: Prompt,
    questions: Questions,
    sandbox: Sandbox,
    answer_tokens: int,
    advance: Callable[[int, int], None] = lambda done, total: None,
) -> list[GradedAnswer]:
    """Return what `sampler` makes of each task, in their order.

    Raises:
        TrainingError: it does not answer.
        SandboxError: the sandbox failed.
    """
    asked = questions.ask(
        sampler,
        [questions.tokens(first_question(task, prompt)) for task in tasks],
        Drawing(answer_tokens),
        [0] * len(tasks),
    )
    found = []
    for number, (task, future) in enumerate(zip(tasks, asked, strict=True), 1):
        [[answer]] = questions.drawn(service, [future], f"the answer to {task.id}")
        found.append(grade_answer(task, answer.text, prompt.settings.answer, sandbox, RewardWeights()))
        advance(number, len(tasks))
    return found


def rows(tasks: Sequence[Task], before: Sequence[GradedAnswer], after: Sequence[GradedAnswer]) -> list[Row]:
    """Return for every task what was answered and what came of it, before and after, as JSON."""
    return [
        {
            "task_id": task.id,
            "language": task.language,
            "template": template_of(task),
            "instruction": task.instruction,
            **{
                f"{when}.{key}": value
                for when, one in (("before", first), ("after", last))
                for key, value in _facts(one).items()
            },
        }
        for task, first, last in zip(tasks, before, after, strict=True)
    ]


def overview(tasks: Sequence[Task], before: Sequence[GradedAnswer], after: Sequence[GradedAnswer]) -> list[Row]:
    """Return by template, and for all, how many tasks are solved before and after; those that nothing is known of apart."""
    groups: dict[str, list[tuple[GradedAnswer, GradedAnswer]]] = defaultdict(list)
    for task, first, last in zip(tasks, before, after, strict=True):
        groups[template_of(task)].append((first, last))
    groups = dict(sorted(groups.items()))
    groups["all"] = [pair for some in [*groups.values()] for pair in some]
    return [
        {
            "of": name,
            "tasks": len(pairs),
            "solved before": sum(first.is_verified for first, _ in pairs),
            "solved after": sum(last.is_verified for _, last in pairs),
            "unknown": sum(None in (first.reward.value, last.reward.value) for first, last in pairs),
        }
        for name, pairs in groups.items()
    ]


def page(found: Sequence[Row]) -> str:
    """Return an overview as a table in Markdown."""
    return plain_table([*found])


def check_known(graded_ones: Sequence[GradedAnswer], which: str) -> None:
    """Refuse a look that says nothing, for the machine did not.

    Raises:
        TrainingError: no reward is known.
    """
    if graded_ones and all(one.reward.value is None for one in graded_ones):
        raise TrainingError(f"nothing is known of any answer of {which}; mend the machine, and run again")


def _facts(one: GradedAnswer) -> Row:
    return {"answer": one.text, "reward": one.reward.value, "cause": one.reward.cause, "is_verified": one.is_verified}
