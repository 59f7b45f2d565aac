"""The inner side of the `process` sandbox: a small process that confines itself and then starts ast-grep on request.

What it does to itself holds for every child: no new privileges, resource limits, a seccomp filter without sockets. A
frame is a 4-byte big-endian length and as many bytes of JSON; anything else ends the process.

    request  {"argv": [...], "source": "..."}
    answer   {"end": "exit" | "signal" | "wall_timeout" | "output_flood", "code": int, "stdout": str, "stderr": str,
              "cpu_s": float, "wall_s": float, "peak_kb": int}
"""

import contextlib
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from typing import Any

from graftline.sandbox.inside.frames import receive, send
from graftline.sandbox.inside.seccomp import NO_CORE, Filter

_SOCKETS = ("socket", "connect", "accept", "accept4", "sendto", "sendmsg", "bind", "listen", "socketpair")

_PAUSE_S = 0.0005
_running: list["subprocess.Popen[bytes]"] = []


def main() -> None:
    """Serve requests until the other side closes."""
    settings = json.loads(sys.argv[1])
    features = _confine(settings)
    send(1, json.dumps({"features": features}).encode())
    while (request := receive(0)) is not None:
        send(1, json.dumps(_run(json.loads(request), settings)).encode())
    _leave()  # the other side has gone, whether or not a signal says so


def _confine(settings: dict[str, Any]) -> list[str]:
    """Apply what this machine offers, and return the names of what took hold."""
    signal.signal(signal.SIGTERM, _leave)
    for name, most in (
        (resource.RLIMIT_CORE, NO_CORE),
        (resource.RLIMIT_FSIZE, 0),  # pipes are no files: nothing needs to write one
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_AS, settings["memory_mb"] << 20),
    ):
        resource.setrlimit(name, (most, most))
    has_filter = Filter().refuse(_SOCKETS).refuse_harm().install("allow")
    return ["rlimits", *(("no_new_privs", "seccomp") if has_filter else ())]


def _run(request: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    started = time.monotonic()
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
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        while end == "exit" and not pid:  # it has closed its outputs, and not ended
            if time.monotonic() > started + settings["wall_s"]:
                end = "wall_timeout"
            time.sleep(_PAUSE_S)
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
    finally:
        _kill_group(child)
        _running.remove(child)
    if not pid:
        _, status, usage = os.wait4(child.pid, 0)
    code = child.returncode = os.waitstatus_to_exitcode(status)
    if end == "exit" and code < 0:
        end, code = "signal", -code
    stdout, stderr = (stream.decode("utf-8", "replace") for stream in output)
    return {
        "end": end,
        "code": code,
        "stdout": stdout if end == "exit" else "",
        "stderr": stderr[:4000],
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "wall_s": time.monotonic() - started,
        "peak_kb": usage.ru_maxrss,
    }


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
        selector.register(0, selectors.EVENT_READ)
        for descriptor in output:
            selector.register(descriptor, selectors.EVENT_READ)
        while len(selector.get_map()) > 1 and end == "exit":
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                end = "wall_timeout"
            for key, _ in ready:
                if key.fd == 0:  # nobody asks before there is an answer: the other side has gone
                    _leave()
                elif key.fd == stdin:
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


if __name__ == "__main__":
    main()
