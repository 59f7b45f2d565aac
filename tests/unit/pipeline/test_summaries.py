"""What lies under a root folder, told from the records."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from graftline.core.paths import Paths
from graftline.pipeline.summary import STAGES, StageSummary, Summary, summarize, tables, verdict
from tests.lineages import Run


def stages(summary: Summary) -> dict[str, StageSummary]:
    return {stage.stage: stage for stage in summary.stages}


def test_an_empty_root_is_summed_up_as_nothing(tmp_path: Path) -> None:
    summary = summarize(Paths(tmp_path))
    assert summary == Summary([StageSummary(stage, 0, {}, 0, 0, "") for stage in STAGES], {}, {})
    assert [(title, rows) for title, _, rows in tables(summary)] == [("Lineage", []), ("Splits", [])]
    assert verdict(summary) == "No run is on record; start one with `make run` or `graftline run`."


def test_a_summary_counts_what_is_stored_and_what_the_last_run_did(made: Path) -> None:
    summary = summarize(Paths(made))
    found = stages(summary)
    assert found["raw"] == StageSummary("raw", 1, {"rows": 3, "files": 1}, 1, 0, "data/raw/release_pairs/source")
    assert found["splits"] == StageSummary(
        "splits", 3, {"rows": 3, "rows.release_pairs": 3}, 3, 0, "data/processed/python"
    )
    assert found["trajectories"] == StageSummary(
        "trajectories",
        3,
        {"rows": 9, "verified": 9, "verified_steps": 9, "no_reward": 0, "level.exact": 9, "steps": 9},
        3,
        0,
        "data/trajectories/parquet/python",
    )
    # one real edit, two synthetic ones, all solved exactly and in one step
    counts = {"edits": 1, "synthetic": 2, "tasks": 3, "tried": 3, "verified": 3, "exact": 3, "verified steps": 3}
    assert summary.partitions == {f"python/{split}": counts for split in ("dev", "test", "train")}
    assert verdict(summary) == "Artifacts: 20 made, 0 unchanged."


def test_a_second_run_shows_as_unchanged_and_one_of_a_part_as_both(
    made: Path, run: Run, reconfigure: Callable[..., None]
) -> None:
    run(made)
    summary = summarize(Paths(made))
    assert [(stage.made, stage.unchanged) for stage in summary.stages if stage.artifacts] == [
        # raw, normalized, division
        *[(0, 1)] * 3,
        (0, 3),
        # repository_changes, label_tasks
        *[(0, 1)] * 2,
        *[(0, 3)] * 4,
    ]
    assert verdict(summary) == (
        "Nothing was recomputed: all 20 artifacts have the inputs, configuration and code they had."
    )
    reconfigure(made, "trajectories.yaml", {"collecting.max_steps": 2})
    run(made)
    # teacher_trajectories and trajectories, three of each
    assert verdict(summarize(Paths(made))) == "Artifacts: 6 made, 14 unchanged."


def test_tables_show_every_split_and_their_sum(made: Path) -> None:
    [(_, columns, lineage), (_, split_columns, splits)] = tables(summarize(Paths(made)))
    assert columns == ["stage", "rows", "left out", "made", "unchanged", "files"]
    assert list(lineage[:6]) == [
        ("raw", "3", "", "1", "0", "data/raw/release_pairs/source"),
        ("normalized", "3", "", "1", "0", "data/raw/release_pairs/normalized"),
        ("division", "3", "", "1", "0", "data/division"),
        ("splits", "3", "", "3", "0", "data/processed/python"),
        ("repository_changes", "0", "", "1", "0", "data/repository_changes"),
        ("label_tasks", "0", "", "1", "0", "data/label_tasks"),
    ]
    assert split_columns[0] == "language/split"
    assert list(splits) == [
        ("python/dev", "1", "2", "3", "3", "3", "3", "3"),
        ("python/test", "1", "2", "3", "3", "3", "3", "3"),
        ("python/train", "1", "2", "3", "3", "3", "3", "3"),
        ("all", "3", "6", "9", "9", "9", "9", "9"),
    ]


def test_tables_name_what_was_left_out(
    small_checkout: Any, varied_pairs: list[dict[str, Any]], reconfigure: Callable[..., None], run: Run
) -> None:
    reconfigure(small_checkout.root, "datasets.yaml", {"languages": ["python"]})
    small_checkout.write([varied_pairs[0], *["{broken"] * 999, "[1]", {**varied_pairs[1], "license": "GPL-3.0-only"}])
    run(small_checkout.root)
    [(_, _, lineage), _] = tables(summarize(Paths(small_checkout.root)))
    # thousands are set apart; lines that are broken are rows
    assert lineage[0][:3] == ("raw", "1,002", "")
    assert lineage[1][:3] == ("normalized", "1", "license 1, malformed_json 1000")


def test_a_partial_folder_and_an_unreadable_artifact_are_left_out(made: Path) -> None:
    source = Paths(made).raw("release_pairs")
    partial = source.with_name(".source.partial-0123456789ab")
    partial.mkdir()
    (partial / "_meta.json").write_bytes((source / "_meta.json").read_bytes())
    (source / "_meta.json").write_text("{", "utf-8")
    assert stages(summarize(Paths(made)))["raw"].artifacts == 0


def test_a_summary_is_plain_values(made: Path) -> None:
    plain = summarize(Paths(made)).as_dict()
    assert (list(plain), list(plain["stages"])) == (["stages", "partitions", "adapters", "warnings"], list(STAGES))
    assert plain["stages"]["tasks"] == {
        "artifacts": 3,
        "made": 3,
        "unchanged": 0,
        "folder": "data/tasks/python",
        "counts": {
            "rows": 9,
            "instructions.release_pairs.rule.answerable": 3,
            "instructions.synthetic_rules.rule.answerable": 6,
        },
    }
