"""What a child of the spawner cannot do: programs that try it are run where ast-grep runs otherwise."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from graftline.sandbox.base import Limits
from graftline.sandbox.inner_process import start_applier
from graftline.sandbox.inside.frames import add_length
from tests.processes import wait_until_ended
from tests.security.hostile.prelude import calls

LIMITS = Limits(cpu_s=1, wall_s=20, output_mb=1)


class Spawner:
    """The real spawner, and programs that it is asked to run."""

    def __init__(self, folder: Path, limits: Limits = LIMITS) -> None:
        arguments = [limits.model_dump_json()]
        self.process, self.isolation = start_applier("process", "spawner", arguments, {"LANG": "C.UTF-8"}, str(folder))

    def ask(self, argv: list[str], source: str = "") -> dict[str, Any]:
        deadline = time.monotonic() + 240
        self.process.send(json.dumps({"argv": argv, "source": source}).encode(), deadline)
        answer: dict[str, Any] = json.loads(self.process.receive(1 << 30, deadline))
        return answer

    def run(self, program: str) -> dict[str, Any]:
        return self.ask([sys.executable, "-I", "-S", "-c", program])

    def close(self) -> None:
        self.process.stop()


@pytest.fixture(scope="module")
def jail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spawner]:
    with closing(Spawner(tmp_path_factory.mktemp("jail"))) as opened:
        yield opened


REPORT = """
try:
    {}
except OSError as error:
    print("refused", error.errno)
else:
    print("done")
"""
CALL = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
result = libc.syscall({})
print("done" if result >= 0 else f"refused {{ctypes.get_errno()}}")
"""


def number(name: str) -> int:
    return calls(platform.machine())[name]


def test_the_spawner_says_what_took_hold(jail: Spawner) -> None:
    assert jail.isolation.features == ("rlimits", "no_new_privs", "seccomp")


def test_a_harmless_program_runs(jail: Spawner) -> None:
    # without this the refusals below could be those of a program that does not start
    program = "import sys, ctypes; print(len(sys.stdin.read()))"
    answer = jail.ask([sys.executable, "-I", "-S", "-c", program], "é" * 100_000)
    fields = {key: answer[key] for key in ("end", "code", "stdout", "stderr")}
    assert fields == {"end": "exit", "code": 0, "stdout": "100000\n", "stderr": ""}


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK", "AF_PACKET", "AF_VSOCK", "AF_ALG"])
@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM", "SOCK_RAW"])
def test_no_socket_of_any_family_can_be_made(jail: Spawner, family: str, kind: str) -> None:
    answer = jail.run("import _socket" + REPORT.format(f"_socket.socket(_socket.{family}, _socket.{kind})"))
    assert (answer["stdout"], answer["stderr"]) == ("refused 1\n", "")


def test_no_pair_of_sockets_can_be_made(jail: Spawner) -> None:
    assert jail.run("import _socket" + REPORT.format("_socket.socketpair()"))["stdout"] == "refused 1\n"


REFUSED = (
    *("ptrace 0, 0, 0, 0", "ptrace 16, 1, 0, 0", "unshare 0x10000000", "unshare 0x40000000", "setns 0, 0"),
    *(f"clone {flag} | 17, 0, 0, 0, 0" for flag in ("0x10000000", "0x20000000", "0x40000000", "0x00020000")),
    *("mount 0, 0, 0, 0, 0", "umount2 0, 0", "chroot 0", "pivot_root 0, 0", "fsopen 0, 0", "open_tree 0, 0, 0"),
    *("move_mount 0, 0, 0, 0, 0", "mount_setattr 0, 0, 0, 0, 0", "io_uring_setup 1, 0", "pidfd_getfd 0, 0, 0"),
    *("process_vm_readv 1, 0, 0, 0, 0, 0", "process_vm_writev 1, 0, 0, 0, 0, 0", "keyctl 0, 0", "seccomp 1, 0, 0"),
    *("add_key 0, 0, 0, 0, 0", "request_key 0, 0, 0, 0", "bpf 0, 0, 0", "perf_event_open 0, 0, 0, 0, 0"),
    *("userfaultfd 0", "syncfs 0"),
    # a lease, the size of a pipe, huge pages, the table of futexes
    *("fcntl 1, 1024, 0", "fcntl 1, 1031, 65536", "mmap 0, 2 << 20, 3, 0x40022, -1, 0", "prctl 78, 1, 1024, 0, 0"),
)


@pytest.mark.parametrize("call", REFUSED)
def test_calls_on_other_processes_namespaces_mounts_and_keys_are_refused(jail: Spawner, call: str) -> None:
    name, _, arguments = call.partition(" ")
    answer = jail.run(CALL.format(f"{number(name)}, {arguments}"))
    assert (answer["stdout"], answer["stderr"]) == ("refused 1\n", "")


@pytest.mark.parametrize("name", ["clone3", "io_setup", "inotify_init1"])
def test_calls_that_programs_can_do_without_are_unknown(jail: Spawner, name: str) -> None:
    # 38 is ENOSYS, on which a C library falls back to clone, whose flags can be seen
    assert jail.run(CALL.format(f"{number(name)}, 0, 0"))["stdout"] == "refused 38\n"


