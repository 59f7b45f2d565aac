"""The sensor on the health of actors: what it writes down, and when it is silent."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from graftline.core.paths import Paths
from orchestration.build import resources_for
from sensors.actor_health import actor_health
from tests.http_server import HttpAnswer, serve_answers


def looked_at(root: Path, manifest: str = "local", cursor: str | None = None) -> Any:
    """Return what the sensor says with the fleet of a manifest."""
    resources = {name: resources_for(Paths(root), manifest)[name] for name in ("artifacts", "actors")}
    with dg.build_sensor_context(cursor=cursor, resources=resources) as context:
        return actor_health()(context)


@contextmanager
def healthy_server() -> Iterator[str]:
    """What answers as a server of a model does."""
    with serve_answers(
        lambda request: HttpAnswer(status=200 if request.path in ("/health", "/metrics") else 404)
    ) as url:
        yield url


@pytest.fixture
def tick(small_checkout: Any) -> Any:
    """A function of the address of an actor and a cursor that returns what the sensor answers."""
    root: Path = small_checkout.root

    def look(url: str, cursor: str | None = None) -> Any:
        fleet = {"engine": "vllm", "model": "m", "actors": [{"name": "a", "url": url}]}
        (root / "configs" / "vllm_actors.yaml").write_text(json.dumps({"fleets": {"embedded": fleet}}), "utf-8")
        return looked_at(root, cursor=cursor)

    return look


def test_an_actor_that_came_up_is_observed_once(tick: Any) -> None:
    with healthy_server() as url:
        fleet = tick(url)
        again = tick(url, fleet.cursor)
    [observed] = fleet.asset_events
    assert (observed.asset_key.path, observed.metadata["fleet"].value, observed.metadata["actors_up"].value) == (
        ["teacher_trajectories"],
        "embedded",
        1,
    )
    assert (json.loads(fleet.cursor), again.asset_events) == ({"a": "up"}, [])


def test_an_actor_that_is_gone_is_observed(tick: Any) -> None:
    result = tick("http://127.0.0.1:1", json.dumps({"a": "up"}))
    assert ([event.metadata["actors_up"].value for event in result.asset_events], json.loads(result.cursor)) == (
        [0],
        {"a": "down"},
    )


def test_actors_that_were_never_up_are_no_news(tick: Any) -> None:
    result = tick("http://127.0.0.1:1")
    assert (result.asset_events, str(result.skip_reason.skip_message)) == ([], "fleet embedded: a down")


def test_a_cursor_that_cannot_be_read_is_begun_anew(tick: Any) -> None:
    assert json.loads(tick("http://127.0.0.1:1", "{broken").cursor) == {"a": "down"}


def test_a_faulty_configuration_is_said_and_the_cursor_stays(tick: Any) -> None:
    result = tick("no address", json.dumps({"a": "up"}))
    assert ("url 'no address'" in str(result.skip_reason.skip_message), json.loads(result.cursor)) == (
        True,
        {"a": "up"},
    )


def test_a_chat_model_in_memory_has_no_actors(small_checkout: Any) -> None:
    result = looked_at(small_checkout.root, "test")
    assert str(result.skip_reason.skip_message) == "the chat model of the manifest is no fleet of actors"
