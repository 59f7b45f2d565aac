"""One place edited by a language model: the whole block back, several times, and what those edits agree on.

Models of one or two billion parameters edit a block right about twice as often as they write a rule for it, and where several
of their edits do the same to a repository, that is nearly always right; so agreement is what an edit is believed by.
"""

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from graftline.agent.model import DRAWN_TEMPERATURE, AgentModel
from graftline.agent.places import Block
from graftline.codemod.equality import normalize_whitespace
from graftline.codemod.migration.imports import list_import_lines
from graftline.codemod.migration.places import parses
from graftline.core.hashing import sha256_text
from graftline.core.tokens import count_tokens
from graftline.llm.base import ChatRequest, Message
from graftline.llm.questions import seed_of
from graftline.rollouts.round_trip import EDIT_SYSTEM, edit_question, read_text
from graftline.rollouts.state.state import State, render

Fault = Literal["", "unchanged", "unreadable", "does not parse", "not answered"]
_MAX_IMPORT_LINES, _MAX_ANSWER_TOKENS = 12, 1_024


@dataclass(frozen=True, slots=True)
class Attempt:
    """One answer of the model, as a text of the whole file."""

    text: str
    """Of the file; as it was where there is a fault."""
    fault: Fault


@dataclass(frozen=True, slots=True)
class PlaceEdit:
    """What a model made of a place."""

    block: Block
    after: str
    """Text of the whole file with the edit; as it was where no edit was agreed on."""
    attempts: tuple[Attempt, ...]
    votes: int
    """Attempts that came to the edit."""
    lines_after: int
    """Of the file, after the block."""

    @property
    def after_block(self) -> str:
        """What became of the block."""
        lines = self.after.split("\n")
        return "\n".join(lines[self.block.start : len(lines) - self.lines_after])


def edit_place(
    instruction: str,
    block: Block,
    text: str,
    model: AgentModel,
    attempts: int,
    least: int,
    effect: Callable[[str], str],
    context: str = "",
    feedback: str = "",
) -> PlaceEdit:
    """Return the edit of `block`, a part of the file `text`, that most of `attempts` answers of `model` agree on.

    It asks no more once fewer than `least` of them can agree. `effect` returns, of a text of the file, what tells apart what
    its edit does to the repository. The first answer is the likeliest one, the others are drawn. ActorError where nobody answers.
    """
    answers: list[Attempt] = []
    for number in range(1, attempts + 1):
        answers.append(_attempt(instruction, block, text, model, number, context, feedback))
        # what can no longer be agreed on is not asked for any more
        if attempts - sum(bool(answer.fault) for answer in answers) < least:
            break
    edits = [attempt.text for attempt in answers if not attempt.fault]
    distinct = list(dict.fromkeys(edits))
    # where all say the same, nobody has to know what it does
    effects = {edit: effect(edit) if len(distinct) > 1 else "" for edit in distinct}
    votes = {edit: sum(effects[other] == effects[edit] for other in edits) for edit in distinct}
    best = max(distinct, key=lambda edit: votes[edit], default=text)
    return PlaceEdit(block, best, tuple(answers), votes.get(best, 0), text.count("\n") + 1 - block.end)


def describe_context(text: str, block: Block, state: State) -> str:
    """Return what a model is told beside a block: imports of the file, what was done."""
    numbers = sorted(list_import_lines(text, block.language))
    lines = text.split("\n")
    imports = "\n".join(
        lines[n] for n in numbers[:_MAX_IMPORT_LINES] if n < len(lines) and not block.start <= n < block.end
    )
    parts = [f"The file {block.path} imports:\n{imports}"] if imports else []
    parts += [f"So far: {render(state)}"] if state.history else []
    return "".join(f"{part}\n\n" for part in parts)


def _attempt(
    instruction: str, block: Block, text: str, model: AgentModel, number: int, context: str, feedback: str
) -> Attempt:
    code = textwrap.dedent(block.text)
    question = edit_question(instruction, code, block.language, context)
    question += f"\n\nAn earlier try failed:\n{feedback}" if feedback else ""
    request = ChatRequest(
        messages=(Message(role="system", content=EDIT_SYSTEM), Message(role="user", content=question)),
        # a whole block, and some more; an answer without end is cut off
        max_tokens=min(_MAX_ANSWER_TOKENS, 2 * count_tokens(code) + 96),
        temperature=0.0 if number == 1 else DRAWN_TEMPERATURE,
        seed=seed_of(block.path, block.start, number),
    )
    answer = model.ask(request)
    if answer is None:
        return Attempt(text, "not answered")
    written = read_text(answer.text) if answer.is_whole else None
    if written is None or "\0" in written:
        return Attempt(text, "unreadable")
    edited = replace_block(text, block, written)
    if normalize_whitespace(edited) == normalize_whitespace(text):
        return Attempt(text, "unchanged")
    if not parses(edited, block.language) and parses(text, block.language):
        return Attempt(text, "does not parse")
    return Attempt(edited, "")


def replace_block(text: str, block: Block, written: str) -> str:
    """Return the file `text` with `written`, indented as the block was, in place of the block."""
    margin = _margin(block.text)
    own = textwrap.dedent(written).strip("\n")
    moved = [margin + line if line.strip() else line for line in own.split("\n")]
    lines = text.split("\n")
    old = lines[block.start : block.end]
    before = next((number for number, line in enumerate(old) if line.strip()), 0)
    after = next((number for number, line in enumerate(reversed(old)) if line.strip()), 0)
    return "\n".join([*lines[: block.start + before], *moved, *lines[block.end - after :]])


def _margin(code: str) -> str:
    dedented = textwrap.dedent(code)
    line, moved = next(
        ((old, new) for old, new in zip(code.split("\n"), dedented.split("\n"), strict=True) if old.strip()), ("", "")
    )
    return line[: len(line) - len(moved)]


def digest_texts(texts: Mapping[str, str]) -> str:
    """Return what tells apart what edits do to a repository: the digest of the files that they change."""
    return sha256_text("\0".join(f"{path}\0{normalize_whitespace(text)}" for path, text in sorted(texts.items())))
