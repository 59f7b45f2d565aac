"""Which executor a manifest comes to, and what the workers of Celery do with steps that come again."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.code_pointer import ModuleCodePointer
from dagster._core.instance.ref import InstanceRef
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin
from dagster._grpc.types import ExecuteStepArgs
from dagster._serdes import pack_value
from dagster_shared.serdes import deserialize_value

from graftline.core.errors import BoundaryError, ConfigError
from graftline.core.paths import Paths
from graftline.pipeline.manifests import (
    CeleryConfig,
    ExecutorConfig,
    InProcessConfig,
    K8sJobConfig,
    MultiprocessConfig,
    load_manifest,
)
from orchestration.executors import celery_settings, executor_of

NAMES: list[tuple[ExecutorConfig, str]] = [
    (InProcessConfig(), "in_process"),
    (MultiprocessConfig(), "multiprocess"),
    (CeleryConfig(), "celery"),
    (K8sJobConfig(), "k8s"),
]


@pytest.mark.parametrize(("config", "name"), NAMES)
def test_a_manifest_names_the_executor_of_dagster(config: ExecutorConfig, name: str) -> None:
    assert executor_of(config).name == name


def test_without_a_word_steps_are_executed_in_the_process_of_the_run(small_checkout: Any) -> None:
    for manifest in ("local", "dev", "test"):
        assert load_manifest(Paths(small_checkout.root), manifest).executor == InProcessConfig()


def test_settings_that_dagster_k8s_does_not_take_are_named() -> None:
    with pytest.raises(ConfigError) as error:
        executor_of(K8sJobConfig(settings={"step_k8s": {}}))
    assert 'Received unexpected config entry "step_k8s"' in str(error.value)


def test_the_executor_of_a_manifest_is_not_a_port(small_checkout: Any) -> None:
    with pytest.raises(ConfigError, match="port 'executor' is unknown"):
        load_manifest(Paths(small_checkout.root), "local", {"executor": "celery"})


def test_steps_of_celery_are_kept_until_they_are_done_and_looked_for_six_times_as_often_as_they_expire() -> None:
    source = celery_settings(CeleryConfig(visibility_s=60))["config_source"]
    assert (source["task_acks_late"], source["task_reject_on_worker_lost"]) == (True, True)
    assert source["broker_transport_options"] == {
        "visibility_timeout": 60,
        "unacked_restore_interval": 10,
        "unacked_restore_throttle": 1,
    }


@pytest.fixture
def worker(small_checkout: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the worker, for the executor `celery`."""
    path = small_checkout.root / "configs" / "manifests" / "prod.yaml"
    text = path.read_text("utf-8")
    path.write_text(text.replace("kind: in_process", "kind: celery"), "utf-8")
    monkeypatch.setenv("GRAFTLINE_ROOT", str(small_checkout.root))
    monkeypatch.setenv("GRAFTLINE_MANIFEST", "prod")
    monkeypatch.setenv("GRAFTLINE_CELERY_URL", "redis://127.0.0.1:1/0")
    sys.modules.pop("orchestration.celery_worker", None)
    import orchestration.celery_worker as loaded

    yield loaded
    sys.modules.pop("orchestration.celery_worker", None)


def test_a_worker_of_another_executor_does_not_start(small_checkout: Any, worker: Any) -> None:
    environment: Mapping[str, str] = {"GRAFTLINE_ROOT": str(small_checkout.root)}
    with pytest.raises(ConfigError) as error:
        worker.load_broker_config(environment)
    assert str(error.value) == "manifest 'local': its executor is 'in_process', but a worker is of 'celery'"
    with pytest.raises(ConfigError) as error:
        worker.load_broker_config({**environment, "GRAFTLINE_MANIFEST": "prod"})
    assert str(error.value) == "GRAFTLINE_CELERY_URL: is not set, but executor.broker needs it"
    with pytest.raises(ConfigError) as error:
        worker.load_broker_config(
            {**environment, "GRAFTLINE_MANIFEST": "prod", "GRAFTLINE_CELERY_URL": "pyamqp://host"}
        )
    assert str(error.value) == (
        "GRAFTLINE_CELERY_URL: begins with none of redis://, rediss://, redis+socket://, sentinel://; name a Redis"
    )


def run_of_one_step(instance: dg.DagsterInstance) -> dg.DagsterRun:
    @dg.asset
    def one() -> None:
        """Nothing."""

    return dg.materialize([one], instance=instance).dagster_run


def step(worker: Any, instance: dg.DagsterInstance, run_id: str) -> Any:
    """Call the task for the step `one`, as a second delivery does."""
    task = worker.execute_plan
    repository = RepositoryPythonOrigin(sys.executable, ModuleCodePointer("orchestration.definitions", "defs"))
    packed = pack_value(
        ExecuteStepArgs(
            job_origin=JobPythonOrigin("one", repository),
            run_id=run_id,
            step_keys_to_execute=["one"],
            instance_ref=instance.get_ref(),
        )
    )
    task.push_request(delivery_info={"redelivered": True})
    try:
        return task(packed, {})
    finally:
        task.pop_request()


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(tmp_path / "home"))) as opened:
        yield opened


def test_a_step_of_a_run_that_is_over_is_not_done(worker: Any, instance: dg.DagsterInstance) -> None:
    run = run_of_one_step(instance)
    before = len(instance.all_logs(run.run_id))
    assert step(worker, instance, run.run_id) == []
    assert len(instance.all_logs(run.run_id)) == before


def unfinished(instance: dg.DagsterInstance) -> dg.DagsterRun:
    """A run whose only step is done, while the run itself goes on."""
    run = run_of_one_step(instance)

    @dg.job
    def going_on() -> None:
        """Whatever: the run of it is looked at, and never executed."""

    again = instance.create_run_for_job(going_on, status=dg.DagsterRunStatus.STARTED)
    for entry in instance.all_logs(run.run_id):
        if entry.dagster_event and entry.dagster_event.step_key == "one":
            instance.handle_new_event(entry._replace(run_id=again.run_id))
    return again


def test_a_step_that_had_ended_hands_on_what_it_came_to(worker: Any, instance: dg.DagsterInstance) -> None:
    run = unfinished(instance)
    before = len(instance.all_logs(run.run_id))
    events = [deserialize_value(event, dg.DagsterEvent) for event in step(worker, instance, run.run_id)]
    assert [event.event_type_value for event in events][-1] == "STEP_SUCCESS"
    assert len(instance.all_logs(run.run_id)) == before


def test_a_step_at_which_workers_die_is_given_up(worker: Any, instance: dg.DagsterInstance) -> None:
    run = unfinished(instance)
    begun = [entry for entry in instance.all_logs(run.run_id) if "STEP_START" in str(entry.dagster_event)]
    again = instance.create_run_for_job(dg.job(name="again")(lambda: None), status=dg.DagsterRunStatus.STARTED)
    for _ in range(3):
        instance.handle_new_event(begun[0]._replace(run_id=again.run_id))
    with pytest.raises(BoundaryError) as error:
        step(worker, instance, again.run_id)
    assert str(error.value) == "step 'one': 3 workers died at it; look for their end, which may be for want of memory"
