"""An optimization whose process is killed in the middle, and begun again."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.conftest import CHECKOUT
from tests.killed_runs import kill_when

PROGRAM = """
import os, sys, threading, time
from pathlib import Path
from graftline.harbor.task_app_client import create_task_app_client
from graftline.prompts.journal import FileJournal
from graftline.prompts.proposers import OfflineProposer
from graftline.prompts.optimize import optimize
from tests.optimized_app import PaidApp, wanted

folder = Path(sys.argv[1])
app, lock = PaidApp(), threading.Lock()

def asked(number):
    prompt, seed = app.asked[number - 1]
    with lock, (folder / "asked.log").open("a") as log:
        log.write(f"{app.ids[number - 1]}\\n")
        log.flush()
        os.fsync(log.fileno())
    time.sleep(0.05)

app.on_asked = asked
journal = FileJournal(folder / "journal.jsonl")
outcome = optimize(wanted(), create_task_app_client(app.config), OfflineProposer(), journal, "run")
(folder / "outcome.json").write_text(outcome.model_dump_json())
"""


def rollouts(folder: Path) -> list[dict[str, Any]]:
    path = folder / "journal.jsonl"
    content = path.read_bytes() if path.exists() else b""
    lines = [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]
    return [line for line in lines if line["kind"] == "rollout"]


def asked(folder: Path) -> list[str]:
    return (folder / "asked.log").read_text().splitlines()


def test_one_that_was_killed_twice_pays_nothing_twice_and_finds_the_same(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-c", PROGRAM]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    subprocess.run([*command, str(whole)], env=environment, check=True, timeout=240)

    kept: list[tuple[set[str], int]] = []
    for number in (15, 45):
        kill_when([*command, str(killed)], environment, CHECKOUT, lambda least=number: len(rollouts(killed)) >= least)
        names = {f"run-{line['candidate'][:16]}-s{line['seed']}-{line['number']}" for line in rollouts(killed)}
        kept.append((names, len(asked(killed))))
    subprocess.run([*command, str(killed)], env=environment, check=True, timeout=240)

    # what was under way is asked for again, under its name; what had ended is not
    for paid, so_far in kept:
        assert not paid & set(asked(killed)[so_far:])
    assert (killed / "outcome.json").read_text() == (whole / "outcome.json").read_text()
    lines = [(line["candidate"], line["seed"]) for line in rollouts(killed)]
    assert len(lines) == len(set(lines)) == len(rollouts(whole))
