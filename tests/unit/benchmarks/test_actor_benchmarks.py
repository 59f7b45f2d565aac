"""The benchmarks of actors and states, at sizes that show that they run and measure what they say; no clock is judged."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import actor_overhead, chat_pool, state_store
from graftline.llm.fleet import Actor, Fleet
from graftline.rollouts.teachers.prompt import load_prompt
from tests.protocol_server import ProtocolServer


@pytest.mark.long
def test_every_request_to_the_pool_is_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # the peer has an environment of its own
    monkeypatch.setattr(chat_pool, "PEERS_PYTHON", Path("/nowhere"))
    figures, peers = chat_pool.measure(chat_pool.Sizes(requests=800, peer_requests=0))
    assert (figures["steady"]["lost"], figures["faults"]["lost"], figures["faults"]["twice"], peers) == (0, 0, 0, {})
    assert figures["faults"]["faults"], "no server was killed"


@pytest.mark.long
def test_every_merge_of_the_states_is_counted(tmp_path: Path) -> None:
    figures, peers = state_store.measure(tmp_path, state_store.QUICK)
    assert (figures["throughput"]["merges"], figures["concurrent"]["lost"]) == (120, 0)
    assert peers["busy_handler"]["throughput"]["merges"] == 120


def test_the_loop_and_the_bare_client_ask_the_same(checkout: Path) -> None:
    with ProtocolServer(latency_s=0.01) as server:
        fleet = Fleet(engine="service", model="model", actors=(Actor(name="one", url=server.url, slots=4),))
        figures = actor_overhead.measure(fleet, load_prompt(checkout / "configs", "small"), 1)
        answered = sum(server.seen().answered.values())
    asked = len(actor_overhead.TASKS)
    assert (figures["requests"], len(figures["loop_s"]), len(figures["bare_s"])) == (asked, 1, 1)
    # a pass that warms up, and one of each
    assert answered == 3 * asked
    assert figures["tokens"]["loop"] == figures["tokens"]["bare"]


@pytest.mark.parametrize(
    "name",
    [
        "actors",
        "actor_overhead",
        "agent_overhead",
        "chat_pool",
        "follow_speed",
        "job_queue",
        "soak",
        "state_store",
        "teacher_quality",
    ],
)
def test_a_benchmark_says_how_it_is_run(checkout: Path, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--help"], cwd=checkout, capture_output=True, text=True, check=True
    )
    assert f"python -m benchmarks.{name}" in done.stdout
