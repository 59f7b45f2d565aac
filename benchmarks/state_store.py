"""How many states a second several processes load, merge and save, and whether any update is lost.

* `throughput`: every process works on tasks of its own, as attempts do, twelve steps each;
* `concurrent`: all processes merge into the same few states at once; then every single update is looked for.

Both with a state of some 1,000 characters. The peer is the same store without its lock file, whose processes wait for
each other by SQLite's busy handler.

    python -m benchmarks.state_store [--quick] [--folder FOLDER]
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import machine
from graftline.state import StateStore, StateUpdate
from graftline.tokens import count_tokens

_STEPS = 12
_KEYS = 16
_PATIENCE_S = 1800

Figures = dict[str, Any]
Keys = Callable[[int, int, int], str]
"""From process, round and step to the key of a state."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    processes: int
    rounds: int
    merges: int
    """Of each process in each round."""
    concurrent_processes: int
    concurrent_merges: int
    """Of all processes together."""


FULL = Sizes(processes=4, rounds=10, merges=1000, concurrent_processes=8, concurrent_merges=100_000)
QUICK = Sizes(processes=2, rounds=2, merges=30, concurrent_processes=4, concurrent_merges=400)


class BusyHandlerStore(StateStore):
    """The store as SQLite alone would have it."""

    @contextmanager
    def _turn(self) -> Iterator[None]:
        yield


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few merges: shows that it runs, not how well")
    parser.add_argument("--folder", type=Path, help="where the files are made; a disk of this machine")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="graftline-bench-", dir=arguments.folder) as folder:
        figures, peers = measure(Path(folder), QUICK if arguments.quick else FULL)
    print(json.dumps({"name": "state_store", "figures": figures, "peers": peers, "machine": machine()}))


def measure(folder: Path, sizes: Sizes) -> tuple[Figures, Figures]:
    """Return the figures of the store, and those of the peer."""
    figures = {
        "throughput": throughput(folder / "own.sqlite", StateStore, sizes),
        "concurrent": concurrent(folder / "shared.sqlite", StateStore, sizes),
    }
    return figures, {"busy_handler": {"throughput": throughput(folder / "peer.sqlite", BusyHandlerStore, sizes)}}


def throughput(path: Path, kind: type[StateStore], sizes: Sizes) -> Figures:
    """Return how fast processes merge into states of their own."""
    rates, cpu_s, waits = _worked(path, kind, sizes.processes, sizes.rounds, sizes.merges, own_key)
    merges = sizes.processes * sizes.rounds * sizes.merges
    return {
        "processes": sizes.processes,
        "merges": merges,
        "per_second": round(median(rates)),
        "per_second_best_round": round(max(rates)),
        "cpu_us_per_merge": round(cpu_s / merges * 1e6),
        "p50_ms": round(waits[len(waits) // 2] * 1e3, 2),
        "p99_ms": round(waits[len(waits) * 99 // 100] * 1e3, 2),
        "max_ms": round(waits[-1] * 1e3, 1),
        "file_bytes_per_merge": round(path.stat().st_size / merges),
    }


def concurrent(path: Path, kind: type[StateStore], sizes: Sizes) -> Figures:
    """Return how many updates of many processes to the same states cannot be found afterwards."""
    processes = sizes.concurrent_processes
    merges = sizes.concurrent_merges // processes
    rates, _, _ = _worked(path, kind, processes, 1, merges, shared_key)
    with kind(path) as states:
        said = {change.changed["history"][-1] for entry in states.entries() for change in states.history(entry.key)}
    lost = sum(done(process, 0, step) not in said for process in range(processes) for step in range(merges))
    return {
        "processes": processes,
        "states": _KEYS,
        "merges": processes * merges,
        "lost": lost,
        "per_second": round(rates[0]),
    }


def own_key(process: int, number: int, step: int) -> str:
    """Return the key of a task that nobody else works on."""
    return f"task-{process}-{number}-{step // _STEPS}#1"


def shared_key(process: int, number: int, step: int) -> str:
    """Return a key that all processes use at about the same time."""
    return f"task-{step % _KEYS}"


def done(process: int, number: int, step: int) -> str:
    """Return what an update says that was done; no two say the same."""
    return (
        f"process {process}, round {number}, step {step}: rewrote `old($A, $B)` to `new($A, $B)` (lines 3, 12 and 15)"
    )


def update_of(process: int, number: int, step: int) -> StateUpdate:
    """Return an update as a model makes them: most fields in the first step of a task, some in each."""
    line = step % _STEPS
    return StateUpdate(
        goals=["replace the call of `old(a, b)` by `new(a, b)` in every function of the module"] if line == 0 else None,
        constraints=[f"keep `old(c, {process})` as it is", "keep `import os` as it is"] if line % 4 == 0 else None,
        decisions=[f"leave $A open in `old($A, {step})`, on lines {line} and {line + 3}"],
        hypotheses=[f"what looks like `old($A, {line})` changes alike everywhere"] if line % 3 == 0 else None,
        history=[done(process, number, step)],
        open_issues=[f"not finished; `old` stands on line {line}: see whether that is meant too"],
        next_focus=f"line {line}, and what else the task asks for",
    )


def _worked(
    path: Path, kind: type[StateStore], processes: int, rounds: int, merges: int, key: Keys
) -> tuple[list[float], float, list[float]]:
    """Return merges per second of each round, the seconds of all cores, and the seconds of each merge, in order."""
    context = get_context("spawn")
    together, results = context.Barrier(processes), context.Queue()
    workers = [
        context.Process(target=_work, args=(path, kind, number, rounds, merges, key, together, results))
        for number in range(processes)
    ]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=_PATIENCE_S) for _ in workers]
    for worker in workers:
        worker.join()
    spans = [[spans[number] for spans, _, _ in found] for number in range(rounds)]
    rates = [processes * merges / (max(end for _, end in each) - min(start for start, _ in each)) for each in spans]
    return rates, sum(cpu_s for _, cpu_s, _ in found), sorted(wait for _, _, waits in found for wait in waits)


def _work(
    path: Path,
    kind: type[StateStore],
    process: int,
    rounds: int,
    merges: int,
    key: Keys,
    together: Barrier,
    results: "Queue[Any]",
) -> None:
    count_tokens("")  # reads the vocabulary, once in the life of a process
    spans, waits, cpu_s = [], [], 0.0
    with kind(path) as states:
        for number in range(rounds):
            updates = [(key(process, number, step), update_of(process, number, step)) for step in range(merges)]
            together.wait()
            start, cpu_start = time.monotonic(), time.process_time()
            for name, update in updates:
                before = time.perf_counter()
                states.update(name, update)
                waits.append(time.perf_counter() - before)
            spans.append((start, time.monotonic()))
            cpu_s += time.process_time() - cpu_start
    results.put((spans, cpu_s, waits))


if __name__ == "__main__":
    main()
