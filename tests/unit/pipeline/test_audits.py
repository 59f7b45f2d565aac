"""The audit of a root folder, and the questions that asset checks ask."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from graftline.core.build import Contents, Request
from graftline.core.errors import RecordError
from graftline.core.parquet import read_parquet, write_parquet
from graftline.core.paths import Paths
from graftline.datasets.edit import EDITS
from graftline.pipeline import checks
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.provenance.audit import Audit, audit
from graftline.rollouts.exports.parquet import STEPS
from tests.lineages import opened_at


@pytest.fixture
def lineage(made: Path) -> Iterator[Lineage]:
    with opened_at(made, {"sandbox": "memory"}) as lineage:
        yield lineage


def test_a_sound_root_has_no_fault_and_what_is_no_artifact_needs_no_record(made: Path, small_checkout: Any) -> None:
    for name in ("models/a.gguf", "state/state.sqlite", "trajectories/attempts/python/train/t/w-00001.jsonl"):
        path = made / "data" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x")
    # settings, governance, telemetry, four manifests, fleets and prompts, the samples, 20 artifacts
    assert audit(Paths(made)) == Audit(30, [])
    assert audit(Paths(small_checkout.root)) == Audit(10, [])


def test_the_inputs_alone_are_checked_without_artifacts(made: Path) -> None:
    (Paths(made).raw("release_pairs") / "release_pairs.jsonl").unlink()
    assert audit(Paths(made), inputs_only=True) == Audit(10, [])


def test_every_faulty_artifact_is_told(made: Path) -> None:
    paths = Paths(made)
    tasks, raw = paths.partition("tasks", "python", "train"), paths.raw("release_pairs")
    (tasks / "tasks.jsonl").write_text("{}\n", "utf-8")
    (raw / "release_pairs.jsonl").unlink()
    (paths.partition("processed", "python", "dev") / "_meta.json").write_text("{", "utf-8")
    report = audit(paths)
    assert (report.checked, len(report.faults)) == (30, 3)
    # in the order of the folders
    assert "is not a record" in report.faults[0]
    assert report.faults[1:] == [
        f"{raw}: file 'release_pairs.jsonl' is missing; materialize its asset again",
        f"{tasks}: file 'tasks.jsonl' was altered after it was written; materialize its asset again",
    ]


def test_every_faulty_configuration_file_is_told_once(made: Path) -> None:
    datasets, dev = made / "configs" / "datasets.yaml", made / "configs" / "manifests" / "dev.yaml"
    datasets.write_text("languages: [cobol]\n", "utf-8")
    dev.unlink()
    faults = audit(Paths(made)).faults
    # the settings are read for themselves and for the samples
    assert len(faults) == 2
    assert faults[0].startswith(f"{datasets}: languages.0: input should be 'python'")
    assert faults[1] == f"{dev}: cannot be read (No such file or directory); expected a YAML file"


@pytest.mark.parametrize("name", ["evaluations/mine.yaml", "prompts/mine.yaml", "closed_loop.yaml"])
def test_nonsense_in_a_file_is_told_whichever_it_is(made: Path, name: str) -> None:
    path = made / "configs" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("nonsense: 1\n", "utf-8")
    [fault] = audit(Paths(made)).faults
    assert fault.startswith(f"{path}: ")
    assert "nonsense: unknown key" in fault


def test_a_sample_that_is_not_the_pinned_one_is_told(made: Path, reconfigure: Callable[..., None]) -> None:
    files = [{"path": "release_pairs.jsonl", "size_bytes": 1}]
    reconfigure(made, "datasets.yaml", {"datasets.release_pairs.files": files})
    [fault] = audit(Paths(made)).faults
    assert fault.startswith(f"{made}/data/samples/release_pairs.jsonl: size_bytes is ")


def test_a_sound_lineage_answers_every_question_with_nothing(lineage: Lineage) -> None:
    assert (
        checks.invalid_edits(lineage, "release_pairs"),
        checks.invalid_splits(lineage),
        checks.leaks(lineage),
        checks.invalid_trajectories(lineage),
        checks.count_verified_steps(lineage),
    ) == ([], [], [], [], 9)


def test_a_file_that_was_altered_is_told_before_its_lines_are_read(lineage: Lineage) -> None:
    path = lineage.paths.normalized("release_pairs") / "python-00000.jsonl"
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([lines[0], lines[1].replace('"language":"python"', '"language":"cobol"')]), "utf-8")
    with pytest.raises(RecordError, match=r"python-00000\.jsonl' was altered after it was written"):
        checks.invalid_edits(lineage, "release_pairs")


def put(lineage: Lineage, where: str, stage: str, split: str, make: Callable[[Path], Contents]) -> None:
    """Store another artifact in the place of a partition's."""
    folder = lineage.paths.partition(where, "python", split)
    lineage.build(folder, Request(stage, f"python/{split}", "other code"), make)


