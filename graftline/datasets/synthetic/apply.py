"""Actions applied to texts in the sandbox, and whether a task may be made of what comes out."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from graftline.astgrep.action import rule_of
from graftline.astgrep.binding import Language
from graftline.astgrep.expand import Source
from graftline.datasets.language import is_clean
from graftline.datasets.synthetic.family import Action
from graftline.sandbox.base import Match, Request, Sandbox, SandboxResult, Verdict, ensure_decided

MAX_PLACES = 12


@dataclass(frozen=True, slots=True)
class ActionSequence:
    """Actions to be applied to a text, each to what the one before it made."""

    text: str
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class SequenceResult:
    """What a sequence of actions makes of its text."""

    post: str
    matches: tuple[Match, ...]
    """Of the first action."""


def apply_sequences(
    sequences: Sequence[ActionSequence], language: Language, sandbox: Sandbox
) -> list[SequenceResult | None]:
    """Return what `sequences` make, None where they make no task.

    A task is made where every action changes 1 to `MAX_PLACES` places, all that it matches, and the text after parses.
    The first actions of all sequences go to the sandbox together, one request for each text; then the second ones.

    Raises:
        SandboxError: the sandbox failed.
    """
    texts: list[str | None] = [sequence.text for sequence in sequences]
    first_matches: list[tuple[Match, ...]] = [()] * len(sequences)
    for turn in range(max((len(sequence.actions) for sequence in sequences), default=0)):
        numbers_by_text: dict[str, list[int]] = defaultdict(list)
        for number, (sequence, text) in enumerate(zip(sequences, texts, strict=True)):
            if text is not None and turn < len(sequence.actions):
                numbers_by_text[text].append(number)
        requests = [
            Request(text, language, tuple(sequences[number].actions[turn] for number in numbers))
            for text, numbers in numbers_by_text.items()
        ]
        answers = sandbox.apply_each(requests)
        for request, numbers, results in zip(requests, numbers_by_text.values(), answers, strict=True):
            source = Source.parse(request.source, language)
            for number, action, result in zip(numbers, request.actions, results, strict=True):
                texts[number] = _after(source, action, ensure_decided(result))
                first_matches[number] = first_matches[number] or result.matches
    return [
        SequenceResult(text, matches)
        if text is not None and text != sequence.text and is_clean(text, language)
        else None
        for sequence, text, matches in zip(sequences, texts, first_matches, strict=True)
    ]


def _after(source: Source, action: Action, result: SandboxResult) -> str | None:
    if result.verdict is not Verdict.OK or result.after is None or not 1 <= len(result.matches) <= MAX_PLACES:
        return None
    if any(source.text[match.start : match.end] == match.replacement for match in result.matches):
        return None
    # "every call" would be untrue where ast-grep rewrites the outer one of two and leaves the inner one as it is
    nodes = source.root.find_all(**rule_of(action)["rule"])
    return result.after if len(nodes) == len(result.matches) else None
