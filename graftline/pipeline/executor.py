"""What executes the steps of a Dagster run, as a manifest says it; `graftline run` executes them itself.

Not here: the executors (`orchestration.executors`) and the worker of Celery (`orchestration.celery_worker`).
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from graftline.core.config import Config


class InProcessConfig(Config):
    """One after the other, in the process of the run."""

    kind: Literal["in_process"] = "in_process"


class MultiprocessConfig(Config):
    """Each in a process of this machine, which imports everything again."""

    kind: Literal["multiprocess"] = "multiprocess"
    at_once: int = Field(default=0, ge=0)
    """Steps at the same time; 0 is one for each core."""


class CeleryConfig(Config):
    """Workers of Celery take them from Redis, on any number of machines."""

    kind: Literal["celery"] = "celery"
    broker: str = Field(default="GRAFTLINE_CELERY_URL", pattern=r"^[A-Z][A-Z0-9_]*$")
    """Name of the variable that holds the address of the Redis, of every process: `redis://host:6379/1`. What steps
    come to goes there too."""
    visibility_s: int = Field(default=60, ge=3, le=86_400)
    """How long a step is its worker's if nothing is heard of it. A worker that lives holds its steps three times as
    often, so that this says how soon the steps of a dead machine go on, and not how long a step may take."""
    max_tries: int = Field(default=3, ge=1)
    """How often a step is started whose workers die; after that the run fails."""


class K8sJobConfig(Config):
    """Each in a job of Kubernetes, with the image and the account of its run."""

    kind: Literal["k8s_job"] = "k8s_job"
    at_once: int = Field(default=0, ge=0)
    """Steps of one run at the same time; 0 is all that are ready."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """What else dagster-k8s takes for its `k8s_job_executor`, such as `step_k8s_config` or `per_step_k8s_config`."""


ExecutorConfig = Annotated[
    InProcessConfig | MultiprocessConfig | CeleryConfig | K8sJobConfig, Field(discriminator="kind")
]
