"""Jails behind programs of others, run as they are installed here: what they show, and what is left of them."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from graftline.core.errors import SandboxError
from graftline.sandbox.base import is_at_least
from graftline.sandbox.jail import Case, CaseEnd, CaseLimits
from graftline.sandbox.jail.served import ServedJail
from graftline.sandbox.jail.visible import Visible, interpreter, visible
from graftline.sandbox.jail.wrappers import WRAPPERS, Wrapper

NAMES = ("bubblewrap", "nsjail", "firejail")
GONE_S = 30.0
# starts a program that carries a mark, in a session of its own and with no parent, and waits until it is there
SURVIVOR = """
import os, sys, time
if not os.fork():
    os.setsid()
    if not os.fork():
        os.closerange(0, 3)
        os.execv(sys.executable, [sys.executable, "-c", "open('up', 'w'); import time; time.sleep(300)", {mark!r}])
    os._exit(0)
while not os.path.exists("up"):
    time.sleep(0.01)
print("left", flush=True)
"""


def installed(name: str) -> Wrapper:
    wrapper = WRAPPERS[name]
    if wrapper.path is None:
        pytest.skip(f"{wrapper.program} is not installed; {wrapper.package}")
    return wrapper


@pytest.fixture(scope="module", params=NAMES)
def jail(request: pytest.FixtureRequest) -> Iterator[ServedJail]:
    wrapper = installed(request.param)
    opened = ServedJail(request.param, "confined", CaseLimits(wall_s=60), ("python", "pytest"), wrapper)
    yield opened
    opened.close()


@pytest.fixture(params=["/tmp", "/var/tmp"])
def secret(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file that everybody may read."""
    with tempfile.TemporaryDirectory(dir=request.param) as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "secret")
        path.write_text("hidden", "utf-8")
        path.chmod(0o644)
        yield path


def run(jail: ServedJail, program: str, stdin: bytes = b"") -> CaseEnd:
    return jail.run(Case("python", ("case.py",), {"case.py": program.encode()}, stdin=stdin))


def marked(mark: str) -> list[str]:
    """Return the processes of this machine that carry the mark."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in entry.read_bytes().split(b"\0"):
                found.append(entry.parent.name)
        except OSError:
            continue  # it has ended
    return found


def are_gone(mark: str) -> bool:
    deadline = time.monotonic() + GONE_S
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not marked(mark)


def test_tests_run_and_are_reported(jail: ServedJail) -> None:
    test = (
        b"from m import add\n\ndef test_a():\n    assert add(1, 2) == 3\n\ndef test_b():\n    assert add(2, 2) == 5\n"
    )
    end = jail.run(Case("pytest", ("test_m.py",), {"m.py": b"def add(a, b): return a + b\n"}, {"test_m.py": test}))
    lines = [json.loads(line) for line in end.report.splitlines()]
    outcomes = [(line["test"], line["outcome"]) for line in lines if "test" in line]
    assert outcomes == [("test_m.py::test_a", "passed"), ("test_m.py::test_b", "failed")]


def test_files_of_the_machine_cannot_be_read(jail: ServedJail, secret: Path) -> None:
    program = """
import os
for path in ("/etc/passwd", {secret!r}, "/proc/1/environ", "/root", "/home", "/sys", "/run"):
    try:
        print(path, open(path).read() if os.path.isfile(path) else os.listdir(path))
    except OSError:
        pass
"""
    assert run(jail, program.format(secret=str(secret))).stdout == b""


def test_a_case_is_no_root_starts_nothing_of_its_own_and_writes_no_more_than_it_may(jail: ServedJail) -> None:
    assert (is_at_least(jail.isolation.level, "confined"), "namespaces" in jail.isolation.features) == (True, True)
    program = """
import os, shutil, subprocess, sys
print(0 in (*os.getresuid(), *os.getresgid(), *os.getgroups()))
shutil.copy(sys.executable, "copy")
os.chmod("copy", 0o755)
try:
    subprocess.run(["./copy", "-c", ""])
except PermissionError:
    print("refused")
