"""Which evaluations edits were kept away from, by the records of the datasets."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from graftline.core.markdown import table
from graftline.core.paths import Paths
from graftline.core.record import ArtifactRecord, DatasetRecord, load_record

PREFIX = "evaluation/"


def evaluations_of(
    normalized: ArtifactRecord, paths: Paths, record_of: Callable[[Path], ArtifactRecord] = load_record
) -> list[dict[str, Any]]:
    """Return the evaluations that the edits of one dataset were compared with, as rows."""
    rows: list[dict[str, Any]] = []
    for key, identity in sorted(normalized.inputs.items()):
        if key.startswith(PREFIX):
            name = key.removeprefix(PREFIX)
            rows.append({"evaluation": f"dataset `{name}`", **_contract(record_of(paths.raw(name)), identity)})
    files: Mapping[str, str] = normalized.config.get("evaluation_files", {})
    rows += [
        {"evaluation": f"file `configs/evals/{name}`", "version": None, "rows": None, "sha256": sha256}
        for name, sha256 in sorted(files.items())
    ]
    return rows


def describe_evaluations(evaluations: list[dict[str, Any]], fallen: int) -> str:
    """Return as Markdown what edits were kept away from, also when that is nothing."""
    if not evaluations:
        return (
            "**No evaluation.** None is among the datasets in use, and `configs/evals` holds none, so nothing was"
            " looked for: an edit may hold the text of an evaluation.\n"
        )
    return (
        f"Edits that fell out because they are too near to a text of one of these: {fallen:,}.\n\n{table(evaluations)}"
    )


def _contract(record: ArtifactRecord, identity: str) -> dict[str, Any]:
    if record.identity != identity or not isinstance(record, DatasetRecord):
        # fetched anew since: what the edits were compared with is known by its identity alone
        return {"version": f"another one ({identity[:12]})", "rows": None, "sha256": None}
    return {"version": record.version, "rows": record.num_records, "sha256": record.sha256}
