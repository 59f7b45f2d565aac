"""The stage `harbor_deployment`: every file of `configs/harbor`, uploaded and built.

What decides rollouts is in files of their own (`deployment.json`, `tasks.jsonl`, `seeds.jsonl`), apart from where they are kept:
a service that lost a deployment gets it anew, and what depends on it stays as it is. Not here: how a deployment is made of its
file (`graftline.harbor.deployment_file`), and its evaluation (`graftline.pipeline.stages.evaluation`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from graftline.core.build import Built, Contents
from graftline.core.errors import ConfigError, RecordError
from graftline.core.paths import Paths
from graftline.core.record import ArtifactRecord
from graftline.harbor.address import deployment_path
from graftline.harbor.deployment_file import (
    DeploymentFile,
    Refactoring,
    RepositoryRefactoring,
    deployment_spec,
    load_deployment,
)
from graftline.harbor.messages import Deployment, read
from graftline.pipeline.harbor_port import place_of
from graftline.pipeline.lineage import Lineage, request_of
from graftline.pipeline.settings import config_names, find_config

if TYPE_CHECKING:
    from graftline.harbor.build_spec import HarborBuildSpec
    from graftline.harbor.uploader import HarborDeploymentUploader

DEPLOYMENT, TASKS, BUILD, BUILD_LOG = "deployment.json", "tasks.jsonl", "build.json", "build.log"
INSTANCES, SEEDS = "instances.jsonl", "seeds.jsonl"
BUILT_WITHIN_S = 3600.0
_POLL_S = 2.0


class Version(Deployment):
    """One version of a deployment, with what decides its rollouts."""

    digest: str

    @property
    def deciding(self) -> dict[str, Any]:
        """What does not depend on the service that keeps it."""
        return self.model_dump(
            mode="json", include={"name", "digest", "entrypoint", "entrypoint_mode", "limits", "metadata"}
        )


def deployment_names(paths: Paths) -> list[str]:
    """Return the names of the files in `configs/harbor`, without their ending."""
    return config_names(paths, "harbor")


def deployment_file(paths: Paths, name: str) -> DeploymentFile:
    """Return what one file of `configs/harbor` holds."""
    return load_deployment(find_config(paths, "harbor", name, "deployment"))


def harbor_deployment(lineage: Lineage, name: str) -> Built:
    """Upload the deployment of one file of configs/harbor, and have it built; what is there already is used."""
    file = deployment_file(lineage.paths, name)
    environment = file.environment
    inputs: dict[str, ArtifactRecord] = {}
    if isinstance(environment, Refactoring):
        inputs = find_tasks(lineage, environment.tasks)
    elif isinstance(environment, RepositoryRefactoring):
        inputs = find_tasks(lineage, environment.changes)
    with TemporaryDirectory(prefix="graftline-") as staging:
        with report_in_file(name):
            spec = deployment_spec(file, lineage.paths.root, Path(staging))
        version = upload(lineage.ports.harbor.uploader(), spec)
    place = {"service": place_of(lineage.manifest.harbor), "deployment": version.id}
    request = request_of("harbor_deployment", name, inputs, {"digest": version.digest, **place})
    seeds = [{"seed": task.seed, "task_id": task.task_id} for task in spec.tasks]

    def make(partial: Path) -> Contents:
        build = version.latest_build
        built = {**place, "version": version.version, "snapshot_id": version.snapshot_id, "build_id": version.build_id}
        write_json(partial / DEPLOYMENT, version.deciding)
        write_rows(partial / TASKS, seeds)
        write_json(partial / BUILD, built)
        (partial / BUILD_LOG).write_text(build.log_tail if build else "", "utf-8")
        return Contents({"rows": len(seeds), "version": version.version})

    return lineage.build(lineage.paths.harbor("deployments", name), request, make)


@contextmanager
def report_in_file(name: str) -> Iterator[None]:
    """Turn what the SDK says of a spec that is not sound into a fault of the file it was made of."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"configs/harbor/{name}.yaml: {error}") from None


