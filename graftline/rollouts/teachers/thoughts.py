"""What the induction teacher says before an action: what is asked, where, what failed, what is matched and why.

Written from a `Sight` alone. It has no wanted text in it, so that nothing can be said that only the wanted text could
tell; the numbers are those of the teacher's own matches, never of the places that differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Tree
from graftline.codemod.anti_unify import VARIABLE
from graftline.rollouts.teachers.places import captured, first_code_line, lines_with, place_of, telling_word
from graftline.rollouts.teachers.wording import (
    Voice,
    counted,
    described,
    lines_named,
    listed,
    quoted,
    sentence,
    shortened,
    texts_of,
)
from graftline.sandbox.base import Match

_MAX_INSTRUCTION = 120
_MAX_CAPTURED = 24
_MAX_FREE = 2


@dataclass(frozen=True, slots=True)
class Failure:
    """An action that was tried on the text, and the place at which it does what it must not."""

    action: PatternAction | RuleAction
    line: int
    code: str
    """The line, quoted."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What a thought may be made of."""

    instruction: str
    tree: Tree
    """The text before the step."""
    done: str
    """What the step before this one did; empty at the first."""
    failures: tuple[Failure, ...]
    action: PatternAction | RuleAction
    matches: tuple[Match, ...]
    """Those of `action`."""
    voice: Voice

    @property
    def word(self) -> str:
        """The name that tells the places of `action` from others; empty without one."""
        return telling_word(self.tree.text, texts_of(self.action))

    @property
    def free(self) -> list[str]:
        """The metavariables that a match may fill differently, in the order of the pattern."""
        found = [name for text in texts_of(self.action) for name in VARIABLE.findall(text)]
        # a variable that is the whole pattern is the place itself
        return [name for name in dict.fromkeys(found) if name not in texts_of(self.action)]

    @property
    def lines(self) -> list[int]:
        """The lines on which the matches start, each once."""
        starts = (first_code_line(self.tree.text, match.start, match.end) for match in self.matches)
        return list(dict.fromkeys(starts))


def attempt_thoughts(sight: Sight) -> list[str]:
    """Return what is said before each attempt that failed, in order."""
    said = []
    for number, failure in enumerate(sight.failures):
        what = described(failure.action)
        if number == 0:
            phrases = (f"First try: {what}.", f"I try {what}.", f"Perhaps {what} is enough.", f"{what} might do.")
            said.append(" ".join([*_opening(sight), sentence(sight.voice.pick("try", phrases))]))
        else:
            phrases = (f"Next: {what}.", f"I try {what} instead.", f"Perhaps {what}.", f"What about {what}?")
            said.append(f"{_failed(sight, [sight.failures[number - 1]])} {sight.voice.pick('again', phrases)}")
    return said


def thought(sight: Sight) -> str:
    """Return what is said before the action."""
    opening = [_failed(sight, sight.failures), _place(sight)] if sight.failures else _opening(sight)
    return " ".join(part for part in [*opening, _choice(sight), _reach(sight), _look_alikes(sight)] if part)


def _opening(sight: Sight) -> list[str]:
    parts = [_goal(sight), _place(sight)]
    return parts if sight.voice.pick("order", ("goal first", "place first")) == "goal first" else parts[::-1]


def _goal(sight: Sight) -> str:
    asked = shortened(sight.instruction, _MAX_INSTRUCTION)
    if not asked:
        return sight.voice.pick("goal", ("Nothing is said about the task.", "The task has no words."))
    asked += "" if asked.endswith((".", "!", "?", "…")) else "."
    phrases: tuple[str, ...] = (
        f"Asked for: {asked}",
        f"The task: {asked}",
        f"I have to do this: {asked}",
        f"What is wanted: {asked}",
    )
    if sight.done:
        phrases = (
            f"Still at: {asked}",
            f"So far: {sight.done}. The task is not finished: {asked}",
            f"More of the task: {asked}",
            f"One step is made; the task was: {asked}",
        )
    return sight.voice.pick("goal", phrases)


