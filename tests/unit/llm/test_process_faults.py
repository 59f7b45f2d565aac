"""What is said, and what is left, when an actor does not come up or cannot be stopped as usual."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from graftline.core.errors import ActorError, ConfigError, RecordError
from graftline.core.record import write_atomically
from graftline.llm.servers.supervisor import (
    SupervisorConfig,
    SupervisorState,
    delay_s,
    read_state,
    state_path,
    write_state,
)
from tests import vllm_stand_in
from tests.kept_fleet import NAME, KeptFleet, comes, free_port
from tests.processes import running


def answers(port: int) -> bool:
    """Whether the server listens, and thus ignores SIGTERM already."""
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def has_keeper(root: Path) -> bool:
    """Whether a supervisor runs that was told of a log below `root`."""
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return any(str(root) in word for line in lines for word in line)


def test_an_actor_that_dies_at_start_is_told_with_its_last_words_and_not_tried_on(
    kept: KeptFleet, tmp_path: Path
) -> None:
    kept.configure("--says", "no room for the weights", "--fails", "3")
    with pytest.raises(
        ActorError, match=r"actor 'actor-0': process \d+ ended with exit status 3 before it was healthy"
    ) as e:
        kept.up()
    assert "\nno room for the weights" in str(e.value)
    assert (read_state(state_path(kept.paths, NAME, "actor-0")), has_keeper(tmp_path)) == (None, False)


def test_a_port_in_use_names_who_uses_it(kept: KeptFleet) -> None:
    kept.configure(actors=2)
    with socket.socket() as other:
        other.bind(("127.0.0.1", kept.fleet.actors[1].port))
        other.listen()
        wanted = f"actor 'actor-1': port {kept.fleet.actors[1].port} of 127.0.0.1 is in use by process {os.getpid()} \\({psutil.Process().name()}\\);"
        with pytest.raises(ActorError, match=wanted):
            kept.up()
    assert kept.down() == {}


def test_an_actor_that_is_not_healthy_in_time_goes_on_loading(kept: KeptFleet) -> None:
    kept.configure("--load-s", "60")
    with pytest.raises(ActorError, match="actor 'actor-0': is not healthy yet, and goes on loading"):
        kept.up(wait_s=0)
    assert comes(lambda: kept.state().server is not None)
    assert [(status.phase, status.pid) for status in kept.status()] == [("loading", kept.state().server)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"host": "192.0.2.1"}, r"none of its actors is on this machine: actor-0 \(192.0.2.1\); run this"),
        ({"engine": "service"}, "fleet 'tested': is a service, which somebody else runs"),
        ({"api_key": "OTHER_KEY"}, "OTHER_KEY: is not set, but fleet 'tested' needs it"),
    ],
)
def test_a_fleet_that_cannot_be_started_here_is_refused(kept: KeptFleet, changes: dict[str, str], message: str) -> None:
    kept.configure(**changes)
    with pytest.raises(ConfigError, match=message):
        kept.up()


def test_a_process_that_got_the_id_of_a_dead_keeper_is_left_alone(kept: KeptFleet) -> None:
    kept.up()
    family, path = kept.processes(), state_path(kept.paths, NAME, "actor-0")
    state = kept.state()
    family[0].kill()
    assert comes(lambda: not running(family))
    with subprocess.Popen(["sleep", "60"]) as other:
        write_state(path, replace(state, keeper=other.pid))
        assert (kept.down(), other.poll(), path.exists()) == ({"actor-0": "was not running"}, None, True)
        other.kill()


def test_a_file_that_is_no_state_is_named(kept: KeptFleet) -> None:
    write_atomically(state_path(kept.paths, NAME, "actor-0"), "{")
    with pytest.raises(RecordError, match="is not the state of an actor; remove it, and end what runs by hand"):
        kept.up()
    state_path(kept.paths, NAME, "actor-0").unlink()


def supervisor_config(folder: Path, *arguments: str, end_within_s: float = 0.2) -> SupervisorConfig:
    program, port = vllm_stand_in.install(folder / "vllm") / "bin" / "vllm", free_port()
    return SupervisorConfig(
        command=[str(program), "--host", "127.0.0.1", "--port", str(port), *arguments],
        secrets=[],
        url=f"http://127.0.0.1:{port}",
        end_within_s=end_within_s,
        state=str(folder / "state.json"),
        log=str(folder / "log"),
    )


def keep(config: SupervisorConfig) -> None:
    told = json.dumps(asdict(config)).encode()
    subprocess.run([sys.executable, "-m", "graftline.llm.servers.supervisor"], input=told, check=True, timeout=240)


@pytest.mark.parametrize(("load_s", "end_within_s"), [(0, 0.2), (60, 60.0)], ids=["serving", "loading"])
def test_a_server_that_does_not_listen_is_killed_in_the_end(tmp_path: Path, load_s: int, end_within_s: float) -> None:
    config = supervisor_config(tmp_path, "--load-s", str(load_s), "--ignores-sigterm", end_within_s=end_within_s)
    keep(config)
    port = urlsplit(config.url).port
    assert port
    path = Path(config.state)
    assert comes(
        lambda: (
            (state := read_state(path)) is not None
            and state.server is not None
            and (state.is_ready or load_s)
            and answers(port)
        )
    )
    state = read_state(path)
    assert state
    assert state.server
    family = [psutil.Process(state.keeper), psutil.Process(state.server)]
    os.kill(state.keeper, signal.SIGTERM)
    assert comes(lambda: not running(family))
    said = Path(config.log).read_text("utf-8")
    assert re.search(r"supervisor: process \d+ takes too long to end; it is killed\n", said)
    assert not path.exists()


def test_a_server_that_hangs_is_killed_and_started_again(tmp_path: Path) -> None:
    config = replace(supervisor_config(tmp_path), health_every_s=0.1, silent_s=0.5)
    path = Path(config.state)

    def state() -> SupervisorState:
        found = read_state(path)
        assert found
        return found

    keep(config)
    try:
        assert comes(lambda: state().is_ready)
        hanging = state().server
        assert hanging
        os.kill(hanging, signal.SIGSTOP)
        assert comes(lambda: state().restarts == 1 and state().is_ready)
        assert (state().server != hanging, state().ended) == (True, f"process {hanging} was ended by signal 9")
        assert f"process {hanging} is not healthy any more; it is killed" in Path(config.log).read_text("utf-8")
    finally:
        os.kill(state().keeper, signal.SIGTERM)
    assert comes(lambda: not path.exists())


@pytest.mark.parametrize(("failures", "seconds"), [(0, 0.5), (1, 1.0), (3, 4.0), (6, 32.0), (7, 60.0), (5000, 60.0)])
def test_each_run_that_was_of_no_use_doubles_the_pause(failures: int, seconds: float) -> None:
    assert delay_s(failures) == seconds
