"""The worker of the executor `celery`: `celery -A orchestration.celery_worker worker --queues dagster --concurrency 2`.

It does steps as dagster-celery does, with three differences. While it lives it holds its steps, so that a long step is not
taken for that of a dead machine. A step that is delivered again is not done again if it had ended, nor if its run is over.
And a step that ends one worker after the other is given up after `executor.max_tries`. https://docs.celeryq.dev
"""

import os
from collections.abc import Mapping, Sequence
from time import time
from typing import Any

from celery import Task, bootsteps
from dagster import DagsterEventType, DagsterInstance
from dagster._grpc.types import ExecuteStepArgs
from dagster._serdes import serialize_value, unpack_value
from dagster_celery.config import dict_wrapper
from dagster_celery.make_app import make_app
from dagster_celery.tasks import create_task

from graftline.core.errors import BoundaryError, ConfigError
from graftline.core.paths import Paths, find_root
from graftline.pipeline.manifests import CeleryConfig, load_manifest
from orchestration.build import CHECKOUT
from orchestration.executors import celery_settings

_REDIS = ("redis://", "rediss://", "redis+socket://", "sentinel://")
_ENDS = {DagsterEventType.STEP_SUCCESS, DagsterEventType.STEP_FAILURE, DagsterEventType.STEP_SKIPPED}


def load_broker_config(environment: Mapping[str, str]) -> tuple[CeleryConfig, str]:
    """Return the executor of the manifest that `environment` names, and the address of its broker.

    Raises:
        ConfigError: it is another one, or the address is not set, or not that of a Redis.
    """
    name = environment.get("GRAFTLINE_MANIFEST", "local")
    config = load_manifest(Paths(find_root(environment, start=CHECKOUT)), name).executor
    if not isinstance(config, CeleryConfig):
        raise ConfigError(f"manifest {name!r}: its executor is {config.kind!r}, but a worker is of 'celery'")
    if not (address := environment.get(config.broker)):
        raise ConfigError(f"{config.broker}: is not set, but executor.broker needs it")
    if not address.startswith(_REDIS):
        # others lose the steps of dead workers in ways of their own
        raise ConfigError(f"{config.broker}: begins with none of {', '.join(_REDIS)}; name a Redis")
    return config, address


class Step(Task):  # type: ignore[misc]
    """One step of a run, which may have been begun by a worker that died."""

    def __call__(self, execute_step_args_packed: Any, executable_dict: Any) -> Any:
        args = unpack_value(execute_step_args_packed, as_type=ExecuteStepArgs)
        [key] = args.step_keys_to_execute or [""]
        with DagsterInstance.from_ref(args.instance_ref) as instance:
            run = instance.get_run_by_id(args.run_id)
            if run is None or run.is_finished:
                return []
            if (events := find_end_events(instance, args.run_id, key)) is not None:
                return events
            starts = len(_read_events(instance, args.run_id, key, {DagsterEventType.STEP_START}))
        if self.request.delivery_info.get("redelivered") and starts >= config.max_tries:
            raise BoundaryError(
                f"step {key!r}: {starts} workers died at it; look for their end, which may be for want of memory"
            )
        return super().__call__(execute_step_args_packed, executable_dict)


def find_end_events(instance: DagsterInstance, run_id: str, key: str) -> list[str] | None:
    """Return the events of a step that ended, packed; None of one that did not."""
    if not _read_events(instance, run_id, key, _ENDS):
        return None
    return [serialize_value(event) for event in _read_events(instance, run_id, key, None)]


def _read_events(
    instance: DagsterInstance, run_id: str, key: str, kinds: set[DagsterEventType] | None
) -> Sequence[Any]:
    entries = instance.all_logs(run_id, of_type=kinds)
    return [entry.dagster_event for entry in entries if entry.dagster_event and entry.dagster_event.step_key == key]


class Holding(bootsteps.StartStopStep):  # type: ignore[misc]
    """Says three times in `visibility_s` that the steps of this worker are its own."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._beat: Any = None

    def start(self, consumer: Any) -> None:
        self._beat = consumer.timer.call_repeatedly(config.visibility_s / 3, hold, (consumer.task_consumer.channel,))

    def stop(self, consumer: Any) -> None:
        if self._beat is not None:
            self._beat.cancel()


def hold(channel: Any) -> None:
    """Have the broker know that what `channel` was given and did not acknowledge is being worked on."""
    # no public call says so: what is held is the score of an entry, as `append` of that class writes it
    held = {tag: time() for tag in list(channel.qos._delivered)}
    if held:
        with channel.conn_or_acquire() as client:
            client.zadd(channel.unacked_index_key, held, xx=True)


config, _address = load_broker_config(os.environ)
_source = celery_settings(config)["config_source"]
app = make_app({"broker": _address, "backend": _address, "config_source": dict_wrapper(_source)})
app.steps["consumer"].add(Holding)
execute_plan = create_task(app, base=Step)
