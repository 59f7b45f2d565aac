"""What is done to the platform, and when: a plan that its seed decides, and how each kind of fault is inflicted."""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

from benchmarks.soak_parts.disk import Disk
from benchmarks.soak_parts.programs import Supervisor, actor_state
from benchmarks.soak_parts.samples import below
from benchmarks.soak_parts.wall_clock import WallClock
from tests.postgres_server import PostgresServer
from tests.redis_server import RedisServer

KINDS = (
    *("kill worker", "kill service", "kill box", "kill actor", "kill keeper", "kill daemon", "kill code", "kill run"),
    *("redis", "postgresql", "disk", "clock"),
)
LONG_LIVED = ("kill worker", "kill service", "kill actor", "kill keeper", "kill daemon")
"""Of what has to hold no more in the end than once it is warm: none is killed in the last third, for that to be seen."""
_KILLED_FOR = 2 / 3
_QUICK = (
    "kill worker",
    "redis",
    "kill service",
    "disk",
    "clock",
    "postgresql",
    "kill actor",
    "kill box",
    "kill keeper",
)
_FORTH_S, _BACK_S = (120, 3 * 3600), (1, 300)
"""How far the clock jumps. Dagster's sensors stand still for as long as it goes back: for hours there would be nothing to
disturb."""


@dataclass(frozen=True)
class Planned:
    """One fault to come."""

    at_s: float
    """From the start of the plan."""
    kind: str
    lasts_s: float
    """How long a server is away, the disk is full, or the clock is ahead before it is set back in part."""


@dataclass(frozen=True)
class Inflicted:
    """One that was."""

    at: float
    """On the clock of `time.monotonic`."""
    kind: str
    detail: str
    seconds: float
    """How long it took, with what it took to have a server back."""


@dataclass(frozen=True)
class Missed:
    """One that was planned, and did not happen."""

    why: str


_NONE_THERE = Missed("there was none")


def quick_plan(seconds: float, seed: int) -> list[Planned]:
    """Return one fault of most kinds, spread over so many seconds."""
    chance = random.Random(seed)
    apart = seconds / len(_QUICK)
    lasting = {"redis": 2.0, "postgresql": 1.0, "disk": 3.0, "clock": 3.0}
    return [
        Planned(apart * (place + chance.uniform(0.0, 0.5)), kind, lasting.get(kind, 0.0))
        for place, kind in enumerate(_QUICK)
    ]


def plan(seconds: float, seed: int, every_s: float = 25.0) -> list[Planned]:
    """Return faults at random times, one in `every_s` seconds on average.

    Every kind is as often as the others, until those of `LONG_LIVED` end.
    """
    chance = random.Random(seed)
    bag: list[str] = []
    made: list[Planned] = []
    at = 0.0
    # as what comes by chance does, but for a pause in which one fault alone is to be got over
    while (at := at + every_s / 3 + chance.expovariate(1.5 / every_s)) < seconds:
        kinds = [kind for kind in KINDS if at < _KILLED_FOR * seconds or kind not in LONG_LIVED]
        bag = [kind for kind in bag if kind in kinds] or chance.sample(kinds, len(kinds))
        kind = bag.pop()
        lasts = {"redis": (0.5, 20.0), "postgresql": (0.5, 15.0), "disk": (5.0, 20.0), "clock": (5.0, 20.0)}
        made.append(Planned(at, kind, chance.uniform(*lasts.get(kind, (0.0, 0.0)))))
    return made


