"""Which actor a request goes to, and how long it waits before it goes again: pure, over given numbers."""

import random
from collections.abc import Sequence
from hashlib import blake2b
from typing import Protocol, TypeVar

from graftline.llm.base import ChatRequest

_AFFINITY = 2
"""Requests more than the least loaded actor has, for which a prompt still goes where its beginning may be cached."""

_64_BITS = (1 << 64) - 1


class Loaded(Protocol):
    """An actor with room for a request."""

    @property
    def in_flight(self) -> int:
        """Requests of ours that are with it."""

    @property
    def salt(self) -> int:
        """Its digest, which tells it from the others in every process in the same way."""


LoadedT = TypeVar("LoadedT", bound=Loaded)


def digest(text: str) -> int:
    """Return 64 bits of `text`, the same in every process."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def prefix_of(request: ChatRequest) -> int:
    """Return the digest of what `request` shares with others: its adapter, and all messages but the last."""
    shared = [request.adapter]
    for message in request.messages[:-1]:
        shared += (message.role, message.content)
    return digest("\0".join(shared))


def chosen(actors: Sequence[LoadedT], prefix: int) -> LoadedT:
    """Return the least loaded of `actors`; of those that are hardly more loaded, the one that `prefix` always prefers.

    The preference is rendezvous hashing: an actor that goes or comes changes it only for prompts that preferred it.
    """
    least = min(actor.in_flight for actor in actors)
    near = [actor for actor in actors if actor.in_flight <= least + _AFFINITY]
    return max(near, key=lambda actor: _mixed(prefix ^ actor.salt))


def _mixed(number: int) -> int:
    """Return 64 bits of which each depends on all of `number` (the finalizer of SplitMix64)."""
    number = ((number ^ number >> 30) * 0xBF58476D1CE4E5B9) & _64_BITS
    number = ((number ^ number >> 27) * 0x94D049BB133111EB) & _64_BITS
    return number ^ number >> 31


def full_jitter(tries: int, first_s: float, longest_s: float, chance: random.Random) -> float:
    """Return how long to wait after so many tries.

    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    return chance.uniform(0.0, min(first_s * 2.0 ** min(tries - 1, 32), longest_s))
