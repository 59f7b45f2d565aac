"""A task without gold: what a label asks for, with no text that counts as done.

A detector or a person has to judge what a teacher makes of it; it is never compared with a text, and never an edit.
"""

from pydantic import BaseModel, ConfigDict

from graftline.astgrep.binding import Language
from graftline.datasets.edit import Label


class OpenTask(BaseModel):
    """One thing to be done to a text."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    id: str
    """That of the label."""
    dataset: str
    language: Language
    instruction: str
    before: str
    label: str
    """What is said of the text: a smell that should go, or a refactoring that should be done."""
    holds: bool | None
    """Whether people agree on it; of a disputed refactoring the known text after is not one that counts as done."""
    subject: str = ""
    """What in the text it is said of; empty for the whole."""
    licence: str
    group: str
    origin: str
    tags: tuple[str, ...] = ()


def open_task_of(label: Label) -> OpenTask:
    """Return the task of `label`."""
    return OpenTask(
        id=label.id,
        dataset=label.dataset,
        language=label.language,
        instruction=label.instruction,
        before=label.pre,
        label=label.label,
        holds=label.holds,
        subject=label.subject,
        licence=label.licence,
        group=label.group,
        origin=label.origin,
        tags=label.tags,
    )