def _place(sight: Sight) -> str:
    first = sight.matches[0]
    line, code, names = place_of(sight.tree, first.start, first.end)
    within = f" in `{names}`" if names else ""
    phrases = (
        f"Line {line}{within} reads {code}.",
        f"The place I look at is line {line}{within}: {code}.",
        f"On line {line}{within} there is {code}.",
        f"I start from {code}, line {line}{within}.",
    )
    return sight.voice.pick("place", phrases)


def _failed(sight: Sight, failures: Sequence[Failure]) -> str:
    sentences = []
    for number, failure in enumerate(failures):
        what = described(failure.action)
        if number and failure.line == failures[number - 1].line:
            sentences.append(sentence(f"{what} hits the same line."))
            continue
        where = f"line {failure.line}, {failure.code}"
        phrases = (
            f"With {what} I went too far: it rewrote {where}.",
            f"{what} was wrong on {where}.",
            f"The trouble with {what} is {where}, which it rewrote too.",
            f"I cannot take {what}: it hits {where}.",
        )
        sentences.append(sentence(sight.voice.pick(f"failed {number}", phrases)))
    return " ".join(sentences)


def _choice(sight: Sight) -> str:
    what = described(sight.action)
    if not sight.free:
        phrases = (
            f"I name it as it stands: {what}.",
            f"I match {what}, nothing left open.",
            f"The rule is for {what}.",
            f"{what}, to the letter, is what I match.",
        )
        if sight.failures:
            phrases = (
                f"So I say exactly what I mean: {what}.",
                f"I narrow it to {what}.",
                f"Only {what}, then.",
                f"What I mean is {what}.",
            )
        return sentence(sight.voice.pick("literal", phrases))
    free = listed([_filled(sight, name) for name in sight.free], _MAX_FREE)
    kept = f"`{sight.word}`" if sight.word else "the form"
    phrases = (
        f"I match {what}: {free} may be anything, {kept} stays fixed.",
        f"{what} says what matters, {kept}, and leaves {free} open.",
        f"What varies is {free}, what tells the place is {kept}: I match {what}.",
        f"I keep {kept} and free {free}: {what}.",
    )
    return sentence(sight.voice.pick("general", phrases))


def _filled(sight: Sight, variable: str) -> str:
    """Return a variable with what it stands for at the first match."""
    is_plain = isinstance(sight.action, PatternAction) and not (sight.action.selector or sight.action.strictness)
    pattern = sight.action.pattern if isinstance(sight.action, PatternAction) and is_plain else ""
    here = captured(sight.tree, sight.matches[0].start, pattern, variable) if pattern else ""
    return f"{variable} (here {quoted(here, _MAX_CAPTURED)})" if here.strip() else variable


def _reach(sight: Sight) -> str:
    places, lines = counted(len(sight.matches), "place"), lines_named(sight.lines)
    if len(sight.matches) == 1:
        phrases: tuple[str, ...] = ("It matches there alone.", "One match.", "Tried out, it matches only there.", "")
    elif len(sight.lines) == 1:
        phrases = (f"It matches {places}, all on {lines}.", f"{places.capitalize()} match, all on {lines}.")
    else:
        phrases = (f"It matches {places}: {lines}.", f"Tried out, it reaches {lines}.", f"Its matches are on {lines}.")
    return sight.voice.pick("reach", phrases)


def _look_alikes(sight: Sight) -> str:
    word = sight.word
    if not word:
        return ""
    text = sight.tree.text
    touched = {
        line
        for match in sight.matches
        for line in range(text.count("\n", 0, match.start) + 1, text.count("\n", 0, match.end) + 2)
    }
    others = [line for line in lines_with(text, word) if line not in touched]
    if not others:
        return sight.voice.pick("alone", (f"`{word}` stands nowhere else.", ""))
    where = lines_named(others)
    phrases = (
        f"`{word}` also stands on {where}; this rule does not touch it.",
        f"Left alone: `{word}` on {where}.",
        f"The other uses of `{word}`, on {where}, are not touched by it.",
    )
    return sight.voice.pick("others", phrases)
