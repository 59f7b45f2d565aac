"""Who attempts tasks in an evaluation: a served model, a model of the training service, a teacher.

All of them are asked the same questions. A model is asked as while it is trained (`rollouts.answer_grading.first_question`), a prompt of
its own being all that tells one way of asking from another.
"""

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any, Protocol

from graftline.core.errors import BoundaryError, DataError
from graftline.core.hashing import digest, sha256_text
from graftline.core.tokens import count_tokens
from graftline.evals.cases import Case, Question
from graftline.evals.replies import Cost, Failed, NotAsked, Replies, Reply, Said, Tried
from graftline.llm.base import ChatRequest, Message
from graftline.llm.blocking import BlockingChatModel
from graftline.rollouts.answer_grading import first_question
from graftline.rollouts.collect import Collecting, collect
from graftline.rollouts.teachers.base import Teacher
from graftline.rollouts.teachers.openai import chat_request
from graftline.rollouts.teachers.prompt import Prompt
from graftline.sandbox.base import Sandbox
from graftline.training.answers import Drawing, Questions
from graftline.training.service import Awaited, Sampler, TrainingService

TOO_LONG, UNREADABLE = "too_long", "unreadable"
"""Causes of questions that cannot be asked: the text does not fit into the context of the model, or is none."""

_OF_MESSAGE = 8
"""Tokens that the template of a model puts round a message."""
_MARGIN = 1.15
"""Tokenizers of small vocabularies make more tokens of the same text than the one that is counted with."""


class Contestant(Protocol):
    """Attempts tasks."""

    @property
    def draws(self) -> bool:
        """Whether a further attempt at a task may come out otherwise; one that does not draw is asked once."""

    @property
    def digest(self) -> str:
        """Tells it from all others that may answer otherwise; empty where it cannot say."""

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
        text = "\0".join(map(str, (self.seed, question.case.id, question.attempt)))
        return int(sha256_text(text)[:8], 16) >> 1


