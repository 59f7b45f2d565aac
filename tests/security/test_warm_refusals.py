"""What a child of a warm worker cannot do: programs that confine themselves as it does, and then try."""

import os
import signal
import subprocess
import sys
from contextlib import closing

import psutil
import pytest

from graftline.sandbox.actions.warm import WarmSandbox
from graftline.sandbox.base import Limits
from tests.processes import children_with

PROGRAM = """
import array, ctypes, json, mmap, os, signal, socket, sys, threading
from graftline.sandbox.inside import warm_worker
limits = json.loads(sys.argv[1])
memory = mmap.mmap(-1, 4096)
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
features = warm_worker._confine(limits)
try:
    {}
except OSError as error:
    print("refused", error.errno, flush=True)
else:
    print("done", flush=True)
os._exit(0)
"""
LIMITS = Limits(cpu_s=1, memory_mb=512)


def attempt_inside(attempt: str) -> str:
    """Return what the program says, or the signal that ended it."""
    command = [sys.executable, "-I", "-c", PROGRAM.format(attempt), LIMITS.model_dump_json()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    return done.stdout.strip() if done.returncode == 0 else signal.Signals(-done.returncode).name


def test_what_a_worker_needs_is_allowed() -> None:
    # without this the refusals below could be those of a program that does not start
    attempt = (
        "r, w = os.pipe(); os.write(w, b'x'); os.read(r, 1); pid = os.fork(); pid or os._exit(0); os.waitpid(pid, 0)"
    )
    assert attempt_inside(attempt) == "done"


FILES = (
    *("open('/etc/passwd')", "open('/dev/null', 'w')", "os.open('.', os.O_RDONLY)", "os.listdir('/')", "os.stat('/')"),
    *("os.readlink('/proc/self/exe')", "os.isatty(0) or os.get_terminal_size()"),
)
MAPPINGS = ("mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)", "mmap.mmap(-1, 2 << 20, flags=0x40022)")


@pytest.mark.parametrize("attempt", [*FILES, *MAPPINGS])
def test_files_memory_that_can_be_run_and_huge_pages_are_refused(attempt: str) -> None:
    assert attempt_inside(attempt) == "refused 1"


ENDED = (
    *("socket.socket()", "socket.socket(socket.AF_UNIX)", "socket.socketpair()", "os.kill(os.getppid(), 0)"),
    *("os.kill(os.getpid(), signal.SIGTERM)", "os.execv('/bin/true', ['true'])", "os.unlink('/tmp/no-such-file')"),
    *("os.mkdir('/tmp/no-such-folder')", "os.rename('/tmp/a', '/tmp/b')", "os.symlink('/tmp/a', '/tmp/b')"),
    *("os.chdir('/')", "os.chmod('/tmp', 0o777)", "os.chroot('/')", "os.setuid(0)", "os.setsid()", "os.nice(1)"),
    *("os.memfd_create('x')", "os.eventfd(0)", "os.sched_setaffinity(0, [0])"),
)
# that Python has no name for; of what is counted for all: asynchronous input and output, timers, watches of files, filters,
# flushes; and one under a number of another kind
NUMBERS = (
    *(101, 157 + 1000, 165, 246, 248, 272, 298, 308, 310, 321, 323, 425, 428, 430, 438, 449),
    *(206, 222, 253, 254, 294, 317, 162, 306, 0x40000000 + 39),
)
ON_X86_64 = os.uname().machine == "x86_64"


@pytest.mark.parametrize(
    "attempt", [*ENDED, *(f"libc.syscall({number}, 0, 0, 0, 0)" for number in NUMBERS if ON_X86_64)]
)
def test_everything_else_ends_the_process(attempt: str) -> None:
    assert attempt_inside(attempt) == "SIGSYS"


def test_the_limit_of_core_files_stays_as_it_is() -> None:
    attempt = "import resource as r; r.setrlimit(r.RLIMIT_CORE, (0, 0)); print(r.getrlimit(r.RLIMIT_CORE), flush=True)"
    assert attempt_inside(attempt) == "(1, 1)\ndone"


@pytest.mark.skipif(not ON_X86_64, reason="this is a number of x86_64")
@pytest.mark.parametrize("flags", [0x10000000, 0x20000000, 0x40000000, 0x00020000])
def test_no_namespace_can_be_made(flags: int) -> None:
    assert attempt_inside(f"libc.syscall(56, {flags} | 17, 0, 0, 0, 0) == -1 and os.write(99, b'')") == "refused 9"


@pytest.mark.skipif(os.getuid() != 0, reason="only under root do actions run as another user")
def test_under_root_actions_run_as_another_user() -> None:
    before = {child.pid for child in psutil.Process().children()}
    with closing(WarmSandbox(LIMITS)) as sandbox:
        assert "own_user" in sandbox.isolation.features
        [worker] = [child for child in children_with("warm_worker") if child.pid not in before]
        assert {*worker.uids(), *worker.gids()} == {60_001}


def test_a_child_of_a_worker_can_make_no_more() -> None:
    attempt = "import resource; resource.setrlimit(resource.RLIMIT_NPROC, (0, 0)); pid = os.fork(); print('forked', flush=True)"
    assert attempt_inside(attempt) == "refused 11"
