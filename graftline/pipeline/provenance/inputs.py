"""What the inputs of a record are: the folder or file that each name stands for, and which of its files are meant.

Records hold names and identities alone, so that a root can be moved. Which name stands for what is decided by the stages
(`runtime.stages`, `runtime.exporting`); here it is read back.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graftline.core.paths import Paths
from graftline.core.record import ArtifactRecord
from graftline.pipeline.lineage import part_identity

_SPLIT_SOURCES = {"splits": "processed", "synthetic_rules": "synthetic", "tasks": "tasks"}
"""Where what is partitioned by language and split lies, below `data/`."""


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a record."""

    name: str
    """As the record calls it."""
    identity: str
    """What it was when the artifact was made from it."""
    kind: str
    """Of the artifact it is, or `file` for one that is named by a run of training."""
    place: Path
    starts: str | None = None
    """Of the names of the files that were read; None for the artifact as a whole."""

    def identity_of(self, record: ArtifactRecord) -> str:
        """Return what the input is now, by the record of its place."""
        if self.kind == "file":
            return record.files[self.place.name].sha256 if self.place.name in record.files else ""
        if self.starts is None:
            return record.identity
        return part_identity(record, sorted(name for name in record.files if name.startswith(self.starts)))


def inputs_of(paths: Paths, record: ArtifactRecord) -> list[Input]:
    """Return the inputs of `record` that are artifacts; the home of a dataset is told by the record itself."""
    if record.kind == "adapter":
        return files_of_run(paths, record.config["config"], record.inputs)
    return [found for name, identity in record.inputs.items() for found in _input(paths, record, name, identity)]


def files_of_run(paths: Paths, config: Mapping[str, Any], digests: Mapping[str, str]) -> list[Input]:
    """Return the files that a run was trained on, and looked at; it knows them by their digests."""
    named = {name: config.get(name) for name in digests}
    return [Input(name, digests[name], "file", paths.root / place) for name, place in named.items() if place]


def _input(paths: Paths, record: ArtifactRecord, name: str, identity: str) -> Iterator[Input]:
    first, _, rest = name.partition("/")
    language, split = [*record.name.split("/"), ""][:2]
    match record.kind:
        case "normalized":
            yield Input(name, identity, "raw", paths.raw(rest or record.name))
        case "division":
            yield Input(name, identity, "normalized", paths.normalized(name))
        case "splits" if first == "division":
            yield Input(name, identity, "division", paths.division, f"{language}.parquet")
        case "splits":
            yield Input(name, identity, "normalized", paths.normalized(rest), f"{language}-")
        case "synthetic_rules":
            of = name.partition(".")[2] or language
            yield Input(name, identity, "splits", paths.partition("processed", of, split))
        case "tasks":
            yield Input(name, identity, name, paths.partition(_SPLIT_SOURCES[name], language, split))
        case "teacher_trajectories":
            yield Input(name, identity, "tasks", paths.partition("tasks", language, split))
        case "sft_dataset" | "export":
            kind, language, split, *teacher = name.split(".", 3)
            of_teacher = paths.partition("trajectories/raw", language, split).joinpath(*teacher)
            place = of_teacher if teacher else paths.partition(_SPLIT_SOURCES[kind], language, split)
            yield Input(name, identity, kind, place)
        case "trained_adapter":
            yield Input(name, identity, "sft_dataset", paths.training_set(record.name))
