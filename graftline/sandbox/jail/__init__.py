"""The `Jail` port: run foreign code on files of its own, away from everything else.

Whatever the code does (fail, fill the disk, fork without end, stop itself) is a `CaseEnd` with a verdict. An error is
raised only when the jail itself cannot answer. What the code printed proves nothing; see `jail.judge` for when tests
count as passed.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from pydantic import Field

from graftline.core.config import Config
from graftline.sandbox.base import Isolation, Usage, Verdict

_SHOWN, _ARGUMENT_BYTES = 40, 100_000  # the kernel takes 128 KiB for one
_VARIABLES, _VARIABLES_BYTES = 256, 1 << 20
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# what the jail sets itself, and what has a loader or an interpreter run something before the program
_OF_THE_JAIL = re.compile(
    r"PATH|HOME|TMPDIR|LOGS_DIR|LANG|TZ|OPENSSL_CONF|PYTHONHASHSEED|LD_\w*|GLIBC_\w*|GCONV_PATH|BASH_ENV|ENV|SHELLOPTS|BASHOPTS"
    r"|PYTHON(HOME|STARTUP|INSPECT|PLATLIBDIR|BREAKPOINT|USERBASE)|NODE_OPTIONS|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS"
    r"|CARGO_(HOME|NET_OFFLINE)|RUSTUP_\w*"
)

Program = Literal["python", "pytest", "calls", "ast-grep", "node", "java", "shell", "cargo"]
"""What may be started; a jail refuses what its configuration does not list."""


class CaseLimits(Config):
    """What one case may use: all of its processes together, where it does not say otherwise."""

    cores: int = Field(default=2, ge=1, le=1024)
    cpu_s: int = Field(default=30, ge=1, le=86_400)
    """Of each process."""
    wall_s: float = Field(default=30.0, gt=0, le=86_400)
    memory_mb: int = Field(default=4096, ge=64)
    """Of each process, and of all together where there is a control group."""
    disk_mb: int = Field(default=64, ge=1)
    """Of the working folder, and as much again of the temporary one."""
    file_mb: int = Field(default=32, ge=0)
    """Of one file; with 0 nothing can be written into any."""
    files: int = Field(default=2000, ge=16)
    processes: int = Field(default=32, ge=1, le=4096)
    """Threads count as processes."""
    descriptors: int = Field(default=128, ge=16, le=65536)
    output_kb: int = Field(default=1024, ge=1, le=1 << 20)
    """Kept of each output; a case that prints 16 times as much is ended."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A folder that every case starts with a copy of, or of parts of it, in its working folder; nobody changes it meanwhile.

    Everybody has to be able to read it, for cases belong to a user of their own. A case sees the copy alone. It also has
    a folder of logs, which is `/logs` where there are namespaces, and its files may come back.
    """

    folder: Path


@dataclass(frozen=True, slots=True)
class Returned:
    """Which of the files that a case leaves come back, read after all of its processes have ended."""

    paths: tuple[str, ...]
    """Files, and folders with all regular files below them: `work/a.py`, `tmp/result.json`, `logs/verifier`."""
    size_bytes: int = 16 << 20
    """Of all together."""
    files: int = 1000
    """Folders that are looked through count as well."""


@dataclass(frozen=True, slots=True)
class Apart:
    """How tests reach code under test that has a process of its own."""

    modules: tuple[str, ...]
    """Names, without dots, of the modules and packages that are the code's."""
    trusts: Literal["values", "comparisons"]
    """As `PytestSpec.trusts`."""


