"""The whole lineage on workers of Celery with a root each, artifacts in a bucket, runs in PostgreSQL, and a worker killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from graftline.core.artifacts import ArtifactStore, BucketArtifactsConfig, open_artifacts
from graftline.core.config import load_yaml
from graftline.core.record import RECORD_NAME, load_record
from graftline.pipeline.manifests import Manifest
from orchestration.build import build_definitions
from tests.postgres_server import new_database, postgres_server
from tests.redis_server import RedisServer, redis_program
from tests.s3_server import BUCKET, S3Server

pytest.importorskip("dagster_celery")
pytest.importorskip("dagster_postgres")
pytestmark = pytest.mark.long  # takes both cores for minutes

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(sys.executable).parent
RANGE = "java|train...python|test"
KILLED = "teacher_trajectories"
VISIBILITY_S = 20
WORKERS = 3
PATIENCE_S = 240.0


class Cluster:
    """Servers, and workers with a root each; everything ends with it."""

    def __init__(self, folder: Path, root: Path, redis: str, postgres: str, s3: S3Server, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("GRAFTLINE_", "DAGSTER_"))},
            "DAGSTER_HOME": str(folder / "home"),
            "DAGSTER_POSTGRES_URL": postgres.replace("://", "+psycopg2://"),
            "GRAFTLINE_CELERY_URL": redis,
            "GRAFTLINE_ARTIFACTS_URL": f"s3://{BUCKET}/lineage",
            "GRAFTLINE_MANIFEST": "prod",
            "AWS_ENDPOINT_URL": s3.url,
            "AWS_ACCESS_KEY_ID": "AKIAGRAFTLINE",
            "AWS_SECRET_ACCESS_KEY": "not-a-secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "PYTHONPATH": str(CHECKOUT),
            "PYTHONWARNINGS": "ignore",
        }
        self.roots = [Path(shutil.copytree(root, folder / f"root-{number}")) for number in range(WORKERS + 1)]
        self.workers = {f"worker-{number}": self._worker(number) for number in range(1, WORKERS + 1)}
        self.s3 = s3

    def _worker(self, number: int) -> "subprocess.Popen[bytes]":
        name = f"worker-{number}"
        command = [PROGRAMS / "celery", "-A", "orchestration.celery_worker", "worker", "--queues", "dagster"]
        return self.start(number, *command, "--concurrency", "1", "--hostname", name, "--loglevel", "info", log=name)

    def start(self, root: int, *command: Any, log: str) -> "subprocess.Popen[bytes]":
        """Start a process in a group of its own, with the root of that number."""
        environment = {**self.environment, "GRAFTLINE_ROOT": str(self.roots[root])}
        with (self._folder / f"{log}.log").open("wb") as stream:
            process = subprocess.Popen(
                command, cwd=CHECKOUT, env=environment, stdout=stream, stderr=stream, start_new_session=True
            )
        self._stack.callback(end, process)
        return process

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text("utf-8", "replace")[-4000:]

    def store(self) -> ArtifactStore:
        config = BucketArtifactsConfig(**self.s3.config("lineage").model_dump(exclude={"kind"}))
        return open_artifacts(config, self._folder, self.s3.secrets)


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process with all that it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def use_cluster(root: Path) -> None:
    """Have the manifest `prod` name the cluster, with teacher and sandbox of the manifest `local`."""
    path = root / "configs" / "manifests" / "prod.yaml"
    local = load_yaml(path.with_name("local.yaml"), Manifest).model_dump(mode="json")
    cluster = {
        "artifacts": {"kind": "bucket", "url": "GRAFTLINE_ARTIFACTS_URL"},
        "executor": {"kind": "celery", "visibility_s": VISIBILITY_S},
    }
    path.write_text(json.dumps({**local, **cluster}), "utf-8")


@pytest.fixture(scope="module")
def root(new_checkout: Any, varied_pairs: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    small = new_checkout(tmp_path_factory.mktemp("cluster") / "checkout")
    small.write(varied_pairs)
    use_cluster(small.root)
    return Path(small.root)


@pytest.fixture(scope="module")
def alone(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The identities that one process comes to, by artifact."""
    own = Path(shutil.copytree(root, tmp_path_factory.mktemp("alone") / "root"))
    first, last = RANGE.split("...")
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.setenv("GRAFTLINE_ROOT", str(own))
        definitions = build_definitions()
        selection = dg.AssetSelection.all() - dg.AssetSelection.groups("training", "harbor", "evaluations", "reports")
        job = definitions.resolve_implicit_global_asset_job_def().get_subset(
            asset_selection=selection.resolve(definitions.resolve_asset_graph())
        )
        assert job.execute_in_process(instance=instance, tags=tags).success
    folders = [path.parent for path in (own / "data").rglob(RECORD_NAME)]
    return {folder.relative_to(own).as_posix(): load_record(folder).identity for folder in folders}


