"""Floor and ceiling of a deployment: what doing nothing and the reference solution earn."""

from pathlib import Path

import pytest

from graftline.core.errors import RecordError
from graftline.harbor.calibration import Calibration, TaskCalibration, calibration_of


def test_a_reward_lies_between_floor_and_ceiling() -> None:
    task = TaskCalibration(floor=0.3, ceiling=1.0)
    # (0.65 - 0.3) / 0.7 = 0.5; the floor itself is nothing; a crate that does not compile is worse than that
    assert [task.normalize(score) for score in (1.0, 0.65, 0.3, 0.0, None)] == [1.0, 0.5, 0.0, -0.428571, None]
    assert task.faults == ()


@pytest.mark.parametrize(
    ("floor", "ceiling", "faults"),
    [
        (0.3, 1.0, ()),
        (0.0, 1.0, ()),
        (0.3, 0.9, ("oracle_below_full",)),
        (1.0, 1.0, ("nop_reaches_oracle",)),
        (0.5, 0.3, ("oracle_below_full", "nop_reaches_oracle")),
        (None, 1.0, ("nop_unknown",)),
        (0.3, None, ("oracle_unknown",)),
        (None, None, ("nop_unknown", "oracle_unknown")),
    ],
)
def test_faults_of_a_task(floor: float | None, ceiling: float | None, faults: tuple[str, ...]) -> None:
    assert TaskCalibration(floor=floor, ceiling=ceiling).faults == faults


def test_without_room_between_them_nothing_is_normalized() -> None:
    assert TaskCalibration(floor=1.0, ceiling=1.0).normalize(1.0) is None
    assert TaskCalibration(floor=None, ceiling=1.0).normalize(1.0) is None


def test_means_are_over_what_is_known() -> None:
    found = calibration_of({"a": 0.3, "b": 0.5, "c": None}, {"a": 1.0, "b": 1.0, "d": 1.0})
    assert (found.floor, found.ceiling) == (0.4, 1.0)
    assert found.faults == {
        "c": ("nop_unknown", "oracle_unknown"),
        "d": ("nop_unknown",),
    }
    assert not found.is_sound
    rewards = {"a": 0.3, "b": 0.75, "c": 1.0, "new": 1.0}
    assert found.normalize(rewards) == {"a": 0.0, "b": 0.5, "c": None, "new": None}
    assert found.mean_normalised(rewards) == 0.25
    assert found.mean_normalised({"c": 1.0}) is None


def test_without_tasks_it_is_not_sound() -> None:
    assert not calibration_of({}, {}).is_sound
    assert calibration_of({"a": 0.0}, {"a": 1.0}).is_sound


def test_it_is_kept_as_json(tmp_path: Path) -> None:
    found = calibration_of({"a": 0.0}, {"a": None}, "mine", ("d1", "d2"))
    found.write(tmp_path / "deep" / "mine.json")
    assert Calibration.read(tmp_path / "deep" / "mine.json") == found
    assert '"oracle_unknown"' in (tmp_path / "deep" / "mine.json").read_text()


@pytest.mark.parametrize(
    "text", ["", "[]", '{"tasks": 3}', '{"deployment": "a", "tasks": {"a": {"floor": 1e999, "ceiling": 1}}}']
)
def test_a_damaged_one_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(RecordError, match="is no calibration"):
        Calibration.read(tmp_path / "c.json")
    with pytest.raises(RecordError, match="cannot be read"):
        Calibration.read(tmp_path / "none.json")
