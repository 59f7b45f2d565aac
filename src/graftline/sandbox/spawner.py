"""The inner side of the `process` sandbox: a small process that confines itself and then starts ast-grep on request.

Run by path with `python -I -S`, so it uses the standard library only. What it does to itself holds for every child:
no new privileges, resource limits, a seccomp filter without sockets. A frame is a 4-byte big-endian length and as
many bytes of JSON; anything else ends the process.

    request  {"argv": [...], "source": "..."}
    answer   {"end": "exit" | "signal" | "wall_timeout" | "output_flood", "code": int, "stdout": str, "stderr": str}
"""

import contextlib
import ctypes
import json
import os
import platform
import resource
import selectors
import signal
import struct
import subprocess
import sys
import time
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _SECCOMP_MODE_FILTER = 1, 22, 38, 2
_KILL_PROCESS, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_EPERM, _ENOSYS = 1, 38

# number of each refused system call (sockets, other processes, and the ways round both), and that of clone
_ARCHITECTURES = {
    "x86_64": (
        0xC000003E,
        {
            "socket": 41, "connect": 42, "accept": 43, "sendto": 44, "sendmsg": 46, "bind": 49, "listen": 50,
            "socketpair": 53, "ptrace": 101, "mount": 165, "umount2": 166, "chroot": 161, "pivot_root": 155,
            "add_key": 248, "request_key": 249, "keyctl": 250, "unshare": 272, "perf_event_open": 298,
            "accept4": 288, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "bpf": 321,
            "userfaultfd": 323,
        },
        56,
    ),
    "aarch64": (
        0xC00000B7,
        {
            "socket": 198, "socketpair": 199, "bind": 200, "listen": 201, "accept": 202, "connect": 203,
            "sendto": 206, "sendmsg": 211, "accept4": 242, "ptrace": 117, "mount": 40, "umount2": 39, "chroot": 51,
            "pivot_root": 41, "add_key": 217, "request_key": 218, "keyctl": 219, "unshare": 97,
            "perf_event_open": 241, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "bpf": 280,
            "userfaultfd": 282,
        },
        220,
    ),
}  # fmt: skip
# newer calls have one number everywhere
_REFUSED_EVERYWHERE = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_getfd": 438, "mount_setattr": 442,
}  # fmt: skip
_CLONE3 = 435
_NEW_NAMESPACE = 0x7E020000  # every CLONE_NEW… flag that clone takes


_running: list["subprocess.Popen[bytes]"] = []


def main() -> None:
    settings = json.loads(sys.argv[1])
    features = _confine(settings)
    _send({"features": features})
    while (request := _receive()) is not None:
        _send(_run(request, settings))
    _leave()  # the other side has gone, whether or not a signal says so


def _confine(settings: dict[str, Any]) -> list[str]:
    """Apply what this machine offers, and return the names of what took hold."""
    libc = ctypes.CDLL(None, use_errno=True)
    signal.signal(signal.SIGTERM, _leave)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    megabyte = 1 << 20
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # pipes are no files: nothing needs to write one
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_AS, (settings["memory_mb"] * megabyte,) * 2)
    features = ["rlimits"]
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        features.append("no_new_privs")
        if _filter_system_calls(libc):
            features.append("seccomp")
    return features


def _filter_system_calls(libc: ctypes.CDLL) -> bool:
    machine = platform.machine()
    if machine not in _ARCHITECTURES:
        return False
    architecture, refused, clone = _ARCHITECTURES[machine]

    def instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
        return struct.pack("<HBBI", code, if_true, if_false, operand)

    load, equal, at_least, any_bit, give_back = 0x20, 0x15, 0x35, 0x45, 0x06
    program = [
        instruction(load, 4),
        instruction(equal, architecture, 1, 0),
        instruction(give_back, _KILL_PROCESS),
        instruction(load, 0),
    ]
    if machine == "x86_64":  # the x32 calls are the same calls under other numbers
        program += [instruction(at_least, 0x40000000, 0, 1), instruction(give_back, _KILL_PROCESS)]
    for number in sorted({**refused, **_REFUSED_EVERYWHERE}.values()):
        program += [instruction(equal, number, 0, 1), instruction(give_back, _ERRNO | _EPERM)]
    # the flags of clone3 lie in memory, where a filter cannot look; without it the C library takes clone
    program += [instruction(equal, _CLONE3, 0, 1), instruction(give_back, _ERRNO | _ENOSYS)]
    program += [
        instruction(equal, clone, 0, 3),
        instruction(load, 16),  # the low half of its first argument, the flags
        instruction(any_bit, _NEW_NAMESPACE, 0, 1),
        instruction(give_back, _ERRNO | _EPERM),
    ]
    program.append(instruction(give_back, _ALLOW))
    code = ctypes.create_string_buffer(b"".join(program))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    structure = Program(len(program), ctypes.addressof(code))
    status: int = libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(structure), 0, 0)
    return status == 0


