"""The sensor on dataset versions."""

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from orchestration.build import build_definitions


@pytest.fixture
def sensor(
    small_checkout: Any, varied_pairs: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> dg.SensorDefinition:
    small_checkout.write(varied_pairs)
    monkeypatch.setenv("GRAFTLINE_ROOT", str(small_checkout.root))
    return build_definitions().resolve_sensor_def("dataset_versions")


def test_a_home_that_was_never_seen_requests_one_run_over_all_partitions(sensor: dg.SensorDefinition) -> None:
    result = sensor(dg.build_sensor_context())
    [request] = result.run_requests
    assert request.tags["dagster/asset_partition_range_start"] == "java|train"
    assert request.tags["dagster/asset_partition_range_end"] == "python|test"
    assert list(json.loads(result.cursor)) == ["release_pairs"]


def test_a_home_that_did_not_change_is_skipped(sensor: dg.SensorDefinition) -> None:
    seen = sensor(dg.build_sensor_context())
    again = sensor(dg.build_sensor_context(cursor=seen.cursor))
    assert isinstance(again, dg.SkipReason)
    assert again.skip_message == "1 datasets are as they were"


def test_a_changed_home_requests_a_run_under_another_key(
    sensor: dg.SensorDefinition, small_checkout: Any, varied_pairs: list[dict[str, Any]]
) -> None:
    seen = sensor(dg.build_sensor_context())
    small_checkout.write(varied_pairs[:3])
    changed = sensor(dg.build_sensor_context(cursor=seen.cursor))
    assert changed.run_requests[0].run_key != seen.run_requests[0].run_key


def test_a_home_that_cannot_be_read_keeps_its_last_revision(sensor: dg.SensorDefinition, small_checkout: Any) -> None:
    seen = sensor(dg.build_sensor_context())
    Path(small_checkout.sample).unlink()
    again = sensor(dg.build_sensor_context(cursor=seen.cursor))
    assert isinstance(again, dg.SkipReason)
    assert "release_pairs" in again.skip_message
    assert "no such file" in again.skip_message
