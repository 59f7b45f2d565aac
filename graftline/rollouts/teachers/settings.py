"""How a teacher is configured; `open.py` opens what is configured here."""

from typing import Annotated, Literal

from pydantic import Field

from graftline.core.config import Config


class InductionTeacherConfig(Config):
    """Rule induction."""

    kind: Literal["induction"] = "induction"


class MemoryTeacherConfig(Config):
    """The gold actions of the tasks."""

    kind: Literal["memory"] = "memory"


class OpenAITeacherConfig(Config):
    """The served language model of the port `chat_model`."""

    kind: Literal["openai"] = "openai"
    prompt: str = "small"
    """Name of the prompt in `configs/teacher_prompts.yaml`."""
    adapter: str = ""
    """Name of a loaded LoRA adapter; empty for the model itself."""


TeacherConfig = Annotated[
    InductionTeacherConfig | MemoryTeacherConfig | OpenAITeacherConfig, Field(discriminator="kind")
]
