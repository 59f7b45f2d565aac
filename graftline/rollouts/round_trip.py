"""Round trips of instructions: a served language model does an edit from its instruction and the text before.

The model answers with the whole text after, which models of one or two billion parameters get right about twice as often as rules.
An answer counts where it is the target, and actions that induction makes of it lead there in the sandbox. Of an edit that nobody
answered nothing is known: that is never taken for a fault of its instruction. An instruction, and what a model makes of one, is data: an
answer is compared, a rewording is checked, and nothing else is done with either.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graftline.astgrep.binding import Language
from graftline.codemod.canonical import words_of
from graftline.codemod.equality import compare_texts
from graftline.codemod.induce import induce
from graftline.codemod.instructions.describe import MAX_CHARACTERS
from graftline.core.errors import DataError
from graftline.core.hashing import digest
from graftline.llm.base import ChatRequest, Message
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.questions import count_chat_tokens, seed_of
from graftline.rollouts.fenced_code import fence_code, read_text
from graftline.rollouts.round_trip_config import RoundTripConfig
from graftline.rollouts.task import WORDS_ALONE, Task
from graftline.sandbox.base import Sandbox

EDIT_SYSTEM = (
    "You edit code. Do what the instruction says, in every place that it is about, and nothing else: all other code, comments and"
    " indentation stay as they are. Answer with the whole code after the change in one fenced block, and say nothing else."
)
_REWORD = (
    "You are a software engineer who asks a colleague for a change of code. Ask for what the request asks for in words of your own, as"
    " short as you would, and leave nothing out: names, values and code stay as they are, in backticks. Answer with the request alone."
)


@dataclass(frozen=True, slots=True)
class TextAnswer:
    """A text that a model wrote."""

    text: str | None
    """None where the answer holds no whole one."""
    tokens: int
    """Of question and answer."""


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """What a model made of an instruction."""

    is_answerable: bool
    """Whether one of its answers is the target."""
    tokens: int
    """Of all questions and answers."""
    instruction: str
    """The one that was tried; a rewording where it survived."""


_PLAIN: Mapping[str, Any] = {}


class EditModel:
    """Asks `model`, whose context holds `context_tokens`, for edits and for instructions; safe to use from several threads.

    Answers to one question differ by `id` and `attempt`. Both methods raise ActorError where nobody answered, and DataError where a
    question does not fit into the context of the model, or is no text.
    """

    def __init__(
        self,
        model: BlockingChatModel,
        context_tokens: int,
        config: RoundTripConfig,
        dialect: Mapping[str, Any] = _PLAIN,
    ) -> None:
        """`context_tokens` are those of a question and its answer; `dialect` is what else answers depend on of a fleet."""
        self.config, self._dialect = config, dialect
        self._model, self._room = model, context_tokens - config.max_tokens

    @property
    def name(self) -> str:
        """The model, as its server calls it."""
        return self._model.name

    @property
    def digest(self) -> str:
        """What tells apart ways of asking that may come to other answers."""
        settings = self.config.model_dump(mode="json", exclude={"deadline_s", "attempts", "rewordings"})
        return digest([self.name, EDIT_SYSTEM, _REWORD, self._room, {**settings, **self._dialect}])

    def edit(self, instruction: str, before: str, language: Language, id: str, attempt: int) -> TextAnswer:
        """Return what the model makes of `before`."""
        answer = self._ask(EDIT_SYSTEM, edit_question(instruction, before, language), id, attempt)
        return TextAnswer(answer.text and read_text(answer.text), answer.tokens)

    def reword(self, instruction: str, id: str, attempt: int) -> TextAnswer:
        """Return what an engineer might say in place of `instruction`."""
        answer = self._ask(_REWORD, f"Request:\n{instruction}", id, attempt)
        return TextAnswer((answer.text and answer.text.strip()) or None, answer.tokens)

    def _ask(self, system: str, question: str, id: str, attempt: int) -> TextAnswer:
        try:
            question.encode()
        except UnicodeEncodeError:
            raise DataError(f"{id}: holds half a surrogate pair, which is no text; mend its row") from None
        messages = (Message(role="system", content=system), Message(role="user", content=question))
        if (tokens := count_chat_tokens(messages)) > self._room:
            raise DataError(
                f"{id}: the question has {tokens} tokens, but {self._room} fit beside an answer of {self.config.max_tokens};"
                " allow shorter answers, or use a model with a longer context"
            )
        answer = self._model.generate(
            ChatRequest(
                messages=messages,
                max_tokens=self.config.max_tokens,
                temperature=self.config.temperature,
                seed=seed_of(self.config.seed, id, attempt),
                deadline_s=self.config.deadline_s,
            )
        )
        is_whole = answer.finish_reason == "stop"
        return TextAnswer(answer.text if is_whole else None, answer.usage.prompt + answer.usage.completion)


def edit_question(instruction: str, code: str, language: Language, context: str = "") -> str:
    """Return the question for `code` as the instruction asks for; `context` stands before it."""
    # the code first: servers read what several questions begin with once
    return f"{context}Code:\n{fence_code(code, language)}\n\nInstruction:\n{instruction}"


def is_wordable(task: Task) -> bool:
    """Return whether the instruction of `task` may be put into other words: a reader of our sentences does the edit from them."""
    return task.answerable_by == "reader"


def needs_model(task: Task, rewordings: int) -> bool:
    """Return whether a model is asked about the instruction of `task`: nothing is known of it, or it is to be put into other words."""
    is_open = task.answerable is None or (rewordings > 0 and is_wordable(task))
    return is_open and task.instruction_source != "none" and WORDS_ALONE not in task.tags


def apply_round_trip(task: Task, trip: RoundTrip) -> Task:
    """Return `task` with what a model made of its instruction."""
    if not is_wordable(task):
        return task.model_copy(update={"answerable": trip.is_answerable, "answerable_by": "model"})
    # the reader did it, whatever a model makes of other words
    if trip.instruction == task.instruction:
        return task
    return task.model_copy(
        update={"instruction": trip.instruction, "instruction_source": "model", "answerable_by": "model"}
    )


def try_instruction(task: Task, model: EditModel, sandbox: Sandbox) -> RoundTrip:
    """Let `model` do `task` from its instruction and the text before, until an answer is right.

    Raises:
        ActorError, SandboxError: nobody answered, or nobody could judge: nothing is known.
        DataError: the question cannot be asked.
    """
    tokens = 0
    for attempt in range(1, model.config.attempts + 1):
        answer = model.edit(task.instruction, task.before, task.language, task.id, attempt)
        tokens += answer.tokens
        if answer.text is not None and is_reachable_target(
            answer.text, task.before, task.target, task.language, sandbox
        ):
            return RoundTrip(True, tokens, task.instruction)
    return RoundTrip(False, tokens, task.instruction)


def reword_instruction(task: Task, model: EditModel, sandbox: Sandbox) -> RoundTrip:
    """Let `model` put the instruction of `task` into other words, and do the task from them; raises as `try_instruction`.

    Words that give away more of the target than the instruction did are not tried. Where none survive, the instruction stays.
    """
    tokens = 0
    for attempt in range(1, model.config.rewordings + 1):
        answer = model.reword(task.instruction, task.id, attempt)
        tokens += answer.tokens
        if answer.text is None or not is_fair(answer.text, task):
            continue
        trip = try_instruction(task.model_copy(update={"instruction": answer.text}), model, sandbox)
        tokens += trip.tokens
        if trip.is_answerable:
            return RoundTrip(True, tokens, answer.text)
    return RoundTrip(False, tokens, task.instruction)


def is_fair(wording: str, task: Task) -> bool:
    """Return whether `wording` rephrases the instruction of `task`, and names no word of the target that neither the text before nor
    the instruction has."""
    named = words_of(wording) & words_of(task.target) - words_of(task.before)
    is_other = " ".join(wording.split()) != " ".join(task.instruction.split())
    is_text = len(wording) <= MAX_CHARACTERS and all(sign.isprintable() or sign in "\n\t" for sign in wording)
    return is_other and is_text and named <= words_of(task.instruction)


def is_reachable_target(text: str, before: str, target: str, language: Language, sandbox: Sandbox) -> bool:
    """Return whether `text` is the target, and actions that induction makes of it lead there from `before` in the sandbox.

    Raises:
        SandboxError: the sandbox failed.
    """
    try:
        is_target = compare_texts(text, target, language).is_verified
    except DataError:
        return False
    return is_target and induce(before, text, language, sandbox).is_verified
