"""Starts and stops the actors of a fleet that are on this machine.

Each has a supervisor (`graftline.llm.servers.supervisor`), which outlives the terminal. What an actor is started with is in
`graftline.llm.servers.commands`, what it does in `graftline.llm.servers.processes`.
"""

import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import SecretStr

from graftline.core.build import lock_folder
from graftline.core.clock import utc_now
from graftline.core.errors import ActorError, ConfigError
from graftline.core.paths import Paths
from graftline.core.secrets import Secrets
from graftline.llm.fleet import VLLM_VARIABLE, Actor, Fleet
from graftline.llm.load import Load, read_load
from graftline.llm.servers import supervisor
from graftline.llm.servers.commands import KILL_AFTER_S, Launch, Machine, launch_of
from graftline.llm.servers.supervisor import (
    SupervisorConfig,
    SupervisorState,
    answer,
    log_path,
    read_state,
    runs_here,
    state_folder,
    state_path,
)

Stopped = Literal["stopped", "was not running"]

_LOOK_S = 0.1
_SHOWN_LINES, _SHOWN_BYTES = 20, 1 << 14
_OF_OUR_PYTHON = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")


Phase = Literal["up", "loading", "failing", "down"]


@dataclass(frozen=True, slots=True)
class ActorStatus:
    """One actor at one moment."""

    name: str
    url: str
    phase: Phase
    """`up`: it answers that it is healthy. `loading`: its server runs, and does not yet. `failing`: its server ended and is
    started again, or stopped answering. `down`: nobody of this machine keeps it, and it does not answer."""
    pid: int | None
    """Of the server, where it is kept here."""
    restarts: int
    failures: int
    """Runs that ended one after the other before they had been of use."""
    uptime_s: int | None
    ended: str
    """How the run before this one ended."""
    load: Load | None
    """None where it does not answer."""


def up(
    paths: Paths,
    name: str,
    fleet: Fleet,
    weights: str,
    environment: Mapping[str, str],
    secrets: Secrets,
    wait_s: float = 900.0,
    show: Callable[[ActorStatus], None] = lambda status: None,
) -> list[ActorStatus]:
    """Start what does not run of `fleet` on this machine, and wait until all of it answers that it is healthy.

    `weights` is what the actors serve. `show` is told whenever the phase of an actor changes.

    Raises:
        ActorError: a port is in use, a server ended before it was healthy (that actor is stopped again), or it was not
            healthy after `wait_s` (it goes on).
    """
    actors = local_actors(name, fleet)
    key = secrets.require(fleet.api_key, f"fleet {name!r}") if fleet.api_key else None
    named = environment.get(VLLM_VARIABLE)
    cores = sorted(os.sched_getaffinity(0))
    machine = Machine(Path(sys.executable), Path(named).absolute() if named else None, cores, paths.root.absolute())
    # nobody else starts or stops actors of this fleet meanwhile
    with lock_folder(state_folder(paths, name)):
        states = {actor: read_state(state_path(paths, name, actor.name)) for actor in actors}
        missing = [actor for actor, state in states.items() if state is None or not runs_here(state)]
        launches = {actor: launch_of(fleet, actor, weights, machine) for actor in missing}
        for actor in missing:
            _check_port(actor)
        for actor, launch in launches.items():
            variables = {**_base(environment, fleet), **launch.variables}
            if key is not None:
                variables[launch.key_variable] = key.get_secret_value()
            _start_supervisor(_supervisor_config(paths, name, fleet, actor, launch), variables)
    deadline = time.monotonic() + wait_s
    return [_wait(paths, name, actor, key, deadline, actor in launches, show) for actor in actors]


def down(paths: Paths, name: str) -> dict[str, Stopped]:
    """End the actors of fleet `name` that are kept on this machine, and say of each what became of it.

    What is in flight may finish, within the time-out that the actor was started with. Nothing is left running.
    """
    folder = state_folder(paths, name)
    if not folder.is_dir():
        return {}
    with lock_folder(folder):
        return _end(*sorted(folder.glob("*.json")))


