"""What a person reads where an asset check could not pass: in the UI, and on the terminal."""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.checks import result_of_faults
from graftline.core.build import Contents, Request, build
from orchestration.build import build_definitions
from tests.shell.graphql_client import Query, open_graphql
from tests.shell.runs import stage_of

DAMAGED = {
    "normalized_release_pairs": "data/raw/release_pairs/normalized",
    "splits": "data/processed/python/dev",
    "tasks": "data/tasks/python/dev",
    "teacher_trajectories": "data/trajectories/raw/python/dev/induction",
    "trajectories": "data/trajectories/parquet/python/dev",
}
"""Folders by asset. The last byte of a file of each was lost."""
ON_TERMS = {
    "source": "release_pairs", "version": "1", "license": "MIT", "downloaded_at": "2026-01-01T00:00:00Z",
    "sha256": "0" * 64, "num_records": 1, "licenses": {"MIT": 1}, "tokenizer": "characters/4",
}  # fmt: skip
CHECKS = [
    ("normalized_release_pairs", "schema_valid"),
    ("splits", "schema_valid"),
    ("splits", "no_row_in_two_splits"),
    ("tasks", "schema_valid"),
    ("teacher_trajectories", "schema_valid"),
    ("trajectories", "schema_valid"),
    ("trajectories", "enough_verified_steps"),
]


@dataclass(frozen=True)
class Shown:
    """What became of every check."""

    in_ui: dict[tuple[str, str], tuple[str, str]]
    """State and description, by asset and check."""
    on_terminal: list[str]
    """Messages of the log of the run that are errors."""


@pytest.fixture(scope="module")
def root(new_checkout: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    small = new_checkout(tmp_path_factory.mktemp("damaged") / "root")
    for asset, folder in DAMAGED.items():
        store(small.root / folder, stage_of(dg.AssetKey(asset)))
    return Path(small.root)


def store(folder: Path, kind: str) -> None:
    """Store an artifact, and lose the last byte of its file."""

    def make(partial: Path) -> Contents:
        (partial / "edits.jsonl").write_text('{"id": "a"}\n', "utf-8")
        return Contents({"rows": 1}, ON_TERMS if kind == "normalized" else {})

    build(folder, Request(kind, "python/dev", "1", {}), make)
    path = folder / "edits.jsonl"
    path.write_bytes(path.read_bytes()[:-1])


@pytest.fixture(scope="module")
def shown(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """What a run of all checks over damaged artifacts shows."""
    home = str(tmp_path_factory.mktemp("dagster"))
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.local_temp(home) as instance:
        patch.setenv("GRAFTLINE_ROOT", str(root))
        definitions = build_definitions()
        keys = [dg.AssetCheckKey(dg.AssetKey(asset.split("/")), name) for asset, name in CHECKS]
        job = definitions.resolve_implicit_global_asset_job_def().get_subset(
            asset_selection=set(), asset_check_selection={*keys}
        )
        result = job.execute_in_process(instance=instance, raise_on_error=False)
        messages = [entry.user_message for entry in instance.all_logs(result.run_id) if entry.level == logging.ERROR]
        with open_graphql(instance) as query:
            in_ui = {(asset, check): execution(query, asset, check) for asset, check in CHECKS}
        yield Shown(in_ui, messages)


def execution(query: Query, asset: str, check: str) -> tuple[str, str]:
    """Return the state and the description of the last execution of a check."""
    path = json.dumps(asset.split("/"))
    of_check = f'assetKey: {{path: {path}}}, checkName: "{check}", limit: 1'
    [last] = query(f"{{ assetCheckExecutions({of_check}) {{ status evaluation {{ description }} }} }}")[
        "assetCheckExecutions"
    ]
    return last["status"], last["evaluation"]["description"]


@pytest.mark.parametrize(("asset", "check"), CHECKS)
def test_a_check_of_a_damaged_artifact_names_it_and_says_what_to_do(
    asset: str, check: str, root: Path, shown: Shown
) -> None:
    state, description = shown.in_ui[asset, check]
    assert state == "FAILED"
    assert description.startswith(f"{root / DAMAGED[asset]}: ")
    assert "edits.jsonl" in description
    assert "materialize its asset again" in description
    assert description in shown.on_terminal


def test_the_faults_that_a_check_found_are_a_table_and_no_markup() -> None:
    found = result_of_faults(["line 3: <b>", "line 4: |"], "materialize splits again", "leaks").metadata["leaks"]
    assert found == dg.MetadataValue.md("| leaks |\n|---|\n| line 3: &#60;b&#62; |\n| line 4: \\| |\n")
    assert result_of_faults([], "").metadata["faults"] == dg.MetadataValue.md("*none*\n")
