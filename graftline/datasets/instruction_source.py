"""Where an instruction comes from, and whether the change can be done from it: three fields that edits, tasks and attempts have.

Records of version 0.1.0 lack them and say it by tags; the defaults here are what those tags say. Not here: the reader that tries
whether a change can be done (`codemod.instructions`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

InstructionSource = Literal["human", "commit", "rule", "model", "none"]
"""`human`: written by a person for this very change; `commit`: message of the commit that made it, or text of its pull request;
`rule`: sentences of ours, from rules, templates or the type of a refactoring; `model`: written by a language model; `none`: nothing
says what to do."""

AnswerableBy = Literal["written", "reader", "template", "model", "no_instruction"]
"""`written`: a person wrote it for this very change; `reader`: the reader of our own sentences did the change, without the text after;
`template`: change and instruction are filled in from one template; `model`: a language model did the change, or in none of its tries;
`no_instruction`: there is nothing to try."""

FIELDS = ("instruction_source", "answerable", "answerable_by")

_NO_INSTRUCTION = {"instruction:derived", "instruction:none"}
_BY_READER = "instruction:rule"
_SYNTHETIC = "synthetic"
_COMMIT, _MODEL, _RULE = ("lang:", "agent:"), ("style:", "instr_type:"), ("votes:", _SYNTHETIC, _BY_READER)


def default_source(values: Mapping[str, Any]) -> InstructionSource:
    """Return the source that the tags of a record say, which has no field for it; `human` where they say nothing."""
    tags: Sequence[str] = values.get("tags", ())
    if not _NO_INSTRUCTION.isdisjoint(tags):
        return "none"
    beginnings: Mapping[InstructionSource, tuple[str, ...]] = {"rule": _RULE, "model": _MODEL, "commit": _COMMIT}
    return next(
        (source for source, begins in beginnings.items() if any(tag.startswith(begins) for tag in tags)), "human"
    )


def default_answerable(values: Mapping[str, Any]) -> bool | None:
    """Return what is known of a record before anybody tries: None where nothing is."""
    by = default_answerable_by(values)
    return None if by is None else by != "no_instruction"


def default_answerable_by(values: Mapping[str, Any]) -> AnswerableBy | None:
    """Return by what it is known."""
    source = values.get("instruction_source")
    if source in ("none", "human"):
        return "no_instruction" if source == "none" else "written"
    tags: Sequence[str] = values.get("tags", ())
    return "reader" if _BY_READER in tags else "template" if _SYNTHETIC in tags else None
