"""Single places of a change, as something to attempt: the lines of one, and whether a text of the file has them as the change does."""

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal, TypeVar

from graftline.agent.places import MAX_BLOCK_LINES, Block
from graftline.astgrep.binding import Language
from graftline.codemod.canonical import words_of
from graftline.codemod.change_places import MultiFileChange
from graftline.codemod.equality import Level, compare_texts, normalize_whitespace
from graftline.codemod.grammar import KEYWORDS
from graftline.codemod.place_score import compare_texts as compare_lines_of
from graftline.core.errors import DataError
from graftline.core.text_diff import summarize_change
from graftline.datasets.synthetic.candidates import parts_of
from graftline.rollouts.repository_task import RepositoryTask
from graftline.rollouts.task import Task
from graftline.sandbox.runner import LANGUAGE_OF

_MAX_DRAWN, _MAX_EXAMPLE = 6, 800
_COMMON = frozenset(
    re.findall(
        r"\w+",
        "a an add all and by call calls change fix for from if in instead into is make of on or over remove replace test"
        " tests the to use where with",
    )
)
"""Words that say nothing of a change."""
ItemT = TypeVar("ItemT")
Shows = Literal["block", "imports", "example"]
"""What a model sees of a single place: its lines, the imports of its file as well, or an edit of the change elsewhere."""


@dataclass(frozen=True, slots=True)
class SinglePlace:
    """A place of a change, of `MAX_BLOCK_LINES` at most."""

    block: Block
    before: str
    """The file before."""
    after: str
    """The file with this place alone as it is after the change."""
    example: str
    """Another edit of the change, in lines after `-` and `+`; empty where it has none."""

    @property
    def code(self) -> str:
        """The lines before, at the left margin."""
        return textwrap.dedent(self.block.text)

    @property
    def target(self) -> str:
        """The lines after, at the left margin."""
        return textwrap.dedent(self.cut(self.after))

    def cut(self, text: str) -> str:
        """Return what stands in a text of the file where the lines were."""
        lines = text.split("\n")
        behind = self.before.count("\n") + 1 - self.block.end
        return "\n".join(lines[self.block.start : len(lines) - behind]) + "\n"

    def keep(self, text: str) -> str:
        """Return a text of the file with those of its changes alone that are inside of the lines."""
        lines, new = self.before.split("\n"), text.split("\n")
        for change in reversed(compare_lines_of(self.before, text) or ()):
            if self.block.start <= change.start and change.end <= self.block.end:
                lines[change.start : change.end] = new[change.new_start : change.new_end]
        return "\n".join(lines)

    def grade(self, text: str) -> Level:
        """Return how near a text of the file is to that of the change at this place."""
        if text != self.after and normalize_whitespace(text) == normalize_whitespace(self.after):
            return Level.BLANKS
        try:
            return compare_texts(text, self.after, self.block.language)
        except DataError:
            return Level.NONE


def list_single_places(change: MultiFileChange) -> list[SinglePlace]:
    """Return places of a change, of as many files as it has, in an order that depends on the change alone."""
    places = change.show(0, _MAX_DRAWN)
    singles = []
    for place in places:
        before, language = change.by_path[place.path].before, change.by_path[place.path].language
        if place.end - place.start > MAX_BLOCK_LINES or language is None:
            continue
        if normalize_whitespace(place.text) == normalize_whitespace(before):
            continue
        hunk = next((other.hunk for other in places if other is not place), None)
        example = summarize_change(hunk.before, hunk.after)[:_MAX_EXAMPLE] if hunk else ""
        text = "\n".join(before.split("\n")[place.start : place.end]) + "\n"
        block = Block(place.path, language, place.start, place.end, text)
        singles.append(SinglePlace(block, before, place.text, example))
    return singles


def task_of_place(task: RepositoryTask, place: SinglePlace) -> Task:
    """Return the lines of a place of `task` as a task of their own."""
    block = place.block
    return task.ask_about(f"{task.id}#{block.path}:{block.start + 1}", block.language, place.code, place.target)


def is_told(instruction: str, before: str, target: str, language: Language) -> bool:
    """Return whether an instruction, with the lines before, has the words of the lines after; parts of names count as words."""
    coming = words_of(target) - words_of(before) - KEYWORDS[language]
    return _split_names(" ".join(coming)) <= _split_names(f"{instruction} {before}")


def shares_words(instruction: str, before: str, target: str) -> bool:
    """Return whether an instruction has a word of a line that goes or comes; a part of a name is one, too."""
    old, new = before.split("\n"), target.split("\n")
    changes = compare_lines_of(before, target) or ()
    lines = chain.from_iterable((*old[c.start : c.end], *new[c.new_start : c.new_end]) for c in changes)
    return not (_split_names(instruction) - _COMMON).isdisjoint(_split_names("\n".join(lines)))


def says_enough(task: Task) -> bool:
    """Return whether a task can be done from its instruction: that is known, or its words and those of the text before suffice."""
    if task.answerable is not None:
        return task.answerable
    return shares_words(task.instruction, task.before, task.target) and is_told(
        task.instruction, task.before, task.target, task.language
    )


def _split_names(text: str) -> frozenset[str]:
    return frozenset(chain.from_iterable(map(parts_of, words_of(text))))


def list_places_of_text(task: Task) -> list[Task]:
    """Return the places of a task whose text is long as tasks of their own, asked for by its instruction."""
    suffix = next(suffix for suffix, language in LANGUAGE_OF.items() if language == task.language)
    change = MultiFileChange([(f"text{suffix}", task.before, task.target)], {}, task.id)
    places = sorted(list_single_places(change), key=lambda place: place.block.start)
    changed = {"tests": None, "gold_action": None, "gold_next": ()}
    return [
        task.model_copy(
            update={"id": f"{task.id}#{place.block.start + 1}", "before": place.code, "target": place.target, **changed}
        )
        for place in places
    ]


def take_turns(lists: Sequence[Sequence[ItemT]], rounds: int) -> list[ItemT]:
    """Return the first of every list, then the second of every list, and so on."""
    return [items[number] for number in range(rounds) for items in lists if number < len(items)]
