"""What an adapter came from: every record on the way, what is no longer as it was, and the rows it stands on."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import ConfigError
from graftline.core.paths import Paths
from graftline.core.record import RECORD_NAME, load_record
from graftline.datasets.synthetic.families import is_held_out
from graftline.pipeline.exports import export, read_export_record, record_path
from graftline.pipeline.provenance.audit import audit
from graftline.pipeline.provenance.rows import standing, training_rows, with_sources
from graftline.pipeline.provenance.trace import Provenance, State, dot, mermaid, trace_provenance
from graftline.training.adapter import download_adapter
from graftline.training.memory import MemoryTrainingService, memory_tokenizer
from graftline.training.recipes.open import load_recipe
from graftline.training.runs import Runs
from graftline.training.train import MEMORY_OUTPUT, train_on_tinker
from tests.recipes import write_recipe


@pytest.fixture(scope="session")
def _adapted(trained_run: tuple[Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small root with both recipes trained, and an adapter of an exported file."""
    root = Path(shutil.copytree(trained_run[0], tmp_path_factory.mktemp("ancestry") / "root"))
    export(Paths(root), "sft", root / "data" / "exports" / "sft.jsonl", "brief")
    write_recipe(root, "by_hand", None, dataset="data/exports/sft.jsonl")
    trained(root, "by_hand", "exported")
    return root


def trained(root: Path, recipe: str, run_id: str, **changes: Any) -> Path:
    """Train `recipe` as `graftline train run` does, and return the folder of its adapter."""
    config = load_recipe(Paths(root), recipe, changes)
    with MemoryTrainingService() as service:
        done = train_on_tinker(
            config,
            output_dir=root / MEMORY_OUTPUT,
            root=root,
            tokenizer=memory_tokenizer(),
            service=service,
            run_id=run_id,
        )
        return download_adapter(Runs(root / MEMORY_OUTPUT), done.run, service, None)


@pytest.fixture
def adapted(_adapted: Path, tmp_path: Path) -> Paths:
    """The same root once more, for a test of its own."""
    return Paths(Path(shutil.copytree(_adapted, tmp_path / "adapted")))


def states(of: Provenance) -> dict[str, str]:
    return {key: str(one.state) for key, one in of.nodes.items()}


def test_an_adapter_of_the_lineage_leads_back_to_the_raw_files(adapted: Paths) -> None:
    found = trace_provenance(adapted, "seen")
    kinds = [one.kind for one in found.nodes.values()]
    assert (kinds[0], found.faults) == ("trained_adapter", [])
    assert {*kinds} == {
        "trained_adapter", "sft_dataset", "run", "base_model", "prompt", "tasks", "teacher_trajectories",
        "splits", "synthetic_rules", "division", "normalized", "raw",
    }  # fmt: skip
    assert {*states(found).values()} == {State.SOUND, State.STATED}
    raw = found.nodes["data/raw/release_pairs/source"]
    assert (raw.facts["license"], raw.facts["url"], raw.parents) == ("MIT", "data/samples", ())
    [attempts] = [one for one in found.nodes.values() if one.name == "python/train/induction"]
    assert (attempts.facts["teacher"], attempts.facts["verified"]) == ("induction", attempts.facts["rows"])


@pytest.mark.parametrize("name", ["tiny", "models/adapters/tiny", "the run"])
def test_an_adapter_is_named_by_recipe_or_folder_or_run(adapted: Paths, name: str) -> None:
    record = load_record(adapted.adapter("tiny"))
    found = trace_provenance(adapted, record.config["run_id"] if name == "the run" else name)
    assert found.run is not None
    assert found.run.run_id == record.config["run_id"]
    assert adapted.training_set("tiny") / "train.jsonl" in found.training_data


def test_an_unknown_adapter_is_refused_with_those_that_there_are(adapted: Paths) -> None:
    with pytest.raises(
        ConfigError, match=r"adapter 'none' is unknown: name a recipe, a run or a folder; there are exported,"
    ):
        trace_provenance(adapted, "none")
    shutil.rmtree(adapted.root / MEMORY_OUTPUT / "exported")
    with pytest.raises(ConfigError, match="`graftline train download exported` fetches it"):
        trace_provenance(adapted, "exported")
    with pytest.raises(ConfigError, match=r"data/tasks/python/train: holds 'tasks', but an adapter was asked for"):
        trace_provenance(adapted, "data/tasks/python/train")


