"""Commands that print a line of JSON: what they say, and the memory they take."""

import json
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from benchmarks.lineage import family, proportional

CHECKOUT = Path(__file__).resolve().parents[1]
_SAMPLED_EVERY_S = 0.2


def said(command: Sequence[str]) -> dict[str, Any]:
    """Return the JSON of the last line that `command` prints."""
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True)
    return _last_line(command, done.returncode, done.stdout, done.stderr)


def watched(command: Sequence[str]) -> tuple[dict[str, Any], float]:
    """Return what `command` says, and the most memory it and its children have at once, in MB (proportional sets)."""
    process = psutil.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peak, finished = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not finished.wait(_SAMPLED_EVERY_S):
            peak = max(peak, sum(map(proportional, family(process))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    output, errors = process.communicate()
    finished.set()
    watcher.join()
    return _last_line(command, process.returncode, output, errors), round(peak / 1e6, 1)


def _last_line(command: Sequence[str], code: int, output: str, errors: str) -> dict[str, Any]:
    if code:
        raise SystemExit(f"{' '.join(map(str, command))}: exit code {code}\n{errors[-4000:]}")
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found
