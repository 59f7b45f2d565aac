"""Watches the builds and instances of the deployments of `configs/harbor`, and requests what follows when one turned ready.

That is the deployment itself where the lineage has it not yet, as after `graftline env upload`, or where it was not waited for;
then its instances; then its evaluation, if its file asks for one. What was requested once and failed is left to people.
A service that is not to be had is looked at again later. One of this process is not started to be looked at: it builds while an
asset is made, and nothing turns ready otherwise. https://docs.dagster.io/guides/automate/sensors
"""

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from assets.harbor import DEPLOYED, DEPLOYMENT_EVALUATION
from assets.partitions import DEPLOYMENTS, EVALUATED_DEPLOYMENTS
from graftline.core.errors import GraftlineError, HarborError, RecordError
from graftline.core.paths import Paths
from graftline.core.record import ArtifactRecord
from graftline.core.secrets import open_secrets
from graftline.pipeline.harbor_port import HarborService, ServiceHarborConfig, open_harbor
from graftline.pipeline.lineage import part_identity
from graftline.pipeline.stages.evaluation import deployment_evaluation_names
from graftline.pipeline.stages.harbor_deployment import DEPLOYMENT, SEEDS, TASKS, deployment_file, deployment_names
from resources.artifacts import Artifacts
from resources.systems import HarborResource
from sensors.cursor import read_object

