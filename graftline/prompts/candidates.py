"""Prompts that are made better: a text for each part, by the roles of the messages, and which texts may stand there.

A part is a template: the `$names` that are filled in, and the wildcards in braces, have to survive every change. A prompt that
lost one would be judged by what it was never told.

Prompts are compared on the seeds that both have a reward on: a seed without one says nothing, and a mean over other seeds than
those of the prompt beside it is never looked at. A prompt that is known on fewer than half of the seeds of another one is not
called better than it: few seeds are easily lucky.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from graftline.core.errors import ConfigError
from graftline.core.hashing import digest
from graftline.core.tokens import count_tokens
from graftline.harbor.coverage import interval_of
from graftline.prompts.settings import InitialPrompt, TokenTable

Candidate = Mapping[str, str]
"""Text by part."""
Scores = Mapping[int, float]
"""Reward by seed; a seed that is not there has none."""
MAX_CHARACTERS = 100_000
_NAME = re.compile(r"(?<!\$)\$([a-z][a-z_]*)")


def digest_of(candidate: Candidate) -> str:
    """Return the digest of a prompt."""
    return digest(dict(candidate))


def names_in(text: str) -> set[str]:
    """Return the `$names` of a template; `$NAME` and `$$$ARGS` are metavariables and none of them."""
    return {f"${name}" for name in _NAME.findall(text)}


@dataclass(frozen=True, slots=True)
class PromptShape:
    """The prompt that is begun with, and what every other one has in common with it."""

    initial: Mapping[str, str]
    wildcards: Mapping[str, frozenset[str]]
    """By part, as they stand in the text: `{query}`."""
    most_tokens: int | None = None
    """Of all parts together."""

    @classmethod
    def of(cls, prompt: InitialPrompt | None, limits: TokenTable) -> Self:
        """Return the shape of the prompt of a configuration.

        Raises:
            ConfigError: there is none, or it breaks its own rules.
        """
        if prompt is None or not prompt.messages:
            raise ConfigError(
                "prompt_learning.initial_prompt: has no messages; expected the prompt that is to be made better, as"
                " messages of role and pattern"
            )
        texts: dict[str, str] = {}
        roles: Counter[str] = Counter()
        for message in sorted(prompt.messages, key=lambda message: message.order):
            roles[message.role] += 1
            part = message.role if roles[message.role] == 1 else f"{message.role}-{roles[message.role]}"
            texts[part] = message.pattern
        names = [f"{{{name}}}" for name in prompt.wildcards]
        wildcards = {part: frozenset(name for name in names if name in text) for part, text in texts.items()}
        shape = cls(texts, wildcards, limits.max_limit if limits.enforce_pattern_limit else None)
        if fault := shape.fault(texts):
            raise ConfigError(f"prompt_learning.initial_prompt: {fault}")
        return shape

    def fault(self, candidate: Candidate) -> str:
        """Return why a prompt may not stand in place of the first one; empty where it may."""
        for part, text in candidate.items():
            if part not in self.initial:
                return f"part {part!r} is unknown; known: {', '.join(self.initial)}"
            if not text.strip():
                return f"{part} is empty"
            if len(text) > MAX_CHARACTERS:
                return f"{part} has more than {MAX_CHARACTERS} characters"
            required, names = names_in(self.initial[part]), names_in(text)
            missing_wildcards = sorted(name for name in self.wildcards[part] if name not in text)
            if lost := [*sorted(required - names), *missing_wildcards]:
                return f"{part} lost {lost[0]}, which is filled in there"
            if unknown := sorted(names - required):
                return f"{part} has {unknown[0]}, which nothing is filled in for"
        if self.most_tokens is not None:
            tokens = sum(count_tokens(text) for text in candidate.values())
            if tokens > self.most_tokens:
                return f"has {tokens} tokens, and token.max_limit is {self.most_tokens}"
        return ""


def policy_prompt(candidate: Candidate) -> str | dict[str, str]:
    """Return a prompt as `policy.config.prompt` has it: a text where there is a system message alone."""
    return candidate["system"] if set(candidate) == {"system"} else dict(candidate)


def find_changed_parts(before: Candidate, after: Candidate) -> list[str]:
    """Return the parts that differ."""
    return [part for part in after if before.get(part) != after[part]]


def mean(scores: Scores) -> float | None:
    """Return the mean; None where nothing is known."""
    return math.fsum(scores.values()) / len(scores) if scores else None


def differences(scores: Scores, other: Scores) -> list[float]:
    """Return by how much `scores` are above those of `other`, on the seeds of both."""
    return [scores[seed] - other[seed] for seed in sorted(scores.keys() & other.keys())]


def is_better(scores: Scores, other: Scores) -> bool:
    """Return whether the mean on the seeds of both is above that of `other`; not where those are few of the seeds of it."""
    gains = differences(scores, other)
    return bool(gains) and 2 * len(gains) >= len(other) and math.fsum(gains) > 0


def best_of(scores: Sequence[Scores]) -> int:
    """Return which is the best: the first, and in its place whichever later one is better than it."""
    best = 0
    for number in range(1, len(scores)):
        if is_better(scores[number], scores[best]) or (scores[number] and not scores[best]):
            best = number
    return best


def rank(scores: Sequence[Scores]) -> list[int]:
    """Return all of them, the best first, by how many of the others each is better than."""
    wins = [sum(is_better(by_seed, other) for other in scores) for by_seed in scores]
    return sorted(range(len(scores)), key=lambda number: (-wins[number], number))


def best_by_seed(scores: Sequence[Scores], margin: float = 0.0) -> dict[int, set[int]]:
    """Return for every seed which prompts have the highest reward there, or one within `margin` of it."""
    best: dict[int, set[int]] = {}
    for seed in sorted({seed for by_seed in scores for seed in by_seed}):
        rewards = {number: by_seed[seed] for number, by_seed in enumerate(scores) if seed in by_seed}
        highest = max(rewards.values())
        best[seed] = {number for number, reward in rewards.items() if reward >= highest - margin}
    return best


def gain(scores: Scores, other: Scores) -> tuple[float, tuple[float, float] | None, int] | None:
    """Return the mean difference on the seeds of both, its 95 % interval, and how many seeds they are."""
    gains = differences(scores, other)
    return (math.fsum(gains) / len(gains), interval_of(gains), len(gains)) if gains else None
