"""One place edited by a language model: the whole block back, several times, and what those edits agree on.

Models of one or two billion parameters edit a block right about twice as often as they write a rule for it, and where several
of their edits do the same to a repository, that is nearly always right; so agreement is what an edit is believed by.
"""

import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import ndiff
from typing import Literal

from graftline.agent.model import DRAWN_TEMPERATURE, AgentModel
from graftline.agent.places import Block
from graftline.astgrep.binding import Language
from graftline.codemod.equality import normalize_whitespace
from graftline.codemod.migration.imports import list_import_lines
from graftline.codemod.migration.places import parses
from graftline.core.hashing import sha256_text
from graftline.core.tokens import bound_tokens
from graftline.datasets.commit_messages import clean_message
from graftline.llm.base import ChatRequest, Message
from graftline.llm.questions import seed_of
from graftline.rollouts.fenced_code import fence_code, read_text
from graftline.rollouts.state.state import State, render
from graftline.rollouts.teachers.prompt import Prompt

Fault = Literal["", "unchanged", "unreadable", "does not parse", "not answered"]
_MAX_IMPORT_LINES, _MAX_ANSWER_TOKENS = 12, 1_024
_SYSTEM = (
    "You are a careful senior programmer. You are given an instruction and code. Make the change that the instruction asks for,"
    " wherever the code needs it, and change nothing else: keep all other lines, comments, names and formatting exactly as they"
    " are. Do not add imports or definitions that are not asked for. Answer with the whole code after the change in one code block,"
    " and nothing else."
)
_SHOWN: Sequence[tuple[Language, str, str, str]] = (
    ("python", "Rename the function `old` to `new`.", "x = old(1)\ny = old(a, b)", "x = new(1)\ny = new(a, b)"),
    (
        "python",
        "Use the function `head` instead of the method `first`.",
        "q = a.first(3)\nprint(q)\nr = b.c.first(n)",
        "q = head(a, 3)\nprint(q)\nr = head(b.c, n)",
    ),
    ("javascript", "Compare with null by `!==`.", "if (x != null) { go() }", "if (x !== null) { go() }"),
)
"""Edits that are shown before each question."""


@dataclass(frozen=True, slots=True)
class _Edit:
    """What is asked about, beside the code."""

    instruction: str
    language: Language


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
    """None where the words of the instruction alone say what is written."""
    votes: int
    """Attempts that came to the edit."""
    lines_after: int
    """Of the file, after the block."""

    @property
    def after_block(self) -> str:
        """What became of the block."""
        lines = self.after.split("\n")
        return "\n".join(lines[self.block.start : len(lines) - self.lines_after])

    @property
    def agreement(self) -> str:
        """Why it is believed."""
        if not self.attempts:
            return "the instruction says what is written there"
        return f"{self.votes} of {len(self.attempts)} attempts agree" if self.votes else "left as it is"

    @property
    def changed_lines(self) -> str:
        """The lines of the block that go, and those that come."""
        old, new = self.block.text.split("\n"), self.after_block.split("\n")
        return "\n".join(line[2:] for line in ndiff(old, new) if line[0] in "+-")


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

    The first answer is the likeliest one, the others are drawn. No more are asked for once fewer than `least` of them can agree, or
    as many have come to one text; 0 asks for all. Edits agree whose texts of the file have the same `effect`: a digest of what an
    edit does to the repository. ActorError where nobody answers.
    """
    answers: list[Attempt] = []
    for number in range(1, attempts + 1):
        answers.append(_attempt(instruction, block, text, model, number, context, feedback))
        same = Counter(normalize_whitespace(answer.text) for answer in answers if not answer.fault)
        is_agreed = 0 < least <= max(same.values(), default=0)
        if is_agreed or attempts - sum(bool(answer.fault) for answer in answers) < least:
            break
    edits = [attempt.text for attempt in answers if not attempt.fault]
    distinct = list(dict.fromkeys(edits))
    # the effect takes long to compute, and is not needed where all say the same
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
    context += f"An earlier try failed:\n{feedback}\n\n" if feedback else ""
    request = ChatRequest(
        messages=edit_messages(clean_message(instruction), code, block.language, context, model.prompt),
        # a whole block, and some more; an answer without end is cut off
        max_tokens=min(_MAX_ANSWER_TOKENS, bound_tokens(code) + 96),
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


def edit_messages(
    instruction: str, code: str, language: Language, context: str = "", prompt: Prompt | None = None
) -> tuple[Message, ...]:
    """Return the question for `code` as the instruction asks for; `context` stands before it.

    A model that was trained to edit is asked by its `prompt` about the code alone.
    """
    if prompt is not None:
        return prompt.chat(_Edit(instruction, language), code, State())
    messages = [Message(role="system", content=_SYSTEM)]
    for shown_language, task, before, after in _SHOWN:
        messages.append(Message(role="user", content=_ask(task, before, shown_language)))
        messages.append(Message(role="assistant", content=f"```{shown_language}\n{after}\n```"))
    return (*messages, Message(role="user", content=context + _ask(instruction, code, language)))


def _ask(task: str, code: str, language: Language) -> str:
    return f"Language: {language}\nTask: {task}\nCode:\n{fence_code(code, language)}"


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