class Faults:
    """Inflicts a plan, in a thread of its own, one after the other."""

    def __init__(
        self,
        planned: Sequence[Planned],
        supervisor: Supervisor,
        redis: RedisServer,
        postgres: PostgresServer,
        disk: Disk,
        clock: WallClock,
        seed: int,
        told: Callable[[str], None],
    ) -> None:
        self._planned, self._supervisor, self._told = planned, supervisor, told
        self.redis, self.postgres, self._disk, self._clock = redis, postgres, disk, clock
        self._chance, self._is_over = random.Random(seed + 1), threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)
        self.inflicted: list[Inflicted] = []
        self.missed: Counter[str] = Counter()
        """How often there was nothing to do it to, by kind."""
        self.skipped: dict[str, str] = {}
        """Why kinds of faults cannot be had here."""
        self.broken = ""
        """What kept this thread from going on."""

    def start(self) -> None:
        """Begin; the plan counts from now."""
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether the whole plan was gone through."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """End once the fault that is under way is over, and let the clock catch up with the furthest that it ever was."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()
        self._disk.clear()
        # what was stamped while the clock was ahead would lie in the future for hours
        self._clock.set(self._clock.furthest_s)

    def _run(self) -> None:
        began = time.monotonic()
        try:
            for one in self._planned:
                if self._is_over.wait(max(0.0, began + one.at_s - time.monotonic())):
                    return
                self._inflict(one)
        except Exception as error:
            self.broken = f"{type(error).__name__}: {error}"
            self._told(f"no more faults: {self.broken}")

    def _inflict(self, one: Planned) -> None:
        at = time.monotonic()
        what, _, whom = one.kind.partition(" ")
        match what:
            case "kill":
                done = self._kill(whom)
            case "redis":
                done = self._redis(one.lasts_s)
            case "postgresql":
                done = self._postgres(one.lasts_s)
            case "disk":
                done = self._fill(one.lasts_s)
            case _:
                done = self._jump(one.lasts_s)
        if isinstance(done, Missed):
            self.missed[one.kind] += 1
            self._told(f"no fault: {one.kind}: {done.why}")
            return
        self.inflicted.append(Inflicted(at, one.kind, done, round(time.monotonic() - at, 2)))
        self._told(f"fault {len(self.inflicted)}: {one.kind}: {done}")

    def _kill(self, whom: str) -> str | Missed:
        if whom in ("service", "daemon"):
            pid = self._supervisor.program(whom).kill()
            return f"process {pid}" if pid else _NONE_THERE
        if whom == "worker":
            workers = [one for one in self._supervisor.programs if one.role.startswith("worker")]
            one = self._chance.choice(workers)
            pid = one.kill()
            return f"{one.role}, process {pid}" if pid else _NONE_THERE
        found = self._pids_of(whom)
        if not found:
            return _NONE_THERE
        pid = self._chance.choice(found)
        os.kill(pid, signal.SIGKILL)
        return f"process {pid}"

    def _pids_of(self, whom: str) -> list[int]:
        """Return processes that are no programs of the supervisor, but children of such, or were once."""
        match whom:
            case "box":
                return [one.pid for one in below(self._supervisor.program("service").pid or 0)]
            case "keeper":
                state = actor_state(self._supervisor.site)
                return [state.keeper] if state else []
            case "actor":
                state = actor_state(self._supervisor.site)
                return [state.server] if state and state.server else []
        # those of Dagster; a code server outlives its daemon while a run of it goes on
        ours = {one.pid: _line(one) for one in below(os.getpid())}
        servers = [pid for pid, line in ours.items() if "api grpc" in line or "dagster_code_server" in line]
        if whom == "code":
            return servers
        return [pid for pid, line in ours.items() if "execute_run" in line or _is_run(pid, line, servers)]

    def _redis(self, lasts_s: float) -> str:
        self.redis.kill()
        self._is_over.wait(lasts_s)
        self.redis.start()
        return f"away for {lasts_s:.1f} s"

    def _postgres(self, lasts_s: float) -> str:
        self.postgres.end(signal.SIGQUIT)
        self._is_over.wait(lasts_s)
        self.postgres.start()
        return f"shut down at once, away for {lasts_s:.1f} s"

    def _fill(self, lasts_s: float) -> str | Missed:
        if self._disk.why_not:
            self.skipped["disk"] = self._disk.why_not
            return Missed(self._disk.why_not)
        self._disk.fill()
        try:
            self._is_over.wait(lasts_s)
        finally:
            self._disk.clear()
        return f"for {lasts_s:.1f} s"

    def _jump(self, lasts_s: float) -> str | Missed:
        if self._clock.why_not:
            self.skipped["clock"] = self._clock.why_not
            return Missed(self._clock.why_not)
        forth, back = self._chance.randrange(*_FORTH_S), self._chance.randrange(*_BACK_S)
        before = self._clock.offset_s
        self._clock.set(before + forth)
        self._is_over.wait(lasts_s)
        self._clock.set(max(0, before + forth - back))
        return f"{forth:+d} s, and {max(0, before + forth - back) - before - forth:+d} s after {lasts_s:.1f} s"


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _is_run(pid: int, line: str, servers: Sequence[int]) -> bool:
    """Whether a process is a run: a code server spawns one for each."""
    try:
        return "spawn_main" in line and psutil.Process(pid).ppid() in servers
    except psutil.Error:
        return False
