"""How many actions a second the `warm` sandbox applies, whether ast-grep itself agrees, and how long tests take in the jail.

Sources are programs of about 200 lines, put together of the functions of the shipped sample; actions are made of their
nodes (`benchmarks.generated_actions`).

* `throughput`: actions a second on all cores, with a source of their own each, and with one source for 32;
* `latency`: milliseconds of one action on one source, median and 99th percentile, one after the other;
* `parsing`: actions a second if nothing but the parse of their sources were to be done, on all cores, without a jail;
* `agreement`: how many generated actions give the very text that `ast-grep scan --stdin -U` gives;
* `tests`: milliseconds of a small program, and of two tests by pytest, in the default jail, beside the bare commands;
* `endurance`: what very many actions leave behind.

Peers, in the same run on the same actions, one process per core: ast-grep's command line as it is; the same in
bubblewrap, where that is installed; the `process` sandbox, one process.

    python -m benchmarks.sandbox [--quick]
"""

import argparse
import gzip
import json
import os
import random
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ast_grep_py import SgRoot

from benchmarks.commands import CHECKOUT
from benchmarks.endurance import endurance
from benchmarks.generated_actions import directly, generated
from benchmarks.jailed_tests import jailed_tests
from benchmarks.machine import machine
from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language, executable, parse, rules_document
from graftline.sandbox import ProcessSandboxConfig, Request, Sandbox, Verdict, WarmSandboxConfig, open_sandbox

