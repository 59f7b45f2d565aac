"""What a second run makes again: exactly what depends on what changed, and it says on what."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graftline.core.paths import Paths
from graftline.core.record import load_record
from tests.lineages import Run

DOWN_FROM = {
    "normalized": "input raw changed",
    "division": "input release_pairs changed",
    "splits": "input normalized/release_pairs changed",
    "synthetic_rules": "input splits changed",
    "tasks": "input splits, input synthetic_rules changed",
    "teacher_trajectories": "input tasks changed",
    "trajectories": "input tasks, input teacher_trajectories.induction changed",
}
STAGES = ("raw", *DOWN_FROM, "label_tasks", "repository_changes")


def by_stage(reasons: dict[str, str]) -> dict[str, str]:
    """Return the one reason of every stage."""
    found: dict[str, set[str]] = {}
    for name, reason in reasons.items():
        found.setdefault(name.partition(" ")[0], set()).add(reason)
    assert {stage: len(of_stage) for stage, of_stage in found.items()} == dict.fromkeys(STAGES, 1)
    return {stage: of_stage.pop() for stage, of_stage in found.items()}


def changed_at(stage: str, reason: str, up_to: str = "trajectories", **others: str) -> dict[str, str]:
    """Return the reasons when `stage` is made again for `reason`, and all that follows because it was, `up_to` one."""
    later = {name: DOWN_FROM[name] for name in STAGES[STAGES.index(stage) + 1 : STAGES.index(up_to) + 1]}
    if stage == "teacher_trajectories":
        later["trajectories"] = "input teacher_trajectories.induction changed"
    return {**dict.fromkeys(STAGES, ""), stage: reason, **later, **others}


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_second_run_makes_nothing_and_writes_nothing(made: Path, run: Run) -> None:
    before = content(made / "data")
    assert (set(run(made).values()), content(made / "data")) == ({""}, before)


CHANGES: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    # the edits are what they were; nor does cleaning drop more of them
    ("datasets", {"datasets.release_pairs.version": "2"}, changed_at("raw", "config version changed", up_to="division")),
    # of the whole, where rows have their own
    ("datasets", {"datasets.release_pairs.license": "ISC"}, changed_at("raw", "config license changed", up_to="division")),
    ("datasets", {"cleaning.max_pre_tokens": 500}, changed_at("normalized", "config cleaning changed", up_to="division")),
    ("datasets", {"decontamination.shared": 0.9}, changed_at("normalized", "config decontamination changed", up_to="division", repository_changes="config decontamination changed")),
    # what was assigned stays
    ("datasets", {"splitting.seed": 1}, changed_at("division", "config splitting changed", up_to="division", repository_changes="config splitting changed")),
    ("datasets", {"synthesis.per_partition": 1}, changed_at("synthetic_rules", "config synthesis changed", tasks="input synthetic_rules changed")),
    ("trajectories", {"collecting.weights.progress": 0.5}, changed_at("teacher_trajectories", "config collecting changed")),
    # what changes nothing that is made, and what is the default anyway
    ("trajectories", {"workers": 2, "least_verified_steps": 7}, dict.fromkeys(STAGES, "")),
    ("datasets", {"splitting.seed": 0, "cleaning.max_pre_tokens": 2000}, dict.fromkeys(STAGES, "")),
]  # fmt: skip


@pytest.mark.parametrize(("file", "changes", "reasons"), CHANGES, ids=[str(changes) for _, changes, _ in CHANGES])
def test_a_changed_setting_remakes_what_depends_on_it(
    made: Path, run: Run, reconfigure: Any, file: str, changes: dict[str, Any], reasons: dict[str, str]
) -> None:
    reconfigure(made, f"{file}.yaml", changes)
    assert by_stage(run(made)) == reasons
    assert set(run(made).values()) == {""}


@pytest.mark.filterwarnings("ignore:open_binary is deprecated:DeprecationWarning")  # of bpe_openai, as it is imported
def test_another_tokenizer_remakes_the_lengths_and_all_that_holds_them(
    made: Path, run: Run, reconfigure: Callable[..., None]
) -> None:
    reconfigure(made, "datasets.yaml", {"cleaning.tokenizer": "cl100k_base"})
    # who is in which split does not hang on lengths
    assert by_stage(run(made)) == changed_at(
        "normalized",
        "config cleaning, config tools changed",
        splits="input normalized/release_pairs, config tokenizer changed",
    )


def test_another_teacher_adds_its_attempts(made: Path, run: Run) -> None:
    reasons = by_stage(run(made, {"sandbox": "memory", "teacher": "memory"}))
    added = "input teacher_trajectories.memory changed"
    assert reasons == changed_at("teacher_trajectories", "not there yet", trajectories=added)


def test_another_jail_remakes_everything_it_had_a_word_in(made: Path, run: Run) -> None:
    assert by_stage(run(made, {"sandbox": "process"})) == {
        **changed_at("tasks", "input synthetic_rules, config sandbox changed"),
        "teacher_trajectories": "input tasks, config isolation, config sandbox changed",
        "synthetic_rules": "config sandbox changed",
    }


def test_another_language_is_added_and_the_rest_stays(made: Path, run: Run, reconfigure: Callable[..., None]) -> None:
    reconfigure(made, "datasets.yaml", {"languages": ["python", "tsx"]})
    reasons = run(made)
    assert {name: reason for name, reason in reasons.items() if reason and "tsx/" not in name} == {
        "division all": "config languages changed",
        "label_tasks all": "config languages changed",
        "repository_changes all": "config languages changed",
    }
    # five stages in three splits
    assert [reason for name, reason in reasons.items() if "tsx/" in name] == ["not there yet"] * 15
    assert len(reasons) == 20 + 15


def test_a_changed_row_remakes_everything_after_it(made: Path, run: Run) -> None:
    sample = made / "data" / "samples" / "release_pairs.jsonl"
    sample.write_text(sample.read_text("utf-8").replace("new(a, b1)", "new(b1, a)"), "utf-8")
    # all but the division: the row stays where it was
    changes = {"repository_changes": "input normalized/release_pairs changed"}
    assert by_stage(run(made)) == changed_at("raw", "input source changed", **changes)
    edits = "".join(
        (Paths(made).partition("processed", "python", split) / "edits.jsonl").read_text("utf-8")
        for split in ("train", "dev", "test")
    )
    assert ("new(b1, a)" in edits, "new(a, b1)" in edits) == (True, False)


def test_a_touched_file_is_not_a_changed_one(made: Path, run: Run) -> None:
    for path in (made / "data").rglob("*"):
        os.utime(path, (0, 0))
    assert set(run(made).values()) == {""}


def test_changed_code_with_equal_output_stops_there(made: Path, run: Run) -> None:
    # the record of a version before: code is not part of the identity
    path = Paths(made).normalized("release_pairs") / "_meta.json"
    before = load_record(path.parent)
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), "code_version": "before"}), "utf-8")
    assert by_stage(run(made)) == {**dict.fromkeys(STAGES, ""), "normalized": "code changed"}
    assert load_record(path.parent) == before


def _forge(folder: Path) -> None:
    path = folder / "_meta.json"
    path.write_text(path.read_text("utf-8").replace('"rows": 1', '"rows": 1000'), "utf-8")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (
            lambda folder: (folder / "edits.jsonl").write_text("\n"),
            "file 'edits.jsonl' was altered after it was written",
        ),
        (lambda folder: (folder / "edits.parquet").unlink(), "file 'edits.parquet' is missing"),
        (lambda folder: (folder / "notes.txt").write_text("mine"), "file 'notes.txt' is not in the record"),
        (
            _forge,
            "unreadable record: {folder}/_meta.json: identity is not that of its content; materialize its asset again",
        ),
        (shutil.rmtree, "not there yet"),
    ],
)
def test_a_damaged_artifact_is_found_and_made_as_it_was(
    made: Path, run: Run, damage: Callable[[Path], object], reason: str
) -> None:
    folder = Paths(made).partition("processed", "python", "train")
    before = content(made / "data")
    damage(folder)
    assert content(made / "data") != before
    again = {name: why for name, why in run(made).items() if why}
    assert again == {"splits python/train": reason.format(folder=folder)}
    assert content(made / "data") == before


def test_a_partial_folder_of_a_killed_run_is_cleared_away(made: Path, run: Run) -> None:
    partial = made / "data" / "processed" / "python" / ".train.partial-0123456789ab"
    partial.mkdir()
    (partial / "edits.jsonl").write_text("half", "utf-8")
    assert (set(run(made).values()), partial.exists()) == ({""}, False)
