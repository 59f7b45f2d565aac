"""The stage `instance_batch`: an instance of every seed of a deployment that is to be evaluated."""

from collections.abc import Sequence
from pathlib import Path

from graftline.core.build import Built, Contents, Request
from graftline.core.errors import ConfigError
from graftline.harbor.deployment_file import DeploymentFile
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.settings import stage_code
from graftline.pipeline.stages.harbor_deployment import (
    BUILT_WITHIN_S,
    DEPLOYMENT,
    INSTANCES,
    SEEDS,
    TASKS,
    deployment_file,
    kept_deployment,
    read_rows,
    write_rows,
)


def instance_batch(lineage: Lineage, name: str) -> Built:
    """Have an instance of every seed that the evaluation of a deployment asks for, of all its tasks where it asks for none."""
    from graftline.harbor.instances import create_harbor_instances

    record, deployment = kept_deployment(lineage, name)
    folder = lineage.paths.harbor("deployments", name)
    tasks = {row["seed"]: row["task_id"] for row in read_rows(folder / TASKS)}
    seeds = _wanted(deployment_file(lineage.paths, name), name, [*tasks])
    inputs = {"harbor_deployment": lineage.part_of(folder, record, DEPLOYMENT, TASKS)}
    place = {"service": deployment["service"], "deployment": deployment["deployment"]}
    request = Request("instance_batch", name, stage_code("instance_batch"), inputs, {"seeds": seeds, **place})

    def make(partial: Path) -> Contents:
        service = lineage.ports.harbor
        made = create_harbor_instances(
            deployment["deployment"],
            backend_url=service.url,
            api_key=service.plain_key,
            seeds=seeds,
            wait_for_ready=True,
            timeout_s=BUILT_WITHIN_S,
        )
        ready = [one for one in made if one.status == "ready"]
        write_rows(partial / SEEDS, [{"seed": one.seed, "task_id": one.task_id} for one in ready])
        write_rows(partial / INSTANCES, [{"seed": one.seed, "id": one.id, "status": one.status} for one in ready])
        return Contents({"rows": len(ready)})

    return lineage.build(lineage.paths.harbor("instances", name), request, make)


def _wanted(file: DeploymentFile, name: str, known: Sequence[int]) -> list[int]:
    asked = file.evaluation.seeds if file.evaluation else None
    seeds = sorted(known if asked is None else set(asked))
    if not seeds:
        raise ConfigError(
            f"configs/harbor/{name}.yaml: names no tasks, so that every seed is one; say under evaluation.seeds which"
        )
    if unknown := sorted(set(seeds) - set(known)) if known else []:
        raise ConfigError(
            f"configs/harbor/{name}.yaml: evaluation.seeds: {unknown[0]} stands for no task; there are {len(known)},"
            f" of the seeds {min(known)} to {max(known)}"
        )
    return seeds