def test_an_adapter_of_an_exported_file_leads_back_as_well(adapted: Paths) -> None:
    found = trace_provenance(adapted, "exported")
    assert found.faults == []
    assert [one.kind for one in found.nodes.values()][:2] == ["adapter", "export"]
    sft = found.nodes["data/exports/sft.jsonl"]
    assert [up.name for up in sft.parents] == [
        "tasks.python.train", "teacher_trajectories.python.train.induction", "prompt",
    ]  # fmt: skip
    assert "data/raw/release_pairs/source" in found.nodes
    rows = (adapted.root / "data/exports/sft.jsonl").read_text("utf-8").splitlines()
    assert len(training_rows(adapted, found)) == len(rows) == sft.facts["rows"]


def altered(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def other_record(folder: Path, **changes: Any) -> None:
    """Put another artifact in place of the one in `folder`: as sound as the first."""
    record = load_record(folder).model_copy(update=changes).with_identity()
    (folder / RECORD_NAME).write_text(record.model_dump_json(), "utf-8")


DAMAGES = {
    "an altered file": (
        lambda paths: altered(paths.partition("tasks", "python", "train") / "tasks.jsonl"),
        "data/tasks/python/train: file 'tasks.jsonl' was altered after it was written; materialize its asset again",
    ),
    "a missing folder": (
        lambda paths: shutil.rmtree(paths.raw("release_pairs")),
        "data/raw/release_pairs/source: is missing; materialize its asset again",
    ),
    "an altered record": (
        lambda paths: altered_record(paths.division),
        "data/division: identity is not that of its content; materialize its asset again",
    ),
    "a replaced input": (
        lambda paths: other_record(paths.partition("processed", "python", "dev"), config={"tokenizer": "other"}),
        "data/tasks/python/dev: splits was replaced since: what is there now is ",
    ),
    "a changed prompt": (
        lambda paths: changed(paths.configs / "teacher_prompts.yaml", "brief:", "brief_before:", "small:", "brief:"),
        "data/training/seen: prompt was changed since in configs/teacher_prompts.yaml",
    ),
}  # fmt: skip


def changed(path: Path, *words: str) -> None:
    text = path.read_text("utf-8")
    for before, after in zip(words[::2], words[1::2], strict=True):
        assert before in text
        text = text.replace(f"  {before}", f"  {after}", 1)
    path.write_text(text, "utf-8")


def altered_record(folder: Path) -> None:
    text = (folder / RECORD_NAME).read_text("utf-8")
    (folder / RECORD_NAME).write_text(text.replace('"rows": ', '"rows": 1'), "utf-8")


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_no_longer_as_it_was_is_told_and_walked_past(adapted: Paths, damage: str) -> None:
    do, told = DAMAGES[damage]
    do(adapted)
    found = trace_provenance(adapted, "seen")
    assert [fault for fault in found.faults if fault.startswith(told)], found.faults
    # what is behind a damaged file is looked at all the same
    assert ("data/division" in found.nodes, "data/processed/python/train" in found.nodes) == (True, True)


def test_a_file_without_a_record_or_with_that_of_another_is_told(adapted: Paths) -> None:
    file = adapted.root / "data/exports/sft.jsonl"
    altered(file)
    told = trace_provenance(adapted, "exported").faults
    assert "data/exports/sft.jsonl: was altered after it was written" in told
    record_path(file).unlink()
    one = trace_provenance(adapted, "exported").nodes["data/exports/sft.jsonl"]
    assert (one.state, "has no record sft.jsonl.meta.json beside it" in one.fault) == (State.UNRECORDED, True)
    file.unlink()
    assert trace_provenance(adapted, "exported").nodes["data/exports/sft.jsonl"].state == State.MISSING


def test_a_file_that_was_exported_again_is_not_the_one_that_was_trained_on(adapted: Paths) -> None:
    export(adapted, "sft", adapted.root / "data/exports/sft.jsonl", "large")
    found = trace_provenance(adapted, "exported")
    assert found.nodes["data/exports/sft.jsonl"].state == State.SOUND
    [first, second] = found.faults
    assert first.startswith("models/adapters/memory/exported: dataset was replaced since: what is there now is ")
    assert second.startswith("run exported: dataset was replaced since: ")


def test_a_run_that_went_on_from_another_stands_on_what_that_one_was_trained_on(adapted: Paths) -> None:
    first = Runs(adapted.root / MEMORY_OUTPUT).get("exported")
    runs = Runs(adapted.root / MEMORY_OUTPUT)
    config = {**load_recipe(adapted, "tiny").model_dump(mode="json"), "start_from": first.sampler_path}
    runs.write(first.model_copy(update={"run_id": "second", "config": config, "dataset": {}}))
    other_record(adapted.adapter("tiny"), config={**load_record(adapted.adapter("tiny")).config, "run_id": "second"})
    found = trace_provenance(adapted, "tiny")
    assert [(up.name, up.key) for up in found.nodes["run second"].parents] == [("start_from", "run exported")]
    assert sorted(path.name for path in found.training_data) == ["sft.jsonl", "train.jsonl"]
    runs.write(first.model_copy(update={"run_id": "second", "config": {**config, "start_from": "tinker://gone"}}))
    [lost] = [one for one in trace_provenance(adapted, "tiny").nodes.values() if one.kind == "checkpoint"]
    assert (lost.state, lost.fault.partition(",")[0]) == (State.UNRECORDED, "is of no run that is recorded here")


def test_every_row_leads_to_file_and_line_and_rule_and_reward(adapted: Paths) -> None:
    rows = with_sources(adapted, training_rows(adapted, trace_provenance(adapted, "seen")))
    raw = (adapted.raw("release_pairs") / "release_pairs.jsonl").read_text("utf-8").splitlines()
    for row in rows:
        place, _, line = row.source.rpartition(":")
        told = json.loads(raw[int(line) - 1])
        assert place == "data/raw/release_pairs/source/release_pairs.jsonl"
        assert (told["id"].replace("release:", "release_pairs:"), f"pypi:{told['pkg']}") == (row.edit_id, row.group)
        assert (row.license, row.teacher, row.reward, row.cause) == ("MIT", "induction", 1.0, "verified")
        assert {*json.loads(row.rule)} & {"pattern", "rule"}
    on = standing(rows)
    assert (on.rows, on.unknown, on.mean_reward) == (len(rows), 0, 1.0)
    assert on.by["dataset"] == {"release_pairs": len(rows)}


def test_a_synthetic_row_leads_to_its_template_and_the_edit_it_was_made_on(adapted: Paths) -> None:
    rows = with_sources(adapted, training_rows(adapted, trace_provenance(adapted, "tiny")))
    assert rows
    assert all(row.task_id.startswith("synthetic:") and row.edit_id.startswith("release_pairs:") for row in rows)
    assert all(row.template and row.source and row.group and not row.rule and row.reward is None for row in rows)
    # what measures is never trained on
    assert not [row.template for row in rows if is_held_out(row.template)]


def test_a_row_without_a_task_is_counted_as_unknown(adapted: Paths) -> None:
    file = adapted.root / "data" / "chats.jsonl"
    turns = [{"role": "user", "content": "Say a"}, {"role": "assistant", "content": "a"}]
    file.write_text(3 * (json.dumps({"messages": turns}) + "\n"), "utf-8")
    write_recipe(adapted.root, "chats", None, dataset="data/chats.jsonl")
    trained(adapted.root, "chats", "chatted")
    found = trace_provenance(adapted, "chatted")
    assert found.nodes["data/chats.jsonl"].state == State.UNRECORDED
    on = standing(training_rows(adapted, found))
    assert (on.rows, on.unknown, on.by["license"]) == (3, 3, {"NOASSERTION": 3})


def test_drawings_have_every_ancestor_and_mark_what_changed(adapted: Paths) -> None:
    altered(adapted.partition("tasks", "python", "train") / "tasks.jsonl")
    found = trace_provenance(adapted, "seen")
    graph, chart = dot(found), mermaid(found)
    assert graph.startswith("digraph lineage {\n")
    assert (graph.count("[label="), chart.count('"]')) == (len(found.nodes), len(found.nodes))
    assert ("tasks\\npython/train\\n" in graph, ", color=red];" in graph, '"]:::broken' in chart) == (True, True, True)
    links = sum(len({up.key for up in one.parents}) for one in found.nodes.values())
    assert (graph.count(" -> "), chart.count(" --> ")) == (links, links)


def test_an_export_records_what_it_was_made_of_and_is_checked_with_all_else(adapted: Paths) -> None:
    file = adapted.root / "data/exports/sft.jsonl"
    record = read_export_record(file)
    assert (record.kind, record.name, record.config["format"], record.config["prompt"]["name"]) == ("export", "sft.jsonl", "sft", "brief")  # fmt: skip
    assert record.inputs == {
        "tasks.python.train": load_record(adapted.partition("tasks", "python", "train")).identity,
        "teacher_trajectories.python.train.induction": load_record(adapted.attempts("python", "train", "induction")).identity,
    }  # fmt: skip
    assert record.counts["license.MIT"] == record.counts["rows"]
    assert audit(adapted).faults == []
    altered(file)
    assert audit(adapted).faults == [f"{file}: was altered after it was written; export it again"]