def local_actors(name: str, fleet: Fleet) -> list[Actor]:
    """Return the actors of `fleet` whose address is one of this machine; ConfigError where there are none."""
    if fleet.engine == "service":
        raise ConfigError(f"fleet {name!r}: is a service, which somebody else runs; there is nothing to start or stop")
    local = [actor for actor in fleet.actors if _is_here(actor.host)]
    if not local:
        hosts = ", ".join(f"{actor.name} ({actor.host})" for actor in fleet.actors)
        raise ConfigError(f"fleet {name!r}: none of its actors is on this machine: {hosts}; run this on those hosts")
    return local


def _is_here(host: str) -> bool:
    try:
        addresses = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:  # an unknown name
        return False
    for family, kind, _, _, address in addresses:
        # only an address of this machine can be bound to
        with socket.socket(family, kind) as probe, suppress(OSError):
            probe.bind(address)
            return True
    return False


def _check_port(actor: Actor) -> None:
    for family, kind, _, _, address in socket.getaddrinfo(actor.host, actor.port, type=socket.SOCK_STREAM):
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(address)
            except PermissionError:
                raise ConfigError(
                    f"actor {actor.name!r}: port {actor.port} may not be used; take one above 1023"
                ) from None
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise ActorError(
                        f"actor {actor.name!r}: port {actor.port} of {actor.host} is in use by {_holder(actor.port)};"
                        " stop that, or give the actor another port"
                    ) from None


def _holder(port: int) -> str:
    """Name the process that listens on `port`, as far as this user may know."""
    tables = [table for name in ("tcp", "tcp6") if (table := Path("/proc/net", name)).exists()]
    lines = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
    sockets = {f"socket:[{line[9]}]" for line in lines if line[3] == "0A" and line[1].endswith(f":{port:04X}")}
    for descriptor in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # of another user, or gone
            if str(descriptor.readlink()) in sockets:
                process = descriptor.parents[1]
                return f"process {process.name} ({(process / 'comm').read_text().strip()})"
    return "a program of another user"


def _base(environment: Mapping[str, str], fleet: Fleet) -> dict[str, str]:
    # vLLM's interpreter is another one
    dropped = () if fleet.engine == "embedded" else _OF_OUR_PYTHON
    return {name: value for name, value in environment.items() if name not in dropped}


def _supervisor_config(paths: Paths, name: str, fleet: Fleet, actor: Actor, launch: Launch) -> SupervisorConfig:
    return SupervisorConfig(
        command=list(launch.command),
        secrets=[launch.key_variable] if launch.key_variable else [],
        url=actor.url,
        end_within_s=fleet.shutdown_s + KILL_AFTER_S,
        state=str(state_path(paths, name, actor.name)),
        log=str(log_path(paths, name, actor.name)),
    )


def _start_supervisor(config: SupervisorConfig, variables: Mapping[str, str]) -> None:
    """Start it, and return when it has written its state."""
    log = Path(config.log)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        done = subprocess.run(
            [sys.executable, "-m", supervisor.__name__],
            input=json.dumps(asdict(config)).encode(),
            stdout=output,
            stderr=output,
            env=dict(variables),
            start_new_session=True,
            check=False,
        )
    if done.returncode:
        raise ActorError(f"{log}: the supervisor of the actor did not start; the log ends with:\n{_tail(log)}")


