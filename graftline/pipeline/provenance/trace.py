"""Everything an adapter came from, by walking records: adapter, run, training data, attempts, tasks, splits, datasets.

Every record on the way is read, and the files it names are read again: what is no longer what was used is told, and the
walk goes on behind it. Not here: the single rows (`pipeline.provenance.rows`), their licenses
(`pipeline.provenance.license_bill`), and what is shown (`cli.pipeline`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from graftline.core.errors import ConfigError, RecordError
from graftline.core.hashing import sha256_file
from graftline.core.paths import Paths, file_name
from graftline.core.record import RECORD_NAME, ArtifactRecord, load_record, load_verified
from graftline.pipeline.exports import KIND as EXPORT
from graftline.pipeline.exports import find_export_fault, read_export_record, record_path
from graftline.pipeline.provenance.records import (
    Input,
    base_model_facts,
    facts_of,
    files_of_run,
    inputs_of,
    model_facts,
    prompt_facts,
    run_facts,
)
from graftline.training.recipes.open import recipe_names
from graftline.training.runs import Runs, TrainingRun
from graftline.training.settings import TRAIN
from graftline.training.train import MEMORY_OUTPUT, OUTPUT

ADAPTERS = ("trained_adapter", "adapter")
"""Kinds of records that an adapter has: one of the lineage, and one that a run of training ended with."""


class State(StrEnum):
    """What can be said of an ancestor as it is stored now."""

    SOUND = "sound"
    ALTERED = "altered"
    """Its record or a file of it is not what was written."""
    MISSING = "missing"
    UNRECORDED = "unrecorded"
    """It is there, but nothing says what it was made of."""
    STATED = "stated"
    """It is no artifact of ours; a record says what it was."""


@dataclass(frozen=True, slots=True)
class Parent:
    """What an ancestor was made from."""

    name: str
    """As its record calls it."""
    key: str
    """Of the ancestor that it is."""
    drift: str = ""
    """Why what is there now is not what was used; empty where it is."""


@dataclass(slots=True)
class ProvenanceNode:
    """One thing on the way, as it was recorded and as it is."""

    key: str
    """Its place relative to the root, or what it is called where it has none."""
    kind: str
    name: str
    state: State
    fault: str = ""
    """What is wrong with it, and what to do."""
    identity: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    parents: tuple[Parent, ...] = ()

    @property
    def is_broken(self) -> bool:
        """Whether it is not what was used."""
        return self.state in (State.ALTERED, State.MISSING, State.UNRECORDED)


@dataclass(frozen=True)
class Provenance:
    """An adapter, and all it came from."""

    adapter: Path
    record: ArtifactRecord
    run: TrainingRun | None
    """None where its record is not here."""
    training_data: Mapping[Path, ArtifactRecord | None]
    """The files whose rows were trained on, by all runs on the way, each with the record of what it belongs to."""
    nodes: Mapping[str, ProvenanceNode]
    """By key; the adapter is the first."""

    @property
    def faults(self) -> list[str]:
        """Return what is not as it was when it was used, one sentence each."""
        nodes = self.nodes.values()
        faults = [f"{node.key}: {node.fault}" for node in nodes if node.is_broken]
        return faults + [f"{node.key}: {up.name} {up.drift}" for node in nodes for up in node.parents if up.drift]

    def as_dict(self) -> dict[str, Any]:
        """Return what can be written as JSON."""
        nodes = [asdict(node) for node in self.nodes.values()]
        return {"adapter": next(iter(self.nodes)), "ancestors": nodes, "faults": self.faults}


def trace_provenance(paths: Paths, adapter: str) -> Provenance:
    """Return everything that `adapter` came from: the name of a recipe, the id of a run, or a folder."""
    folder = adapter_folder(paths, adapter)
    record = load_record(folder)
    if record.kind not in ADAPTERS:
        raise ConfigError(f"{paths.relative(folder)}: holds {record.kind!r}, but an adapter was asked for")
    walk = _Walk(paths, record)
    walk.artifact(folder, record.kind)
    return Provenance(folder, record, walk.run, walk.training_data(), walk.nodes)


def adapter_folder(paths: Paths, adapter: str) -> Path:
    """Return the folder of an adapter."""
    of_lineage = {path.parent for path in paths.adapters.glob(f"[!.]*/{RECORD_NAME}")}
    of_runs = [paths.root / output for output in (OUTPUT, MEMORY_OUTPUT)]
    downloaded = {path.parent for output_folder in of_runs for path in output_folder.glob(f"[!.]*/{RECORD_NAME}")}
    for folder in sorted(of_lineage | downloaded):
        if folder.name in (adapter, file_name(adapter)):
            return folder
    for folder in (paths.root / adapter, Path(adapter).expanduser()) if adapter else ():
        if (folder / RECORD_NAME).is_file():
            return folder.resolve()
    for folder in sorted(of_lineage):
        if load_record(folder).config.get("run_id") == adapter:
            return folder
    for output_folder in of_runs:
        if any(path.stem == adapter for path in (output_folder / "runs").glob("[!.]*.json")):
            raise ConfigError(
                f"run {adapter!r}: its adapter is not here; `graftline train download {adapter}` fetches it"
            )
    if adapter in recipe_names(paths):
        raise ConfigError(
            f"recipe {adapter!r} has no adapter yet: it is not trained; `make run` trains those of the lineage,"
            f" `graftline train run {adapter}` this one"
        )
    names = ", ".join(sorted(folder.name for folder in of_lineage | downloaded)) or "none"
    raise ConfigError(f"adapter {adapter!r} is unknown: name a recipe, a run or a folder; there are {names}")


class _Walk:
    """Goes from an adapter to all that it was made from; what several things were made from is looked at once."""

    def __init__(self, paths: Paths, adapter: ArtifactRecord) -> None:
        self._paths = paths
        self.nodes: dict[str, ProvenanceNode] = {}
        self._records: dict[str, ArtifactRecord] = {}
        self._trained_on: dict[Path, None] = {}
        self._runs = [run for output in (OUTPUT, MEMORY_OUTPUT) for run in Runs(paths.root / output).all()]
        run_id = adapter.config.get("run_id", adapter.name)
        self.run = next((run for run in self._runs if run.run_id == run_id), None)

    def artifact(self, folder: Path, kind: str) -> str:
        """Look at the artifact in `folder`, and at what it was made from; return its key."""
        key = self._paths.relative(folder)
        if key not in self.nodes:
            record, state, fault = _inspect(folder, kind)
            self._add(ProvenanceNode(key, kind, folder.name, state, fault), record)
        return key

    def training_data(self) -> dict[Path, ArtifactRecord | None]:
        """Return the files that were trained on, with the records of what they belong to."""
        own = self._paths.relative
        return {file: self._records.get(own(file), self._records.get(own(file.parent))) for file in self._trained_on}

    def _add(self, node: ProvenanceNode, record: ArtifactRecord | None = None) -> None:
        # its place in the order is before what it was made from
        self.nodes[node.key] = node
        if record is not None:
            self._records[node.key] = record
            node.name, node.identity, node.facts = record.name, record.identity, facts_of(record)
            node.parents = (*map(self._parent, inputs_of(self._paths, record)), *self._others(record))

    def _parent(self, input_: Input) -> Parent:
        is_file = input_.kind == "file"
        if input_.name in ("dataset", "sft_dataset"):
            self._trained_on[input_.place if is_file else input_.place / TRAIN] = None
        key = self._file(input_.place) if is_file else self.artifact(input_.place, input_.kind)
        record = self._records.get(key)
        if record is not None:
            now = input_.identity_of(record)
            return Parent(input_.name, key, "" if now == input_.identity else _describe_replaced(now))
        # a file without a record is known by its digest all the same
        is_same = is_file and input_.place.is_file() and sha256_file(input_.place) == input_.identity
        is_missing = self.nodes[key].state is State.MISSING
        return Parent(input_.name, key, "" if is_same or is_missing else _describe_replaced(""))

    def _file(self, file: Path) -> str:
        """Look at a file that a run was trained on: one of a training set, or an export."""
        if (file.parent / RECORD_NAME).is_file():
            return self.artifact(file.parent, "sft_dataset")
        key = self._paths.relative(file)
        if key in self.nodes:
            return key
        record, has_record = None, record_path(file).is_file()
        try:
            record = read_export_record(file)
        except RecordError as error:
            fault = str(error)
        else:
            fault = find_export_fault(file, record)
        state = State.ALTERED if has_record else State.UNRECORDED
        if record is not None:
            state = State.ALTERED if fault else State.SOUND
        if not file.is_file() and (record is not None or not has_record):
            state = State.MISSING
        self._add(ProvenanceNode(key, EXPORT, file.name, state, fault), record)
        return key

    def _others(self, record: ArtifactRecord) -> Iterator[Parent]:
        """Yield what is no artifact: the run, the base model, and prompts."""
        if record.kind in ADAPTERS:
            if self.run is not None and self.run.run_id == record.config.get("run_id", record.name):
                yield self._of_run("run", self.run)
            name, facts, drift = base_model_facts(self._paths, record, self.run)
            yield self._state("model", f"model {name}", "base_model", name, facts, drift)
        if prompt := prompt_facts(self._paths, record):
            name, facts, drift = prompt
            yield self._state("prompt", f"prompt {name} {facts['digest'][:8]}", "prompt", name, facts, drift)

    def _of_run(self, as_input: str, run: TrainingRun) -> Parent:
        """Look at a run of training: its files, and the runs whose checkpoints it went on from or learnt from."""
        key = f"run {run.run_id}"
        if key not in self.nodes:
            node = ProvenanceNode(key, "run", run.run_id, State.STATED, "", run.config_digest, run_facts(run))
            self._add(node)
            parents = [self._parent(input_) for input_ in files_of_run(self._paths, run.config, run.dataset)]
            for name in ("start_from", "teacher_path"):
                if path := run.config.get(name):
                    parents.append(self._checkpoint(name, path))
            if teacher := run.config.get("teacher_model"):
                facts = model_facts(self._paths, teacher)
                parents.append(self._state("teacher_model", f"model {teacher}", "base_model", teacher, facts))
            node.parents = tuple(parents)
        return Parent(as_input, key)

    def _checkpoint(self, name: str, path: str) -> Parent:
        for run in self._runs:
            if path in (run.sampler_path, run.export_path, *(checkpoint.path for checkpoint in run.checkpoints)):
                return self._of_run(name, run)
        fault = "is of no run that is recorded here, so what it was trained on is not known; bring its record here"
        self.nodes.setdefault(path, ProvenanceNode(path, "checkpoint", path, State.UNRECORDED, fault))
        return Parent(name, path)

    def _state(
        self, as_input: str, key: str, kind: str, name: str, facts: Mapping[str, Any], drift: str = ""
    ) -> Parent:
        node = ProvenanceNode(key, kind, name, State.STATED, "", str(facts.get("digest", "")), facts)
        self.nodes.setdefault(key, node)
        return Parent(as_input, key, drift)


def _inspect(folder: Path, kind: str) -> tuple[ArtifactRecord | None, State, str]:
    if not folder.is_dir():
        return None, State.MISSING, "is missing; materialize its asset again"
    try:
        return load_verified(folder, kind), State.SOUND, ""
    except RecordError as error:
        fault = str(error).removeprefix(f"{folder}: ").removeprefix(f"{folder / RECORD_NAME}: ")
    try:
        record = load_record(folder)
    except RecordError:
        return None, State.ALTERED, fault
    return (record if record.kind == kind else None), State.ALTERED, fault


def _describe_replaced(now: str) -> str:
    return f"was replaced since: what is there now is {now[:12] or 'something else'}"


def dot(provenance: Provenance) -> str:
    """Return the graph in the language of Graphviz; what is not as it was is red."""
    lines = ["digraph lineage {", "  rankdir=RL;", '  node [shape=box, fontname="sans-serif", fontsize=10];']
    for number, node in enumerate(provenance.nodes.values()):
        label = _escape(_label(node), {"\\": "\\\\", '"': '\\"', "\n": "\\n"})
        lines.append(f'  n{number} [label="{label}"{", color=red" if node.is_broken else ""}];')
    for child, parent, drift in _edges(provenance):
        style = ' [color=red, label="replaced"]' if drift else ""
        lines.append(f"  n{child} -> n{parent}{style};")
    return "\n".join((*lines, "}", ""))


def mermaid(provenance: Provenance) -> str:
    """Return the graph in the language of Mermaid; what is not as it was is red."""
    lines = ["flowchart RL"]
    for number, node in enumerate(provenance.nodes.values()):
        label = _escape(_label(node), {"&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "\n": "<br>"})
        lines.append(f'    n{number}["{label}"]{":::broken" if node.is_broken else ""}')
    for child, parent, drift in _edges(provenance):
        lines.append(f"    n{child} -->{'|replaced|' if drift else ''} n{parent}")
    return "\n".join((*lines, "    classDef broken stroke:red,color:red", ""))


def _edges(provenance: Provenance) -> Iterator[tuple[int, int, str]]:
    numbers = {key: number for number, key in enumerate(provenance.nodes)}
    for key, node in provenance.nodes.items():
        drifts: dict[int, str] = {}
        for parent in node.parents:
            number = numbers[parent.key]
            drifts[number] = drifts.get(number) or parent.drift
        yield from ((numbers[key], number, drift) for number, drift in drifts.items())


def _label(node: ProvenanceNode) -> str:
    rows = node.facts.get("rows")
    counted = f"{rows:,} rows" if isinstance(rows, int) and rows else ""
    return "\n".join(part for part in (node.kind, node.name, counted) if part)


def _escape(text: str, written: Mapping[str, str]) -> str:
    return "".join(written.get(character, character) for character in text)
