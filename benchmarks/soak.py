"""The whole platform under load, with faults: what is lost, what is there twice, what is wrong, and what grows.

The Harbor service over PostgreSQL with rollouts that come in, workers that take attempts at tasks off a queue in Redis and
ask a small language model, and the daemon of Dagster whose sensor follows a dataset of which new versions are published;
each a process of its own, started again whenever it ends. Meanwhile, at times that the seed decides: SIGKILL of any of
them, Redis and PostgreSQL that go away and come back, a full disk, a clock that jumps forth and back by minutes to hours.

Then the faults end, what was accepted gets the time to end, and everything that is stored is looked at:

* `rollouts`: every one that was accepted has ended, has one reward at most, and the right one, which was worked out before;
* `attempts`: every job has its attempt, which has the reward that its actions are worth when they are applied again,
  undisturbed;
* `versions`: one run was requested for each version of the dataset, and the artifacts are byte for byte those of an
  undisturbed run over the newest version, with its attempts in shards of their own; `graftline check` finds nothing;
* no process is left behind, few wait as zombies, and memory, descriptors and disk stay below the bounds.

Whatever of this does not hold is listed under `wrong`, and the exit status is 1. The report goes to `reports/soak/`. There is
no peer: nothing else has the same parts.

    python -m benchmarks.soak [--quick] [--minutes 60]
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest

from benchmarks.machine import machine
from benchmarks.soak_parts import attempts, report, rollouts, versions
from benchmarks.soak_parts.disk import Disk
from benchmarks.soak_parts.faults import Faults, Planned, plan, quick_plan
from benchmarks.soak_parts.programs import Supervisor, actor_state, graftline, programs_of
from benchmarks.soak_parts.samples import Growth, Sampler, adopt_orphans, growth, left_behind
from benchmarks.soak_parts.site import CHECKOUT, FLEET, MODEL, Site
from benchmarks.soak_parts.wall_clock import WallClock
from graftline.core.errors import ModelError
from graftline.core.paths import Paths
from graftline.llm.weights.catalog import model_file
from graftline.rollouts.queue.base import Depth
from tests.hub_server import HubServer
from tests.postgres_server import PostgresServer, new_database, postgres_programs
from tests.redis_server import RedisServer, redis_program

_MB = 1 << 20
MOST_MB_PER_H, MOST_DESCRIPTORS_PER_H, MOST_DISK_MB, MOST_ZOMBIES = 30.0, 10.0, 1024, 10
WARM_UP_S = 600.0
"""Dagster's daemon takes nearly that long under load to hold what it needs."""
_INTERRUPTED = 130
_STARTS_WITHIN_S = 300.0
_ENDS_WITHIN_S = 10.0


@dataclass(frozen=True)
class Sizes:
    """How long, and how much of everything."""

    seconds: float
    seed: int
    planned: list[Planned]
    workers: int
    versions: int
    publish_every_s: float
    sample_every_s: float
    drains_within_s: float
    disk_bytes: int

    @property
    def is_judged(self) -> bool:
        """Whether growth can be told from what starting takes."""
        return self.seconds >= 5 * WARM_UP_S