SAMPLE = CHECKOUT / "data" / "samples" / "release_pairs.jsonl.gz"
LINES = 200
SHARED = 32  # actions on one source
_JAIL = (
    *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"),
    *("--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
    *("--tmpfs", "/tmp", "--chdir", "/tmp"),
)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    actions: int
    repetitions: int
    singles: int
    agreement: int
    cases: int
    endurance: int


FULL = Sizes(actions=2048, repetitions=5, singles=1000, agreement=5000, cases=60, endurance=100_000)
QUICK = Sizes(actions=64, repetitions=1, singles=20, agreement=60, cases=2, endurance=200)


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few actions: shows that it runs, not how fast")
    figures, peers = measure(QUICK if parser.parse_args().quick else FULL)
    print(json.dumps({"name": "sandbox", "figures": figures, "peers": peers, "machine": machine()}))


def measure(sizes: Sizes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of the claims, and those of the peers."""
    distinct = requests(sizes.actions, 1)
    shared = requests(sizes.actions // SHARED, SHARED)
    cores = len(os.sched_getaffinity(0))
    with (
        closing(open_sandbox(WarmSandboxConfig(workers=cores))) as warm,
        closing(open_sandbox(WarmSandboxConfig())) as one,
        closing(open_sandbox(ProcessSandboxConfig())) as process,
    ):
        ways: dict[str, Callable[[], object]] = {
            "distinct sources": lambda: warm.apply_each(distinct),
            "shared sources": lambda: warm.apply_each(shared),
        }
        # a command a core; of the slower ones an eighth is enough
        some = distinct[: max(8, sizes.actions // 8)]
        others: dict[str, Callable[[], object]] = {
            "ast-grep": lambda: commands(some, (), cores),
            **({"bubblewrap and ast-grep": lambda: commands(some, jail(), cores)} if shutil.which("bwrap") else {}),
            "process sandbox": lambda: process.apply_each(some),
            "parsing": lambda: parsed(some),
        }
        seconds: dict[str, list[float]] = {name: [] for name in (*ways, *others)}
        for repetition in range(-1 if sizes.repetitions > 1 else 0, sizes.repetitions):
            for name, way in {**ways, **others}.items():
                started = time.perf_counter()
                way()
                if repetition >= 0:
                    seconds[name].append(time.perf_counter() - started)
        rates = {
            name: (sizes.actions if name in ways else len(some)) / statistics.median(found)
            for name, found in seconds.items()
        }
        figures = {
            "actions_per_s": {name: round(rates[name]) for name in ways},
            "parsing": {
                "actions_per_s": round(rates["parsing"] * cores),
                "of_it_reached": round(rates["distinct sources"] / (rates["parsing"] * cores), 2),
            },
            "latency_ms": latency(one, distinct, sizes.singles),
            "agreement": agreement(warm, sizes.agreement),
            "source_lines": LINES,
        }
    others.pop("parsing")
    figures["tests"], bare = jailed_tests(sizes.cases)
    figures["endurance"] = endurance(shared, sizes.endurance, cores)
    return figures, {
        **{
            name: {
                "actions_per_s": round(rates[name]),
                "times_as_fast": round(rates["distinct sources"] / rates[name], 1),
            }
            for name in others
        },
        **bare,
    }


def parsed(requests: Sequence[Request]) -> None:
    """Parse every source, and do nothing with it."""
    for request in requests:
        SgRoot(request.source, request.language).root()


def programs(count: int, seed: int) -> list[tuple[Language, str]]:
    """Return programs of `LINES` lines, no two alike."""
    with gzip.open(SAMPLE, "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    chance = random.Random(seed)
    of_language: dict[Language, list[str]] = {}
    for row in rows:
        of_language.setdefault(row["language"], []).append(row["pre"])
    found = []
    for number in range(count):
        language = sorted(of_language)[number % len(of_language)]
        lines: list[str] = []
        while len(lines) < LINES:
            lines += [*chance.choice(of_language[language]).splitlines(), ""]
        found.append((language, "\n".join(lines) + "\n"))
    return found


def requests(count: int, actions: int, seed: int = 1) -> list[Request]:
    """Return `count` programs with so many actions each."""
    chance = random.Random(seed)
    found = []
    for language, text in programs(count, seed):
        tree = parse(text, language)
        made: list[PatternAction | RuleAction] = []
        while len(made) < actions:
            action = generated(tree, chance)
            if action is not None:
                made.append(action)
        found.append(Request(text, language, tuple(made)))
    return found


def commands(requests: Sequence[Request], before: Sequence[str], at_once: int) -> None:
    """Apply every action by a process of ast-grep, `at_once` at a time."""

    def run(request: Request) -> None:
        rules = rules_document(request.actions, request.language)
        command = [*before, executable(), "scan", f"--inline-rules={rules}", "--stdin", "-U"]
        subprocess.run(command, input=request.source.encode(), capture_output=True, check=False)

    with ThreadPoolExecutor(at_once) as threads:
        list(threads.map(run, requests))


def jail() -> tuple[str, ...]:
    """Return the command that goes before one that is to run in bubblewrap."""
    folder = str(Path(executable()).parent)
    return (*_JAIL, "--ro-bind", folder, folder)


def latency(sandbox: Sandbox, requests: Sequence[Request], count: int) -> dict[str, float]:
    """Return the milliseconds of one action at a time."""
    found = []
    for number in range(count):
        request = requests[number % len(requests)]
        started = time.perf_counter()
        sandbox.apply_many(request.source, request.language, request.actions)
        found.append((time.perf_counter() - started) * 1000)
    found.sort()
    return {"median": round(statistics.median(found), 2), "p99": round(found[int(len(found) * 0.99)], 2)}


def agreement(sandbox: Sandbox, count: int) -> dict[str, int]:
    """Return how many generated actions there were, how many rewrote something, and how many ast-grep does otherwise."""
    asked = requests(-(-count // 8), 8, seed=2)
    answers = sandbox.apply_each(asked)
    pairs = [
        (request, action, result)
        for request, results in zip(asked, answers, strict=True)
        for action, result in zip(request.actions, results, strict=True)
    ]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        texts = list(threads.map(lambda pair: directly(pair[0].source, pair[0].language, pair[1]), pairs))
    return {
        "actions": len(pairs),
        "rewrites": sum(result.verdict is Verdict.OK for _, _, result in pairs),
        "differences": sum(result.after != text for (_, _, result), text in zip(pairs, texts, strict=True)),
    }


if __name__ == "__main__":
    main()
