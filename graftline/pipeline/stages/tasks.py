"""The stage `tasks`: the edits, real and synthetic, that can be checked."""

from pathlib import Path

from graftline.astgrep.binding import Language
from graftline.core.build import Built, Contents
from graftline.core.jsonl import read_lines, write_lines
from graftline.datasets.division import Split
from graftline.datasets.edit import Edit
from graftline.pipeline.attempt_settings import rewriter
from graftline.pipeline.lineage import Lineage, request_of
from graftline.rollouts.task import validate_tasks

_SOURCES = {"splits": "processed", "synthetic_rules": "synthetic"}
"""Folders by stage."""


def tasks(lineage: Lineage, language: Language, split: Split) -> Built:
    """Keep the edits, real and synthetic, that make sound tasks."""
    folders = {stage: lineage.paths.partition(where, language, split) for stage, where in _SOURCES.items()}
    inputs = {stage: lineage.verified(folder, stage) for stage, folder in folders.items()}
    request = request_of("tasks", f"{language}/{split}", inputs, rewriter(lineage.manifest))

    def make(folder: Path) -> Contents:
        edits = [edit for source in folders.values() for edit in read_lines(source / "edits.jsonl", Edit)]
        soundness = validate_tasks(lineage.counted(edits), lineage.ports.sandbox)
        write_lines(folder / "tasks.jsonl", soundness.tasks)
        unsound = {f"unsound.{reason}": count for reason, count in sorted(soundness.invalid.items())}
        return Contents({"rows": len(soundness.tasks), **unsound})

    return lineage.build(lineage.paths.partition("tasks", language, split), request, make)
