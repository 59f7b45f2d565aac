"""What an agent carries from step to step, capped so that it fits into a prompt."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MAX_HISTORY = 3
MAX_ITEMS = 8
MAX_CHARACTERS = 256

Note = Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS)]


class StateUpdate(BaseModel):
    """What one step changes; a list that is not given stays as it was."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    goals: list[Note] | None = None
    constraints: list[Note] | None = None
    decisions: list[Note] | None = None
    """Added to the earlier ones."""
    hypotheses: list[Note] | None = None
    history: list[Note] | None = None
    """Added to the earlier ones; the oldest fall out."""
    open_issues: list[Note] | None = None
    next_focus: str | None = Field(default=None, max_length=MAX_CHARACTERS)


class State(BaseModel):
    """The state before a step."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    goals: tuple[Note, ...] = ()
    constraints: tuple[Note, ...] = ()
    decisions: tuple[Note, ...] = ()
    hypotheses: tuple[Note, ...] = ()
    history: tuple[Note, ...] = ()
    open_issues: tuple[Note, ...] = ()
    next_focus: str = ""

    def merged(self, update: StateUpdate) -> "State":
        """Return the state after `update`: logs grow without repeats, everything else is replaced; all is capped."""
        given = update.model_dump(exclude_none=True)
        for name in ("decisions", "history"):
            if name in given:
                given[name] = [*getattr(self, name), *given[name]]
        values = {
            name: tuple(dict.fromkeys(value))[-(MAX_HISTORY if name == "history" else MAX_ITEMS) :]
            for name, value in given.items()
            if name != "next_focus"
        }
        return self.model_copy(update={**values, "next_focus": given.get("next_focus", self.next_focus)})
