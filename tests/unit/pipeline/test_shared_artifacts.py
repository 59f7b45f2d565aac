"""Workers with a root each and one bucket: what one made the other has, and nothing is made again."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graftline.core.artifacts import BucketArtifactsConfig, open_artifacts
from graftline.core.errors import BoundaryError
from graftline.core.paths import Paths
from graftline.core.record import RECORD_NAME, load_record
from graftline.core.secrets import Secrets
from tests.lineages import Run


@pytest.fixture
def ports(tmp_path: Path) -> dict[str, Any]:
    return {"sandbox": "memory", "artifacts": {"kind": "bucket", "url": f"file://{tmp_path}/bucket"}}


@pytest.fixture
def bare(made: Path, tmp_path: Path) -> Path:
    """A root with configuration and sample, as every worker has it, of which nothing is made."""
    root = tmp_path / "bare"
    shutil.copytree(made / "configs", root / "configs")
    shutil.copytree(made / "data" / "samples", root / "data" / "samples")
    return root


def identities(root: Path) -> dict[str, str]:
    folders = (path.parent for path in (root / "data").rglob(RECORD_NAME))
    return {folder.relative_to(root).as_posix(): load_record(folder).identity for folder in folders}


def in_bucket(ports: dict[str, Any]) -> dict[str, str]:
    store = open_artifacts(BucketArtifactsConfig(url=ports["artifacts"]["url"]), Path(), Secrets([]))
    return {name: record.identity for name in store.names("data") if (record := store.record(name))}


def test_what_was_made_before_there_was_a_bucket_is_sent_to_it(made: Path, run: Run, ports: dict[str, Any]) -> None:
    assert set(run(made, ports).values()) == {""}
    assert in_bucket(ports) == identities(made)


def test_a_worker_with_an_empty_root_makes_nothing_that_another_one_made(
    made: Path, bare: Path, run: Run, ports: dict[str, Any]
) -> None:
    run(made, ports)
    assert set(run(bare, ports).values()) == {""}
    assert identities(bare) == identities(made)


def test_a_worker_with_an_old_root_has_what_another_one_made_since(
    made: Path, bare: Path, run: Run, ports: dict[str, Any], reconfigure: Callable[..., None]
) -> None:
    run(made, ports)
    run(bare, ports)
    for root in (made, bare):
        reconfigure(root, "datasets.yaml", {"synthesis.seed": 7})
    assert "config synthesis changed" in run(made, ports).values()
    assert set(run(bare, ports).values()) == {""}
    assert identities(bare) == identities(made) == in_bucket(ports)


def test_attempts_of_a_teacher_on_another_machine_are_among_the_trajectories(
    made: Path, bare: Path, run: Run, ports: dict[str, Any]
) -> None:
    run(made, ports)
    reasons = run(bare, {**ports, "teacher": "memory"})
    record = load_record(Paths(bare).partition("trajectories/parquet", "python", "train"))
    assert sorted(record.inputs) == ["tasks", "teacher_trajectories.induction", "teacher_trajectories.memory"]
    assert reasons["trajectories python/train"] == "input teacher_trajectories.memory changed"


def test_an_artifact_that_cannot_be_sent_is_sent_by_the_next_run_without_being_made_again(
    made: Path, bare: Path, run: Run, tmp_path: Path, ports: dict[str, Any]
) -> None:
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket" / "files").write_text("a file where a folder should be", "utf-8")
    with pytest.raises(BoundaryError):
        run(bare, ports)
    assert not Paths(bare).raw("release_pairs").exists()
    (tmp_path / "bucket" / "files").unlink()
    reasons = run(bare, ports)
    assert reasons.pop("raw release_pairs") == ""
    assert "" not in reasons.values()
    assert in_bucket(ports) == identities(bare) == identities(made)


def test_what_the_bucket_lost_a_file_of_is_made_anew(
    made: Path, bare: Path, run: Run, tmp_path: Path, ports: dict[str, Any]
) -> None:
    run(made, ports)
    sha256 = load_record(Paths(made).division).files["python.parquet"].sha256
    (tmp_path / "bucket" / "files" / sha256[:2] / sha256).unlink()
    reasons = run(bare, ports)
    assert {name: reason for name, reason in reasons.items() if reason} == {"division all": "not there yet"}
    assert in_bucket(ports) == identities(bare) == identities(made)
