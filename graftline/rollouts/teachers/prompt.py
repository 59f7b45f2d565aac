"""What a language model is asked: `configs/teacher_prompts.yaml`, and the chat that is made of it.

A template holds `$names` in lower case, which are checked when the file is read; `$NAME` and `$$$ARGS` are the
metavariables of ast-grep and stay. What is filled in is not looked at again. Of a task, the instruction, the language and
the text are asked about. The target is shown by templates alone that name it (`$wanted`, or `$change`): such a prompt asks
for the action that an example is an instance of, and no longer for what an instruction says. The gold action never gets here.
"""

import json
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, Protocol, Self

from pydantic import AfterValidator, Field, model_validator

from graftline.astgrep.action import ACTION, Action
from graftline.astgrep.binding import Language
from graftline.core.config import Config, load_yaml, to_yaml
from graftline.core.errors import ConfigError
from graftline.core.hashing import digest
from graftline.core.paths import file_name
from graftline.core.text_diff import summarize_change
from graftline.llm.base import Message
from graftline.rollouts.fenced_code import fence_code
from graftline.rollouts.state.state import State, StateUpdate, render
from graftline.rollouts.teachers.answer import Answer, AnswerFormat, format_answer
from graftline.rollouts.teachers.base import Proposal, Turn

_NAME = re.compile(r"(?<!\$)\$([a-z][a-z_]*)")
PROMPTS_FILE = "teacher_prompts.yaml"
"""In the folder `configs`."""
PROMPT_FILE = "prompt.yaml"
"""In the folder of what was made by a prompt, an optimized one or an adapter: that prompt."""
_OPTIMIZED = "optimized/"
"""Before the name of a prompt that an optimization ended with."""
_MAX_ECHO = 600
"""Characters of what a model said before that are said back to it, of its thoughts and of what could not be read."""


def _check_template(template: str, names: Sequence[str], required: Sequence[str]) -> str:
    used = set(_NAME.findall(template))
    if unknown := sorted(used - {*names}):
        raise ValueError(f"${unknown[0]} is unknown; known here: {', '.join(f'${name}' for name in names) or 'none'}")
    if missing := [name for name in required if name not in used]:
        raise ValueError(f"${missing[0]} is missing: the model has to be told")
    return template


def _template(*names: str, optional: Sequence[str] = ()) -> AfterValidator:
    return AfterValidator(partial(_check_template, names=(*names, *optional), required=names))


_USER = ("instruction", "code", "language", "wanted", "change")
_SHOWS_TARGET = frozenset({"wanted", "change"})


def _user_template(template: str) -> str:
    """Check what asks: it has to show the text, or what becomes of it."""
    is_by_example = bool(_SHOWS_TARGET & {*_NAME.findall(template)})
    required = [] if "$change" in template else ["code"] if is_by_example else ["instruction", "code"]
    return _check_template(template, _USER, required)


class Shot(Config):
    """A task that was solved, shown before the one that is asked."""

    language: Language
    instruction: str = Field(min_length=1)
    code: str = Field(min_length=1)
    after: str = ""
    """What the action makes of it; shown by prompts that show the target, or ask for code."""
    think: str
    action: Action
    state_update: StateUpdate


class FewShots(Config):
    """Which solved tasks are shown after those of the file."""

    count: int = Field(default=2, ge=0, le=16)
    """Verified steps that are like the task; fewer where there are not so many."""
    most_distance: float = Field(default=0.75, gt=0, le=1)
    """What is less alike is not shown; 0 is the same, 1 has nothing in common."""


class Sampling(Config):
    """How answers are drawn."""

    max_tokens: int = Field(default=400, ge=32, le=32_768)
    temperature: float = Field(default=0.0, ge=0, le=2)
    """Of the first answer of the first attempt."""
    later_temperature: float = Field(default=0.8, ge=0, le=2)
    """Of answers after a step that failed, and of all of later attempts."""
    redraws: int = Field(default=2, ge=0, le=8)
    """An answer that repeats an action which failed on the very text is drawn again, up to so often, each time hotter:
    small models say again what they said before."""
    seed: int = Field(default=1, ge=0)
    """Changes all that is drawn; what is sent also depends on task, attempt, step and draw."""


