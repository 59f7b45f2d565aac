"""A solver of evaluations that is a model of the training service, bare or with an adapter."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from graftline.core.errors import BoundaryError, DataError
from graftline.core.hashing import digest
from graftline.evals.attempt import Answered, Cost, Failed, Question, Replies, Reply, Unaskable
from graftline.evals.solvers import TOO_LONG, Sampling, why_unaskable
from graftline.rollouts.answer_grading import first_question
from graftline.rollouts.teachers.prompt import Prompt
from graftline.training.answers import AnswerSampling, Questions
from graftline.training.tinker import ResultFuture, TinkerSDKClient

if TYPE_CHECKING:
    from graftline.training.tinker import SamplingClient


@dataclass(frozen=True, slots=True)
class _Request:
    """Attempts at one task, on their way."""

    attempts: list[Question]
    future: ResultFuture[Any]
    tokens: int
    """Of the question."""
    began: float


class SampledSolver:
    """A model of the training service, as `sampler` has it, asked by `prompt`; both belong to the caller.

    `context_tokens` is what the model takes in, question and answer, None where only the service knows; `at_once` are the
    questions on their way at a time, of which a service works on those for the same model together; `model` is what
    `sampler` is, in a word of the caller's, where a journal is kept.
    """

    def __init__(
        self,
        service: TinkerSDKClient,
        sampler: "SamplingClient",
        questions: Questions,
        prompt: Prompt,
        sampling: Sampling,
        context_tokens: int | None = None,
        at_once: int = 64,
        model: str = "",
    ) -> None:
        self._service, self._sampler, self._questions = service, sampler, questions
        self._prompt, self._sampling, self._context_tokens = prompt, sampling, context_tokens
        self._at_once = at_once
        self.draws = sampling.draws
        settings = [prompt.digest(), asdict(sampling), context_tokens]
        self.digest = digest(["sampled", model, *settings]) if model else ""

    def replies(self, questions: Sequence[Question]) -> Replies:
        pending: deque[_Request] = deque()
        # attempts at a task are one request: its question is read once
        for _, attempts in groupby(questions, key=lambda question: question.case.id):
            request = self._send([*attempts])
            if isinstance(request, _Request):
                pending.append(request)
            else:
                yield from request
            while pending and sum(len(request.attempts) for request in pending) >= self._at_once:
                yield from self._receive(pending.popleft())
        while pending:
            yield from self._receive(pending.popleft())

    def _send(self, attempts: list[Question]) -> _Request | list[Reply]:
        case, sampling = attempts[0].case, self._sampling
        if cause := why_unaskable(case):
            return [Unaskable(attempt, cause) for attempt in attempts]
        try:
            tokens = self._questions.tokens(first_question(case.task, self._prompt))
        except DataError as error:
            return [Failed(attempt, str(error)) for attempt in attempts]
        if self._context_tokens is not None and len(tokens) + sampling.max_tokens > self._context_tokens:
            return [Unaskable(attempt, TOO_LONG) for attempt in attempts]
        # of some that are asked for again, those before them are drawn as well: each comes out as if all were asked for
        drawing = AnswerSampling(
            sampling.max_tokens, sampling.temperature, max(attempt.attempt for attempt in attempts)
        )
        first, began = replace(attempts[0], attempt=1), time.monotonic()
        try:
            [future] = self._questions.ask(self._sampler, [tokens], drawing, [sampling.seed_of(first)])
        except (BoundaryError, DataError) as error:
            return [Failed(attempt, str(error)) for attempt in attempts]
        return _Request(attempts, future, len(tokens), began)

    def _receive(self, request: _Request) -> Replies:
        title = f"the answer to {request.attempts[0].case.id}"
        try:
            [answers] = self._questions.wait(self._service, [request.future], title)
        except (BoundaryError, DataError) as error:
            yield from (Failed(attempt, str(error)) for attempt in request.attempts)
            return
        latency_s = round(time.monotonic() - request.began, 4)
        numbers = {attempt.attempt for attempt in request.attempts}
        # the question is paid for once, and so are answers that nobody asked for
        shared = request.tokens + sum(
            len(answer.tokens) for number, answer in enumerate(answers, 1) if number not in numbers
        )
        for attempt in request.attempts:
            answer = answers[attempt.attempt - 1]
            cost = Cost(len(answer.tokens) + shared, None, latency_s)
            shared = 0
            yield Answered(attempt, answer.text, self._prompt.settings.answer, cost)
