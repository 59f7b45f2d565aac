"""What is left of a jail whose supervisor was killed, and of two hundred cases that were not disturbed."""

import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest

from graftline.core.errors import SandboxError
from graftline.sandbox import Case, Verdict
from graftline.sandbox.jail.served import CaseFolder, ServedJail
from tests.jails import has_user_namespaces, is_soon, new_jail
from tests.processes import running

SUPERVISOR = """
    import sys
    from pathlib import Path
    from graftline.sandbox import Case, CaseLimits
    from graftline.sandbox.jail.served import ServedJail

    kind, mark = sys.argv[1:]
    limits = CaseLimits(cpu_s=5, wall_s=60, memory_mb=256, disk_mb=8, processes=16)
    jail = ServedJail(kind, {"subprocess": "bare"}.get(kind, kind), limits, ("python",))
    print(*jail.isolation.features, flush=True)
    jail.run(Case("python", ("main.py", mark), {"main.py": sys.stdin.buffer.read()}))
"""
# a grandchild in a session of its own, that holds none of the pipes of its parents
CASE = b"""
import os, sys, time
open("left", "w").close()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for descriptor in range(3):
            os.close(descriptor)
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(90)", sys.argv[1]])
    os._exit(0)
os.wait()
time.sleep(90)
"""


@pytest.fixture(scope="module", params=["namespaces", "confined"])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    with closing(new_jail(name)) as jail:
        try:
            assert jail.isolation
        except SandboxError as error:
            pytest.skip(str(error))
    return name


@pytest.fixture
def temporary() -> Iterator[Path]:
    # not below that of the tests, which only its owner may enter: cases run as users of their own
    with tempfile.TemporaryDirectory(prefix="killed-supervisor-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def has_process(mark: str) -> bool:
    """Whether a process with this word on its command line runs, the supervisor itself left out."""
    found = psutil.process_iter(["cmdline"])
    return any((line := process.info["cmdline"] or [])[-1:] == [mark] and "sleep" in line[2] for process in found)


def groups_of(maker: int | str) -> list[Path]:
    """Return the control groups that a process has made."""
    roots = [Path(line.split()[1]) for line in Path("/proc/mounts").read_text().splitlines() if " cgroup" in line]
    return sorted(path for root in roots for path in root.rglob(f"graftline-{maker}-*"))


def killed_supervisor(kind: str, temporary: Path) -> tuple[int, list[str], list[psutil.Process], str]:
    """Kill a supervisor in the middle of a case; return its id, its features, its family and the mark of its grandchild."""
    mark = f"grandchild-{kind}-{os.getpid()}"
    supervisor = subprocess.Popen(
        [sys.executable, "-c", dedent(SUPERVISOR), kind, mark],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert supervisor.stdin
    assert supervisor.stdout
    supervisor.stdin.write(CASE)
    supervisor.stdin.close()
    features = supervisor.stdout.readline().decode().split()
    assert is_soon(lambda: has_process(mark))
    family = psutil.Process(supervisor.pid).children(recursive=True)
    supervisor.kill()
    supervisor.wait()
    supervisor.stdout.close()
    assert len(family) >= 3
    return supervisor.pid, features, family, mark


def test_nothing_is_left_and_what_could_not_be_removed_is_by_the_next_jail(
    kind: str, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, features, family, mark = killed_supervisor(kind, temporary)
    # a grandchild that somebody else has adopted is not in the family
    is_soon(lambda: not running(family) and not has_process(mark))
    assert (running(family), has_process(mark)) == ([], False)
    # the folder around those of the cases belongs to the supervisor, and stays without anything in it
    left = [path for folder in temporary.glob("graftline-cases-*") for path in folder.rglob("*") if path.name != "warm"]
    assert left == []
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    before = groups_of(os.getpid())  # those of jails that other tests share
    with closing(new_jail(kind)) as jail:
        jail.run(Case("python", ("main.py",), {"main.py": b""}))
        has_groups = groups_of(os.getpid()) != before
    assert (groups_of(supervisor), has_groups) == ([], "total_processes" in features)
    assert (groups_of(os.getpid()), list(temporary.iterdir())) == (before, [])


@pytest.mark.skipif(not has_user_namespaces(), reason="this machine gives no user namespaces")
def test_a_container_that_shares_the_temporary_folder_leaves_what_others_work_in(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    folder = CaseFolder(None)
    # it sees none of the processes out here
    container = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", sys.executable, "-c"]
    program = "from graftline.sandbox.jail.served import CaseFolder; CaseFolder(None).remove()"
    subprocess.run([*container, program], check=True, env={**os.environ, "TMPDIR": str(temporary)})
    assert [*map(str, temporary.iterdir())] == [folder.path]
    folder.remove()


def held(jail: ServedJail, temporary: Path) -> dict[str, object]:
    """Return what a jail holds at this moment, on this side and on the other."""
    assert jail._server
    server = psutil.Process(jail._server.pid)
    family = [server, *server.children(recursive=True)]
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        "descriptors of the server": descriptors(family),
        "processes": len(family),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "folders": sorted(path.name for path in temporary.iterdir()),
        "control groups": groups_of(os.getpid()),
    }


def settled(jail: ServedJail, temporary: Path) -> dict[str, object]:
    """Return what a jail holds once nothing is on its way any more."""
    found: list[dict[str, object]] = [{}]

    def is_settled() -> bool:
        try:
            found.append(held(jail, temporary))
        except psutil.NoSuchProcess:  # it ended while it was looked at
            return False
        return found[-1] == found[-2]

    assert is_soon(is_settled)
    return found[-1]


def more(found: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Return what is held now and was not before."""
    return {
        what: now
        for what, now in found.items()
        if (now > before[what] if isinstance(now, int) else not {*now} <= {*before[what]})
    }


def descriptors(family: list[psutil.Process]) -> int:
    try:
        return sum(process.num_fds() for process in family)
    except psutil.AccessDenied:
        return -1


def test_many_cases_leave_nothing(kind: str, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    groups = groups_of(os.getpid())  # those of jails that other tests share
    programs = [
        (b"print(1)", Verdict.OK),
        (b"import os; os._exit(3)", Verdict.OK),
        (b"import os; os.kill(os.getpid(), 9)", Verdict.CRASH),
        (b"import os, time\nif os.fork() == 0: os.setsid(); time.sleep(90)", Verdict.OK),
        (b"import os; os.makedirs('a/b'); open('a/b/c', 'w').write('x' * 100_000); os.chmod('a', 0)", Verdict.OK),
        (b"while True: print('x' * 10_000)", Verdict.OUTPUT_FLOOD),
        (b"raise MemoryError", Verdict.OUT_OF_MEMORY),
    ]
    with closing(new_jail(kind)) as jail:

        def run(count: int) -> None:
            for number in range(count):
                program, verdict = programs[number % len(programs)]
                end = jail.run(Case("python", ("main.py",), {"main.py": program, "data/x": bytes(10_000)}))
                assert end.verdict is verdict

        run(len(programs))
        gc.collect()  # what other tests left open is not to be counted now and gone later
        before, server = settled(jail, temporary), jail._server
        run(10 * len(programs))
        # what other tests of this process and of this machine let go of, or hold for a moment, is none of the jail's
        assert is_soon(lambda: not more(settled(jail, temporary), before)), more(held(jail, temporary), before)
        assert jail._server is server
    assert (list(temporary.iterdir()), groups_of(os.getpid())) == ([], groups)