def upload(uploader: "HarborDeploymentUploader", spec: "HarborBuildSpec") -> Version:
    """Return the version that `spec` is, uploaded where it is not there, once it is built."""
    deployment = uploader.create_deployment(spec)
    if deployment.status == "failed":
        uploader.trigger_build(deployment.id)
    if deployment.status != "ready":
        uploader.wait_for_build(deployment.id, BUILT_WITHIN_S, _POLL_S)
    content = uploader.client.request("GET", deployment_path(deployment.id))
    return read(Version, content, f"deployment {deployment.id!r}")


def read_deployment(lineage: Lineage, name: str) -> tuple[ArtifactRecord, dict[str, Any]]:
    """Return the record of a deployment, and where it is kept."""
    folder = lineage.paths.harbor("deployments", name)
    record = lineage.read_input(folder, "harbor_deployment")
    build: dict[str, Any] = json.loads((folder / BUILD).read_text("utf-8"))
    place = place_of(lineage.manifest.harbor)
    if build["service"] != place:
        raise RecordError(
            f"{lineage.paths.relative(folder)}: was uploaded to {build['service']!r}, and the manifest has {place!r};"
            " materialize harbor_deployment again"
        )
    return record, build


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write one line of JSON for each of `rows`."""
    path.write_text("".join(json.dumps(row, sort_keys=True) + "\n" for row in rows), "utf-8")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return what `write_rows` wrote."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def find_tasks(lineage: Lineage, file: str) -> dict[str, ArtifactRecord]:
    """Return the artifact that a file of tasks, or of changes, is of, as an input; nothing where it is none of the lineage."""
    path, paths = lineage.paths.root / file, lineage.paths
    if path.is_relative_to(paths.data / "tasks"):
        return {"tasks": lineage.read_input(path.parent, "tasks")}
    if path.is_relative_to(paths.repository_changes):
        return {"repository_changes": lineage.read_input(paths.repository_changes, "repository_changes")}
    return {}


def write_json(path: Path, value: Mapping[str, Any], sort_keys: bool = True) -> None:
    """Write one object of JSON."""
    path.write_text(json.dumps(value, indent=2, sort_keys=sort_keys) + "\n", "utf-8")


def instance_batch(lineage: Lineage, name: str) -> Built:
    """Have an instance of every seed that the evaluation of a deployment asks for, of all its tasks where it asks for none."""
    from graftline.harbor.instances import create_harbor_instances

    record, deployment = read_deployment(lineage, name)
    folder = lineage.paths.harbor("deployments", name)
    tasks = {row["seed"]: row["task_id"] for row in read_rows(folder / TASKS)}
    seeds = _choose_seeds(deployment_file(lineage.paths, name), name, [*tasks])
    inputs = {"harbor_deployment": lineage.read_part(folder, record, DEPLOYMENT, TASKS)}
    place = {"service": deployment["service"], "deployment": deployment["deployment"]}
    request = request_of("instance_batch", name, inputs, {"seeds": seeds, **place})

    def make(partial: Path) -> Contents:
        service = lineage.ports.harbor
        instances = create_harbor_instances(
            deployment["deployment"], backend_url=service.url, api_key=service.plain_key, seeds=seeds,
            wait_for_ready=True, timeout_s=BUILT_WITHIN_S,
        )  # fmt: skip
        ready = [instance for instance in instances if instance.status == "ready"]
        write_rows(partial / SEEDS, [{"seed": instance.seed, "task_id": instance.task_id} for instance in ready])
        states = [{"seed": instance.seed, "id": instance.id, "status": instance.status} for instance in ready]
        write_rows(partial / INSTANCES, states)
        return Contents({"rows": len(ready)})

    return lineage.build(lineage.paths.harbor("instances", name), request, make)


def _choose_seeds(file: DeploymentFile, name: str, task_seeds: Sequence[int]) -> list[int]:
    configured_seeds = file.evaluation.seeds if file.evaluation else None
    seeds = sorted(task_seeds if configured_seeds is None else set(configured_seeds))
    if not seeds:
        raise ConfigError(
            f"configs/harbor/{name}.yaml: names no tasks, so that every seed is one; say under evaluation.seeds which"
        )
    if unknown := sorted(set(seeds) - set(task_seeds)) if task_seeds else []:
        raise ConfigError(
            f"configs/harbor/{name}.yaml: evaluation.seeds: {unknown[0]} stands for no task; there are {len(task_seeds)},"
            f" of the seeds {min(task_seeds)} to {max(task_seeds)}"
        )
    return seeds
