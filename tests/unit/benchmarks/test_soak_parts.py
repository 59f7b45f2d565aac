"""What the soak plans, measures and would notice, without the platform."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.soak_parts import attempts, faults, programs, rollouts, samples, versions
from benchmarks.soak_parts.disk import Disk
from benchmarks.soak_parts.site import Site
from benchmarks.soak_parts.wall_clock import WallClock
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.queue.base import Depth
from graftline.rollouts.reward import Reward
from graftline.rollouts.teachers.induction import MemoryTeacher
from graftline.sandbox.actions.memory import MemorySandbox
from tests.harbor_lineage import task
from tests.unit.pipeline.conftest import reconfigure, run

__all__ = ["reconfigure", "run"]

CLOCKS = """
import json, time
before, forward = time.time(), time.monotonic()
open(__import__("sys").argv[1], "r+b").write((7200 * 10**9).to_bytes(8, "little", signed=True))
time.sleep(0.05)
print(json.dumps([round((time.time() - before) / 3600, 1), time.monotonic() - forward < 60]))
"""

STUBBORN = """
import signal, subprocess, sys
command = "import signal, sys; signal.signal(15, signal.SIG_IGN); print(1, flush=True); signal.pause()"
subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE).stdout.readline()
print(1, flush=True)
signal.pause()
"""
ENDED = """
import json, sys, time
from pathlib import Path
from benchmarks.soak_parts import programs, samples
from benchmarks.soak_parts.site import Site
from benchmarks.soak_parts.wall_clock import WallClock
folder, program = Path(sys.argv[1]), sys.argv[2]
site = Site(folder, folder, WallClock(folder))
site.logs.mkdir()
programs._GROUP_ENDS_WITHIN_S = 0.2
samples.adopt_orphans()
daemon = programs.Daemon(site)
daemon._command = [sys.executable, "-c", program]
daemon.look()
while not (log := site.logs / "daemon.log").exists() or not log.stat().st_size:
    time.sleep(0.01)