INTERVAL_S = 60
WITHIN_S = 20.0
"""For all looks of a tick; Dagster gives it up after 60."""
_UNREACHABLE_S = 0.5
_GONE = 404


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the lineage has."""

    paths: Paths
    record_of: Callable[[Path], ArtifactRecord]

    def record(self, kind: str, state: "_DeploymentState") -> ArtifactRecord | None:
        """Return what is stored of exactly this version; None where nothing is."""
        try:
            record = self.record_of(self.paths.harbor(kind, state.name))
        except RecordError:
            return None
        return record if record.config.get("deployment") == state.deployment else None

    def inputs(self, name: str) -> dict[str, str]:
        """Return what the evaluation of a deployment was made from; nothing where there is none."""
        try:
            return self.record_of(self.paths.harbor("evaluations", name)).inputs
        except RecordError:
            return {}


@dataclass(frozen=True, slots=True)
class _DeploymentState:
    """The newest version of one deployment."""

    name: str
    deployment: str
    version: int
    status: str
    error: str
    instances: int
    ready: int

    @property
    def shown(self) -> str:
        return f"{self.deployment}/{self.status}/{self.ready}/{self.instances}"


def harbor_builds(jobs: Sequence[Any]) -> dg.SensorDefinition:
    """Return the sensor over the deployments of `configs/harbor`; of `jobs`, one makes them, the other evaluates them."""

    @dg.sensor(
        name="harbor_builds",
        jobs=jobs,
        minimum_interval_seconds=INTERVAL_S,
        description="Requests what is missing of every deployment that is ready, and observes what changed of them.",
    )
    def sensor(context: dg.SensorEvaluationContext, artifacts: Artifacts, harbor: HarborResource) -> dg.SensorResult:
        try:
            names, evaluated = deployment_names(artifacts.paths), deployment_evaluation_names(artifacts.paths)
            states = _look(artifacts, harbor, names)
        except GraftlineError as error:
            context.log.warning(str(error))
            return dg.SensorResult(skip_reason=f"the service cannot be looked at: {error}", cursor=context.cursor)
        if states is None:
            why = f"the service of manifest {artifacts.manifest!r} runs only while an asset is made; nothing is started here"
            return dg.SensorResult(skip_reason=why, cursor=context.cursor)
        previous, shown = read_object(context.cursor), {state.name: state.shown for state in states}
        stored = _Stored(artifacts.paths, artifacts.records())
        requests = [request for state in states if (request := _missing(stored, state, state.name in evaluated))]
        return dg.SensorResult(
            run_requests=requests,
            # whoever follows deployments need not have the sensor `partitions` on
            dynamic_partitions_requests=[
                definition.build_add_request(keys)
                for definition, keys in ((DEPLOYMENTS, names), (EVALUATED_DEPLOYMENTS, evaluated))
                if keys and requests
            ],
            skip_reason=None
            if requests
            else "; ".join(map(_describe, states)) or "the service has none of the deployments",
            asset_events=[_observation(state) for state in states if previous.get(state.name) != state.shown],
            cursor=json.dumps(shown),
        )

    return sensor


def _look(artifacts: Artifacts, harbor: HarborResource, names: Sequence[str]) -> list[_DeploymentState] | None:
    """Return what the service has of the deployments; None where it is one of whoever makes assets."""
    paths, config = artifacts.paths, artifacts.wire_manifest(harbor).harbor
    if not isinstance(config, ServiceHarborConfig):
        return None
    from graftline.harbor import event_loop

    with open_harbor(config, paths.root, open_secrets({**os.environ, **harbor.secrets(paths)}, paths.root)) as service:
        return event_loop.run(_fetch_states(service, {name: deployment_file(paths, name).name for name in names}))


async def _fetch_states(service: HarborService, deployments: dict[str, str]) -> list[_DeploymentState]:
    from graftline.harbor.client import RetryPolicy

    client = service.uploader(RetryPolicy(timeout_s=WITHIN_S, unreachable_s=_UNREACHABLE_S, max_retries=1)).client
    try:
        async with asyncio.timeout(WITHIN_S), client.session():
            states = [await _fetch_state(client, name, deployment) for name, deployment in deployments.items()]
    except TimeoutError:
        raise HarborError(f"{service.url}: did not answer within {WITHIN_S:g} s") from None
    return [state for state in states if state is not None]


async def _fetch_state(client: Any, name: str, deployment: str) -> _DeploymentState | None:
    from graftline.harbor.address import deployment_path
    from graftline.harbor.client import HarborAPIError
    from graftline.harbor.messages import Deployment, InstancePage, read

    try:
        content = await client.request_async("GET", deployment_path(deployment))
    except HarborAPIError as error:
        if error.status_code == _GONE:
            return None
        raise
    newest = read(Deployment, content, f"deployment {deployment!r}")
    content = await client.request_async("GET", f"{deployment_path(newest.id)}/instances", query={"limit": 1})
    page = read(InstancePage, content, f"instances of {deployment!r}")
    return _DeploymentState(
        name, newest.id, newest.version, newest.status, newest.error or "", page.total, page.ready_count
    )


def _missing(stored: _Stored, state: _DeploymentState, is_evaluated: bool) -> dg.RunRequest | None:
    """Return the request for the next thing that the lineage lacks of a deployment; None where nothing is to be made yet."""
    if state.status != "ready":
        return None
    deployment = stored.record("deployments", state)
    if deployment is None:
        return _request("harbor", state, DEPLOYED, state.deployment)
    batch = stored.record("instances", state)
    if batch is None:
        return _request("harbor", state, DEPLOYED[1:], state.deployment)
    inputs = {
        "harbor_deployment": part_identity(deployment, (DEPLOYMENT, TASKS)),
        "instance_batch": part_identity(batch, (SEEDS,)),
    }
    if not is_evaluated or stored.inputs(state.name) == inputs:
        return None
    return _request("deployment_evaluations", state, [DEPLOYMENT_EVALUATION], batch.identity[:16])


def _request(job: str, state: _DeploymentState, assets: Sequence[str], version: str) -> dg.RunRequest:
    return dg.RunRequest(
        run_key=f"{state.name}/{assets[0]}/{version}",
        job_name=job,
        partition_key=state.name,
        asset_selection=[dg.AssetKey(asset) for asset in assets],
    )


def _describe(state: _DeploymentState) -> str:
    error = f" ({state.error})" if state.error else ""
    return f"{state.name}: version {state.version} is {state.status}{error}, {state.ready} of {state.instances} instances are ready"


def _observation(state: _DeploymentState) -> dg.AssetObservation:
    metadata: dict[str, Any] = {
        "deployment": state.deployment,
        "version": state.version,
        "status": state.status,
        "instances": state.instances,
        "instances_ready": state.ready,
    }
    if state.error:
        metadata["error"] = state.error
    return dg.AssetObservation(DEPLOYED[0], partition=state.name, metadata=metadata)
