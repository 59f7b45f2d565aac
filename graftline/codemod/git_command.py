"""The command `git`, run on a repository that is not trusted: neither are its objects, nor its configuration.

Covered: nothing it says runs a program (hooks, pagers, file system monitors, text converters, external differences, signature
checks, credential helpers), nothing is fetched from elsewhere, no configuration of the user or the system is read, and every
call has limits of time, memory and output. With nothing of it run, the owner of the repository does not matter
(`safe.directory`). Not covered: faults in git's own reading of objects.

It does not run in a jail of `sandbox.jail`: a jail works on a copy of a few files in memory, and a history has gigabytes that git
reads where they lie; and each case starts its program anew, where one that reads a history streams thousands of objects through one.
"""

import os
import resource
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile

from graftline.core.errors import BoundaryError, ConfigError

MAX_OUTPUT_BYTES = 128 << 20
"""Of one call."""
_TIMEOUT_S, _MAX_MEMORY_BYTES = 120.0, 1 << 30
_HARDENING = {
    "core.fsmonitor": "false",
    "core.hooksPath": os.devnull,
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    "core.untrackedCache": "false",
    "core.commitGraph": "false",
    "core.quotePath": "false",
    "credential.helper": "",
    "diff.external": "",
    "gc.auto": "0",
    "log.showSignature": "false",
    "maintenance.auto": "false",
    "protocol.allow": "never",
    "safe.directory": "*",
    "submodule.recurse": "false",
}
_ENVIRONMENT = {
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
    "XDG_CONFIG_HOME": "/nonexistent",
}


class GitLimitError(BoundaryError):
    """What was asked for takes more memory, or is longer, than is allowed."""


def run_git(
    folder: Path,
    command: str,
    *arguments: str,
    stdin: bytes = b"",
    check: bool = True,
    most_bytes: int = MAX_OUTPUT_BYTES,
) -> bytes | None:
    """Return what git prints about the repository of `folder`; without `check`, None where it fails.

    Raises:
        ConfigError: git is not installed.
        GitLimitError: it prints more than `most_bytes`, or needs more memory than it may have.
        BoundaryError: it takes too long, or fails while `check` is set.
    """
    program = shutil.which("git")
    if program is None:
        raise ConfigError("git: no such program; install git to read a history")
    settings = [part for key, value in _HARDENING.items() for part in ("-c", f"{key}={value}")]
    # files, for whoever neither reads nor stops writing must not be waited for
    with TemporaryFile() as source, TemporaryFile() as errors:
        source.write(stdin)
        source.seek(0)
        process = subprocess.Popen(
            [program, "--no-pager", *settings, "-C", str(folder), command, *arguments],
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=_environment(os.environ),
            start_new_session=True,
        )
        try:
            _limit(process.pid)
            output = _read_output(process, most_bytes)
        except TimeoutError:
            raise BoundaryError(
                f"git {command} in {folder}: took longer than {_TIMEOUT_S:g} s; name a shorter range"
            ) from None
        except OverflowError:
            raise GitLimitError(
                f"git {command} in {folder}: prints more than {most_bytes} bytes; name a shorter range"
            ) from None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        errors.seek(0)
        message = errors.read(4096).decode("utf-8", "replace").strip().partition("\n")[0]
    if process.returncode == 0:
        return output
    if not check:
        return None
    if process.returncode < 0 or "ut of memory" in message:
        raise GitLimitError(f"git {command} in {folder}: needs too much memory; name a shorter range")
    message = message or f"exit code {process.returncode}"
    raise BoundaryError(f"git {command} in {folder}: {message}; try `git fsck` there")


def _read_output(process: "subprocess.Popen[bytes]", most_bytes: int) -> bytes:
    """Return all that a process prints, once it has ended; TimeoutError or OverflowError where that is too much."""
    assert process.stdout is not None
    deadline, output = time.monotonic() + _TIMEOUT_S, bytearray()
    ready = select.poll()
    ready.register(process.stdout, select.POLLIN)
    while ready.poll(max(0.0, deadline - time.monotonic()) * 1000):
        chunk = os.read(process.stdout.fileno(), 1 << 20)
        if not chunk:
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
                return bytes(output)
            break
        output += chunk
        if len(output) > most_bytes:
            raise OverflowError
    raise TimeoutError


def _limit(pid: int) -> None:
    """Bound what a process may hold in memory and write to files; a tree may name itself again and again."""
    if hasattr(resource, "prlimit"):
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_DATA, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    return {"PATH": environment.get("PATH", os.defpath), **_ENVIRONMENT}
