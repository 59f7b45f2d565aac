"""The stages of the lineage: what they make, refuse and tell."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import ConfigError, DownloadError, RecordError
from graftline.core.jsonl import read_lines
from graftline.core.parquet import read_parquet
from graftline.core.paths import Paths
from graftline.core.record import load_record
from graftline.datasets.edit import Edit
from graftline.pipeline.run import run_all
from graftline.pipeline.stages.table import make
from graftline.rollouts.task import Task
from graftline.rollouts.trajectory import Trajectory
from tests.lineages import Opened, Run


def test_all_stages_lead_from_rows_to_verified_steps(
    small_checkout: Any, varied_pairs: list[dict[str, Any]], run: Run
) -> None:
    small_checkout.write(varied_pairs)
    reasons = run(small_checkout.root)
    # 2 of the dataset, 3 over all datasets, and 5 stages of 3 languages in 3 splits
    assert (len(reasons), set(reasons.values())) == (50, {"not there yet"})
    paths = Paths(small_checkout.root)
    for language in ("java", "javascript", "python"):
        for split in ("train", "dev", "test"):
            # one real edit, and the two synthetic ones that were asked for, each solved in one step
            counts = load_record(paths.partition("trajectories/parquet", language, split)).counts
            names = ("rows", "verified", "verified_steps", "level.exact", "steps")
            assert counts == {**dict.fromkeys(names, 3), "no_reward": 0}


def test_run_all_works_in_child_processes_as_the_manifest_says(
    small_checkout: Any, varied_pairs: list[dict[str, Any]], reconfigure: Callable[..., None], run: Run
) -> None:
    small_checkout.write(varied_pairs[:1])
    reconfigure(small_checkout.root, "datasets.yaml", {"languages": ["python"]})
    run(small_checkout.root, overrides={})
    folder = Paths(small_checkout.root).partition("trajectories/parquet", "python", "train")
    assert {row["isolation"] for row in read_parquet(folder / "steps.parquet")} == {"compute/warm"}


def test_everything_may_be_in_memory(
    small_checkout: Any, varied_pairs: list[dict[str, Any]], reconfigure: Callable[..., None], run: Run
) -> None:
    reconfigure(small_checkout.root, "datasets.yaml", {"languages": ["python"]})
    text = "".join(json.dumps(row) + "\n" for row in varied_pairs[:3])
    run(small_checkout.root, {"dataset_hub.files": {"data/samples/release_pairs.jsonl": text}}, manifest="test")
    folder = Paths(small_checkout.root).attempts("python", "train", "memory")
    trajectories = list(read_lines(folder / "shard-00001.jsonl", Trajectory))
    # that teacher knows the gold actions, which synthetic edits have and real ones have not
    assert sorted((one.dataset, one.ending, one.teacher) for one in trajectories) == [
        ("release_pairs", "gave_up", "memory"),
        ("synthetic_rules", "done", "memory"),
        ("synthetic_rules", "done", "memory"),
    ]


def test_the_memory_hub_of_the_test_manifest_holds_nothing_by_itself(small_checkout: Any, run: Run) -> None:
    with pytest.raises(DownloadError) as error:
        run(small_checkout.root, {}, manifest="test")
    assert str(error.value) == (
        "data/samples/release_pairs.jsonl: no such file; mend `files` of the dataset; found: nothing"
    )


def test_a_dataset_without_a_good_row_makes_empty_splits(
    small_checkout: Any, reconfigure: Callable[..., None], run: Run
) -> None:
    reconfigure(small_checkout.root, "datasets.yaml", {"languages": ["python"]})
    small_checkout.write(["{broken"])
    reasons = run(small_checkout.root)
    folder = Paths(small_checkout.root).partition("trajectories/parquet", "python", "train")
    counts = {"rows": 0, "verified": 0, "verified_steps": 0, "no_reward": 0, "steps": 0}
    assert (len(reasons), load_record(folder).counts) == (20, counts)


def test_synthetic_edits_stand_in_the_order_of_their_ids_and_their_families_are_counted(
    made: Path, reconfigure: Callable[..., None], run: Run
) -> None:
    reconfigure(made, "datasets.yaml", {"synthesis.per_partition": 8})
    run(made)
    for split in ("train", "dev", "test"):
        folder = Paths(made).partition("synthetic", "python", split)
        edits = list(read_lines(folder / "edits.jsonl", Edit))
        families = Counter(tag for edit in edits for tag in edit.tags if tag.startswith("template:"))
        assert [edit.id for edit in edits] == sorted(edit.id for edit in edits)
        # of what can be done to the one call `old(a, b)`, each thing once
        assert load_record(folder).counts == {"rows": 8, **{f"rows.{family}": 1 for family in families}}
        # families that are held out are not for training
        is_held_out = any("templates:held_out" in edit.tags for edit in edits)
        assert not (is_held_out and split == "train")


def test_synthetic_edits_of_typescript_are_made_on_javascript_too(
    small_checkout: Any, pair: Mapping[str, Any], reconfigure: Callable[..., None], run: Run
) -> None:
    pre, post = "function first(x) {\n  return old(x, 1);\n}\n", "function first(x) {\n  return fresh(x, 1);\n}\n"
    small_checkout.write([{**pair, "language": "javascript", "pre": pre, "post": post}])
    reconfigure(small_checkout.root, "datasets.yaml", {"languages": ["javascript", "typescript"]})
    run(small_checkout.root)
    made = [
        edit
        for split in ("train", "dev", "test")
        for edit in read_lines(
            Paths(small_checkout.root).partition("synthetic", "typescript", split) / "edits.jsonl", Edit
        )
    ]
    assert made
    assert {(edit.language, "source_language:javascript" in edit.tags) for edit in made} == {("typescript", True)}


def test_an_invalid_edit_is_counted_and_no_task(
    opened: Opened, small_checkout: Any, pair: Mapping[str, Any], reconfigure: Callable[..., None]
) -> None:
    # only an optional semicolon is added: the text as it is passes already
    small_checkout.write([{**pair, "language": "javascript", "pre": "a = 1", "post": "a = 1;"}])
    reconfigure(small_checkout.root, "datasets.yaml", {"synthesis.per_partition": 0})
    with opened() as lineage:
        make("raw", lineage, "release_pairs")
        make("normalized", lineage, "release_pairs")
        make("division", lineage)
        for split in ("train", "dev", "test"):
            make("splits", lineage, "javascript", split)
            make("synthetic_rules", lineage, "javascript", split)
        built = make("tasks", lineage, "javascript", "train")
    assert (built.record.counts, list(read_lines(built.folder / "tasks.jsonl", Task))) == (
        {"rows": 0, "invalid.unedited_passes": 1},
        [],
    )


@pytest.mark.parametrize(
    ("stage", "missing"),
    [
        ("normalized", "data/raw/release_pairs/source"),
        ("division", "data/raw/release_pairs/normalized"),
        ("label_tasks", "data/raw/release_pairs/normalized"),
        ("repository_changes", "data/division"),
        ("splits", "data/division"),
        ("synthetic_rules", "data/processed/python/dev"),
        ("tasks", "data/processed/python/dev"),
        ("teacher_trajectories", "data/tasks/python/dev"),
        ("trajectories", "data/trajectories/raw/python/dev"),
    ],
)
def test_a_stage_without_its_input_says_what_is_missing_and_what_to_do(
    opened: Opened, small_checkout: Any, stage: str, missing: str
) -> None:
    arguments = {"normalized": ("release_pairs",), "division": (), "label_tasks": (), "repository_changes": ()}.get(
        stage, ("python", "dev")
    )
    with opened() as lineage, pytest.raises(RecordError) as error:
        make(stage, lineage, *arguments)
    assert str(error.value) == (
        f"{small_checkout.root / missing}: has no _meta.json, so it was not made yet; run `graftline run`, or materialize its asset"
    )


def test_an_unknown_dataset_lists_the_known_ones(opened: Opened) -> None:
    with opened() as lineage, pytest.raises(ConfigError) as error:
        make("raw", lineage, "commits")
    assert str(error.value) == "dataset 'commits' is unknown; known: release_pairs"


def test_a_run_that_stopped_goes_on_where_it_was(
    small_checkout: Any, varied_pairs: list[dict[str, Any]], reconfigure: Callable[..., None], opened: Opened, run: Run
) -> None:
    small_checkout.write(varied_pairs[:3])
    reconfigure(small_checkout.root, "datasets.yaml", {"languages": ["python"]})
    with opened() as lineage:
        make("raw", lineage, "release_pairs")
        make("normalized", lineage, "release_pairs")
        make("division", lineage)
        make("splits", lineage, "python", "train")
    reasons = run(small_checkout.root)
    unchanged = [name for name, reason in reasons.items() if not reason]
    assert (len(reasons), unchanged) == (
        20,
        ["raw release_pairs", "normalized release_pairs", "division all", "splits python/train"],
    )


def test_progress_is_told_of_every_artifact_in_order(
    small_checkout: Any, varied_pairs: list[dict[str, Any]], reconfigure: Callable[..., None]
) -> None:
    calls: list[tuple[Any, ...]] = []

    class Recorded:
        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *values: calls.append((name, *values))

    small_checkout.write(varied_pairs[:2])
    reconfigure(small_checkout.root, "datasets.yaml", {"languages": ["python"], "synthesis.per_partition": 0})
    run_all(Paths(small_checkout.root), "local", {"sandbox": "memory"}, Recorded())
    size = small_checkout.sample.stat().st_size
    splits = ("train", "dev", "test")
    later = ("synthetic_rules", "tasks", "teacher_trajectories", "trajectories")
    assert [call[1:] for call in calls if call[0] == "start"] == [
        *(("raw", "release_pairs"), ("normalized", "release_pairs"), ("division", "all")),
        *(("splits", f"python/{split}") for split in splits),
        *(("repository_changes", "all"), ("label_tasks", "all")),
        *((stage, f"python/{split}") for stage in later for split in splits),
    ]
    assert calls[:9] == [
        ("start", "raw", "release_pairs"),
        # bytes, of which the source says how many there are
        ("advance", size, size),
        ("finish", "not there yet"),
        ("start", "normalized", "release_pairs"),
        # how many rows there will be is not known
        ("advance", 2, 0),
        ("finish", "not there yet"),
        ("start", "division", "all"),
        ("finish", "not there yet"),
        ("start", "splits", "python/train"),
    ]
    # the two tasks, one in train and one in dev, and an attempt at each
    assert [call for call in calls if call[0] == "advance"][2:] == [("advance", 1, 1)] * 4
