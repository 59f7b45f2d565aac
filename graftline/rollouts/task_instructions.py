"""Instructions of tasks: where an edit came with none that says what to do, one is made of its own rules.

An instruction that a reader of our sentences cannot follow to the text after is no instruction: the edit stays without one, and
whoever listens to instructions passes over it. Not here: how an edit is put into words (`codemod.instructions`), and how messages of
commits are cleaned (`datasets.commit_messages`).
"""

from graftline.codemod.equality import differ_in_words_alone
from graftline.codemod.instructions.describe import describe_edit
from graftline.core.errors import DataError
from graftline.core.hashing import sha256_text
from graftline.datasets.edit import Edit
from graftline.rollouts.task import WORDS_ALONE
from graftline.sandbox.base import Sandbox

_LAZY_IN = 3
"""Of so many tasks, one is asked for lazily."""


def ask_for_edit(edit: Edit, sandbox: Sandbox) -> Edit:
    """Return `edit` with an instruction from which it can be done, and tagged where it changes nothing but words."""
    worded = _with_instruction(edit, sandbox)
    try:
        is_words = differ_in_words_alone(edit.pre, edit.post, edit.language)
    except DataError:
        is_words = False
    return worded.model_copy(update={"tags": (*worded.tags, WORDS_ALONE)}) if is_words else worded


def _with_instruction(edit: Edit, sandbox: Sandbox) -> Edit:
    """Return `edit` with an instruction chosen by its id; as it is where it came with one."""
    if edit.instruction_source != "none":
        return edit
    wordings = describe_edit(edit.pre, edit.post, edit.language, edit.id, sandbox)
    if not wordings:
        return edit
    detail = "lazy" if int(sha256_text(edit.id)[:8], 16) % _LAZY_IN == 0 else "full"
    wording = next((wording for wording in wordings if wording.detail == detail), wordings[0])
    return edit.model_copy(
        update={
            "instruction": wording.text,
            "tags": (*edit.tags, f"detail:{wording.detail}"),
            "instruction_source": "rule",
            "answerable": True,
            "answerable_by": "reader",
        }
    )