class ChatContestant:
    """A served model, asked by `prompt`; so many questions are on their way at a time.

    Args:
        model: Belongs to the caller.
        prompt: How it is asked.
        sampling: How it answers.
        context_tokens: What the model takes in, question and answer.
        adapter: Name of a loaded LoRA adapter; empty for the model itself.
        at_once: Questions at a time.
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
        self._room, self._adapter = context_tokens - sampling.max_tokens, adapter
        self._at_once, self._deadline_s = at_once, deadline_s

    @property
    def draws(self) -> bool:
        return self._sampling.draws

    @property
    def digest(self) -> str:
        said = [self._prompt.digest(), asdict(self._sampling), self._room, self._adapter]
        return digest(["chat", self._model.name, *said])

    def replies(self, questions: Sequence[Question]) -> Replies:
        left = iter(questions)
        threads = ThreadPoolExecutor(self._at_once, thread_name_prefix="question")
        waiting: set[Future[Reply]] = set()
        try:
            while True:
                # no more than are asked: who ends this early is not to wait for what nobody needs
                while len(waiting) < self._at_once and (following := next(left, None)) is not None:
                    waiting.add(threads.submit(self._asked, following))
                if not waiting:
                    return
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        finally:
            threads.shutdown(wait=True, cancel_futures=True)

    def _asked(self, asked: Question) -> Reply:
        if not is_text(asked.case):
            return NotAsked(asked, UNREADABLE)
        request = self._request(asked)
        if _tokens(request.messages) > self._room:
            return NotAsked(asked, TOO_LONG)
        try:
            answer = self._model.generate(request)
        except BoundaryError as error:
            return Failed(asked, str(error))
        tokens = answer.usage.prompt + answer.usage.completion
        cost = Cost(tokens, answer.cost_usd, round(answer.latency_s, 4))
        return Said(asked, answer.text, self._prompt.settings.answer, cost)

    def _request(self, asked: Question) -> ChatRequest:
        messages = tuple(Message.model_validate(dict(one)) for one in first_question(asked.case.task, self._prompt))
        temperature, seed = self._sampling.temperature, self._sampling.seed_of(asked)
        request = chat_request(self._prompt.settings, messages, temperature, seed, self._adapter)
        return replace(request, max_tokens=self._sampling.max_tokens, deadline_s=self._deadline_s)


class SampledContestant:
    """A model of the training service, bare or with an adapter, asked by `prompt`.

    Args:
        service: What trains; it belongs to the caller, as `sampler` does.
        sampler: The model as it is asked.
        questions: Makes tokens of chats.
        prompt: How it is asked.
        sampling: How it answers.
        context_tokens: What the model takes in, question and answer; None where only the service knows.
        at_once: Questions on their way at a time; a service works on those for the same model together.
        model: What `sampler` is, in a word of the caller's, where a journal is kept.
    """

    def __init__(
        self,
        service: TrainingService,
        sampler: Sampler,
        questions: Questions,
        prompt: Prompt,
        sampling: Sampling,
        context_tokens: int | None = None,
        at_once: int = 64,
        model: str = "",
    ) -> None:
        self._service, self._sampler, self._questions = service, sampler, questions
        self._prompt, self._sampling, self._context_tokens = prompt, sampling, context_tokens
        self._at_once, self._model = at_once, model

    @property
    def draws(self) -> bool:
        return self._sampling.draws

    @property
    def digest(self) -> str:
        said = [self._prompt.digest(), asdict(self._sampling), self._context_tokens]
        return digest(["sampled", self._model, *said]) if self._model else ""

    def replies(self, questions: Sequence[Question]) -> Replies:
        waiting: deque[_Asked] = deque()
        # attempts at a task are one request: its question is read once
        for _, attempts in groupby(questions, key=lambda one: one.case.id):
            asked = self._asked([*attempts])
            if isinstance(asked, _Asked):
                waiting.append(asked)
            else:
                yield from asked
            while waiting and sum(len(one.questions) for one in waiting) >= self._at_once:
                yield from self._answered(waiting.popleft())
        while waiting:
            yield from self._answered(waiting.popleft())

    def _asked(self, asked: list[Question]) -> "_Asked | list[Reply]":
        task, sampling = asked[0].case.task, self._sampling
        if not is_text(asked[0].case):
            return [NotAsked(one, UNREADABLE) for one in asked]
        try:
            tokens = self._questions.tokens(first_question(task, self._prompt))
        except DataError as error:
            return [Failed(one, str(error)) for one in asked]
        if self._context_tokens is not None and len(tokens) + sampling.max_tokens > self._context_tokens:
            return [NotAsked(one, TOO_LONG) for one in asked]
        # of some that are asked for again, those before them are drawn as well: each comes out as if all were asked for
        drawing = Drawing(sampling.max_tokens, sampling.temperature, max(one.attempt for one in asked))
        first, began = replace(asked[0], attempt=1), time.monotonic()
        try:
            [future] = self._questions.ask(self._sampler, [tokens], drawing, [sampling.seed_of(first)])
        except (BoundaryError, DataError) as error:
            return [Failed(one, str(error)) for one in asked]
        return _Asked(asked, future, len(tokens), began)

    def _answered(self, asked: "_Asked") -> Replies:
        what = f"the answer to {asked.questions[0].case.id}"
        try:
            [drawn] = self._questions.drawn(self._service, [asked.future], what)
        except (BoundaryError, DataError) as error:
            yield from (Failed(one, str(error)) for one in asked.questions)
            return
        latency_s = round(time.monotonic() - asked.began, 4)
        wanted = {one.attempt for one in asked.questions}
        # the question is paid for once, and so is what is drawn besides
        once = asked.tokens + sum(len(one.tokens) for number, one in enumerate(drawn, 1) if number not in wanted)
        for number, one in enumerate(asked.questions):
            answer = drawn[one.attempt - 1]
            tokens = len(answer.tokens) + (once if number == 0 else 0)
            yield Said(one, answer.text, self._prompt.settings.answer, Cost(tokens, None, latency_s))


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request that is on its way."""

    questions: list[Question]
    future: Awaited[Any]
    tokens: int
    """Of the question."""
    began: float


class TeacherContestant:
    """A teacher that asks no model: of its attempt at a task, `most_steps` steps count.

    One that sees the wanted text, as induction does, says what is possible by one action, not what can be learned.
    """

    draws = False

    def __init__(self, teacher: Teacher, sandbox: Sandbox, most_steps: int = 1) -> None:
        self._teacher, self._sandbox = teacher, sandbox
        self._collecting = Collecting(max_steps=most_steps)

    @property
    def digest(self) -> str:
        return digest(["teacher", self._teacher.name, self._collecting.max_steps])

    def replies(self, questions: Sequence[Question]) -> Replies:
        for asked in questions:
            began = time.monotonic()
            try:
                made = collect(asked.case.task, self._teacher, self._sandbox, self._collecting, asked.attempt)
            except BoundaryError as error:
                yield Failed(asked, str(error))
                continue
            yield Tried(asked, made, Cost(0, 0.0, round(time.monotonic() - began, 4)))


def is_text(case: Case) -> bool:
    """Return whether what is asked can be sent: half a surrogate pair is no text."""
    try:
        f"{case.task.instruction}{case.task.before}{case.task.wanted}".encode()
    except UnicodeEncodeError:
        return False
    return True


def _tokens(messages: Sequence[Message]) -> int:
    return round(_MARGIN * sum(count_tokens(message.content) + _OF_MESSAGE for message in messages))
