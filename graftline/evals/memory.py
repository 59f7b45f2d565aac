"""A contestant of this process, which says what a function says: for tests, and to measure all but the answering."""

from collections.abc import Callable, Sequence

from graftline.core.hashing import digest
from graftline.evals.cases import Question
from graftline.evals.replies import Cost, Failed, Replies, Said
from graftline.rollouts.teachers.answer_schema import AnswerFormat


class MemoryContestant:
    """Answers at once; an error that `answer` returns is that of a machine that failed."""

    def __init__(
        self, answer: Callable[[Question], str | Exception], answer_format: AnswerFormat, draws: bool = True
    ) -> None:
        self._answer, self._format, self._draws = answer, answer_format, draws
        self.asked: list[tuple[str, int]] = []
        """Tasks and numbers of the attempts, in order."""

    @property
    def draws(self) -> bool:
        return self._draws

    @property
    def digest(self) -> str:
        """The same for all of them: what a function says cannot be told beforehand."""
        return digest(["memory", self._format.model_dump(mode="json")])

    def replies(self, questions: Sequence[Question]) -> Replies:
        for asked in questions:
            self.asked.append((asked.case.id, asked.attempt))
            said = self._answer(asked)
            if isinstance(said, Exception):
                yield Failed(asked, str(said))
            else:
                yield Said(asked, said, self._format, Cost(len(said.split()), 0.0, 0.0))
