"""What this machine can do, found by trying, and how to get what is missing."""

import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from graftline.core.errors import GraftlineError, install_command
from graftline.llm.fleet import VLLM_VARIABLE
from graftline.sandbox.actions import ProcessSandboxConfig, open_sandbox
from graftline.sandbox.base import is_at_least
from graftline.sandbox.jail.open import JailConfig, open_jail

_TIMEOUT_S = 10
_PURPOSES = {
    "tests": "tests of tasks; rollouts",
    "dagster": "assets and UI",
    "pyarrow": "datasets, `run`",
    "redis-server": "workers of a queue",
    "redis": "workers of a queue",
    "tinker": "training",
    "vllm": "models on GPUs",
    "hvac": "secrets in Vault",
    "docker": "executor docker",
    "gpu": "models on GPUs",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One ability of this machine."""

    name: str
    is_there: bool
    detail: str
    is_needed: bool = False
    """Whether the embedded default needs it."""
    remedy: str = ""
    """How to get it, where it is missing."""

    @property
    def purpose(self) -> str:
        """Return what needs it, so that a reader knows whether to care that it is missing."""
        return "everything" if self.is_needed else _PURPOSES[self.name]


def examine(environment: Mapping[str, str]) -> list[Finding]:
    """Return the findings, needed ones first."""
    return [
        _python(),
        _tool("ast-grep", ["ast-grep", "--version"], "pip install ast-grep-cli", is_needed=True),
        _jail(),
        _tests(),
        _package("dagster", f"{install_command('dagster')}; assets and UI are those of a checkout"),
        _package("pyarrow", install_command("datasets")),
        _tool("redis-server", ["redis-server", "--version"], "apt-get install redis-server"),
        _package("redis", install_command("redis")),
        _package("tinker", f"{install_command('training')}; TINKER_API_KEY in .env"),
        _vllm(environment),
        _package("hvac", install_command("vault")),
        _docker(environment),
        _gpu(),
    ]


def _python() -> Finding:
    return Finding(
        "python", sys.version_info >= (3, 11), f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        is_needed=True, remedy="install Python 3.11 or newer",
    )  # fmt: skip


def _jail() -> Finding:
    remedy = "run on Linux 3.17 or newer, x86_64 or aarch64, with seccomp"
    try:
        with closing(open_sandbox(ProcessSandboxConfig(required_level="none"))) as sandbox:
            isolation = sandbox.isolation
    except GraftlineError as error:
        return Finding("jail", False, str(error), is_needed=True, remedy=remedy)
    detail = f"level {isolation.level} ({isolation.implementation}: {', '.join(isolation.features)})"
    return Finding("jail", isolation.level != "none", detail, is_needed=True, remedy=remedy)


def _tests() -> Finding:
    remedy = "see `graftline sandbox probe`"
    try:
        with closing(open_jail(JailConfig(required_level="none"))) as jail:
            isolation = jail.isolation
    except GraftlineError as error:
        return Finding("tests", False, str(error), remedy=remedy)
    is_there = is_at_least(isolation.level, JailConfig().required_level)
    return Finding("tests", is_there, f"level {isolation.level} ({isolation.implementation})", remedy=remedy)


def _package(name: str, remedy: str) -> Finding:
    if find_spec(name) is None:
        return Finding(name, False, "not installed", remedy=remedy)
    try:
        return Finding(name, True, version(name))
    except PackageNotFoundError:
        return Finding(name, True, "installed")


def _vllm(environment: Mapping[str, str]) -> Finding:
    remedy = (
        f"`python -m venv ENV` and `ENV/bin/pip install '.[vllm]'` on a machine with a GPU, and {VLLM_VARIABLE}=ENV; see"
        " docs/actors.md"
    )
    named = environment.get(VLLM_VARIABLE)
    if not named:
        return Finding("vllm", False, f"no environment of its own is named by {VLLM_VARIABLE}", remedy=remedy)
    program = Path(named) / "bin" / "vllm"
    is_there = program.is_file()
    return Finding("vllm", is_there, str(program) if is_there else f"{program} is not there", remedy=remedy)


def _tool(name: str, command: list[str], remedy: str, is_needed: bool = False) -> Finding:
    beside = Path(sys.executable).with_name(command[0])
    program = str(beside) if beside.exists() else shutil.which(command[0])
    if not program:
        return Finding(name, False, "not installed", is_needed, remedy)
    output = _output([program, *command[1:]])
    return Finding(name, output is not None, (output or "does not start").partition("\n")[0], is_needed, remedy)


def _docker(environment: Mapping[str, str]) -> Finding:
    remedy = "install Docker and join its group, or set DOCKER_HOST"
    if not shutil.which("docker"):
        return Finding("docker", False, "not installed", remedy=remedy)
    server = _output(["docker", "version", "--format", "{{.Server.Version}}"])
    address = environment.get("DOCKER_HOST", "the local socket")
    return Finding("docker", server is not None, server or f"no server answers at {address}", remedy=remedy)


def _gpu() -> Finding:
    remedy = "needed only to serve or train models here; the embedded default uses none"
    if not shutil.which("nvidia-smi"):
        return Finding("gpu", False, "no nvidia-smi", remedy=remedy)
    names = _output(["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"])
    return Finding("gpu", bool(names), (names or "nvidia-smi finds none").replace("\n", "; "), remedy=remedy)


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
