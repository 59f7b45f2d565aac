"""A page followed at a shell: what it says to type is typed, line after line, and what each line printed is kept.

Everything runs in a network of its own, in which there is nothing but loopback: servers have the ports that the page names
whatever else runs on this machine, and what a page does not start is not there.
"""

import fcntl
import os
import shlex
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graftline.sandbox.inside import kernel
from tests.pages import Fence

SHELLS = ("sh", "bash", "console")
SERVES = (("tinker", "serve"), ("env", "serve"))
"""Commands of `graftline` that go on until they are interrupted: the page has them in a terminal of their own."""
_MARK = "\x1e"
_NEW_NETWORK, _NEW_USER = 0x40000000, 0x10000000
_SET_FLAGS, _UP_AND_RUNNING = 0x8914, 0x1 | 0x40
"""Of <linux/sockios.h> and <linux/if.h>."""
CHECKOUT = Path(__file__).resolve().parents[1]
_ALONE = f"import sys; sys.path.insert(0, {str(CHECKOUT)!r}); from tests.page_session import bring_loopback_up; bring_loopback_up()"


@dataclass(frozen=True)
class Typed:
    """A line as a page shows it, with the lines that go on with a backslash and the documents in it."""

    page: str
    line: int
    text: str

    @property
    def command(self) -> str:
        """What is typed, without the comment behind it."""
        return self.text.partition("  #")[0].strip()


@dataclass(frozen=True)
class Printed:
    """What a line printed, and how it ended; None where it was not reached."""

    status: int | None
    output: str


def typed_lines(fences: Sequence[Fence]) -> Iterator[Typed]:
    """Yield what the blocks of a shell among `fences` say to type.

    >>> [line.command for line in typed_lines([Fence("a.md", 3, "console", "$ graftline check  # all\\n", None)])]
    ['graftline check']
    """
    for fence in fences:
        if fence.language not in SHELLS:
            continue
        lines, end = list[str](), ""
        for number, line in enumerate(fence.body.splitlines(), 1):
            lines.append(line.removeprefix("$ ") if not lines else line)
            if not end and "<<" in line:
                end = line.partition("<<")[2].split()[0].strip("'\"")
            elif line == end:
                end = ""
            if not end and not line.endswith("\\") and (text := "\n".join(lines)).strip():
                yield Typed(fence.page, fence.line + number - len(lines) + 1, text)
                lines = []


def is_server(command: str) -> bool:
    words = command.split()
    return words[:1] == ["graftline"] and tuple(words[1:3]) in SERVES


def script_of(lines: Sequence[Typed], folder: Path) -> str:
    """Return the lines as one script of bash: what a line exports, the next ones have.

    A server goes on in the background, and the next line comes once it has said where it is.
    """
    parts = ["trap 'kill $(jobs -p) 2> /dev/null' EXIT"]
    for number, line in enumerate(lines):
        parts.append(f"printf '\\n{_MARK}{number}\\n'")
        if is_server(line.command):
            log = shlex.quote(str(folder / f"server-{number}.log"))
            parts.append(f"{line.command} > {log} 2>&1 &")
            parts.append(
                f"until grep -q http:// {log}; do kill -0 $! || {{ cat {log}; exit 1; }}; sleep 0.1; done; cat {log}"
            )
        else:
            parts.append(line.text)
        parts.append(f"status=$?; printf '\\n{_MARK}= %s\\n' $status; [ $status = 0 ] || exit $status")
    return "\n".join(parts) + "\n"


def follow(lines: Sequence[Typed], root: Path, folder: Path, timeout_s: float = 1100.0) -> dict[str, Printed]:
    """Type `lines` in `root`, and return what each printed, by its command; `folder` is for logs of servers.

    After a line that fails nothing more is typed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "session.sh"
    script.write_text(script_of(lines, folder), "utf-8")
    log = folder / "session.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", f"{_ALONE}; import os; os.execvp('bash', ['bash', {str(script)!r}])"],
            cwd=root,
            env=environment(root),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            # the line that went on for too long is the one without a status
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return printed(lines, log.read_text("utf-8", "replace"))


def printed(lines: Sequence[Typed], output: str) -> dict[str, Printed]:
    """Take apart what a session printed."""
    results = {line.command: Printed(None, "") for line in lines}
    number = 0
    for part in output.split(f"\n{_MARK}")[1:]:
        head, _, text = part.partition("\n")
        if head.startswith("= "):
            command = lines[number].command
            results[command] = Printed(int(head[2:]), results[command].output)
        else:
            number = int(head)
            results[lines[number].command] = Printed(None, text)
    return results


def environment(root: Path) -> Mapping[str, str]:
    """Return the variables of a newcomer's shell, in which `.venv` is active."""
    skipped = ("GRAFTLINE_", "PYTEST_", "PYTHON", "HF_", "TINKER_", "DAGSTER_", "SYNTH_", "VIRTUAL_ENV")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(skipped)}
    return {**variables, "PATH": f"{root / '.venv' / 'bin'}{os.pathsep}{variables['PATH']}"}


def can_leave_the_network() -> bool:
    """Return whether this machine lets a process have a network of its own."""
    return subprocess.run([sys.executable, "-c", _ALONE], capture_output=True, check=False).returncode == 0


def bring_loopback_up() -> None:
    """Leave the network of this machine for one with nothing but loopback, which is up.

    Raises:
        OSError: this process may not.
    """
    user, group = os.getuid(), os.getgid()
    kernel.unshare(_NEW_NETWORK if user == 0 else _NEW_NETWORK | _NEW_USER)
    if user != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text, "ascii")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SET_FLAGS, struct.pack("16sH14s", b"lo", _UP_AND_RUNNING, b""))
