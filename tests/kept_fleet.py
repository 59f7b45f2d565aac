"""A fleet of stand-ins for vLLM below a root folder of its own, for tests of supervisors and of the commands around them."""

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from graftline.core.paths import Paths
from graftline.core.secrets import EnvironmentSecrets, Secrets
from graftline.llm.fleet import Fleet, load_fleet
from graftline.llm.servers.processes import ActorStatus, down, fleet_status, up
from graftline.llm.servers.supervisor import SupervisorState, log_path, read_state, state_path
from tests import vllm_stand_in

NAME = "tested"
KEY = "key-that-nobody-sees"


class KeptFleet:
    """Its configuration, and the processes that came of it."""

    def __init__(self, root: Path) -> None:
        self.paths = Paths(root)
        self.environment = {
            **os.environ,
            "GRAFTLINE_VLLM_ENV": str(vllm_stand_in.install(root / "vllm")),
            "TESTED_KEY": KEY,
        }
        (root / "configs" / "manifests").mkdir(parents=True)
        self.configure()

    def configure(self, *arguments: str, actors: int = 1, host: str = "127.0.0.1", **settings: Any) -> None:
        """Write the configuration; `arguments` say what the stand-in does."""
        fleet = {
            "engine": "vllm",
            "model": "m",
            "arguments": arguments,
            "shutdown_s": 20,
            "actors": [{"name": f"actor-{n}", "url": f"http://{host}:{free_port()}"} for n in range(actors)],
            **settings,
        }
        # JSON is YAML
        (self.paths.configs / "vllm_actors.yaml").write_text(json.dumps({"fleets": {NAME: fleet}}), "utf-8")

    @property
    def fleet(self) -> Fleet:
        return load_fleet(self.paths.configs, NAME)

    def up(self, wait_s: float = 60.0, show: Callable[[ActorStatus], None] = lambda status: None) -> list[ActorStatus]:
        secrets = Secrets([EnvironmentSecrets(self.environment)])
        return up(self.paths, NAME, self.fleet, "m", self.environment, secrets, wait_s, show)

    def down(self) -> dict[str, str]:
        return dict(down(self.paths, NAME))

    def status(self) -> list[ActorStatus]:
        return fleet_status(self.paths, NAME, self.fleet)

    def state(self, actor: str = "actor-0") -> SupervisorState:
        state = read_state(state_path(self.paths, NAME, actor))
        assert state is not None
        return state

    def log(self, actor: str = "actor-0") -> str:
        return log_path(self.paths, NAME, actor).read_text("utf-8")

    def processes(self) -> list[psutil.Process]:
        """Return everything that a supervisor has started, itself included."""
        supervisor = psutil.Process(self.state().keeper)
        return [supervisor, *supervisor.children(recursive=True)]

    def port(self) -> int:
        return self.fleet.actors[0].port


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def comes(claim: Callable[[], bool], within_s: float = 240.0) -> bool:
    """Wait until `claim` holds, and say whether it does."""
    deadline = time.monotonic() + within_s
    while not (holds := claim()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds
