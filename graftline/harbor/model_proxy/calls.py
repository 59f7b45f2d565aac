"""Calls of a model as they are kept: one line of JSON each, in a file for each attempt at a rollout.

An agent sends its whole conversation with every call. So a line holds what is new since an earlier call of the same file, and
says how much of that one it begins with; `read_calls` returns calls whole.
"""

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict

from graftline.core.errors import DataError
from graftline.llm.base import OutputTerms

_COMPARED = 8
"""Earlier calls that one may go on from: an agent has few conversations at a time."""


class ModelCall(BaseModel):
    """What one call asked, and what came of it."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    rollout_id: str
    attempt: int
    number: int
    """Among the calls of the attempt, from 1, in the order in which they ended."""
    started_at: float
    latency_s: float
    interface: str
    """Its path: `/chat/completions`, `/responses`, `/messages`."""
    requested_model: str
    model: str
    """That was asked in its place, or the same."""
    parameters: dict[str, Any] = {}
    """What else was asked for: `temperature`, `max_tokens`, `tools`."""
    messages: tuple[dict[str, Any], ...]
    """What was asked, in the form of chat completions."""
    answer: dict[str, Any]
    """The message of the model, as far as it came."""
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    is_estimated: bool = False
    """Whether the server did not say how many tokens there were: then they are those that came, and one for three bytes asked."""
    cost_usd: float | None = None
    """None where no price is configured."""
    prompt_token_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    """Of the answer; empty where the server does not give them, as `logprobs`."""
    logprobs: tuple[float, ...] = ()
    outputs: OutputTerms | None = None
    """On what terms the answer may be used, as the fleet says."""
    fault: str = ""
    """Why there is no whole answer; empty where there is one."""


@dataclass(frozen=True, slots=True)
class _Written:
    number: int
    parameters: dict[str, Any]
    messages: list[bytes]
    prompt_token_ids: Sequence[int]


class CallFile:
    """Where the calls of one attempt are written, as they end; of one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: list[_Written] = []
        self._descriptor: int | None = None

    def add(self, call: ModelCall) -> None:
        """Append one. Raises OSError where the disk takes it not."""
        row = call.model_dump(mode="json", exclude_defaults=True)
        messages = [orjson.dumps(message) for message in call.messages]
        begun = max(
            self._written,
            key=lambda earlier: _count_shared(earlier.messages, messages),
            default=_Written(0, {}, [], ()),
        )
        if common := _count_shared(begun.messages, messages):
            row |= {"begins_with": begun.number, "common_messages": common, "messages": row["messages"][common:]}
            tokens = _count_shared(begun.prompt_token_ids, call.prompt_token_ids)
            row |= {"common_tokens": tokens, "prompt_token_ids": call.prompt_token_ids[tokens:]}
            if begun.parameters == call.parameters:
                row["parameters"] = None
        if self._descriptor is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        line, size = orjson.dumps(row) + b"\n", os.fstat(self._descriptor).st_size
        if os.write(self._descriptor, line) < len(line):
            # a part of a line would be taken for the beginning of the next one
            os.ftruncate(self._descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = _Written(call.number, call.parameters, messages, call.prompt_token_ids)
        self._written = [*self._written[1 - _COMPARED :], written]

    def close(self) -> None:
        """Write nothing more."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def call_lines(path: Path) -> list[bytes]:
    """Return the lines of a file of calls; none where there is no file."""
    # what follows the last line end was not written whole
    return path.read_bytes().split(b"\n")[:-1] if path.is_file() else []


def read_calls(rows: Iterable[Any], source: str) -> Iterator[ModelCall]:
    """Yield the calls in the rows of a file, whole. Raises DataError, which names their `source`, where one is no call."""
    by_number: dict[int, ModelCall] = {}
    for number, row in enumerate(rows, 1):
        try:
            row = dict(row)
            if (begins_with := row.pop("begins_with", None)) is not None:
                earlier = by_number[begins_with]
                row["messages"] = [*earlier.messages[: row.pop("common_messages")], *row["messages"]]
                tokens = earlier.prompt_token_ids[: row.pop("common_tokens")]
                row["prompt_token_ids"] = [*tokens, *row["prompt_token_ids"]]
                if row.get("parameters", {}) is None:
                    row["parameters"] = earlier.parameters
            call = ModelCall.model_validate(row)
        except (KeyError, TypeError, ValueError):
            raise DataError(
                f"{source}, call {number}: is no call of a model; ask the service that recorded it"
            ) from None
        by_number[call.number] = call
        by_number.pop(call.number - _COMPARED, None)
        yield call


def _count_shared(first: Sequence[Any], second: Sequence[Any]) -> int:
    """Return how many values two sequences have in common at their beginning."""
    count = 0
    for value, other in zip(first, second, strict=False):
        if value != other:
            break
        count += 1
    return count
