"""Coroutines for callers that have no event loop, or are in the middle of one: a notebook, a Dagster asset."""

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns. Inside a running event loop it has a thread of its own, and the loop stands still."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return Background(work).result()


def blocking(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return the twin of an `…_async` function, for callers that do not await; it works inside a running event loop too."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(function(*args, **kwargs))

    call.__name__, call.__qualname__ = (name.removesuffix("_async") for name in (call.__name__, call.__qualname__))
    return call


class Background(Generic[T]):
    """Work that goes on in a thread with an event loop of its own; the thread does not keep the process alive."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._future: Future[T] = Future()
        self._began = threading.Event()
        threading.Thread(target=copy_context().run, args=(self._main,), name="graftline-harbor", daemon=True).start()

    @property
    def is_done(self) -> bool:
        """Whether it has ended, however."""
        return self._future.done()

    @property
    def fault(self) -> BaseException | None:
        """What it ended with, where that is an error; None too while it goes on."""
        return self._future.exception() if self._future.done() else None

    def result(self, timeout_s: float | None = None) -> T:
        """Return what it returns; interrupted, it is cancelled. Raises TimeoutError where it goes on still."""
        try:
            return self._future.result(timeout_s)
        except KeyboardInterrupt:
            self.cancel()
            raise

    def wait(self, timeout_s: float) -> None:
        """Wait until it has ended, however, for so long at most."""
        wait([self._future], timeout_s)

    def cancel(self) -> None:
        """Ask it to end; no-op once it has."""
        self._began.wait()
        if not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(self._task.cancel)
            except RuntimeError:
                # it was closed in between
                return

    def _main(self) -> None:
        try:
            value = asyncio.run(self._run())
        except BaseException as error:
            self._future.set_exception(error)
        else:
            self._future.set_result(value)

    async def _run(self) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._loop, self._task = asyncio.get_running_loop(), task
        self._began.set()
        return await self._work