def sizes_of(is_quick: bool, minutes: float, seed: int) -> Sizes:
    """Return those of a short run, or of one of so many minutes."""
    if is_quick:
        return Sizes(40.0, seed, quick_plan(38.0, seed), 1, 2, 2.0, 1.0, 300.0, 512 * _MB)
    seconds = minutes * 60
    return Sizes(seconds, seed, plan(seconds, seed, 60.0), 2, 1000, 30.0, 5.0, 900.0, 2048 * _MB)


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="about two minutes, one fault of most kinds")
    parser.add_argument("--minutes", type=float, default=60.0, help="of faults; starting and ending come on top")
    parser.add_argument("--seed", type=int, default=9, help="decides faults and load")
    parser.add_argument("--folder", type=Path, default=CHECKOUT / "reports" / "soak", help="of the report")
    given = parser.parse_args()
    if lacking := missing():
        sys.exit(f"soak: {lacking}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    began = time.monotonic()

    def told(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", file=sys.stderr, flush=True)

    try:
        figures = measure(sizes_of(given.quick, given.minutes, given.seed), given.folder, told)
    except KeyboardInterrupt:
        told("interrupted; nothing is left running")
        sys.exit(_INTERRUPTED)
    print(json.dumps({"name": "soak", "figures": figures, "peers": {}, "machine": machine()}))
    sys.exit(1 if figures["wrong"] else 0)


def missing() -> str:
    """Return what is not there and has to be; empty where there is everything."""
    try:
        redis_program()
        postgres_programs()
        model_file(MODEL, Paths(CHECKOUT), os.environ)
    except pytest.skip.Exception as reason:
        return str(reason)
    except ModelError as error:
        return str(error)
    return ""


def measure(sizes: Sizes, folder: Path, told: Callable[[str], None]) -> dict[str, Any]:
    """Run it all, write the report into `folder`, and return the figures."""
    adopt_orphans()
    with ExitStack() as stack:
        stack.callback(left_behind, 1.0)
        return Soak(sizes, stack, told).run(folder)


class Soak:
    """The platform, its load, and its faults. Everything is let go of with `stack`."""

    def __init__(self, sizes: Sizes, stack: ExitStack, told: Callable[[str], None]) -> None:
        self._sizes, self._stack, self._told = sizes, stack, told
        folder = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="graftline-soak-", ignore_cleanup_errors=True))
        )
        folder.chmod(0o755)  # databases and cases of jails run as other users
        self._clock = WallClock(folder)
        self._disk = stack.enter_context(Disk(folder / "disk", sizes.disk_bytes))
        (folder / "redis").mkdir()
        self._redis = stack.enter_context(RedisServer(folder / "redis"))
        self._postgres = stack.enter_context(PostgresServer(**self._clock.environment))
        hub = stack.enter_context(HubServer())
        self._site = Site(folder, self._disk.folder, self._clock)
        self._site.prepare(self._redis.url, hub.url, rollouts.KEY)
        self._database = new_database(self._postgres.url)
        self._versions = versions.Versions(self._site, hub, sizes.publish_every_s, sizes.versions, stack)
        self._supervisor = Supervisor(self._site, programs_of(self._site, self._database, sizes.workers), told)
        stack.callback(self._end_programs)
        self._sampler = Sampler(self._roles, lambda: self._disk.used_bytes, sizes.sample_every_s)
        stack.callback(self._sampler.stop)

    def run(self, report_folder: Path) -> dict[str, Any]:
        """Start, disturb, let end, prove, report."""
        self._told("starting")
        self._supervisor.start()
        expected = rollouts.expected_rewards(self._site.tasks)
        asked = attempts.Attempts(self._site, self._stack)
        self._wait_until_up()
        self._told("everything is up")
        load = rollouts.Rollouts(self._site, rollouts.upload(self._site), self._sizes.seed)
        faults = Faults(
            self._sizes.planned, self._supervisor, self._redis, self._postgres, self._disk, self._clock,
            self._sizes.seed, self._told,
        )  # fmt: skip
        self._stack.callback(faults.stop)
        began = time.monotonic()
        self._disturb(began, load, asked, faults)
        depth, is_newest = self._drain(load, asked)
        self._sampler.stop()
        stubborn = self._end_programs()
        left = left_behind(_ENDS_WITHIN_S, self._servers())
        self._told("everything has ended; looking at what is stored")
        grown = growth(self._sampler.samples, WARM_UP_S)
        parts = {
            "rollouts": rollouts.judged(load, self._database, expected),
            "attempts": attempts.judged(asked, depth),
            "versions": versions.judged(self._versions, self._site, is_newest),
        }
        wrong = [fault for _, faults_of_part in parts.values() for fault in faults_of_part]
        wrong += self._wrong_with_processes(grown, stubborn, left)
        wrong += [f"the faults ended early: {faults.broken}"] if faults.broken else []
        figures = self._figures(wrong, {name: told for name, (told, _) in parts.items()}, faults, grown)
        moments = {"rollouts": [one.at for one in load.answers.values()]}
        page = report.write(
            report_folder, figures, wrong, faults.inflicted, self._supervisor.ended, self._sampler.samples,
            self._sampler.disk, grown, moments, began,
        )  # fmt: skip
        self._told(f"{page}: {len(wrong)} things are wrong" if wrong else f"{page}: nothing is wrong")
        return figures

    def _disturb(self, began: float, load: rollouts.Rollouts, asked: attempts.Attempts, faults: Faults) -> None:
        """Put everything under load, inflict the faults, and end both."""
        for part in (self._sampler, load, asked, self._versions, faults):
            part.start()
        self._watch(began, load, asked, faults)
        faults.stop()
        self._told("no more faults; what was accepted may end")
        for part in (load, asked, self._versions):
            part.halt()

    def _drain(self, load: rollouts.Rollouts, asked: attempts.Attempts) -> tuple[Depth, bool]:
        """Let end what was accepted; return what the queue holds then, and whether the newest version was made."""
        deadline = time.monotonic() + self._sizes.drains_within_s
        load.stop(deadline - time.monotonic())
        self._told("rollouts have ended")
        depth = asked.stop(max(5.0, deadline - time.monotonic()))
        self._told("attempts have ended")
        is_newest = self._versions.stop(max(5.0, deadline - time.monotonic()))
        self._told("the newest version was made" if is_newest else "the newest version was not made")
        return depth, is_newest

    def _figures(
        self, wrong: list[str], parts: Mapping[str, Any], faults: Faults, grown: Mapping[str, Growth]
    ) -> dict[str, Any]:
        alone = Counter(one.role for one in self._supervisor.ended if not one.was_killed)
        return {
            "minutes": round(self._sizes.seconds / 60, 1),
            "seed": self._sizes.seed,
            "wrong": wrong,
            "faults": dict(Counter(one.kind for one in faults.inflicted)),
            "missed": dict(faults.missed),
            "skipped": faults.skipped,
            **parts,
            "programs_that_ended_by_themselves": dict(alone),
            "memory_mb_per_h": {role: one.memory_mb_per_h for role, one in grown.items()},
            "descriptors_per_h": {role: one.descriptors_per_h for role, one in grown.items()},
            "is_growth_judged": self._sizes.is_judged,
            "bounds": f"{MOST_MB_PER_H:g} MB/h, {MOST_DESCRIPTORS_PER_H:g} descriptors/h, {MOST_DISK_MB} MB of disk",
            "warm_up_s": WARM_UP_S,
            "disk_mb": self._disk.used_bytes // _MB,
            "most_zombies": self._sampler.most_zombies,
            "killed_with_the_daemon": self._supervisor.program("daemon").killed_with_it,
        }

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + _STARTS_WITHIN_S
        while not self._is_up():
            if time.monotonic() > deadline:
                sys.exit(f"soak: the platform was not up after {_STARTS_WITHIN_S:g} s; {self._said()}")
            time.sleep(0.2)

    def _is_up(self) -> bool:
        state = actor_state(self._site)
        try:
            answers = httpx.get(f"{self._site.harbor_url}/health", timeout=2).is_success
        except httpx.TransportError:
            answers = False
        return (
            answers
            and state is not None
            and state.is_ready
            and bool(self._versions.state_of(self._versions.published[0]))
        )

    def _said(self) -> str:
        return "; ".join(f"{one.role}: {one.last_words[-100:]!r}" for one in self._supervisor.ended[-3:])

    def _watch(self, began: float, load: rollouts.Rollouts, asked: attempts.Attempts, faults: Faults) -> None:
        """Say from time to time how it goes, until it is over."""
        said = began
        while time.monotonic() - began < self._sizes.seconds or (self._sizes.seconds < 60 and not faults.is_over):
            time.sleep(0.5)
            if time.monotonic() - said >= max(10.0, self._sizes.seconds / 120):
                said = time.monotonic()
                self._told(
                    f"{len(load.answers)} rollouts, {len(asked.accepted)} jobs, {len(self._versions.published)} versions,"
                    f" {len(faults.inflicted)} faults, {self._disk.used_bytes // _MB} MB"
                )

    def _roles(self) -> Mapping[str, int | None]:
        state = actor_state(self._site)
        return {
            **{one.role: one.pid for one in self._supervisor.programs if one.role != "model serve"},
            "keeper": state.keeper if state else None,
            "actor": state.server if state else None,
            "redis": self._redis.pid,
            "postgresql": self._postgres.pid,
        }

    def _servers(self) -> set[int]:
        return {pid for pid in (self._redis.pid, self._postgres.pid) if pid is not None}

    def _end_programs(self) -> list[str]:
        """End all that was started, and return the roles of what had to be killed."""
        stubborn = self._supervisor.stop()
        down = graftline(self._site, "model", "stop", "--fleet", FLEET)
        subprocess.run(down, env=self._site.environment, capture_output=True, check=False)
        return stubborn

    def _wrong_with_processes(self, grown: Mapping[str, Growth], stubborn: list[str], left: list[str]) -> list[str]:
        wrong = [f"{role} did not end when it was asked to" for role in stubborn]
        wrong += [f"was left behind: {line}" for line in left]
        if self._sampler.most_zombies > MOST_ZOMBIES:
            wrong.append(
                f"{self._sampler.most_zombies} dead processes wait for their parents: {self._sampler.zombies_of}"
            )
        if self._disk.used_bytes > MOST_DISK_MB * _MB:
            wrong.append(f"the disk holds {self._disk.used_bytes // _MB} MB")
        if not self._sizes.is_judged:
            return wrong
        for role, one in grown.items():
            if (one.memory_mb_per_h or 0.0) > MOST_MB_PER_H:
                wrong.append(f"{role} grows by {one.memory_mb_per_h} MB an hour")
            if (one.descriptors_per_h or 0.0) > MOST_DESCRIPTORS_PER_H:
                wrong.append(f"{role} opens {one.descriptors_per_h} descriptors an hour")
        return wrong


class _Interrupted(KeyboardInterrupt):
    """The class itself, come while a string is executed (an import does so for a dataclass), would be the end of `python -m`.

    CPython 3.11 takes it for unhandled then, and kills itself by SIGINT at the end, whatever `sys.exit` was told.
    """


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise _Interrupted


if __name__ == "__main__":
    main()
