"""Single places of a change, as something to attempt: the lines of one, and whether a text of the file has them as the change does."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from graftline.agent.places import MAX_BLOCK_LINES, Block
from graftline.codemod.change_places import MultiFileChange
from graftline.codemod.equality import Level, compare_texts, normalize_whitespace
from graftline.codemod.place_score import compare_texts as compare_lines_of
from graftline.core.errors import DataError
from graftline.core.text_diff import summarize_change
from graftline.rollouts.repository_task import RepositoryTask
from graftline.rollouts.task import Task

_MAX_DRAWN, _MAX_EXAMPLE = 6, 800
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


def take_turns(lists: Sequence[Sequence[ItemT]], rounds: int) -> list[ItemT]:
    """Return the first of every list, then the second of every list, and so on."""
    return [items[number] for number in range(rounds) for items in lists if number < len(items)]