@pytest.fixture(scope="module")
def cluster(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    redis_program()
    folder = tmp_path_factory.mktemp("workers")
    (folder / "home").mkdir()
    (folder / "redis").mkdir()
    shutil.copy(CHECKOUT / "deploy" / "dagster" / "dagster.postgres.yaml", folder / "home" / "dagster.yaml")
    with ExitStack() as stack:
        postgres = new_database(stack.enter_context(postgres_server()))
        redis = stack.enter_context(RedisServer(folder / "redis"))
        s3 = stack.enter_context(S3Server())
        yield Cluster(folder, root, redis.url, postgres, s3, stack)


@pytest.fixture(scope="module")
def instance(cluster: Cluster) -> Iterator[dg.DagsterInstance]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_HOME", cluster.environment["DAGSTER_HOME"])
        patch.setenv("DAGSTER_POSTGRES_URL", cluster.environment["DAGSTER_POSTGRES_URL"])
        with dg.DagsterInstance.get() as opened:
            yield opened


@pytest.fixture(scope="module")
def finished(cluster: Cluster, instance: dg.DagsterInstance) -> dg.DagsterRun:
    """A run over everything, a worker of which was killed in the middle of a step."""
    command = [PROGRAMS / "dagster", "asset", "materialize", "-m", "orchestration.definitions"]
    select = "not (group:training or group:harbor or group:evaluations or group:prompts or group:closed_loop)"
    run = cluster.start(0, *command, "--select", select, "--partition-range", RANGE, log="run")
    deadline = time.monotonic() + PATIENCE_S
    worker = ""
    while run.poll() is None and time.monotonic() < deadline:
        if not worker and (worker := worker_of(instance, KILLED)):
            end(cluster.workers[worker])
        time.sleep(0.2 if worker else 0.02)
    assert worker, cluster.log("run")
    assert run.poll() == 0, cluster.log("run")
    [found] = instance.get_runs()
    return found


def worker_of(instance: dg.DagsterInstance, step: str) -> str:
    """Return the worker that has begun `step`; nothing while none has."""
    runs = instance.get_runs()
    begun = instance.all_logs(runs[0].run_id, of_type=dg.DagsterEventType.STEP_START) if runs else []
    if step not in [entry.step_key for entry in begun]:
        return ""
    logged = events(instance, runs[0], step)
    [said] = [event for event in logged if (event.message or "").endswith("in celery worker")]
    return str(said.event_specific_data.metadata["Celery worker"].value).rpartition("@")[2]


def events(instance: dg.DagsterInstance, run: dg.DagsterRun, step: str) -> list[dg.DagsterEvent]:
    logged = [entry.dagster_event for entry in instance.all_logs(run.run_id)]
    return [event for event in logged if event and event.step_key == step]


def test_the_run_succeeds_though_a_worker_is_killed_in_the_middle_of_a_step(
    finished: dg.DagsterRun, instance: dg.DagsterInstance
) -> None:
    kinds = Counter(event.event_type_value for event in events(instance, finished, KILLED))
    assert (finished.status, kinds["STEP_START"], kinds["STEP_SUCCESS"], kinds["STEP_FAILURE"]) == (
        *(dg.DagsterRunStatus.SUCCESS, 2, 1, 0),
    )


def test_the_bucket_holds_what_one_process_makes_and_nothing_else(
    finished: dg.DagsterRun, cluster: Cluster, alone: dict[str, str]
) -> None:
    store = cluster.store()
    found = {name: record.identity for name in store.names("data") if (record := store.record(name))}
    # of a warehouse the file differs each time
    assert {name: identity for name, identity in found.items() if name != "data/warehouse"} == alone
    assert "data/warehouse" in found
    assert store.names("reports") == ["reports/datasets", "reports/teacher"]


def test_nothing_was_made_twice(finished: dg.DagsterRun, cluster: Cluster) -> None:
    lines = [
        json.loads(line)
        for root in cluster.roots
        for path in (root / "logs" / "runs").glob("*.jsonl")
        for line in path.read_text("utf-8").splitlines()
    ]
    made = Counter((line["stage"], line["name"]) for line in lines if line["reason"])
    assert {artifact: number for artifact, number in made.items() if number > 1} == {}
    assert len(made) == 52


def test_the_work_was_done_by_more_than_one_worker(finished: dg.DagsterRun, cluster: Cluster) -> None:
    busy = [root.name for root in cluster.roots if list((root / "logs" / "runs").glob("*.jsonl"))]
    assert "root-0" not in busy
    assert len(busy) >= 2


def test_every_file_of_the_bucket_belongs_to_an_artifact(finished: dg.DagsterRun, cluster: Cluster) -> None:
    store: Any = cluster.store()
    assert [*store.find_unused()] == []