daemon.ask_to_end()
print(json.dumps([daemon.wait(), daemon.killed_with_it, samples.left_behind(5.0)]))
"""


def test_a_plan_is_that_of_its_seed_and_has_every_kind_as_often() -> None:
    first, again, other = (faults.plan(3600, seed, 30) for seed in (1, 1, 2))
    assert (first == again, first == other) == (True, False)
    counts = [sum(one.kind == kind and one.at_s < 2400 for one in first) for kind in faults.KINDS]
    assert max(counts) - min(counts) <= 1
    assert all(0 < one.at_s < 3600 for one in first)


def test_programs_whose_memory_is_looked_at_live_through_the_last_third_of_a_plan() -> None:
    late = {one.kind for one in faults.plan(3600, 1, 30) if one.at_s >= 2400}
    assert late == {*faults.KINDS} - {*faults.LONG_LIVED}


def test_a_short_plan_has_what_a_soak_has_to_have() -> None:
    kinds = [one.kind for one in faults.quick_plan(40, 9)]
    assert len([kind for kind in kinds if kind.startswith("kill ")]) >= 3
    assert {"redis", "postgresql", "disk", "clock"} <= set(kinds)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path, tmp_path, WallClock(tmp_path))


def test_a_fault_that_did_not_happen_is_missed_and_not_inflicted(site: Site, tmp_path: Path) -> None:
    disk, clock = Disk(tmp_path / "disk", 1 << 20), WallClock(tmp_path)
    disk.why_not, clock.why_not = "no disk", "no clock"
    planned = [faults.Planned(0.0, kind, 0.0) for kind in ("kill service", "kill box", "disk", "clock", "redis")]
    supervisor = programs.Supervisor(site, [programs.Program("service", [], site)], str)

    class Server:
        def kill(self) -> None: ...
        def start(self) -> None: ...

    told: list[str] = []
    server: Any = Server()
    inflicting = faults.Faults(planned, supervisor, server, server, disk, clock, 1, told.append)
    inflicting.start()
    while not inflicting.is_over:
        time.sleep(0.01)
    inflicting.stop()
    assert ([one.kind for one in inflicting.inflicted], inflicting.broken) == (["redis"], "")
    assert inflicting.missed == {"kill service": 1, "kill box": 1, "disk": 1, "clock": 1}
    assert inflicting.skipped == {"disk": "no disk", "clock": "no clock"}
    assert told == [
        "no fault: kill service: there was none",
        "no fault: kill box: there was none",
        "no fault: disk: no disk",
        "no fault: clock: no clock",
        "fault 1: redis: away for 0.0 s",
    ]


def test_a_code_server_that_does_not_end_with_its_daemon_is_killed_and_counted(checkout: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", ENDED, str(tmp_path), STUBBORN]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=240)
    assert (done.stdout and json.loads(done.stdout), done.stderr) == ([True, 1, []], "")


def test_a_lost_job_does_not_hide_behind_one_that_is_still_queued() -> None:
    still_queued = Depth(waiting=2, in_flight=0, done=1, dead=0)
    assert attempts.lost({"a": 1, "b": 2}.keys(), {"a"}, still_queued) == [
        "1 jobs have no attempt, and the queue holds 2"
    ]
    assert attempts.lost({"a": 1, "b": 2}.keys(), {"a", "b"}, still_queued) == []


def test_what_is_answered_after_the_end_changes_nothing(site: Site) -> None:
    load = rollouts.Rollouts(site, "deployment", 1)
    load.note("a", rollouts.Answer(1, "nop", 0.0, 1.0))
    load.note("a", rollouts.Answer(1, "nop", 0.5, 2.0))
    load.halt()
    load.start()
    load.stop(5.0)
    load.note("b", rollouts.Answer(2, "nop", 0.0, 3.0))
    load.note("a", rollouts.Answer(1, "nop", 0.25, 4.0))
    assert load.answers == {"a": rollouts.Answer(1, "nop", 0.0, 1.0)}
    assert (load.changed, load.asked) == (["a"], {})


@pytest.fixture
def versions_of(new_checkout: Any, run: Callable[..., Any], reconfigure: Callable[..., Any], tmp_path: Path) -> Any:
    """Make everything of so many rows, of one version after the other, and return the data."""

    def versions_of(name: str, *counts: int, after: Path | None = None) -> Path:
        small = new_checkout(tmp_path / name)
        if after is not None:
            versions.take_over_assignments(after, small.root / "data")
        reconfigure(small.root, "datasets.yaml", {"languages": ["python"], "synthesis.per_partition": 0})
        for count in counts:
            small.write([versions.row(number) for number in range(count)])
            run(small.root)
        return Path(small.root / "data")

    return versions_of


def test_what_several_versions_come_to_is_what_the_last_one_comes_to_and_a_lost_attempt_is_seen(
    versions_of: Callable[..., Path],
) -> None:
    several = versions_of("several", 6, 8, 12)
    last = versions_of("last", 12, after=several)
    assert versions.differences(several, last) == []
    shards = sorted((several / "trajectories" / "raw").glob("python/*/*/shard-*.jsonl"))
    assert len(shards) > 3
    filled = next(shard for shard in shards if shard.stat().st_size)
    lines = filled.read_bytes().splitlines(keepends=True)
    filled.write_bytes(b"".join([lines[0], lines[0], *lines[2:]]))
    twice, lost = f"{filled.parent.relative_to(several)}: 1 attempts stand there twice", len(lines) > 1
    found = versions.differences(several, last)
    assert (twice in found, any("attempts are lost" in one for one in found)) == (True, lost)
    (several / "division" / "_meta.json").unlink()
    assert "not as an undisturbed run makes it: division/_meta.json" in versions.differences(several, last)


def test_growth_goes_across_no_restart() -> None:
    # each life grows by one byte a second, and begins where the first began
    lives = [[(start + at, 100.0 + at) for at in range(20)] for start in (0, 1000)]
    assert samples.slope(lives) == pytest.approx(1.0)


def test_growth_is_that_of_most_samples() -> None:
    chance = random.Random(5)
    flat = [(float(at), 50.0 + (1000.0 if chance.random() < 0.1 else 0.0)) for at in range(200)]
    assert samples.slope([flat]) == 0.0


def test_what_warms_up_is_left_out() -> None:
    warming = [samples.Sample(float(at), "one", 1, min(at, 10) << 20, 3) for at in range(40)]
    assert samples.growth(warming, 10.0)["one"].memory_mb_per_h == 0.0


def test_an_attempt_with_another_reward_than_its_actions_are_worth_is_noticed() -> None:
    known, collecting = task(1), RolloutConfig()
    right = collect(known, MemoryTeacher(), MemorySandbox(), collecting, 1, "")
    wrong = right.model_copy(update={"reward": Reward(value=0.25, cause="partial")})
    assert attempts.faults_of(right, known, collecting) == []
    [fault] = attempts.faults_of(wrong, known, collecting)
    assert fault.startswith("is 0.25 (done), and what was said is worth 1.0")


def test_the_wall_clock_jumps_and_no_other(tmp_path: Path) -> None:
    clock = WallClock(tmp_path)
    if clock.why_not:
        pytest.skip(clock.why_not)
    environment = {**os.environ, **clock.environment}
    command = [sys.executable, "-c", CLOCKS, environment["GRAFTLINE_SOAK_CLOCK"]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [2.0, True]


def test_a_full_disk_has_room_for_nothing_until_it_is_cleared(tmp_path: Path) -> None:
    with Disk(tmp_path / "disk", 1 << 20) as disk:
        if disk.why_not:
            pytest.skip(disk.why_not)
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            (disk.folder / "more").write_bytes(bytes(8192))
        assert (disk.used_bytes < 16_384, shutil.disk_usage(disk.folder).free) == (True, 0)
        disk.clear()
        (disk.folder / "more").write_bytes(bytes(8192))
    assert not list((tmp_path / "disk").iterdir())


def test_an_interruption_ends_the_soak_wherever_it_comes(checkout: Path, tmp_path: Path) -> None:
    # with KeyboardInterrupt itself, `python -m` is ended by SIGINT here
    code = "import sys\nfrom benchmarks import soak\ntry: exec('soak._interrupt(2, None)')\nexcept KeyboardInterrupt: sys.exit(130)\n"
    (tmp_path / "executed.py").write_text(code, "utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{checkout}"}
    assert subprocess.run([sys.executable, "-m", "executed"], env=environment, timeout=60).returncode == 130
