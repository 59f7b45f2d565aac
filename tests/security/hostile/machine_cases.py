"""What happens around a case: somebody kills the process it runs in, two run at a time, a jail is closed."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.core.errors import DataError, SandboxError
from graftline.sandbox.base import IsolationLevel, Sandbox, Verdict
from graftline.sandbox.jail import Case, Jail
from graftline.sandbox.jail.served import case_folders
from tests.security.hostile.action_cases import search
from tests.security.hostile.cases import AFTERWARDS, CASE_LIMITS, PROGRAM, HostileCase
from tests.security.hostile.facts import Host
from tests.security.hostile.judging import Judgment, judge_end

_LOOK_S = 0.3
_CALLS = "f(" * 250 + "1" + ")" * 250 + "\n"
_SLOW = RuleAction(rule=search("has", 4), fix="x")
_RENAME = PatternAction(pattern="f($A)", rewrite="g($A)")
_BUSY = HostileCase(
    """
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        pass
    say("BLOCKED", "worked to the end")
    """,
)
_ONE_OF_TWO = HostileCase(
    """
    rename()
    for folder in ("/tmp", "/dev/shm", os.environ.get("TMPDIR", "/tmp")):
        try:
            open(f"{folder}/{MARKER}-other", "x").close()
        except OSError:
            pass
    time.sleep(2)
    for folder in ("/tmp", "/dev/shm", os.environ.get("TMPDIR", "/tmp")):
        if os.path.exists(f"{folder}/{MARKER}-other"):
            os.unlink(f"{folder}/{MARKER}-other")
    say("BLOCKED", "nobody disturbed this")
    """,
)
_OTHER_OF_TWO = HostileCase(
    """
    end = time.monotonic() + 1
    while time.monotonic() < end:
        for folder in ("/tmp", "/dev/shm"):
            if any(name.endswith("-other") for name in listed(folder)):
                say("ESCAPE", "sees what the other one has written to", folder)
                end = 0
        if marked():
            say("ESCAPE", "sees the other one as process", marked())
            end = 0
        time.sleep(0.05)
    say("BLOCKED", "saw nothing of the other one")
    """,
)


@dataclass(frozen=True, slots=True)
class JailMachineCase:
    """A case that opens jails of its own."""

    name: str
    attempt: Callable[[Callable[[], Jail], Host], Judgment]
    needs: IsolationLevel = "none"
    group: str = "machine"


@dataclass(frozen=True, slots=True)
class SandboxMachineCase:
    """A case that opens sandboxes of its own."""

    name: str
    attempt: Callable[[Callable[[], Sandbox]], Judgment]
    needs: IsolationLevel = "compute"
    group: str = "machine"


def _kill_case(open_jail: Callable[[], Jail], host: Host) -> Judgment:
    with closing(open_jail()) as jail:
        _ = jail.isolation  # starts what it needs, in this thread: it may be made to end with the thread
        with ThreadPoolExecutor(1) as pool:
            killing = pool.submit(_kill_the_busiest)
            try:
                end = jail.run(_BUSY.case(host.facts))
            except SandboxError as error:
                detail = f"an error was raised: {error}"
            else:
                is_whole = b"worked to the end" in end.stdout
                if end.verdict is Verdict.OK and not is_whole:
                    return Judgment("escaped", "a case that was killed is said to have ended by itself")
                detail = f"it ended as {end.verdict}"
            if not killing.result():
                return Judgment("not run", "found no process to kill")
        after = judge_end(AFTERWARDS, jail.run(AFTERWARDS.case(host.facts)), host.findings(), 0)
        return Judgment("contained", detail) if after.status == "contained" else after


def _two_at_a_time(open_jail: Callable[[], Jail], host: Host) -> Judgment:
    with closing(open_jail()) as first, closing(open_jail()) as second:
        _ = first.isolation, second.isolation
        facts = host.facts
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(first.run, _ONE_OF_TWO.case(facts))
            time.sleep(_LOOK_S)
            after = judge_end(_OTHER_OF_TWO, second.run(_OTHER_OF_TWO.case(facts)), (), 0)
            undisturbed = judge_end(_ONE_OF_TWO, running.result(), host.findings(), 0)
        return after if after.status != "contained" else undisturbed


def _close_jail(open_jail: Callable[[], Jail], host: Host) -> Judgment:
    processes, descriptors, folders = _descendants(), _descriptors(), _folders()
    jail = open_jail()
    try:
        for _ in range(3):
            jail.run(AFTERWARDS.case(host.facts))
        during = _descriptors()
        for _ in range(10):
            jail.run(AFTERWARDS.case(host.facts))
        grown = _descriptors() - during
    finally:
        jail.close()
        jail.close()
    deadline = time.monotonic() + 2
    while (remaining := {*_descendants()} - {*processes}) and time.monotonic() < deadline:
        time.sleep(0.02)
    faults = [
        *([f"{len(remaining)} processes are left"] if remaining else []),
        *([f"{grown} descriptors were opened by ten cases"] if grown > 0 else []),
        *([f"{_descriptors() - descriptors} descriptors are left"] if _descriptors() > descriptors else []),
        *([f"{len(_folders() - folders)} folders are left"] if _folders() - folders else []),
    ]
    return Judgment("escaped" if faults else "contained", "; ".join(faults) or "nothing is left")


def _files_outside(open_jail: Callable[[], Jail], host: Host) -> Judgment:
    marker = host.marker
    names = [
        *(f"../{marker}", f"a/../../{marker}", f"/tmp/{marker}", f"{host.facts['open_folder']}/{marker}"),
        *("", ".", ".."),
        *("a\\b", "a\0b", "a\nb", "con", "COM1.txt", "end.", "a" * 256, "C:x", "x/" * 600 + "x"),
    ]
    requests = [{PROGRAM: b"", name: b"x"} for name in names]
    requests += [{PROGRAM: b"", "large": bytes((CASE_LIMITS.disk_mb + 1) << 20)}]
    requests += [{PROGRAM: b"", **{f"f{number}": b"" for number in range(CASE_LIMITS.files + 1)}}]
    with closing(open_jail()) as jail:
        for files in requests:
            for case in (Case("python", (PROGRAM,), files), Case("python", (PROGRAM,), {PROGRAM: b""}, trusted=files)):
                with suppress(DataError):
                    jail.run(case)
                    return Judgment("escaped", f"took a file called {[*files][1]!r:.60}")
        after = judge_end(AFTERWARDS, jail.run(AFTERWARDS.case(host.facts)), host.findings(), 0)
        return Judgment("contained", "each was refused") if after.status == "contained" else after


def _kill_batch(open_sandbox: Callable[[], Sandbox]) -> Judgment:
    with closing(open_sandbox()) as sandbox:
        _ = sandbox.isolation
        with ThreadPoolExecutor(1) as pool:
            killing = pool.submit(_kill_the_busiest)
            try:
                first, slow, last = sandbox.apply_many(_CALLS, "python", [_RENAME, _SLOW, _RENAME])
            except SandboxError as error:
                detail = f"an error was raised: {error}"
            else:
                wrong = [result.verdict for result in (first, last) if result.after != "g(" + _CALLS[2:]]
                if wrong or slow.verdict not in (Verdict.CPU_TIMEOUT, Verdict.WALL_TIMEOUT, Verdict.RUNNER_ERROR):
                    return Judgment("escaped", f"wrong answers: {first.verdict}, {slow.verdict}, {last.verdict}")
                detail = "it was answered all the same"
            if not killing.result():
                return Judgment("not run", "found no process to kill")
        after = sandbox.apply_many("f(1)\n", "python", [_RENAME])[0].after
        return Judgment("contained", detail) if after == "g(1)\n" else Judgment("not run", "it answers no more")


JAIL_MACHINE_CASES = (
    JailMachineCase("killed_while_a_case_runs", _kill_case),
    JailMachineCase("files_outside_the_folder", _files_outside),
    JailMachineCase("two_jails_at_a_time", _two_at_a_time, needs="namespaces"),
    JailMachineCase("closed_jail_leaves_nothing", _close_jail),
)
SANDBOX_MACHINE_CASES = (SandboxMachineCase("killed_while_a_batch_runs", _kill_batch),)


def _kill_the_busiest() -> bool:
    """Kill the child of this process below which most is worked; return whether there is one."""
    deadline = time.monotonic() + 10 * _LOOK_S
    while time.monotonic() < deadline:
        before = _descendants()
        time.sleep(_LOOK_S)
        after = _descendants()
        worked = {pid: used - before[pid][1] for pid, (_, used) in after.items() if pid in before}
        busiest = max(worked, key=lambda pid: worked[pid], default=0)
        if not busiest or not worked[busiest]:
            continue
        while after[busiest][0] != os.getpid():
            busiest = after[busiest][0]
        with suppress(ProcessLookupError):
            os.kill(busiest, SIGKILL)
            return True
    return False


def _descendants() -> dict[int, tuple[int, int]]:
    """Return parent and used processor time, in ticks, of every process below this one."""
    usage: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with suppress(OSError):
                fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b") ")[2].split()
                if fields[0] != b"Z":
                    usage[int(name)] = (int(fields[1]), int(fields[11]) + int(fields[12]))
    below: dict[int, tuple[int, int]] = {}
    level = {os.getpid()}
    while level:
        level = {pid for pid, (parent, _) in usage.items() if parent in level}
        below |= {pid: usage[pid] for pid in level}
    return below


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def _folders() -> set[str]:
    # other processes of this machine may open and close jails meanwhile
    return {path for path, maker in case_folders().items() if maker == os.getpid()}
