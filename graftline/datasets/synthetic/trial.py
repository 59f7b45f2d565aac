"""Candidates tried: what their actions make of a text, and whether that is what a task may be made of."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from graftline.astgrep.action import rule_of
from graftline.astgrep.binding import Language
from graftline.astgrep.expand import Source
from graftline.datasets.syntax import is_clean
from graftline.datasets.synthetic.family import Action
from graftline.sandbox.base import Match, Request, Sandbox, SandboxResult, Verdict, ensure_decided

MAX_PLACES = 12


@dataclass(frozen=True, slots=True)
class Trial:
    """Actions to be applied to a text, each to what the one before it made."""

    text: str
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What they make."""

    post: str
    matches: tuple[Match, ...]
    """Of the first action."""


def outcomes(trials: Sequence[Trial], language: Language, sandbox: Sandbox) -> list[Outcome | None]:
    """Return what `trials` make, None where they make no task.

    A task is made where every action changes 1 to `MAX_PLACES` places, all that it matches, and the text after parses.
    The first actions of all trials go to the sandbox together, one request for each text; then the second ones.

    Raises:
        SandboxError: the sandbox failed.
    """
    texts: list[str | None] = [trial.text for trial in trials]
    firsts: list[tuple[Match, ...]] = [()] * len(trials)
    for turn in range(max((len(trial.actions) for trial in trials), default=0)):
        waiting: dict[str, list[int]] = defaultdict(list)
        for number, (trial, text) in enumerate(zip(trials, texts, strict=True)):
            if text is not None and turn < len(trial.actions):
                waiting[text].append(number)
        requests = [
            Request(text, language, tuple(trials[number].actions[turn] for number in numbers))
            for text, numbers in waiting.items()
        ]
        answers = sandbox.apply_each(requests)
        for request, numbers, results in zip(requests, waiting.values(), answers, strict=True):
            source = Source.parse(request.source, language)
            for number, action, result in zip(numbers, request.actions, results, strict=True):
                texts[number] = _after(source, action, ensure_decided(result))
                firsts[number] = firsts[number] or result.matches
    return [
        Outcome(text, matches) if text is not None and text != trial.text and is_clean(text, language) else None
        for trial, text, matches in zip(trials, texts, firsts, strict=True)
    ]


def _after(source: Source, action: Action, result: SandboxResult) -> str | None:
    if result.verdict is not Verdict.OK or result.after is None or not 1 <= len(result.matches) <= MAX_PLACES:
        return None
    if any(source.text[match.start : match.end] == match.replacement for match in result.matches):
        return None
    # "every call" would be untrue where ast-grep rewrites the outer one of two and leaves the inner one as it is
    found = source.root.find_all(**rule_of(action)["rule"])
    return result.after if len(found) == len(result.matches) else None
