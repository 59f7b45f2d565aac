"""A chat model for threads: each waits for its answer, while one event loop asks for all of them."""

import asyncio
import threading
from concurrent.futures import CancelledError
from types import TracebackType
from typing import Self

from graftline.core.errors import ActorError
from graftline.llm.base import ChatAnswer, ChatModel, ChatRequest


class BlockingChatModel:
    """Owns `model` and the thread that its event loop runs in; any number of threads may ask at the same time."""

    def __init__(self, model: ChatModel) -> None:
        self.model = model
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"chat-{model.name}", daemon=True)
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def name(self) -> str:
        """As `ChatModel.name`."""
        return self.model.name

    def generate(self, request: ChatRequest) -> ChatAnswer:
        """As `ChatModel.generate`; interrupted, it cancels the request. ActorError where the model was closed."""
        with self._lock:
            if self._is_closed:
                raise ActorError(f"{self.name}: is closed; open another")
            future = asyncio.run_coroutine_threadsafe(self.model.generate(request), self._loop)
        try:
            return future.result()
        except CancelledError:
            raise ActorError(f"{self.name}: was closed before there was an answer") from None
        finally:
            # no-op once the future is done
            future.cancel()

    def close(self) -> None:
        """Close the model; whoever waits gets an `ActorError`."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        await self.model.close()
        tasks = asyncio.all_tasks() - {task for task in (asyncio.current_task(),) if task is not None}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