def _wait(
    paths: Paths,
    name: str,
    actor: Actor,
    key: SecretStr | None,
    deadline: float,
    is_started_here: bool,
    show: Callable[[ActorStatus], None],
) -> ActorStatus:
    path, log = state_path(paths, name, actor.name), log_path(paths, name, actor.name)
    failures, phase = None, ""
    while True:
        status = actor_status(actor, read_state(path), HEALTH, key)
        if status.phase != phase:
            phase = status.phase
            show(status)
        if status.phase == "up":
            return status
        if status.phase == "down":
            raise ActorError(f"actor {actor.name!r}: its supervisor ended before it was healthy; see {log}")
        failures = (0 if is_started_here else status.failures) if failures is None else failures
        if status.failures > failures:
            if is_started_here:
                _end(path)
            raise ActorError(
                f"actor {actor.name!r}: {status.ended} before it was healthy; {log} ends with:\n{_tail(log)}"
            )
        if time.monotonic() > deadline:
            raise ActorError(f"actor {actor.name!r}: is not healthy yet, and goes on loading; see {log}, or stop it")
        time.sleep(_LOOK_S)


def _end(*paths: Path) -> dict[str, Stopped]:
    """End the supervisors that wrote these states, all at the same time."""
    states = {path: state for path in paths if (state := read_state(path))}
    handles = {path: _signal(state) for path, state in states.items()}
    return {path.stem: _wait_for_end(path, state, handles[path]) for path, state in states.items()}


def _signal(state: SupervisorState) -> int | None:
    """Ask the supervisor to end, and return a handle of its process; None if it does not run here."""
    try:
        handle = os.pidfd_open(state.keeper)
    except ProcessLookupError:
        return None
    try:
        # from here on, the handle is of one process, whatever becomes of its id
        if runs_here(state):
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            return handle
    except ProcessLookupError:
        pass
    except PermissionError:
        raise ActorError(
            f"process {state.keeper}, which keeps an actor, is of another user; stop it as that user"
        ) from None
    os.close(handle)
    return None


def _wait_for_end(path: Path, state: SupervisorState, handle: int | None) -> Stopped:
    if handle is None:
        # the file stays: it may be that of a supervisor of another machine, with the same folders
        return "was not running"
    try:
        ready = select.poll()
        ready.register(handle, select.POLLIN)
        if not ready.poll((state.end_within_s + KILL_AFTER_S) * 1000):
            # its server ends with it
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            ready.poll(KILL_AFTER_S * 1000)
    finally:
        os.close(handle)
    path.unlink(missing_ok=True)
    return "stopped"


def _tail(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _SHOWN_BYTES))
        return "\n".join(stream.read().decode("utf-8", "replace").splitlines()[-_SHOWN_LINES:])


HEALTH = "/health"


def fleet_status(paths: Paths, name: str, fleet: Fleet, key: SecretStr | None = None) -> list[ActorStatus]:
    """Return what every actor does, in the order of the fleet; all are asked at the same time."""

    # services that others run have no address for it
    health = f"{fleet.api_path}/models" if fleet.engine == "service" else HEALTH

    def look(actor: Actor) -> ActorStatus:
        return actor_status(actor, read_state(state_path(paths, name, actor.name)), health, key)

    with ThreadPoolExecutor(min(32, len(fleet.actors))) as pool:
        return list(pool.map(look, fleet.actors))


def actor_status(actor: Actor, state: SupervisorState | None, health: str, key: SecretStr | None) -> ActorStatus:
    """Ask the actor at the path `health`, and return what it answers with what its supervisor says."""
    live = state if state is not None and runs_here(state) else None
    headers = {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}
    is_healthy = answer(actor.url, health, headers) is not None
    metrics = answer(actor.url, "/metrics", headers) if is_healthy else None
    runs = live is not None and live.server is not None
    return ActorStatus(
        name=actor.name,
        url=actor.url,
        phase=_phase(live, is_healthy),
        pid=live.server if live else None,
        restarts=live.restarts if live else 0,
        failures=live.failures if live else 0,
        uptime_s=int((utc_now() - datetime.fromisoformat(live.since)).total_seconds()) if live and runs else None,
        ended=live.ended if live else "",
        load=read_load(metrics) if metrics is not None else None,
    )


def _phase(state: SupervisorState | None, is_healthy: bool) -> Phase:
    if is_healthy:
        return "up"
    if state is None:
        return "down"
    return "failing" if state.failures or state.is_ready else "loading"