class PromptSettings(Config):
    """One way to ask."""

    answer: AnswerFormat = AnswerFormat()
    has_shots: bool = True
    """Whether the shots of the file are shown."""
    system: Annotated[str, _template()] = ""
    """The first message; there is none where it is empty."""
    state: Annotated[str, _template("state")]
    """Stands in the last message, unless the state is empty."""
    user: Annotated[str, AfterValidator(_user_template)]
    """Names `$instruction` and `$code`; or `$change`, the target as a difference line by line; or `$code` and `$wanted`."""
    turns: Literal["chat", "notes"] = "chat"
    """How earlier steps are told. `chat`: as what was said, each with its answer. `notes`: in the one message that asks,
    those on the text as it is; a small model that reads its own wrong answer as an answer gives it again."""
    failed: Annotated[str, _template("feedback", optional=["action"])]
    """A step that failed."""
    kept: Annotated[str, _template(optional=["feedback", "action", "code"])]
    """A step that was kept, and made the text another."""
    max_turns: int = Field(default=3, ge=1, le=64)
    """Earlier steps that are shown, the latest ones."""
    stop: tuple[str, ...] = Field(default=(), max_length=4)
    few_shots: FewShots = FewShots()
    sampling: Sampling = Sampling()

    @property
    def shows_target(self) -> bool:
        """Whether the target is shown, so that the action of an example is asked for."""
        return bool(_SHOWS_TARGET & {*_NAME.findall(self.user)})

    @model_validator(mode="after")
    def _asks_once_for_code(self) -> Self:
        if self.answer.layout == "code" and (self.shows_target or self.few_shots.count):
            raise ValueError(
                "answer.layout: 'code' is the text after, which verified steps lack and `user` must not show; set"
                " few_shots.count to 0, and name `$instruction` and `$code`"
            )
        return self

    @model_validator(mode="after")
    def _has_whole_examples(self) -> Self:
        if self.shows_target and self.few_shots.count:
            raise ValueError(
                "few_shots: verified steps have no text after, which `user` shows; set few_shots.count to 0"
            )
        return self


class Prompts(Config):
    """The file."""

    shots: tuple[Shot, ...] = ()
    """Shown in every prompt, first."""
    prompts: dict[str, PromptSettings]

    @model_validator(mode="after")
    def _has_some(self) -> Self:
        if not self.prompts:
            raise ValueError("prompts: there is none")
        return self


class PromptTask(Protocol):
    """What of a task is asked about, beside its text."""

    @property
    def instruction(self) -> str: ...
    @property
    def language(self) -> Language: ...


