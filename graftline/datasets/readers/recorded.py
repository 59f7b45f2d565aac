"""`recorded`: runs of `graftline refactor --record` on this machine; each rule that its user accepted is an edit.

A line is a trajectory (`graftline.rollouts.trajectory`), whose reward is the share of the rule's places that were accepted. A rule
that was decided more than once counts as it was decided last; a run without a decision takes nothing back, but `graftline undo` of
what it wrote does. What was rejected, in part or as a whole, never decided, or undone is no edit, and neither is code that holds a
secret.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from graftline.astgrep.binding import Language
from graftline.core.secret_finds import find_in_file
from graftline.datasets.catalog import Dataset
from graftline.datasets.edit import Edit, Rejection, RejectReason, RowResult
from graftline.datasets.formats import json_lines
from graftline.datasets.ingest import parse_row
from graftline.datasets.readers.base import RawRow, Source

UNDONE = "undone"
"""Cause of a reward that takes earlier ones back."""


class _Prompt(BaseModel):
    text: str


class _Outcome(BaseModel):
    after: str


class _Step(BaseModel):
    prompt: _Prompt
    sandbox_result: _Outcome


class _Reward(BaseModel):
    value: float | None
    cause: str


class RecordedRun(BaseModel):
    """What is read of a line."""

    model_config = ConfigDict(frozen=True)

    task_id: str
    language: Language
    instruction: str
    group: str = Field(min_length=1)
    origin: str = Field(min_length=1)
    steps: list[_Step] = Field(min_length=1)
    reward: _Reward


def _rows(folder: Path, dataset: Dataset, max_line_bytes: int) -> Iterator[RawRow]:
    rows = list(json_lines(folder, dataset, max_line_bytes))
    ids = [_read_decision(row) for row in rows]
    last = {id: number for number, id in enumerate(ids)}
    again = Rejection(RejectReason.NOT_ACCEPTED, "was decided again later")
    for number, (row, id) in enumerate(zip(rows, ids, strict=True)):
        yield row if not id or last[id] == number else RawRow(row.file, row.line, again)


def _read_decision(row: RawRow) -> str:
    """Return the id of the task that a row decides; empty where it decides nothing, or cannot be read."""
    parsed = parse_row(row.content) if isinstance(row.content, bytes) else row.content
    if isinstance(parsed, Rejection):
        return ""
    reward = parsed.get("reward")
    is_decided = isinstance(reward, dict) and (reward.get("value") is not None or reward.get("cause") == UNDONE)
    return str(parsed.get("task_id", "")) if is_decided else ""


def _edits(run: RecordedRun, name: str, dataset: Dataset) -> Sequence[RowResult]:
    if run.reward.value != 1:
        share = "nothing" if run.reward.value is None else f"{run.reward.value:.0%} of its places"
        return [Rejection(RejectReason.NOT_ACCEPTED, f"{run.reward.cause}: its user accepted {share}")]
    if not run.instruction.strip():
        return [Rejection(RejectReason.EMPTY_INSTRUCTION, "instruction is empty")]
    before, after = run.steps[0].prompt.text, run.steps[-1].sandbox_result.after
    for text, reason in ((before, RejectReason.EMPTY_PRE), (after, RejectReason.EMPTY_POST)):
        if not text.strip():
            return [Rejection(reason, "has no code on one side")]
    # other datasets are public; this code nobody has published
    for name_of_text, text in (("instruction", run.instruction), ("pre", before), ("post", after)):
        if secret := find_in_file(text.encode("utf-8", "surrogatepass"), name_of_text):
            return [Rejection(RejectReason.SECRET, secret)]
    # the repository is the user's, and its license what the entry says
    license = dataset.license_of(run.group)
    edit = Edit(
        instruction=run.instruction,
        pre=before,
        post=after,
        language=run.language,
        tags=(name, f"license:{license}"),
        instruction_source="human",
        answerable=True,
        answerable_by="written",
        id=f"{name}:{run.task_id.rpartition(':')[2]}",
        dataset=name,
        license=license,
        group=run.group,
        origin=run.origin,
    )
    return [edit]


SOURCE = Source(_rows, RecordedRun.model_validate, _edits, is_snippet=True)
