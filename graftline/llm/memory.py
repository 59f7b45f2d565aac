"""A chat model in this process: answers by a function, or from a script. It knows no schema."""

import asyncio
import itertools
import re
from collections.abc import Awaitable, Callable, Sequence

from graftline.core.errors import ActorError
from graftline.llm.base import ChatAnswer, ChatRequest, TokenUsage

_TOKEN = re.compile(r"\s*\S+")


class MemoryChatModel:
    """Says what `answer` says, cut as a server would cut it; a token is a word.

    `requests` holds what it was asked, in order.
    """

    def __init__(self, answer: Callable[[ChatRequest], Awaitable[str]], name: str = "memory") -> None:
        self._answer = answer
        self._name = name
        self._in_flight: set[asyncio.Timeout] = set()
        self._is_closed = False
        self.requests: list[ChatRequest] = []

    @property
    def name(self) -> str:
        return self._name

    async def generate(self, request: ChatRequest) -> ChatAnswer:
        if self._is_closed:
            raise ActorError(f"{self._name}: is closed; open another")
        self.requests.append(request)
        loop = asyncio.get_running_loop()
        began = loop.time()
        scope = asyncio.timeout(request.deadline_s)
        self._in_flight.add(scope)
        try:
            async with scope:
                # a deadline that is over already is noticed here
                await asyncio.sleep(0)
                text = await self._answer(request)
        except TimeoutError:
            if self._is_closed:
                raise ActorError(f"{self._name}: was closed before there was an answer") from None
            raise ActorError(f"{self._name}: no answer within {request.deadline_s:g} s; give it longer") from None
        finally:
            self._in_flight.discard(scope)
        cut = text[: min((at for stop in request.stop if (at := text.find(stop)) >= 0), default=len(text))]
        words = _TOKEN.findall(cut)
        is_too_long = len(words) > request.max_tokens
        return ChatAnswer(
            text="".join(words[: request.max_tokens]) if is_too_long else cut,
            finish_reason="length" if is_too_long else "stop",
            usage=TokenUsage(
                prompt=sum(len(_TOKEN.findall(message.content)) for message in request.messages),
                completion=min(len(words), request.max_tokens),
            ),
            model=request.adapter or self._name,
            actor=self._name,
            latency_s=loop.time() - began,
            tries=1,
            seed=request.seed,
        )

    async def close(self) -> None:
        self._is_closed = True
        now = asyncio.get_running_loop().time()
        for scope in self._in_flight:
            if not scope.expired():
                scope.reschedule(now)


def script_answers(answers: Sequence[str]) -> Callable[[ChatRequest], Awaitable[str]]:
    """Return what gives `answers` in their order, and then from the first one again."""
    following = itertools.cycle(answers)

    async def answer(_: ChatRequest) -> str:
        return next(following)

    return answer