def _run(request: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    environment = {"HOME": "/nonexistent", "LANG": "C.UTF-8", "NO_COLOR": "1", "RUST_BACKTRACE": "0", "TZ": "UTC"}
    child = subprocess.Popen(
        request["argv"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    _running.append(child)
    # set from here, not in the child: code between fork and exec would cost more than the limit is worth
    resource.prlimit(child.pid, resource.RLIMIT_CPU, (settings["cpu_s"], settings["cpu_s"] + 1))
    try:
        end, output = _converse(child, request["source"].encode(), settings)
    finally:
        _kill_group(child)
        _running.remove(child)
    code = child.wait()
    if end == "exit" and code < 0:
        end, code = "signal", -code
    stdout, stderr = (stream.decode("utf-8", "replace") for stream in output)
    return {"end": end, "code": code, "stdout": stdout if end == "exit" else "", "stderr": stderr[:4000]}


def _converse(
    child: "subprocess.Popen[bytes]", source: bytes, settings: dict[str, Any]
) -> tuple[str, tuple[bytes, bytes]]:
    """Feed `source` to `child` and collect what it says; return how it ended, and both outputs."""
    assert child.stdin and child.stdout and child.stderr  # noqa: PT018 - all three are pipes
    stdin, stdout, stderr = (stream.fileno() for stream in (child.stdin, child.stdout, child.stderr))
    deadline = time.monotonic() + settings["wall_s"]
    limits = {stdout: settings["output_mb"] << 20, stderr: 1 << 20}
    output = {stdout: bytearray(), stderr: bytearray()}
    position = 0
    os.set_blocking(stdin, False)
    end = "exit"
    with selectors.DefaultSelector() as selector:
        selector.register(stdin, selectors.EVENT_WRITE)
        for descriptor in output:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map() and end == "exit":
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                end = "wall_timeout"
            for key, _ in ready:
                if key.fd == stdin:
                    try:
                        position += os.write(stdin, source[position : position + 65536])
                    except BrokenPipeError:
                        position = len(source)
                    if position >= len(source):
                        selector.unregister(stdin)
                        child.stdin.close()
                elif chunk := os.read(key.fd, 65536):
                    output[key.fd] += chunk
                    if len(output[key.fd]) > limits[key.fd]:
                        end = "output_flood"
                else:
                    selector.unregister(key.fd)
    for stream in (child.stdin, child.stdout, child.stderr):
        stream.close()
    if end == "exit":
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            end = "wall_timeout"
    return end, (bytes(output[stdout]), bytes(output[stderr]))


def _leave(*_: object) -> None:
    """Take the child along, and the folder that nobody else will remove."""
    for child in _running:
        _kill_group(child)
    with contextlib.suppress(OSError):
        folder = os.getcwd()  # noqa: PTH109 - pathlib takes as long to import as everything else here
        for name in os.listdir(folder):  # noqa: PTH208
            os.unlink(name)  # noqa: PTH108
        os.rmdir(folder)  # noqa: PTH106
    os._exit(0)


def _kill_group(child: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _receive() -> dict[str, Any] | None:
    head = _read(4)
    body = None if head is None else _read(struct.unpack(">I", head)[0])
    if body is None:
        return None
    request: dict[str, Any] = json.loads(body)
    return request


def _read(length: int) -> bytes | None:
    data = bytearray()
    while len(data) < length:
        chunk = os.read(0, length - len(data))
        if not chunk:
            return None
        data += chunk
    return bytes(data)


def _send(message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    view = memoryview(struct.pack(">I", len(data)) + data)
    while view:
        view = view[os.write(1, view) :]


if __name__ == "__main__":
    main()
