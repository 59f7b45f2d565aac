"""Solvers attempt the tasks of an evaluation: a served model, a teacher.

All of them are asked the same questions. A model is asked as while it is trained (`rollouts.answer_grading.first_question`); a
prompt of its own is all that tells one way of asking from another. A model of the training service is
`pipeline.sampled_solver`.
"""

import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from typing import Protocol

from graftline.core.errors import BoundaryError
from graftline.core.hashing import digest
from graftline.evals.attempt import Answered, Attempted, Cost, Failed, Question, Replies, Reply, Unaskable
from graftline.evals.cases import Case
from graftline.llm.base import ChatRequest, Message
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.questions import count_chat_tokens, seed_of
from graftline.rollouts.answer_grading import first_question
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.teachers.base import Teacher
from graftline.rollouts.teachers.openai import chat_request
from graftline.rollouts.teachers.prompt import Prompt
from graftline.sandbox.base import Sandbox

TOO_LONG, UNREADABLE, NO_PLACE = "too_long", "unreadable", "no_place"
"""Causes of questions that cannot be asked: the text does not fit into the context of the model, or is none, or no line of a
repository has a word of the instruction."""


class Solver(Protocol):
    """Attempts tasks."""

    @property
    def draws(self) -> bool:
        """Whether a further attempt at a task may come out otherwise; one that does not draw is asked once."""

    @property
    def digest(self) -> str:
        """Differs from that of any other that may answer otherwise; empty where it cannot say."""

    def replies(self, questions: Sequence[Question]) -> Replies:
        """Yield one reply for each of `questions`, in any order.

        A machine that fails is a reply too. Ended early, it lets go of what is in flight.
        """


@dataclass(frozen=True, slots=True)
class Sampling:
    """How answers are drawn."""

    temperature: float = 0.0
    max_tokens: int = 96
    """Of an answer."""
    seed: int = 1

    @property
    def draws(self) -> bool:
        """Whether answers to the same question may differ."""
        return self.temperature > 0

    def seed_of(self, question: Question) -> int:
        """Return the seed of an attempt, the same whichever attempts are made beside it."""
        return seed_of(self.seed, question.case.id, question.attempt)


class ChatSolver:
    """A served model, asked by `prompt`.

    Args:
        model: Belongs to the caller.
        prompt: How it is asked.
        sampling: How it answers.
        context_tokens: What the model takes in, question and answer.
        adapter: Name of a loaded LoRA adapter; empty for the model itself.
        at_once: Questions that are on their way at a time.
        deadline_s: From a question to its answer.
    """

    def __init__(
        self,
        model: BlockingChatModel,
        prompt: Prompt,
        sampling: Sampling,
        context_tokens: int,
        adapter: str = "",
        at_once: int = 8,
        deadline_s: float = 600.0,
    ) -> None:
        self._model, self._prompt, self._sampling = model, prompt, sampling
        self._question_tokens, self._adapter = context_tokens - sampling.max_tokens, adapter
        self._at_once, self._deadline_s = at_once, deadline_s
        self.draws = sampling.draws
        settings = [prompt.digest(), asdict(sampling), self._question_tokens, adapter]
        self.digest = digest(["chat", model.name, *settings])

    def replies(self, questions: Sequence[Question]) -> Replies:
        remaining = iter(questions)
        threads = ThreadPoolExecutor(self._at_once, thread_name_prefix="question")
        pending: set[Future[Reply]] = set()
        try:
            while True:
                # no more than are asked: who ends this early is not to wait for what nobody needs
                while len(pending) < self._at_once and (question := next(remaining, None)) is not None:
                    pending.add(threads.submit(self._ask, question))
                if not pending:
                    return
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        finally:
            threads.shutdown(wait=True, cancel_futures=True)

    def _ask(self, question: Question) -> Reply:
        if cause := why_unaskable(question.case):
            return Unaskable(question, cause)
        request = self._request(question)
        if count_chat_tokens(request.messages) > self._question_tokens:
            return Unaskable(question, TOO_LONG)
        try:
            answer = self._model.generate(request)
        except BoundaryError as error:
            return Failed(question, str(error))
        cost = Cost(answer.usage.prompt + answer.usage.completion, answer.cost_usd, round(answer.latency_s, 4))
        return Answered(question, answer.text, self._prompt.settings.answer, cost)

    def _request(self, question: Question) -> ChatRequest:
        chat = first_question(question.case.task, self._prompt)
        messages = tuple(Message.model_validate(dict(message)) for message in chat)
        temperature, seed = self._sampling.temperature, self._sampling.seed_of(question)
        request = chat_request(self._prompt.settings, messages, temperature, seed, self._adapter)
        return replace(request, max_tokens=self._sampling.max_tokens, deadline_s=self._deadline_s)


class TeacherSolver:
    """A teacher that asks no model: of its attempt at a task, `most_steps` steps count.

    One that sees the target text, as induction does, says what is possible by one action, not what can be learned.
    """

    draws = False

    def __init__(self, teacher: Teacher, sandbox: Sandbox, most_steps: int = 1) -> None:
        self._teacher, self._sandbox = teacher, sandbox
        self._collecting = RolloutConfig(max_steps=most_steps)
        self.digest = digest(["teacher", teacher.name, most_steps])

    def replies(self, questions: Sequence[Question]) -> Replies:
        for question in questions:
            began = time.monotonic()
            try:
                trajectory = collect(
                    question.case.task, self._teacher, self._sandbox, self._collecting, question.attempt
                )
            except BoundaryError as error:
                yield Failed(question, str(error))
                continue
            yield Attempted(question, trajectory, Cost(0, 0.0, round(time.monotonic() - began, 4)))


def why_unaskable(case: Case) -> str:
    """Return why a task cannot be sent: half a surrogate pair is no text, and without a place nothing is shown; else empty."""
    if case.is_of_places and not case.task.before:
        return NO_PLACE
    try:
        f"{case.task.instruction}{case.task.before}{case.task.target}".encode()
    except UnicodeEncodeError:
        return UNREADABLE
    return ""