class Prompt:
    """Makes chats in one way."""

    def __init__(self, settings: PromptSettings, shots: Sequence[Shot] = ()) -> None:
        """Take the settings, and the shots of the file.

        Raises:
            ConfigError: the target is to be shown, and a shot has none.
        """
        if (settings.shows_target or settings.answer.layout == "code") and any(not shot.after for shot in shots):
            raise ConfigError(
                "shots: one has no `after`, which the prompt shows; say what its action makes of its code"
            )
        self.settings = settings
        self.shots = tuple(shots)

    def digest(self, ids: Sequence[str] = ()) -> str:
        """Return what tells the templates, the settings and the shots, those with `ids` after those of the file."""
        shots = [shot.model_dump(mode="json") for shot in self.shots]
        return digest({"settings": self.settings.model_dump(mode="json"), "shots": shots, "ids": [*ids]})

    def chat(
        self,
        task: PromptTask,
        text: str,
        state: State,
        turns: Sequence[Turn] = (),
        shots: Sequence[Shot] = (),
        target: str | None = None,
    ) -> tuple[Message, ...]:
        """Return what is asked about `task`, whose text is now `text`, after `turns`; `shots` come after those of the file.

        Raises:
            ConfigError: the target is to be shown, and `target` is None: whoever asks has none, or must not show it.
        """
        settings, layout = self.settings, self.settings.answer.layout
        if settings.shows_target and target is None:
            raise ConfigError("the prompt shows the target, which is not known here; use another prompt")
        messages = [Message(role="system", content=settings.system)] if settings.system else []
        for shot in (*self.shots, *shots):
            answer = Answer(shot.think, shot.action, shot.state_update, is_strict=True)
            content = fence_code(shot.after, shot.language) if layout == "code" else format_answer(answer, layout)
            messages += [
                Message(role="user", content=self._question(shot, shot.code, shot.after)),
                Message(role="assistant", content=content),
            ]
        tell = self._as_chat if settings.turns == "chat" else self._as_notes
        messages += tell(task, turns, text, target or "")
        if state != State():
            last = messages[-1]
            messages[-1] = Message(role="user", content=_fill(settings.state, state=render(state)) + last.content)
        return tuple(messages)

    def _as_chat(self, task: PromptTask, turns: Sequence[Turn], text: str, target: str) -> list[Message]:
        question = self._question(task, turns[0].text if turns else text, target)
        messages, texts = [], [*(turn.text for turn in turns), text]
        for turn, after in zip(turns, texts[1:], strict=True):
            messages += [Message(role="user", content=question), Message(role="assistant", content=self._echo(turn))]
            question = self._feedback(turn, after)
        return [*messages, Message(role="user", content=question)]

    def _as_notes(self, task: PromptTask, turns: Sequence[Turn], text: str, target: str) -> list[Message]:
        latest = max((number for number, turn in enumerate(turns) if turn.is_kept), default=0)
        notes = dict.fromkeys(self._feedback(turn, text) for turn in turns[latest:])
        question = self._question(task, text, target)
        return [Message(role="user", content=question + "".join(notes))]

    def _question(self, task: PromptTask, code: str, target: str) -> str:
        change = summarize_change(code, target) if self.settings.shows_target else ""
        values = {"language": task.language, "instruction": task.instruction, "code": code}
        return _fill(self.settings.user, **values, wanted=target, change=change)

    def _feedback(self, turn: Turn, after: str) -> str:
        template = self.settings.kept if turn.is_kept else self.settings.failed
        return _fill(template, feedback=turn.feedback, action=_action(turn), code=after)

    def _echo(self, turn: Turn) -> str:
        answer = turn.answer
        if not isinstance(answer, Proposal):
            return answer.generation.text[:_MAX_ECHO]
        echo = Answer(answer.think[:_MAX_ECHO], answer.action, answer.state_update, is_strict=True)
        return format_answer(echo, self.settings.answer.layout)


def load_prompt(configs: Path, name: str) -> Prompt:
    """Return the prompt called `name` of `teacher_prompts.yaml` in the folder `configs`; `optimized/<name>` is an artifact.

    Raises:
        ConfigError: the file does not fit, or has no such prompt.
    """
    own, path = name.removeprefix(_OPTIMIZED), configs / PROMPTS_FILE
    if own != name:
        path, name = configs.parent / "data" / "prompts" / file_name(own) / PROMPT_FILE, own
    prompts = load_yaml(path, Prompts)
    if name not in prompts.prompts:
        raise ConfigError(f"{path}: prompt {name!r} is unknown; known: {', '.join(sorted(prompts.prompts))}")
    return Prompt(prompts.prompts[name], prompts.shots if prompts.prompts[name].has_shots else ())


def pack_prompt(name: str, settings: PromptSettings, shots: Sequence[Shot]) -> str:
    """Return the text of a file with one prompt, which goes with what was made by it."""
    shown = [shot.model_dump(mode="json", exclude_defaults=True) for shot in shots]
    return to_yaml({"shots": shown, "prompts": {name: settings.model_dump(mode="json")}})


def unpack_prompt(path: Path) -> Prompt:
    """Return the prompt of a file with one; ConfigError where it holds another number of them, or does not fit."""
    prompts = load_yaml(path, Prompts)
    if len(prompts.prompts) != 1:
        raise ConfigError(f"{path}: holds {len(prompts.prompts)} prompts; one was expected")
    [settings] = prompts.prompts.values()
    return Prompt(settings, prompts.shots if settings.has_shots else ())


def _action(turn: Turn) -> str:
    answer = turn.answer
    if not isinstance(answer, Proposal):
        return answer.generation.text[:_MAX_ECHO]
    return json.dumps(ACTION.dump_python(answer.action, mode="json"), ensure_ascii=False)


def _fill(template: str, **values: str) -> str:
    return _NAME.sub(lambda name: values[name[1]], template)