open("a", "wb").write(bytes(33 << 20))
"""
    end = run(jail, program)
    # SIGXFSZ is ignored by Python, so that it is told
    last = end.stderr.splitlines()[-1]
    assert (end.stdout, end.exit_code, last) == (b"False\nrefused\n", 1, b"OSError: [Errno 27] File too large")


@pytest.mark.parametrize("name", NAMES)
def test_the_wrapper_alone_hides_what_is_not_to_be_seen(name: str, secret: Path) -> None:
    wrapper = installed(name)
    assert wrapper.path is not None
    python = interpreter(is_other_user=os.getuid() == 0)
    seen = visible(("python",), python)
    program = f"""
import os, socket
print(os.getcwd(), [name for _, name in socket.if_nameindex()], os.path.exists({wrapper.folder!r}))
paths = ["/etc/passwd", "/etc/group", {str(secret)!r}, {__file__!r}]
for top in ("/root", "/home", "/var", "/sys", "/boot", "/srv", "/opt", "/run/user", "/usr/share", "/usr/include"):
    for folder, folders, files in os.walk(top):
        # where the interpreter is somebody's own, firejail lays settings of shells beside it
        paths += [os.path.join(folder, file) for file in files if file not in (".bashrc", ".inputrc")]
for path in paths:
    if not path.startswith({(*seen.paths, *seen.links)!r}) and os.path.exists(path):
        print(path, len(open(path, "rb").read()))
"""
    user = None if wrapper.is_started_as_root or os.getuid() != 0 else 61_000
    done = subprocess.run(
        [*wrapper.command(wrapper.path, seen, CaseLimits(), {}), *python.command_line(program)],
        cwd="/",
        env={},
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("/ ['lo'] True\n", 0), done.stderr


def test_a_case_that_never_ends_is_ended_with_all_that_it_started(jail: ServedJail) -> None:
    mark = str(uuid.uuid4())
    wrapper = WRAPPERS[jail.isolation.implementation]
    short = ServedJail(jail.isolation.implementation, "confined", CaseLimits(wall_s=1), ("python",), wrapper)
    end = run(short, SURVIVOR.format(mark=mark) + "time.sleep(300)\n")
    short.close()
    assert (end.verdict, end.stdout, are_gone(mark)) == ("wall_timeout", b"left\n", True)


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_supervisor_leaves_nothing(name: str) -> None:
    installed(name)
    mark = str(uuid.uuid4())
    supervisor = f"""
from graftline.sandbox.jail import Case, CaseLimits
from graftline.sandbox.jail.served import ServedJail
from graftline.sandbox.jail.wrappers import WRAPPERS
jail = ServedJail({name!r}, "confined", CaseLimits(wall_s=300), ("python",), WRAPPERS[{name!r}])
program = {(SURVIVOR.format(mark=mark) + "time.sleep(300)")!r}
jail.run(Case("python", ("case.py",), {{"case.py": program.encode()}}))
"""
    process = subprocess.Popen([sys.executable, "-c", supervisor])
    deadline = time.monotonic() + 240
    while not marked(mark) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    was_there = marked(mark) != []
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (was_there, are_gone(mark)) == (True, True)


def test_nsjail_refuses_paths_that_its_options_cannot_say() -> None:
    seen = Visible({}, ("/opt/a:b",), {}, ())
    with pytest.raises(SandboxError) as caught:
        WRAPPERS["nsjail"].command("nsjail", seen, CaseLimits(), {})
    assert str(caught.value) == "nsjail: path '/opt/a:b' holds a colon; install what is there in a folder without one"


@pytest.mark.parametrize(("wall_s", "option"), [(1, "--timeout=00:03:00"), (3600, "--timeout=01:02:00")])
def test_firejail_ends_by_itself_some_time_after_a_case_must_have_ended(wall_s: float, option: str) -> None:
    # two minutes more than a case has, in whole minutes
    command = WRAPPERS["firejail"].command("firejail", Visible({}, (), {}, ()), CaseLimits(wall_s=wall_s), {})
    assert [word for word in command if word.startswith("--timeout")] == [option]
