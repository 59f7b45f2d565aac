"""From configuration to a teacher."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from graftline.core.errors import ConfigError
from graftline.llm.blocking import BlockingChatModel
from graftline.rollouts.teachers.base import (
    InductionTeacherConfig,
    MemoryTeacherConfig,
    OpenAITeacherConfig,
    Teacher,
    TeacherConfig,
)
from graftline.rollouts.teachers.examples import Examples
from graftline.rollouts.teachers.induction import InductionTeacher, MemoryTeacher
from graftline.rollouts.teachers.openai import OpenAITeacher
from graftline.rollouts.teachers.prompt import load_prompt
from graftline.sandbox.base import Sandbox


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What a teacher needs that asks a served language model."""

    model: BlockingChatModel
    context_tokens: int
    """Of one request: prompt and answer."""
    configs: Path
    """The folder with `teacher_prompts.yaml`."""
    examples: Examples
    """Verified steps, some of which are shown."""


def open_teacher(config: TeacherConfig, sandbox: Sandbox, served: Callable[[], ServedModel] | None = None) -> Teacher:
    """Return the teacher of `config`; it tries its candidates in `sandbox`, or asks the model of `served`.

    Raises:
        ConfigError: there is no such prompt, or the model cannot be opened.
    """
    match config:
        case InductionTeacherConfig():
            return InductionTeacher(sandbox)
        case MemoryTeacherConfig():
            return MemoryTeacher()
        case OpenAITeacherConfig(prompt=name, adapter=adapter):
            if served is None:
                raise ConfigError("teacher 'openai' asks a served language model, and none was given")
            by = served()
            prompt = load_prompt(by.configs, name)
            if prompt.settings.answer.layout == "code":
                raise ConfigError(
                    f"prompt {name!r} is answered with code, and a teacher says actions; name another prompt"
                )
            return OpenAITeacher(by.model, prompt, by.context_tokens, by.examples, adapter)
        case _:
            assert_never(config)
