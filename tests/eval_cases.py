"""Cases and answers for evaluations, in which one action is right, one leaves half, one changes too much, and one is none."""

from collections.abc import Callable, Sequence

from graftline.codemod.equality import Level
from graftline.core.hashing import digest
from graftline.evals.attempt import Answered, Attempt, Cost, Failed, Question, Replies
from graftline.evals.cases import Case, HeldOutExample
from graftline.rollouts.teachers.answer import AnswerFormat
from tests.tasks import make_task

FORMAT = AnswerFormat(layout="action")
RIGHT = '{"pattern": "old($A)", "rewrite": "new($A)"}'
LITERAL = '{"pattern": "old(1)", "rewrite": "new(1)"}'
TOO_MUCH = '{"pattern": "$F($A)", "rewrite": "new($A)"}'
UNREADABLE = "I do not know."


def case(number: int, edit_class: str = "rename", has_unseen: bool = False) -> Case:
    """Return a case that `RIGHT` solves."""
    task = make_task(
        f"x = old(1)\ny = old({number})\nz = keep(3)\n",
        f"x = new(1)\ny = new({number})\nz = keep(3)\n",
        id=f"demo:{number}",
        dataset="demo",
        instruction=f"Rename `old` to `new`, in file {number}.",
        origin=f"demo_{number}.py",
    )
    unseen = HeldOutExample(pre="a = old(b)\nkeep(c)\n", post="a = new(b)\nkeep(c)\n") if has_unseen else None
    return Case(task=task, edit_class=edit_class, unseen=unseen)


def attempt(
    solver: str, task: str, number: int = 1, is_right: bool = False, is_infra: bool = False, **more: object
) -> Attempt:
    """Return an attempt of which only so much is known."""
    values = {
        "language": "python",
        "edit_class": "rename",
        "reward": None if is_infra else float(is_right),
        "cause": "broken" if is_infra else "verified" if is_right else "no_progress",
        "level": Level.EXACT if is_right else Level.NONE,
        "is_infra": is_infra,
        **more,
    }
    return Attempt.model_validate({"solver": solver, "task_id": task, "attempt": number, **values})


class FunctionSolver:
    """Answers at once what a function says, whose errors are those of a machine that failed: for tests and measurements."""

    def __init__(
        self, answer: Callable[[Question], str | Exception], answer_format: AnswerFormat, draws: bool = True
    ) -> None:
        self._answer, self._format, self.draws = answer, answer_format, draws
        self.digest = digest(["memory", answer_format.model_dump(mode="json")])
        self.questions: list[tuple[str, int]] = []
        """Tasks and numbers of the attempts, in order."""

    def replies(self, questions: Sequence[Question]) -> Replies:
        for question in questions:
            self.questions.append((question.case.id, question.attempt))
            answer = self._answer(question)
            if isinstance(answer, Exception):
                yield Failed(question, str(answer))
            else:
                yield Answered(question, answer, self._format, Cost(len(answer.split()), 0.0, 0.0))