@dataclass(frozen=True, slots=True)
class Case:
    """A program with its files; paths are relative to the working folder, as `sandbox.file_names` takes them."""

    program: Program
    arguments: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    trusted: Mapping[str, bytes] = field(default_factory=dict)
    """Files that take the place of others of their name, and that the program may read only."""
    stdin: bytes = b""
    nonce: str = ""
    """Drawn anew by whoever wants to believe the report."""
    temporary: Mapping[str, bytes] = field(default_factory=dict)
    """Files of the temporary folder, by their path in it: what is `/tmp/a` where there are namespaces. Elsewhere the path
    of such a file, or of one that is to come back, is replaced in the arguments."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables besides those of the jail."""
    parts: tuple[str, ...] = ()
    """Folders of the snapshot whose content the case starts with, the later over the earlier; all of it if none is named."""
    apart: Apart | None = None
    """Only of `pytest`: `files` go to a process of their own, and `trusted` alone to that of the tests."""
    returned: Returned | None = None
    """Only of a jail that has a snapshot, and of programs that are not the jail's own."""


@dataclass(frozen=True, slots=True)
class CaseEnd:
    """How a case ended."""

    verdict: Verdict
    """`ok`: the program ended by itself, whatever its exit code."""
    exit_code: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    is_truncated: bool
    """Whether more was printed than is kept."""
    report: bytes
    """What came over the descriptor that only the jail's own programs know."""
    usage: Usage
    isolation: Isolation
    tools: Mapping[str, str] = field(default_factory=dict)
    """Versions of what ran inside."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """What came back, by the paths that `Returned` has."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Why a path that was to come back, or is below one, did not; one that is not there is in neither."""
    error: str = ""
    """Who is to blame if its time was over: itself, or the machine, and by what."""


class Jail(Protocol):
    """Runs cases, one after the other; safe to use until `close`, from one thread."""

    @property
    def isolation(self) -> Isolation:
        """What this jail achieves on this machine."""

    def run(self, case: Case, glance: Callable[[], None] | None = None) -> CaseEnd:
        """Run `case` and return how it ended; nothing of it is left behind.

        `glance` is called a few times a second meanwhile; what it raises ends the case, and is raised. DataError if
        the case asks for a program that is not listed or not there, or names files that are refused. SandboxError if
        the jail itself failed; nothing is known about the case.
        """

    def close(self) -> None:
        """Let go of processes, folders and control groups. A second call does nothing."""


def fault_of_arguments(arguments: Sequence[str]) -> str:
    """Return why no program can be passed `arguments`; empty if it can."""
    for argument in arguments:
        try:
            size = len(argument.encode())
        except UnicodeEncodeError:
            return f"argument {argument[:_SHOWN]!r}: holds half of a surrogate pair"
        if "\0" in argument:
            return f"argument {argument[:_SHOWN]!r}: holds a zero byte"
        if size > _ARGUMENT_BYTES:
            return f"argument {argument[:_SHOWN]!r}…: has {size} bytes; at most {_ARGUMENT_BYTES} are passed on"
    return ""


def fault_of_environment(variables: Mapping[str, str]) -> str:
    """Return why no case can have the environment `variables`; empty if it can."""
    for name, value in variables.items():
        if not _VARIABLE.fullmatch(name):
            return f"variable {name[:_SHOWN]!r}: expected letters, digits and '_', such as 'TASK_ID'"
        if _OF_THE_JAIL.fullmatch(name):
            return f"variable {name[:_SHOWN]!r}: is for the jail to set; give it another name"
        if fault := fault_of_arguments([value]):
            return f"variable {name[:_SHOWN]!r}: {fault.partition(': ')[2]}"
    size = sum(len(name) + len(value.encode()) for name, value in variables.items())
    if len(variables) > _VARIABLES or size > _VARIABLES_BYTES:
        return f"variables: {len(variables)} of {size} bytes; {_VARIABLES} of {_VARIABLES_BYTES} bytes together are passed on"
    return ""


def fault_of_returned(paths: Iterable[str]) -> str:
    """Return which path cannot be read back, and why; empty if all can."""
    for path in paths:
        top, _, below = path.partition("/")
        if top not in ("work", "tmp", "logs") or ".." in below.split("/") or "\0" in path:
            return f"path {path[:_SHOWN]!r}: does not come back; expected one below 'work', 'tmp' or 'logs'"
    return ""