def put_edits(lineage: Lineage, split: str, text: str, rows: list[dict[str, Any]], columns: Any = EDITS) -> None:
    """Store other edits in the place of those of a split."""

    def write(folder: Path) -> Contents:
        (folder / "edits.jsonl").write_text(text, "utf-8")
        write_parquet(folder / "edits.parquet", rows, columns)
        return Contents({"rows": 1})

    put(lineage, "processed", "splits", split, write)


def test_a_line_that_is_no_edit_is_told_although_the_record_is_right(lineage: Lineage) -> None:
    train = lineage.paths.partition("processed", "python", "train")
    text, rows = (train / "edits.jsonl").read_text("utf-8"), read_parquet(train / "edits.parquet")
    put_edits(lineage, "train", text.replace('"language":"python"', '"language":"cobol"', 1), rows)
    [fault] = checks.invalid_splits(lineage)
    assert fault.startswith(f"{train / 'edits.jsonl'}: line 1: language")


def test_an_edit_in_two_splits_is_a_leak_and_so_are_its_group_and_its_cluster(lineage: Lineage) -> None:
    train = lineage.paths.partition("processed", "python", "train")
    text, rows = (train / "edits.jsonl").read_text("utf-8"), read_parquet(train / "edits.parquet")
    put_edits(lineage, "test", text, rows)
    [row] = rows
    assert checks.leaks(lineage) == [
        f"cluster {row['cluster']!r} is in test, train",
        f"edit {row['id']!r} is in test, train",
        f"group {row['origin_group']!r} is in test, train",
    ]


def test_other_columns_are_told_by_name(lineage: Lineage) -> None:
    train = lineage.paths.partition("processed", "python", "train")
    text = (train / "edits.jsonl").read_text("utf-8")
    put_edits(lineage, "train", text, [{"id": "1", "author": "a"}], {"id": "text", "author": "text"})
    missing = sorted({*EDITS, "author"} - {"id"})
    assert checks.invalid_splits(lineage) == [f"{train / 'edits.parquet'}: columns {missing} are missing or unexpected"]


def test_a_reward_beyond_one_is_told(lineage: Lineage) -> None:
    folder = lineage.paths.partition("trajectories/parquet", "python", "dev")
    steps, trajectories = read_parquet(folder / "steps.parquet"), (folder / "trajectories.parquet").read_bytes()
    steps[0]["reward"], steps[1]["reward"] = 1.5, None

    def rewarded(partial: Path) -> Contents:
        write_parquet(partial / "steps.parquet", steps, STEPS)
        (partial / "trajectories.parquet").write_bytes(trajectories)
        return Contents({"rows": 3, "verified_steps": 3})

    put(lineage, "trajectories/parquet", "trajectories", "dev", rewarded)
    assert checks.invalid_trajectories(lineage) == [f"{steps[0]['task_id']} step 1: reward 1.5 is not in [0, 1]"]
