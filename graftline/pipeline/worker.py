"""A worker of the queue: `graftline worker run`, and what became of the jobs."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from socket import gethostname

from graftline.core.blobs import BlobStore, upload_new
from graftline.core.config import Config, load_yaml
from graftline.core.errors import ConfigError
from graftline.core.hashing import digest
from graftline.core.paths import Paths, file_name
from graftline.core.telemetry import TelemetrySettings, open_telemetry
from graftline.llm.pool import ActorPool
from graftline.pipeline.attempts import refresh_examples
from graftline.pipeline.manifests import Manifest
from graftline.pipeline.ports import Ports, open_ports
from graftline.pipeline.settings import attempt_settings, load_settings, stage_code
from graftline.pipeline.worker_loop import AttemptMaker, Store, Ticker, WorkMetrics, look, open_states
from graftline.rollouts.queue.base import DeadLetter, Depth, JobQueue
from graftline.rollouts.queue.worker import JobOutcome, WorkerSettings, run_worker, stop_on_signals, worker_name

_LOOK_S = 1.0


class WorkerConfig(Config):
    """How a worker of the queue works."""

    worker: WorkerSettings = WorkerSettings()
    metrics_port: int | None = None
    """In place of the one of `configs/telemetry.yaml`."""
    seal_s: float = 10.0
    """How long at most readers wait for an attempt that was stored, while others are in flight."""
    is_uploading: bool = False
    """Whether what is sealed is also put into the blob store of the manifest."""


def work_through_queue(paths: Paths, manifest: Manifest, settings: WorkerConfig) -> Counter[JobOutcome]:
    """Make the attempts of the queue until asked to stop, or until it is empty; return how many came to which end."""
    _require_shared(manifest)
    name = worker_name()
    lineage = load_settings(paths)
    collecting = lineage.trajectories.collecting
    port = {} if settings.metrics_port is None else {"server.port": settings.metrics_port}
    telemetry = load_yaml(paths.configs / "telemetry.yaml", TelemetrySettings, port)
    with ExitStack() as stack:
        ports = stack.enter_context(open_ports(manifest, paths))
        made_by = digest(attempt_settings(paths, manifest, lineage, ports))
        host, logs = file_name(gethostname()), paths.logs / "actor"
        metrics = stack.enter_context(open_telemetry(telemetry, logs, host, ports.secrets, lambda: _find_fault(ports)))
        refresh_examples(paths, ports.examples)
        states, store = open_states(paths, stack), stack.enter_context(Store(paths, name))
        work_metrics = WorkMetrics(metrics)
        stack.enter_context(Ticker(_LOOK_S, _Sealing(paths, ports, store, settings, work_metrics)))
        pool = ports.chat_model.model if manifest.teacher.kind == "openai" else None
        stop = stack.enter_context(stop_on_signals())

        def see() -> None:
            metrics.set_draining(stop.is_asked)
            look(metrics, ports.queue, pool.stats if isinstance(pool, ActorPool) else None)

        stack.enter_context(Ticker(settings.seal_s, see))
        make = AttemptMaker(
            ports.queue, ports.teacher, ports.sandbox, collecting, states, store, metrics, made_by,
            stage_code("teacher_trajectories"), redact=ports.secrets.redact,
        )  # fmt: skip
        return run_worker(ports.queue, make, settings.worker, stop, name, work_metrics, ports.secrets.redact)


def queue_state(paths: Paths, manifest: Manifest) -> tuple[Depth, list[DeadLetter]]:
    """Return how many jobs the queue of `manifest` has, and its dead letters."""
    with _open_queue(paths, manifest) as queue:
        return queue.depth(), queue.dead()


def revive(paths: Paths, manifest: Manifest, keys: Sequence[str]) -> int:
    """Let dead letters of the queue of `manifest` wait again, all of them where `keys` is empty; return how many."""
    with _open_queue(paths, manifest) as queue:
        return queue.revive(keys or [letter.job.key for letter in queue.dead()])


@contextmanager
def _open_queue(paths: Paths, manifest: Manifest) -> Iterator[JobQueue]:
    _require_shared(manifest)
    with ExitStack() as stack:
        yield Ports(manifest, paths, stack).queue


def _require_shared(manifest: Manifest) -> None:
    if manifest.queue.kind == "memory":
        raise ConfigError(
            "queue 'memory' is inside one process, so that a worker would find nothing in it; "
            "expected --set queue=redis, or materialize `teacher_trajectories` in process"
        )


def upload_attempts(paths: Paths, manifest: Manifest) -> dict[str, int]:
    """Put every shard of attempts into the blob store of `manifest` that is not there yet; return what was done.

    What was put there before a fault stays: the next call goes on from there.
    """
    with ExitStack() as stack:
        return _upload(paths, Ports(manifest, paths, stack).blobs)


def _upload(paths: Paths, blobs: BlobStore) -> dict[str, int]:
    folder = paths.data / "trajectories"
    folder.mkdir(parents=True, exist_ok=True)
    uploaded = upload_new(folder, blobs, below="trajectories", is_sealed=lambda path: path.suffix == ".jsonl")
    return {"sent": uploaded.sent, "sent_bytes": uploaded.sent_bytes, "kept": uploaded.kept}


@dataclass
class _Sealing:
    """Lets readers see what was stored: every `seal_s`, and sooner where nothing is in flight."""

    paths: Paths
    ports: Ports
    store: Store
    settings: WorkerConfig
    work_metrics: WorkMetrics
    sealed_at: float = field(default_factory=time.monotonic)

    def __call__(self) -> None:
        is_due = time.monotonic() - self.sealed_at >= self.settings.seal_s
        if self.work_metrics.in_flight and not is_due:
            return
        has_new = self.store.seal()
        if is_due or has_new:
            self.sealed_at = time.monotonic()
            if self.settings.is_uploading:
                _upload(self.paths, self.ports.blobs)


def _find_fault(ports: Ports) -> str:
    """Return what keeps the worker from working; empty where nothing does."""
    try:
        ports.queue.depth()
    except Exception as error:  # whatever it is, this process does not work
        return f"{type(error).__name__}: {error}"
    return ""
