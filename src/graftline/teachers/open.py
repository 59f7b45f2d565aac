"""From configuration to a teacher."""

from typing import Annotated, Literal, assert_never

from pydantic import Field

from graftline.config import Config
from graftline.sandbox.base import Sandbox
from graftline.teachers.base import Teacher
from graftline.teachers.induction import InductionTeacher
from graftline.teachers.memory import MemoryTeacher


class InductionTeacherConfig(Config):
    """Rule induction."""

    kind: Literal["induction"] = "induction"


class MemoryTeacherConfig(Config):
    """The gold actions of the tasks."""

    kind: Literal["memory"] = "memory"


TeacherConfig = Annotated[InductionTeacherConfig | MemoryTeacherConfig, Field(discriminator="kind")]


def open_teacher(config: TeacherConfig, sandbox: Sandbox) -> Teacher:
    """Return the teacher of `config`; it tries its candidates in `sandbox`."""
    match config:
        case InductionTeacherConfig():
            return InductionTeacher(sandbox)
        case MemoryTeacherConfig():
            return MemoryTeacher()
        case _:
            assert_never(config)
