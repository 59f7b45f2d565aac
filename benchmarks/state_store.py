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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import machine
from graftline.core.tokens import count_tokens
from graftline.rollouts.state import StateStore, StateUpdate

_STEPS = 12
_KEYS = 16
_PATIENCE_S = 1800

Figures = dict[str, Any]
Kinds = Mapping[str, type[StateStore]]
Key = Callable[[int, int, int], str]
"""From process, turn and step to the key of a state."""


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


@dataclass(frozen=True)
class Round:
    """What one process did in one round, by the clock that all processes share."""

    name: str
    number: int
    start: float
    end: float
    cpu_s: float
    waits_s: list[float]


@dataclass
class Work:
    """What all processes did with one kind of store."""

    rates: list[float] = field(default_factory=list)
    """Merges per second of each round."""
    cpu_s: float = 0.0
    waits_s: list[float] = field(default_factory=list)
    """Of each merge."""


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
    rates = throughput(folder, {"store": StateStore, "busy_handler": BusyHandlerStore}, sizes)
    figures = {"throughput": rates.pop("store"), "concurrent": concurrent(folder, StateStore, sizes)}
    return figures, {name: {"throughput": found} for name, found in rates.items()}


def throughput(folder: Path, kinds: Kinds, sizes: Sizes) -> dict[str, Figures]:
    """Return how fast processes merge into states of their own; the kinds take turns, so that all meet the same load."""
    done_by = _worked(folder, kinds, sizes.processes, sizes.rounds, sizes.merges, own_key)
    merges = sizes.processes * sizes.rounds * sizes.merges
    found = {}
    for name, work in done_by.items():
        waits = sorted(work.waits_s)
        found[name] = {
            "processes": sizes.processes,
            "merges": merges,
            "per_second": round(median(work.rates)),
            "per_second_best_round": round(max(work.rates)),
            "cpu_us_per_merge": round(work.cpu_s / merges * 1e6),
            "p50_ms": round(waits[len(waits) // 2] * 1e3, 2),
            "p99_ms": round(waits[len(waits) * 99 // 100] * 1e3, 2),
            "max_ms": round(waits[-1] * 1e3, 1),
            "file_bytes_per_merge": round((folder / f"{name}.sqlite").stat().st_size / merges),
        }
    return found


def concurrent(folder: Path, kind: type[StateStore], sizes: Sizes) -> Figures:
    """Return how many updates of many processes to the same states cannot be found afterwards."""
    processes = sizes.concurrent_processes
    merges = sizes.concurrent_merges // processes
    work = _worked(folder, {"shared": kind}, processes, 1, merges, shared_key)["shared"]
    with kind(folder / "shared.sqlite") as states:
        said = {change.changed["history"][-1] for entry in states.entries() for change in states.history(entry.key)}
    lost = sum(done(process, 0, step) not in said for process in range(processes) for step in range(merges))
    return {
        "processes": processes,
        "states": _KEYS,
        "merges": processes * merges,
        "lost": lost,
        "per_second": round(work.rates[0]),
    }


def own_key(process: int, turn: int, step: int) -> str:
    """Return the key of a task that nobody else works on."""
    return f"task-{process}-{turn}-{step // _STEPS}#1"


def shared_key(process: int, turn: int, step: int) -> str:
    """Return a key that all processes use at about the same time."""
    return f"task-{step % _KEYS}"


def done(process: int, turn: int, step: int) -> str:
    """Return what an update says that was done; no two say the same."""
    return f"process {process}, turn {turn}, step {step}: rewrote `old($A, $B)` to `new($A, $B)` (lines 3, 12 and 15)"


def update_of(process: int, turn: int, step: int) -> StateUpdate:
    """Return an update as a model makes them: most fields in the first step of a task, some in each."""
    line = step % _STEPS
    return StateUpdate(
        goals=["replace the call of `old(a, b)` by `new(a, b)` in every function of the module"] if line == 0 else None,
        constraints=[f"keep `old(c, {process})` as it is", "keep `import os` as it is"] if line % 4 == 0 else None,
        decisions=[f"leave $A open in `old($A, {step})`, on lines {line} and {line + 3}"],
        hypotheses=[f"what looks like `old($A, {line})` changes alike everywhere"] if line % 3 == 0 else None,
        history=[done(process, turn, step)],
        open_issues=[f"not finished; `old` stands on line {line}: see whether that is meant too"],
        next_focus=f"line {line}, and what else the task asks for",
    )


def _worked(folder: Path, kinds: Kinds, processes: int, rounds: int, merges: int, key: Key) -> dict[str, Work]:
    """Return what processes did that worked at the same time, by kind of store."""
    context = get_context("spawn")
    together, results = context.Barrier(processes), context.Queue()
    workers = [
        context.Process(target=_work, args=(folder, kinds, number, rounds, merges, key, together, results))
        for number in range(processes)
    ]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=_PATIENCE_S) for _ in workers]
    for worker in workers:
        worker.join()
    work = {name: Work() for name in kinds}
    for name in kinds:
        for number in range(rounds):
            rows = [row for rows in found for row in rows if (row.name, row.number) == (name, number)]
            work[name].rates.append(
                processes * merges / (max(row.end for row in rows) - min(row.start for row in rows))
            )
            work[name].cpu_s += sum(row.cpu_s for row in rows)
            work[name].waits_s += [wait for row in rows for wait in row.waits_s]
    return work


def _work(
    folder: Path,
    kinds: Kinds,
    process: int,
    rounds: int,
    merges: int,
    key: Key,
    together: Barrier,
    results: "Queue[list[Round]]",
) -> None:
    count_tokens("")  # reads the vocabulary, once in the life of a process
    rows = []
    with ExitStack() as opened:
        stores = {name: opened.enter_context(kind(folder / f"{name}.sqlite")) for name, kind in kinds.items()}
        for turn, (number, name) in enumerate(product(range(rounds), kinds)):
            # no two kinds are given the same texts: what is known of a text is kept in the process
            updates = [(key(process, turn, step), update_of(process, turn, step)) for step in range(merges)]
            together.wait()
            rows.append(_round(stores[name], name, number, updates))
    results.put(rows)


def _round(states: StateStore, name: str, number: int, updates: Sequence[tuple[str, StateUpdate]]) -> Round:
    start, cpu_start, waits = time.monotonic(), time.process_time(), []
    for task, update in updates:
        before = time.perf_counter()
        states.update(task, update)
        waits.append(time.perf_counter() - before)
    return Round(name, number, start, time.monotonic(), time.process_time() - cpu_start, waits)


if __name__ == "__main__":
    main()
