"""Answers that are there at once, in the form of those that come later."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

_T = TypeVar("_T")


def answered(work: Callable[[], _T]) -> "Future[_T]":
    """Return what `work` comes to; what it raises is raised by who asks for the result, as with an answer from elsewhere."""
    found: Future[_T] = Future()
    try:
        found.set_result(work())
    except Exception as error:  # whatever a loss of somebody else's raises
        found.set_exception(error)
    return found