def test_threads_and_processes_of_ones_own_can_still_be_made(jail: Spawner) -> None:
    program = """
import _thread, os, time
done = []
_thread.start_new_thread(done.append, (1,))
while not done:
    time.sleep(0.001)
child = os.fork()
if not child:
    os._exit(7)
print(done, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert jail.run(program)["stdout"] == "[1] 7\n"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86_64 has a second set of numbers")
def test_the_calls_under_their_second_numbers_end_the_program(jail: Spawner) -> None:
    answer = jail.run(CALL.format("0x40000000 + 41, 2, 1, 0"))
    # SIGSYS
    assert (answer["end"], answer["code"], answer["stdout"]) == ("signal", 31, "")


@pytest.mark.parametrize("folder", ["", "/dev/shm", None], ids=["its own", "shared memory", "another"])
def test_no_byte_can_be_written_to_a_file(jail: Spawner, tmp_path: Path, folder: str | None) -> None:
    # 27 is EFBIG; the file itself can be made, but stays empty
    place = str(Path(tmp_path if folder is None else folder) / f"written-{os.getpid()}")
    program = f"""
import os
try:
    descriptor = os.open({place!r}, os.O_CREAT | os.O_WRONLY)
{REPORT.format("os.write(descriptor, b'x')").replace(chr(10), chr(10) + "    ")}
finally:
    os.unlink({place!r})
"""
    assert jail.run(program)["stdout"] == "refused 27\n"


def test_limits_cannot_be_raised_again(jail: Spawner) -> None:
    # where the child is root nothing but the hard limit in place keeps it from writing a file
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"  # as many do; it would start a handler
        "print(resource.getrlimit(resource.RLIMIT_AS), resource.getrlimit(resource.RLIMIT_CORE))"
    )
    bytes_at_most = 2048 * 1024 * 1024
    assert jail.run(program)["stdout"] == f"({bytes_at_most}, {bytes_at_most}) (1, 1)\n"


def test_memory_ends_at_the_limit(jail: Spawner) -> None:
    program = "\ntry:\n    x = bytearray(3 << 30)\nexcept MemoryError:\n    print('refused')"
    assert jail.run(program)["stdout"] == "refused\n"


def test_descriptors_end_at_the_limit(jail: Spawner) -> None:
    program = "import os\nopened = [0]\ntry:\n    while True:\n        opened.append(os.dup(0))\nexcept OSError as error:\n    print(opened[-1], error.errno)"
    # numbers end below 64; 24 is EMFILE
    assert jail.run(program)["stdout"] == "63 24\n"


def test_nothing_of_the_parent_is_in_the_environment_or_among_the_descriptors(
    jail: Spawner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAFTLINE_TOKEN", "secret")
    program = "import os; print(sorted(os.environ.items())); print(sorted(d for d in range(64) if os.path.exists(f'/dev/fd/{d}')))"
    assert jail.run(program)["stdout"] == (
        "[('HOME', '/nonexistent'), ('LANG', 'C.UTF-8'), ('NO_COLOR', '1'), ('RUST_BACKTRACE', '0'), ('TZ', 'UTC')]\n"
        "[0, 1, 2]\n"
    )


def test_processes_left_behind_are_killed_with_the_call(jail: Spawner) -> None:
    program = """
import os, time
child = os.fork()
if not child:
    os.close(0), os.close(1), os.close(2)
    time.sleep(60)
print(child)
"""
    wait_until_ended(int(jail.run(program)["stdout"]))


@pytest.mark.parametrize(
    ("program", "end", "code"),
    [
        # SIGXCPU
        ("while True: pass", "signal", 24),
        ("import signal; signal.signal(24, signal.SIG_IGN)\nwhile True: pass", "signal", 9),
        ("import os; os.abort()", "signal", 6),
        ("import os; os.kill(os.getpid(), 9)", "signal", 9),
        ("raise SystemExit(3)", "exit", 3),
    ],
)
def test_every_end_is_told_apart_and_the_next_call_works(jail: Spawner, program: str, end: str, code: int) -> None:
    answer = jail.run(program)
    assert (answer["end"], answer["code"]) == (end, code)
    assert jail.run("print(1)")["stdout"] == "1\n"


@pytest.mark.parametrize("descriptor", [1, 2])
def test_output_without_end_ends_the_program_and_is_not_handed_on(jail: Spawner, descriptor: int) -> None:
    answer = jail.run(f"import os\nwhile True: os.write({descriptor}, b'x' * 10000)")
    assert (answer["end"], answer["stdout"], len(answer["stderr"])) == ("output_flood", "", [0, 4000][descriptor - 1])
    assert jail.run("print(1)")["stdout"] == "1\n"


@pytest.mark.parametrize(
    "program", ["import time; time.sleep(60)", "import os, time; os.close(1); os.close(2); time.sleep(60)"]
)
def test_a_program_that_goes_on_for_ever_ends_by_the_wall_clock(tmp_path: Path, program: str) -> None:
    with closing(Spawner(tmp_path, Limits(wall_s=0.2))) as jail:
        assert jail.run(program)["end"] == "wall_timeout"


@pytest.mark.parametrize(
    "stream",
    [b"\x00", b"\x00\x00\x00\x02{", b"\x00\x00\x00\x02{]", b"\xff\xff\xff\xff{}", b"\x00\x00\x00\x02{}"],
    ids=["half a length", "half a frame", "no JSON", "a length without end", "no request"],
)
def test_a_broken_frame_ends_the_spawner(tmp_path: Path, stream: bytes) -> None:
    process = subprocess.run(
        [sys.executable, "-I", "-m", "graftline.sandbox.inside.spawner", LIMITS.model_dump_json()],
        input=stream,
        capture_output=True,
        cwd=tmp_path,
        timeout=30,
        check=False,
    )
    # its own greeting, and nothing after it
    assert process.stdout == add_length(b'{"features": ["rlimits", "no_new_privs", "seccomp"]}')


def test_outside_the_jail_the_same_program_is_not_refused() -> None:
    program = "import _socket" + REPORT.format("_socket.socketpair()")
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "done\n"
