"""What the dbt models read: exactly the files of the datasets, languages and splits in use, and what records say.

A pattern over folders would also find what a dataset left that is no longer in use.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graftline.core.parquet import Column
from graftline.datasets.edit import DIVISION, DROPS, EDITS, NORMALIZED
from graftline.pipeline.instruction_counts import instruction_counts
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.stages.raw import raw_record
from graftline.rollouts.exports.parquet import STEPS, TRAJECTORIES
from resources.warehouse import of_lines, of_parquet, of_rows

_NORMALIZED: Mapping[str, Column] = {name: NORMALIZED[name] for name in ("dataset", "id", "license", "link_keys")}
_LABELS: Mapping[str, Column] = {
    "id": "text",
    "dataset": "word",
    "language": "word",
    "label": "text",
    "holds": "flag",
    "license": "word",
    "instruction": "text",
    "origin": "text",
}


@dataclass
class Sources:
    """Queries by name of the source, and the artifacts behind them."""

    queries: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    """Identities of the artifacts."""
    config: dict[str, Any] = field(default_factory=dict)
    """What is read from the configuration."""


def open_sources(lineage: Lineage) -> Sources:
    """Return what the models read, after checking every file of it.

    Raises:
        RecordError: an artifact is missing, or damaged.
    """
    sources = Sources()
    _add_records(sources, lineage)
    _add_normalized(sources, lineage)
    _add_division(sources, lineage)
    _add_instructions(sources, lineage)
    _add_partitions(sources, lineage)
    return sources


def _add_records(sources: Sources, lineage: Lineage) -> None:
    catalog = lineage.catalog
    counts: list[dict[str, str | int]] = []
    for name in catalog.sources:
        raw, normalized = raw_record(lineage, name), lineage.record(lineage.paths.normalized(name))
        raw_counts = {**raw.counts, "num_records": raw.num_records}
        for stage, numbers in (("raw", raw_counts), ("normalized", normalized.counts)):
            counts += [{"dataset": name, "stage": stage, "name": count, "number": n} for count, n in numbers.items()]
        sources.inputs[f"raw/{name}"] = raw.identity
    cleaning = catalog.cleaning
    sources.config = {
        "datasets": list(catalog.sources),
        "languages": list(catalog.languages),
        "licenses": list(cleaning.licenses),
        "max_pre_tokens": cleaning.max_pre_tokens,
    }
    sources.queries["counts"] = of_rows(counts, {"dataset": "word", "stage": "word", "name": "word", "number": "whole"})
    sources.queries["datasets"] = of_rows([{"dataset": name} for name in catalog.sources], {"dataset": "word"})
    allowed = [{"license": license} for license in dict.fromkeys(cleaning.licenses)]
    sources.queries["allowed_licenses"] = of_rows(allowed, {"license": "word"})
    sources.queries["limits"] = of_rows([{"max_pre_tokens": cleaning.max_pre_tokens}], {"max_pre_tokens": "whole"})


def _add_normalized(sources: Sources, lineage: Lineage) -> None:
    shards: dict[str, list[Path]] = {}
    drops, labels = [], []
    for name in lineage.catalog.sources:
        folder = lineage.paths.normalized(name)
        record = lineage.read_input(folder, "normalized")
        sources.inputs[f"normalized/{name}"] = record.identity
        for file in sorted(record.files):
            language, dash, _ = file.partition("-")
            if dash and file.endswith(".parquet"):
                shards.setdefault(language, []).append(folder / file)
        drops.append(folder / "dropped.parquet")
        labels += [folder / "labels.jsonl"] if "labels.jsonl" in record.files else []
    sources.queries["normalized"] = _by_language(shards, _NORMALIZED)
    sources.queries["drops"] = of_parquet(drops, DROPS)
    sources.queries["labels"] = of_lines(labels, _LABELS)


def _add_division(sources: Sources, lineage: Lineage) -> None:
    folder = lineage.paths.division
    record = lineage.read_input(folder, "division")
    sources.inputs["division"] = record.identity
    files: dict[str, list[Path]] = {
        language: [folder / f"{language}.parquet"]
        for language in lineage.catalog.languages
        if f"{language}.parquet" in record.files
    }
    sources.queries["division"] = _by_language(files, DIVISION)


def _add_instructions(sources: Sources, lineage: Lineage) -> None:
    folders = _read_stored_folders(sources, lineage, "tasks", "tasks")
    counts = instruction_counts(lineage.record(folder) for folder in folders)
    columns: Mapping[str, Column] = {"dataset": "word", "source": "word", "answer": "word", "tasks": "whole"}
    sources.queries["instructions"] = of_rows([count._asdict() for count in counts], columns)


def _add_partitions(sources: Sources, lineage: Lineage) -> None:
    edits = _read_stored_folders(sources, lineage, "processed", "splits")
    attempts = _read_stored_folders(sources, lineage, "trajectories/parquet", "trajectories")
    stored: list[dict[str, str | int]] = [{"language": folder.parent.name, "split": folder.name} for folder in edits]
    sources.queries["stored_splits"] = of_rows(stored, {"language": "word", "split": "word"})
    sources.queries["edits"] = of_parquet([folder / "edits.parquet" for folder in edits], EDITS)
    sources.queries["steps"] = of_parquet([folder / "steps.parquet" for folder in attempts], STEPS)
    sources.queries["trajectories"] = of_parquet([folder / "trajectories.parquet" for folder in attempts], TRAJECTORIES)


def _read_stored_folders(sources: Sources, lineage: Lineage, stage: str, kind: str) -> list[Path]:
    folders = []
    for language, split in lineage.partitions():
        folder = lineage.paths.partition(stage, language, split)
        lineage.pull(folder)
        if folder.exists():
            record = lineage.read_input(folder, kind)
            sources.inputs[f"{kind}/{language}/{split}"] = record.identity
            folders.append(folder)
    return folders


def _by_language(files: Mapping[str, list[Path]], columns: Mapping[str, Column]) -> str:
    queries = [of_parquet(paths, columns, {"language": language}) for language, paths in sorted(files.items())]
    return " union all ".join(queries) or of_parquet([], columns, {"language": ""})
