"""From the executor that a manifest names to the one of Dagster. Their libraries are loaded for who uses them.

https://docs.dagster.io/guides/operate/run-executors
"""

from typing import Any, assert_never

import dagster as dg

from graftline.core.errors import ConfigError
from graftline.pipeline.manifests import (
    CeleryConfig,
    ExecutorConfig,
    InProcessConfig,
    K8sJobConfig,
    MultiprocessConfig,
)


def executor_of(config: ExecutorConfig) -> dg.ExecutorDefinition:
    """Return the executor of `config`.

    Raises:
        ConfigError: its library is not installed, or does not take the settings.
    """
    match config:
        case InProcessConfig():
            # a process per step would import everything again for each of a dozen short steps
            return dg.in_process_executor
        case MultiprocessConfig():
            return dg.multiprocess_executor.configured({"max_concurrent": config.at_once})
        case CeleryConfig():
            try:
                from dagster_celery import celery_executor
            except ImportError as error:
                raise _lacking("celery", "cluster", error) from None
            return celery_executor.configured(celery_settings(config))
        case K8sJobConfig():
            try:
                from dagster_k8s import k8s_job_executor
            except ImportError as error:
                raise _lacking("k8s_job", "kubernetes", error) from None
            at_once = {"max_concurrent": config.at_once} if config.at_once else {}
            executor = k8s_job_executor.configured({**at_once, **config.settings})
            # otherwise it would show when a run starts
            checked = executor.apply_config_mapping({"config": {}})
            if not checked.success:
                reasons = "; ".join(fault.message for fault in checked.errors or ())
                raise ConfigError(f"executor.settings: {reasons}; see dagster-k8s' `k8s_job_executor`")
            return executor
        case _:
            assert_never(config)


def celery_settings(config: CeleryConfig) -> dict[str, Any]:
    """Return what the executor and its workers have to agree on, as dagster-celery takes it."""
    return {
        "broker": {"env": config.broker},
        "backend": {"env": config.broker},
        "config_source": {
            # a step whose worker died is done by another one
            "task_acks_late": True,
            "task_reject_on_worker_lost": True,
            "worker_prefetch_multiplier": 1,
            "broker_connection_retry_on_startup": True,
            "broker_transport_options": {
                "visibility_timeout": config.visibility_s,
                "unacked_restore_interval": max(1, config.visibility_s // 6),
                "unacked_restore_throttle": 1,
            },
        },
    }


def _lacking(kind: str, extra: str, error: ImportError) -> ConfigError:
    return ConfigError(f"executor {kind!r}: {error}; install the extra {extra!r} of graftline")
