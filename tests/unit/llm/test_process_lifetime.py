"""Actors are started, kept running, and stopped without a rest."""

import http.client
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.kept_fleet import KEY, KeptFleet, comes
from tests.processes import running


def ask(port: int) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", "/v1/chat/completions", b"{}")
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_up_runs_vllm_with_its_key_in_the_environment_alone(kept: KeptFleet, tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    kept.configure("--record", str(record), "--says", "the key is {key}", api_key="TESTED_KEY")
    kept.environment["PYTHONPATH"] = "/of/another/interpreter"
    kept.up()
    found = json.loads(record.read_text())
    assert found["command"][:2] == ["serve", "m"]
    assert KEY not in found["command"]
    assert (found["environment"]["VLLM_API_KEY"], "PYTHONPATH" in found["environment"]) == (KEY, False)
    # what the server says goes through its supervisor first
    assert comes(lambda: "the key is [secret]\n" in kept.log())
    assert all(KEY not in path.read_text("utf-8") for path in tmp_path.glob("[dl]*/actors/**/*.*"))


def test_two_that_call_up_at_once_start_each_actor_once(kept: KeptFleet) -> None:
    kept.configure(actors=2)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: kept.up(), range(2))
    assert [one.pid for one in first] == [one.pid for one in second]


def test_a_killed_server_is_started_again_without_what_the_first_one_left(kept: KeptFleet) -> None:
    kept.configure("--with-child")
    (first,) = kept.up()
    _, *family = kept.processes()
    assert first.pid
    # the guard, the server, its child
    assert len(family) >= 3
    os.kill(first.pid, signal.SIGKILL)
    assert comes(lambda: not running(family))
    assert comes(lambda: kept.state().is_ready and kept.state().restarts == 1)
    (second,) = kept.status()
    assert (second.phase, second.pid != first.pid, second.ended) == (
        "up",
        True,
        f"process {first.pid} was ended by signal 9",
    )


def test_down_lets_what_is_in_flight_finish(kept: KeptFleet) -> None:
    kept.configure("--answer-s", "1", "--with-child")
    kept.up()
    family = kept.processes()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, kept.port())
        assert comes(lambda: "asked" in kept.log())
        assert kept.down() == {"actor-0": "stopped"}
        assert answer.result() == (200, b"answered")
    assert running(family) == []


def test_nothing_is_left_of_a_killed_keeper_and_up_starts_another(kept: KeptFleet) -> None:
    kept.configure("--with-child")
    (first,) = kept.up()
    family = kept.processes()
    family[0].kill()
    assert comes(lambda: not running(family))
    assert [status.phase for status in kept.status()] == ["down"]
    (second,) = kept.up()
    assert (second.phase, second.pid != first.pid) == ("up", True)


def test_down_ends_actors_that_the_configuration_lost(kept: KeptFleet) -> None:
    kept.configure(actors=2)
    kept.up()
    family = kept.processes()
    kept.configure(actors=1)
    assert (kept.down(), running(family)) == ({"actor-0": "stopped", "actor-1": "stopped"}, [])
