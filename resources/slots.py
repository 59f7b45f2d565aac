"""Slots of pools that a killed run of this machine left behind, for the next run to have.

A run that a daemon started is seen to end by the daemon, which frees its slots (`run_monitoring` of dagster.yaml). One that
was started by a command, and killed, would hold its slots for good, and the next run would wait for them.
https://docs.dagster.io/guides/operate/managing-concurrency
"""

import os
import platform
from pathlib import Path

import dagster as dg

PROCESS = ".dagster/graftline_process"
"""Tag of a run, hidden by the UI: machine, number and start of the process that executes it, and the run."""
GONE = "its process was killed"


def take_over_slots(instance: dg.DagsterInstance, run_id: str) -> None:
    """Say which process executes the run, and free the slots of runs that are over, or whose process is."""
    storage = instance.event_log_storage
    if not storage.supports_global_concurrency_limits:
        return
    instance.add_run_tags(run_id, {PROCESS: process(os.getpid(), run_id)})
    for other in storage.get_concurrency_run_ids() - {run_id}:
        run = instance.get_run_by_id(other)
        if run is not None and not run.is_finished:
            if not is_gone(run):
                continue
            instance.report_run_failed(run, GONE)
        storage.free_concurrency_slots_for_run(other)


def process(number: int, run_id: str) -> str:
    """Return what tells a process of this machine from all others, also from later ones with its number; and what it executes."""
    try:
        # the name of the program, in parentheses, may hold blanks
        state, *facts = Path(f"/proc/{number}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        started = ""
    else:
        started = "" if state == "Z" else facts[18]  # a zombie executes nothing
    return f"{platform.node()}:{number}:{started}:{run_id}"


def is_gone(run: dg.DagsterRun) -> bool:
    """Whether the process that executes a run is known to have ended."""
    tag = run.tags.get(PROCESS, "")
    # a run that is made again has the tags of the one before until it begins
    if not tag.endswith(f":{run.run_id}"):
        return False
    node, number, *_ = tag.split(":")
    # of another machine nothing is known here
    return node == platform.node() and process(int(number), run.run_id) != tag
