"""Trackers of training runs: what the real TensorBoard and the real wandb have of a run afterwards, and that none ends it."""

import json
import logging
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from graftline.training.tracking import TrackingSettings, open_trackers
from tests.pages import codes, fences, section, table
from tests.wandb_files import records_of

needs_tensorboard = pytest.mark.skipif(
    find_spec("tensorboard") is None, reason="tensorboard is missing; pip install 'graftline[tracking]'"
)
needs_wandb = pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is missing; pip install 'graftline[wandb]'")

EXAMPLE = next(fence for fence in fences() if fence.page == "docs/training.md" and "open_trackers" in fence.body)
RUN = "sl_basic-0123"
CONFIG = {"model": "tiny", "lora": {"rank": 8}}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """That of a user with an empty home folder, and with settings of wandb that must not count."""
    (tmp_path / "home").mkdir()
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path / "home"), "WANDB_MODE": "disabled"}


def follow(folder: Path, environment: Mapping[str, str], steps: Mapping[int, float], **settings: Any) -> None:
    """Show the losses of an attempt."""
    given = TrackingSettings(**settings)
    with open_trackers(given, RUN, CONFIG, folder / "run", folder, environment) as trackers:
        for step, loss in steps.items():
            trackers.step(step, {"loss": loss, "tokens": 64.0})
        trackers.summary({"held_out_loss": 0.5})


def scalars(folder: Path, tag: str) -> list[tuple[int, float]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "run" / "tensorboard"))
    found.Reload()
    return [(event.step, event.value) for event in found.Scalars(tag)]


@needs_tensorboard
def test_tensorboard_reads_the_figures_of_every_step(tmp_path: Path, environment: dict[str, str]) -> None:
    follow(tmp_path, environment, {0: 2.5, 1: 1.25}, tensorboard=True)
    assert scalars(tmp_path, "loss") == [(0, 2.5), (1, 1.25)]
    assert scalars(tmp_path, "tokens") == [(0, 64.0), (1, 64.0)]


@needs_tensorboard
def test_what_a_killed_attempt_did_after_its_checkpoint_is_not_shown_twice(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    follow(tmp_path, environment, {0: 8.0, 1: 4.0, 2: 2.0, 3: 99.0}, tensorboard=True)
    follow(tmp_path, environment, {2: 2.0, 3: 1.0}, tensorboard=True)
    assert scalars(tmp_path, "loss") == [(0, 8.0), (1, 4.0), (2, 2.0), (3, 1.0)]


@needs_tensorboard
def test_a_step_is_on_disk_before_the_next_one(tmp_path: Path, environment: dict[str, str]) -> None:
    with open_trackers(TrackingSettings(tensorboard=True), RUN, CONFIG, tmp_path / "run", tmp_path, environment) as one:
        one.step(0, {"loss": 2.5})
        assert scalars(tmp_path, "loss") == [(0, 2.5)]


@needs_wandb
def test_an_offline_run_of_wandb_holds_configuration_steps_and_summary(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    follow(tmp_path, environment, {0: 2.5, 1: 1.25}, wandb="adapters", wandb_mode="offline")
    [folder] = (tmp_path / "run" / "wandb").glob("offline-run-*")
    records = records_of(folder)
    [run] = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    assert (run.project, run.run_id, run.job_type, run.host) == ("adapters", RUN, "training", "graftline")
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert {key: config[key] for key in CONFIG} == CONFIG
    rows = [
        {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]
    assert [(row["_step"], row["loss"], row["tokens"]) for row in rows] == [(0, 2.5, 64.0), (1, 1.25, 64.0)]
    told = [
        item for record in records if record.WhichOneof("record_type") == "summary" for item in record.summary.update
    ]
    assert ("held_out_loss", "0.5") in {(item.key or item.nested_key[0], item.value_json) for item in told}
    [ended] = [record.exit for record in records if record.WhichOneof("record_type") == "exit"]
    assert ended.exit_code == 0
    assert list((tmp_path / "home").iterdir()) == []


@needs_wandb
def test_a_run_that_fails_is_one_that_failed_in_wandb(tmp_path: Path, environment: dict[str, str]) -> None:
    def fail() -> None:
        settings = TrackingSettings(wandb="adapters", wandb_mode="offline")
        with open_trackers(settings, RUN, CONFIG, tmp_path / "run", tmp_path, environment) as trackers:
            trackers.step(0, {"loss": 1.0})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    [folder] = (tmp_path / "run" / "wandb").glob("offline-run-*")
    [ended] = [record.exit for record in records_of(folder) if record.WhichOneof("record_type") == "exit"]
    assert ended.exit_code == 1


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    # clients of other tests may not have noticed yet that their servers are gone
    ours = (record for record in caplog.records if record.name.startswith("graftline"))
    return [record.getMessage() for record in ours if record.levelno >= logging.WARNING]


@needs_wandb
def test_a_server_that_cannot_be_reached_is_told_of_once_and_ends_nothing(
    tmp_path: Path, environment: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    key = "0123456789" * 4
    # of this port nobody answers
    environment |= {"WANDB_API_KEY": key, "WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_INIT_TIMEOUT": "3"}
    follow(tmp_path, environment, {0: 2.5, 1: 1.25}, wandb="adapters")
    [warning] = told(caplog)
    assert warning.startswith("W&B does not follow the run any more, which goes on without: wandb online: ")
    assert key not in warning


@needs_wandb
def test_wandb_without_a_key_is_told_of_and_tensorboard_goes_on(
    tmp_path: Path, environment: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    follow(tmp_path, environment, {0: 2.5}, wandb="adapters", tensorboard=find_spec("tensorboard") is not None)
    assert told(caplog) == [
        "W&B does not follow the run any more, which goes on without: WANDB_API_KEY: is not set, but wandb_mode online"
        " needs it; put it into .env or Vault"
    ]
    if find_spec("tensorboard"):
        assert scalars(tmp_path, "loss") == [(0, 2.5)]


@needs_tensorboard
def test_a_folder_that_cannot_be_written_to_is_told_of_once(
    tmp_path: Path, environment: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "tensorboard").write_text("a file", "utf-8")
    follow(tmp_path, environment, {0: 2.5, 1: 1.25}, tensorboard=True)
    [warning] = told(caplog)
    assert warning.startswith("TensorBoard does not follow the run any more, which goes on without: ")


def test_nothing_is_followed_unless_it_is_asked_for(
    tmp_path: Path, environment: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    follow(tmp_path, environment, {0: 2.5})
    assert told(caplog) == []
    assert not (tmp_path / "run").exists()


@needs_tensorboard
@needs_wandb
def test_the_example_of_the_docs_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(EXAMPLE.body, EXAMPLE.page, "exec"), {"__name__": "example"})
    assert capsys.readouterr().out == EXAMPLE.output


def test_the_documented_settings_are_those_there_are() -> None:
    rows = table(section("docs/training.md", "## Follow a run"))
    assert [codes(row[0])[0] for row in rows] == list(TrackingSettings.model_fields)
