"""Clients, and what they have: training runs, samplers, and sequences whose sampling was recorded for `stable_reinforce`.

A datum for that loss names, for all of its tokens and targets, the sequences that they come from. The logprobs that its targets
were drawn with are those of the recording, whatever the datum says.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from graftline.core.errors import DataError
from graftline.training.local.checkpoints import Checkpoint, NotFound
from graftline.training.local.losses import check_inputs
from graftline.training.local.passes import Example

_SILENT_S = 600.0
"""A client beats every 10 s."""
_RECORDING_S = 86_400.0
"""After the last use of a recording, as on the service."""


class Span(NamedTuple):
    """A run of tokens that come from one sequence: of its prompt, or of what was sampled."""

    sequence_id: str
    is_sampled: bool
    offset: int
    length: int

    def cut(self, values: np.ndarray) -> np.ndarray:
        """Return the part of `values` of its sequence; DataError where the sequence is shorter."""
        part = values[self.offset : self.offset + self.length]
        if self.offset < 0 or len(part) != self.length:
            source = "sampled tokens" if self.is_sampled else "tokens in its prompt"
            raise DataError(
                f"sequence {self.sequence_id!r} has {len(values)} {source}, but {self.offset} to"
                f" {self.offset + self.length} were named"
            )
        return part


@dataclass(slots=True)
class _Recording:
    prompt: np.ndarray
    tokens: np.ndarray
    logprobs: np.ndarray
    expires: float


class Recordings:
    """The recorded sequences of one session, by id."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._recordings: dict[str, _Recording] = {}

    def record(self, id: str, prompt: Sequence[int], tokens: Sequence[int], logprobs: Sequence[float]) -> None:
        """Keep what was sampled as `id` for a day."""
        now = self._clock()
        for old in [old for old, recording in self._recordings.items() if recording.expires < now]:
            del self._recordings[old]
        arrays = np.array(prompt, np.int32), np.array(tokens, np.int32), np.array(logprobs, np.float32)
        self._recordings[id] = _Recording(*arrays, now + _RECORDING_S)

    def clear(self) -> None:
        """Forget all of them."""
        self._recordings.clear()

    def get(self, id: str) -> _Recording:
        """Return the recording of a sequence, and keep it for another day; DataError where there is none."""
        now = self._clock()
        recording = self._recordings.get(id)
        if recording is None or recording.expires < now:
            raise DataError(
                f"sequence {id!r} is not recorded in this session; sample it with"
                " record_stability_info=True, and train on it within a day"
            )
        recording.expires = now + _RECORDING_S
        return recording


def with_recorded_logprobs(
    loss: str, example: Example, token_spans: Sequence[Span], target_spans: Sequence[Span], recordings: Recordings
) -> Example:
    """Return `example` with the logprobs of the recorded sequences that its tokens and targets come from."""
    if not (token_spans and target_spans):
        raise DataError(f"{loss} needs the sequences that the tokens come from; attach them by Datum.with_provenance")
    targets = example.inputs.get("target_tokens", torch.zeros(0))
    logprobs = torch.zeros(targets.shape)
    example = replace(example, inputs={**example.inputs, "logprobs": logprobs})
    check_inputs(loss, example.inputs, len(example.tokens))
    if targets.dim() != 1:
        raise DataError(f"target_tokens is of shape {tuple(targets.shape)}, but {loss} has one target for each token")
    _check_same("model_input", token_spans, np.array(example.tokens), recordings, has_prompt=True)
    # targets in a prompt teach nothing, so whatever stands there is as good
    _check_same("target_tokens", target_spans, targets.numpy(), recordings, has_prompt=False)
    start, advantages = 0, example.inputs["advantages"]
    for span in target_spans:
        part = slice(start, start + span.length)
        if span.is_sampled:
            logprobs[part] = torch.from_numpy(span.cut(recordings.get(span.sequence_id).logprobs))
        elif bool((advantages[part] != 0).any()):
            raise DataError(f"advantages are not 0 on tokens of a prompt, but {loss} learns from sampled tokens only")
        start += span.length
    return example


def _check_same(name: str, spans: Sequence[Span], tokens: np.ndarray, recordings: Recordings, has_prompt: bool) -> None:
    covered = sum(span.length for span in spans)
    if covered != len(tokens):
        raise DataError(f"the sequences named for {name} have {covered} tokens, but it has {len(tokens)}")
    start = 0
    for span in spans:
        recording = recordings.get(span.sequence_id)
        recorded = span.cut(recording.tokens if span.is_sampled else recording.prompt)
        if (span.is_sampled or has_prompt) and not np.array_equal(recorded, tokens[start : start + span.length]):
            raise DataError(
                f"{name} {start} to {start + span.length} are not the tokens of sequence {span.sequence_id!r} that they"
                " are said to come from"
            )
        start += span.length


@dataclass(slots=True)
class Session:
    """One client."""

    user_metadata: Any = None
    display_name: str | None = None
    runs: list[str] = field(default_factory=list)
    samplers: list[str] = field(default_factory=list)
    recordings: Recordings = field(default_factory=Recordings)
    beat: float = field(default_factory=time.monotonic)
    is_finished: bool = False


@dataclass(slots=True)
class Sampler:
    """What a client samples from."""

    checkpoint: Checkpoint | None
    """None for the model without an adapter."""
    is_of_session: bool = False
    """Whether its files go when the session ends."""
    follows: str | None = None
    """The run whose weights these are, as it last published them; None for weights that stay as they are."""
    clones: int = 0


class Sessions(dict[str, Session]):
    """The sessions of a server by id, those that are finished too."""

    def active(self, id: str) -> Session:
        """Return a session that has not ended; NotFound where there is none."""
        if id not in self:
            raise NotFound(f"there is no session {id!r}: the server was started after it; make a new ServiceClient")
        if self[id].is_finished:
            raise NotFound(f"session {id!r} is finished, or was silent for too long; make a new ServiceClient")
        return self[id]

    def silent(self) -> Iterator[str]:
        """Yield the ids of sessions whose clients went without a word."""
        limit = time.monotonic() - _SILENT_S
        for id, session in [*self.items()]:
            if session.beat < limit and not session.is_finished:
                yield id


class Samplers(dict[str, Sampler]):
    """The samplers of a server by id."""

    def require(self, id: str) -> Sampler:
        """Return a sampler; NotFound where there is none."""
        if id not in self:
            raise NotFound(f"there is no sampler {id!r}: the server was started after it; make a new SamplingClient")
        return self[id]
