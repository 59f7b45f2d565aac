"""Runs that are killed in the middle, and what is stored afterwards."""

import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from graftline.core.hashing import sha256_file
from tests.processes import running

TIMEOUT_S = 500
"""For a run that hangs, on a machine that does much else."""
STAMPED = ("written_at", "downloaded_at")


def contents(data: Path) -> dict[str, str]:
    """Digest of every stored file; of records without the time they were written at."""
    found = {}
    for path in sorted(data.rglob("*")):
        name = path.relative_to(data).as_posix()
        if not path.is_file() or name.startswith(("samples/", "warehouse/")):
            continue
        if path.name == "_meta.json":
            record = json.loads(path.read_text("utf-8"))
            found[name] = json.dumps(
                {key: value for key, value in record.items() if key not in STAMPED}, sort_keys=True
            )
        else:
            found[name] = sha256_file(path)
    return found


def kill_when(
    command: Sequence[str | Path], environment: Mapping[str, str], cwd: Path, is_time: Callable[[], bool]
) -> None:
    """Start `command`, kill it with SIGKILL while `is_time`; fail if that time never comes, or children stay behind."""
    # a pipe that nobody reads would stop who writes much to it
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, env=environment, cwd=cwd, stdout=subprocess.DEVNULL, stderr=said)
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while not _stopped_while(process, is_time):
                if process.poll() is not None:
                    said.seek(0)
                    raise AssertionError(f"it ended before it could be killed: {said.read()[-2000:]!r}")
                assert time.monotonic() < deadline, "the stage to be disturbed never began"
                time.sleep(0.004)  # without a pause, to look takes a core from the run
            family = psutil.Process(process.pid).children(recursive=True)
        finally:
            process.kill()
            process.wait()
    _, alive = psutil.wait_procs(family, timeout=240)
    assert running(alive) == [], "children outlive the killed run"


def _stopped_while(process: subprocess.Popen[bytes], is_time: Callable[[], bool]) -> bool:
    """Stop `process` if it is time, and say whether it still is, now that it stands still; else let it go on."""
    if not is_time():
        return False
    process.send_signal(signal.SIGSTOP)
    if is_time():
        return True
    process.send_signal(signal.SIGCONT)
    return False


def run_again(command: Sequence[str | Path], environment: Mapping[str, str], cwd: Path) -> None:
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr
