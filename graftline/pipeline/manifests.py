"""Manifests: which implementation stands behind each port in an environment (`configs/manifests/<name>.yaml`)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AliasChoices, Field

from graftline.core.artifacts import ArtifactsConfig, FolderArtifactsConfig
from graftline.core.blobs import BlobsConfig, FilesystemBlobsConfig
from graftline.core.config import Config, read_tree, validate
from graftline.core.errors import ConfigError
from graftline.core.paths import Paths
from graftline.datasets.sources.open import HubConfig
from graftline.datasets.store import DatasetStoreConfig, FilesDatasetStoreConfig
from graftline.llm.fleet import load_fleets
from graftline.llm.open import ActorsConfig, ChatModelConfig
from graftline.pipeline.harbor_port import HarborPortConfig, LocalHarborConfig
from graftline.rollouts.queue.base import MemoryQueueConfig, QueueConfig
from graftline.rollouts.retrieval import HashedEmbedderConfig, SqliteVectorStoreConfig, VectorStoreConfig
from graftline.rollouts.teachers.base import TeacherConfig, TeacherKind
from graftline.sandbox.actions import SandboxConfig
from graftline.training.local.process import LocalBackendConfig
from graftline.training.open import TrainingClientConfig

MANIFESTS = ("local", "dev", "prod", "test")
DEFAULT_MANIFEST = "default"
"""Another name of `local`."""


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


class Manifest(Config):
    """One implementation per port, and what executes the steps of a Dagster run."""

    dataset_hub: HubConfig
    sandbox: SandboxConfig
    teacher: TeacherConfig
    chat_model: ChatModelConfig = ActorsConfig()
    queue: QueueConfig = MemoryQueueConfig()
    embedder: HashedEmbedderConfig = HashedEmbedderConfig()
    vector_store: VectorStoreConfig = SqliteVectorStoreConfig()
    blobs: BlobsConfig = FilesystemBlobsConfig(url="data/blobs")
    training_client: TrainingClientConfig = LocalBackendConfig()
    dataset_store: DatasetStoreConfig = FilesDatasetStoreConfig()
    harbor: HarborPortConfig = LocalHarborConfig()
    # manifests written for 0.1.0 spell it with an e
    artifacts: ArtifactsConfig = Field(
        default=FolderArtifactsConfig(), validation_alias=AliasChoices("artifacts", "artefacts")
    )
    executor: ExecutorConfig = InProcessConfig()


PORTS = tuple(name for name in Manifest.model_fields if name != "executor")


def load_manifest(paths: Paths, name: str, overrides: Mapping[str, Any] | None = None) -> Manifest:
    """Return the manifest called `name`; `overrides` replaces ports (`sandbox`: "memory") or single keys of them.

    A teacher that is called like a fleet of `vllm_actors.yaml` (`teacher`: "glm-4.6") is the teacher `openai` with the
    prompt of that fleet, and `chat_model` is the fleet.

    Raises:
        ConfigError: there is no such manifest or port, or the result does not fit.
    """
    if name not in (DEFAULT_MANIFEST, *MANIFESTS):
        raise ConfigError(f"manifest {name!r} is unknown; known: {', '.join((DEFAULT_MANIFEST, *MANIFESTS))}")
    file = f"{'local' if name == DEFAULT_MANIFEST else name}.yaml"
    path = paths.configs / "manifests" / file
    values = _values(overrides or {})
    tree = read_tree(path, values)
    _resolve_teacher(tree, paths.configs, "--set teacher" if "teacher" in values else f"{path}: teacher")
    return validate(tree, Manifest, str(path), tuple(values))


def _resolve_teacher(tree: Any, configs: Path, source: str) -> None:
    """Put teacher and chat model into `tree` where its teacher is called like a fleet."""
    teacher = tree.get("teacher") if isinstance(tree, dict) else None
    if isinstance(teacher, str):
        teacher = {"kind": teacher}
    if not isinstance(teacher, dict) or not isinstance(name := teacher.get("kind"), str):
        return  # validation says what is wrong
    kinds = get_args(TeacherKind)
    if name not in kinds:
        fleets = load_fleets(configs) if (configs / "vllm_actors.yaml").is_file() else {}
        if name not in fleets:
            raise ConfigError(
                f"{source}: {name!r} is unknown; known: {', '.join(map(repr, kinds))},"
                f" and the fleets of {configs / 'vllm_actors.yaml'}: {', '.join(sorted(fleets)) or 'none'}"
            )
        teacher = {"prompt": fleets[name].prompt, **teacher, "kind": "openai"}
        chat_model = tree.get("chat_model", {})
        if isinstance(chat_model, dict) and chat_model.get("kind", "actors") != "actors":
            chat_model = {}  # what is said of another implementation does not apply
        if isinstance(chat_model, dict):
            tree["chat_model"] = {**chat_model, "kind": "actors", "fleet": name}
    tree["teacher"] = teacher


def _values(overrides: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    # a port before its settings, in whatever order they were given
    for key, value in sorted(overrides.items(), key=lambda item: item[0].count(".")):
        port, _, setting = key.partition(".")
        if port not in PORTS:
            raise ConfigError(f"port {port!r} is unknown; known: {', '.join(PORTS)}")
        # a bare name is an implementation, and what the file says of another one does not apply to it
        values[key] = {"kind": value} if not setting and isinstance(value, str) else value
    return values
