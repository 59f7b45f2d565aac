"""A Harbor service in a process of its own, to be killed and started again over the same database."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import httpx

KEY = "a-key-of-a-service-that-is-killed"
PROGRAM = """
import json, sys
from pathlib import Path
from graftline.harbor.service.serve import HarborSettings, serve
from graftline.prompts.service_optimizer import ServiceOptimizer
from graftline.core.secrets import EnvironmentSecrets, Secrets

settings = HarborSettings.model_validate(json.loads(sys.argv[2]))
secrets = Secrets([EnvironmentSecrets({"GRAFTLINE_HARBOR_KEY": sys.argv[3]})])
started = lambda url: print(url, flush=True)
serve(settings, Path(sys.argv[1]), secrets, sys.argv[4], started, ServiceOptimizer(secrets))
"""
REWARD = """import json, sys
asked = json.load(open(sys.argv[2]))
json.dump({"metrics": {"reward_mean": asked["seed"] / 1000}, "success": True}, open(sys.argv[4], "w"))
"""
"""An entrypoint that rewards a seed by a thousandth of it."""


class KilledService:
    """The process, on a port of its own each time it starts."""

    def __init__(self, root: Path, settings: Mapping[str, Any], database: str = "") -> None:
        self._command = [sys.executable, "-c", PROGRAM, str(root), json.dumps({"port": 0, **settings}), KEY, database]
        self._process: subprocess.Popen[str] | None = None
        self.client = httpx.Client(headers={"X-API-Key": KEY}, timeout=30)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.client.close()

    def start(self) -> None:
        """Start it, and return when it answers."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert self._process.stdout is not None
        self.client.base_url = httpx.URL(self._process.stdout.readline().strip())

    def kill(self) -> None:
        """End it without a word."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None
