"""What is kept of one attempt in an evaluation."""

from pydantic import BaseModel, ConfigDict, Field

from graftline.astgrep.action import Action
from graftline.astgrep.binding import Language
from graftline.codemod.equality import Level
from graftline.sandbox.base import Verdict


class Attempt(BaseModel):
    """One answer of one contestant to one task, and what it is worth; None is not known, and is not 0."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    contestant: str
    task_id: str
    language: Language
    edit_class: str
    """See `Case`."""
    attempt: int
    """From 1."""
    text: str = ""
    """The answer, as it came; empty of a teacher that asks no model."""
    actions: tuple[Action, ...] = ()
    """What it was read as; of a teacher all its steps."""
    after: str | None = None
    """The text that came out; None where nothing was applied."""
    reward: float | None = Field(ge=0, le=1)
    cause: str
    """Why it is what it is (`trajectories.reward`); of an attempt that says nothing, what failed."""
    verdict: Verdict | None = None
    """The sandbox's, of the last action; None where there was none."""
    level: Level = Level.NONE
    """How near the text that came out is to the wanted one."""
    over_application: bool | None = None
    """Whether it changed something that must stay; None where no action was applied."""
    right_on_unseen: bool | None = None
    """Whether it is right, and right on the code that was not shown as well; None where the task has no such code."""
    tokens: int | None = None
    cost_usd: float | None = None
    latency_s: float | None = None
    is_infra: bool = False
    """Whether a machine failed, so that nothing is known."""

    @property
    def is_verified(self) -> bool:
        """Whether the text that came out counts as the wanted one."""
        return self.level.is_verified

    @property
    def is_exact(self) -> bool:
        """Whether it is the wanted one in bytes."""
        return self.level is Level.EXACT
