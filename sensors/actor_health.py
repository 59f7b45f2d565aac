"""Watches the actors of the manifest's fleet, and writes down on `teacher_trajectories` what changed of them.

A look asks every actor for `/health` and `/metrics`; an engine that hangs while both answer is told by the pool that uses
it (`graftline.llm`). Nothing is started here: supervisors do that (`graftline model serve`), or systemd.
https://docs.dagster.io/guides/automate/sensors
"""

import json

import dagster as dg

from graftline.core.errors import GraftlineError
from graftline.core.markdown import table
from graftline.llm.fleet import load_fleet
from graftline.llm.open import ActorsConfig
from graftline.llm.servers.processes import ActorStatus, fleet_status
from resources.artifacts import Artifacts
from resources.systems import ActorsResource
from sensors.cursor import read_object

INTERVAL_S = 60


def actor_health() -> dg.SensorDefinition:
    """Return the sensor over the fleet of actors."""

    @dg.sensor(
        name="actor_health",
        minimum_interval_seconds=INTERVAL_S,
        asset_selection=["teacher_trajectories"],
        description="Observes on `teacher_trajectories` which actors came up, and which are gone.",
    )
    def sensor(context: dg.SensorEvaluationContext, artifacts: Artifacts, actors: ActorsResource) -> dg.SensorResult:
        try:
            name, statuses = _look(artifacts, actors)
        except GraftlineError as error:
            context.log.warning(str(error))
            return dg.SensorResult(skip_reason=f"the actors cannot be looked at: {error}", cursor=context.cursor)
        if not statuses:
            return dg.SensorResult(skip_reason="the chat model of the manifest is no fleet of actors")
        previous = read_object(context.cursor)
        now = {actor.name: actor.phase for actor in statuses}
        changed = {actor: phase for actor, phase in now.items() if previous.get(actor, "down") != phase}
        for actor in statuses:
            if actor.name in changed and actor.phase in ("failing", "down"):
                context.log.warning("actor %s is %s; %s", actor.name, actor.phase, actor.ended or "it does not answer")
        states = ", ".join(f"{actor} {phase}" for actor, phase in now.items())
        return dg.SensorResult(
            skip_reason=f"fleet {name}: {states}",
            asset_events=[_observation(name, statuses)] if changed else [],
            cursor=json.dumps(now),
        )

    return sensor


def _look(artifacts: Artifacts, actors: ActorsResource) -> tuple[str, list[ActorStatus]]:
    paths, config = artifacts.paths, artifacts.wire_manifest(actors).chat_model
    if not isinstance(config, ActorsConfig):
        return "", []
    fleet = load_fleet(paths.configs, config.fleet)
    return config.fleet, fleet_status(paths=paths, name=config.fleet, fleet=fleet)


def _observation(fleet: str, statuses: list[ActorStatus]) -> dg.AssetObservation:
    rows = [
        {"actor": status.name, "state": status.phase, "restarts": status.restarts, "address": status.url}
        for status in statuses
    ]
    return dg.AssetObservation(
        "teacher_trajectories",
        metadata={
            "fleet": fleet,
            "actors": dg.MetadataValue.md(table(rows)),
            "actors_up": sum(status.phase == "up" for status in statuses),
        },
    )
