"""A task without gold: what a label asks for, with no text that counts as done.

A detector or a person has to judge what a teacher makes of it; it is never compared with a text, and never an edit.
"""

from pydantic import BaseModel, ConfigDict

from graftline.actions.astgrep import Language
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
    """What is said to be there, and should not be afterwards."""
    subject: str = ""
    """What in the text it is said of; empty for the whole."""
    licence: str
    group: str
    origin: str
    tags: tuple[str, ...] = ()


def open_task_of(label: Label) -> OpenTask | None:
    """Return the task of `label`; None where people do not agree that it holds."""
    if not label.holds:
        return None
    return OpenTask(
        id=label.id,
        dataset=label.dataset,
        language=label.language,
        instruction=label.instruction,
        before=label.pre,
        label=label.label,
        subject=label.subject,
        licence=label.licence,
        group=label.group,
        origin=label.origin,
        tags=label.tags,
    )
