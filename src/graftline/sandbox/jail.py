"""The `Jail` port: run foreign code on files of its own, away from everything else.

Whatever the code does (fail, fill the disk, fork without end, stop itself) is a `CaseEnd` with a verdict. An error is
raised only when the jail itself cannot answer. What the code printed proves nothing; see `sandbox.judge` for when tests
count as passed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pydantic import Field

from graftline.config import Config
from graftline.sandbox.base import Isolation, Usage, Verdict

_SHOWN, _ARGUMENT_BYTES = 40, 100_000  # the kernel takes 128 KiB for one

Program = Literal["python", "pytest", "calls", "ast-grep", "node", "java"]
"""What may be started; a jail refuses what its configuration does not list."""


class CaseLimits(Config):
    """What one case may use: all of its processes together, where it does not say otherwise."""

    cores: int = Field(default=2, ge=1, le=1024)
    cpu_s: int = Field(default=30, ge=1, le=3600)
    """Of each process."""
    wall_s: float = Field(default=30.0, gt=0, le=3600)
    memory_mb: int = Field(default=4096, ge=64)
    """Of each process, and of all together where there is a control group."""
    disk_mb: int = Field(default=64, ge=1)
    """Of the working folder, and as much again of the temporary one."""
    file_mb: int = Field(default=32, ge=1)
    files: int = Field(default=2000, ge=16)
    processes: int = Field(default=32, ge=1, le=4096)
    """Threads count as processes."""
    descriptors: int = Field(default=128, ge=16, le=65536)
    output_kb: int = Field(default=1024, ge=1, le=65536)
    """Kept of each output; a case that prints 16 times as much is ended."""


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
    """Drawn anew by who wants to believe the report."""


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
    """What came over the descriptor that only the jail's own programs know of."""
    usage: Usage
    isolation: Isolation
    tools: Mapping[str, str] = field(default_factory=dict)
    """Versions of what ran inside."""


class Jail(Protocol):
    """Runs cases, one after the other; safe to use until `close`, from one thread."""

    @property
    def isolation(self) -> Isolation:
        """What this jail achieves on this machine."""

    def run(self, case: Case) -> CaseEnd:
        """Run `case` and return how it ended; nothing of it is left behind.

        Raises:
            DataError: the case asks for a program that is not listed or not there, or names files that are refused.
            SandboxError: the jail itself failed; nothing is known about the case.
        """

    def close(self) -> None:
        """Let go of processes, folders and control groups. A second call does nothing."""


def fault_of_arguments(arguments: Sequence[str]) -> str:
    """Return what no program can be told about `arguments`; empty where there is nothing."""
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
