"""What the inputs of a record are: the folder or file that each name stands for, and which of its files are meant.

Records hold names and identities alone, so that a root can be moved. Which name stands for what is decided by the stages
(`pipeline.stages`, `pipeline.exports`); here it is read back.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graftline.core.errors import GraftlineError
from graftline.core.paths import Paths
from graftline.core.record import ArtifactRecord, DatasetRecord, NormalizedRecord
from graftline.datasets.catalog import NO_LICENSE
from graftline.llm.weights.catalog import load_models
from graftline.pipeline.lineage import part_identity
from graftline.pipeline.settings import stage_code
from graftline.rollouts.teachers.prompt import load_prompt
from graftline.training.runs import TrainingRun

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
    """Return the inputs of `record` that are artifacts; the source of a dataset is told by the record itself."""
    if record.kind == "adapter":
        return files_of_run(paths, record.config["config"], record.inputs)
    return [input_ for name, identity in record.inputs.items() for input_ in _input(paths, record, name, identity)]


def files_of_run(paths: Paths, config: Mapping[str, Any], digests: Mapping[str, str]) -> list[Input]:
    """Return the files that a run was trained on, and looked at; it knows them by their digests."""
    named = {name: config.get(name) for name in digests}
    return [Input(name, digests[name], "file", paths.root / place) for name, place in named.items() if place]


def _input(paths: Paths, record: ArtifactRecord, name: str, identity: str) -> Iterator[Input]:
    first, _, dataset = name.partition("/")
    language, split = [*record.name.split("/"), ""][:2]
    match record.kind:
        case "normalized":
            yield Input(name, identity, "raw", paths.raw(dataset or record.name))
        case "division":
            yield Input(name, identity, "normalized", paths.normalized(name))
        case "splits" if first == "division":
            yield Input(name, identity, "division", paths.division, f"{language}.parquet")
        case "splits":
            yield Input(name, identity, "normalized", paths.normalized(dataset), f"{language}-")
        case "synthetic_rules":
            source_language = name.partition(".")[2] or language
            yield Input(name, identity, "splits", paths.partition("processed", source_language, split))
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


_TEACHING = ("teacher", "isolation", "ast_grep")
_COUNTED = ("verified", "steps", "examples", "solved_before", "solved_after")
_LEFT_OUT = ("dropped.", "invalid.", "unsound.", "not_kept.")
_FACTS_OF_RUN = (
    "recipe", "status", "examples", "trained_tokens", "first_loss", "last_loss", "held_out_loss", "backend", "config_digest",
)  # fmt: skip
_NAMED_BY_RUN = ("start_from", "teacher_model", "teacher_path", "teacher_fleet")


def facts_of(record: ArtifactRecord) -> dict[str, Any]:
    """Return what a person wants to know of an artifact: counts, licenses, versions, and whether its code is ours."""
    facts: dict[str, Any] = {"rows": record.counts.get("rows", record.counts.get("trained_tokens", 0))}
    if isinstance(record, DatasetRecord):
        facts |= {"source": record.source, "version": record.version, "license": record.license}
        facts["sha256"] = record.sha256
    if isinstance(record, NormalizedRecord):
        facts |= {"licenses": dict(record.licenses), "tokenizer": record.tokenizer}
    if record.kind == "raw" and "url" in record.config:
        facts["url"] = record.config["url"]
    facts |= {key: record.config[key] for key in _TEACHING if key in record.config}
    facts |= {key: record.counts[key] for key in _COUNTED if key in record.counts}
    if left_out := {name: count for name, count in record.counts.items() if name.startswith(_LEFT_OUT)}:
        facts["left_out"] = left_out
    facts["code"] = record.code_version
    if (now := _code_now(record)) and now != record.code_version:
        facts["code_now"] = now
    return {**facts, "written_at": record.written_at}


def run_facts(run: TrainingRun) -> dict[str, Any]:
    """Return what a person wants to know of a run of training."""
    facts = {name: getattr(run, name) for name in _FACTS_OF_RUN}
    named = {name: run.config[name] for name in _NAMED_BY_RUN if run.config.get(name)}
    return {**facts, "steps": run.next_step, "dropped": dict(run.dropped), "versions": dict(run.versions), **named}


def base_model_facts(paths: Paths, record: ArtifactRecord, run: TrainingRun | None) -> tuple[str, dict[str, Any], str]:
    """Return what the adapter is one of: its name, what is known of it, and why that is not what was used."""
    recorded = record.config.get("model") or record.config.get("config", {}).get("model", "")
    name = run.config["model"] if run is not None else recorded
    models = load_models(paths).models
    by_digest = next((model_name for model_name, weights in models.items() if weights.sha256 == recorded), None)
    facts = model_facts(paths, by_digest or name)
    is_as_recorded = by_digest or recorded == name or record.kind != "trained_adapter"
    drift = "" if is_as_recorded else f"was {recorded[:12]}, but configs/models.yaml pins other weights now"
    return by_digest or name, facts, drift


def model_facts(paths: Paths, name: str) -> dict[str, Any]:
    """Return what is known of the weights of a language model."""
    weights = load_models(paths).models.get(name)
    if weights is None:
        return {"license": NO_LICENSE, "why": "it is not in configs/models.yaml"}
    return {"digest": weights.sha256, "license": weights.license, "card": weights.card, "file": weights.file}


def prompt_facts(paths: Paths, record: ArtifactRecord) -> tuple[str, dict[str, Any], str] | None:
    """Return by which prompt rows or attempts were made, and why it is not what was used; None where there was none."""
    recorded = record.config.get("prompt")
    if recorded is None or record.kind == "trained_adapter":  # that of its training data, which tells its name
        return None
    named = recorded if isinstance(recorded, Mapping) else {"digest": recorded}
    name = str(named.get("name") or record.config.get("data", {}).get("prompt") or "")
    digest = str(named["digest"])
    if not name:
        # attempts know the digest alone
        return digest[:12], {"digest": digest}, ""
    try:
        now = load_prompt(paths.configs, name).digest()
    except GraftlineError as error:
        return name, {"digest": digest}, f"cannot be read any more: {error}"
    drift = "" if now == digest else "was changed since in configs/teacher_prompts.yaml"
    return name, {"digest": digest}, drift


def _code_now(record: ArtifactRecord) -> str:
    try:
        reader = record.config.get("reader")
        return stage_code(record.kind, reader) if record.kind != "raw" else ""
    except KeyError:
        return ""  # of exports and of adapters of runs, whose code is no stage
