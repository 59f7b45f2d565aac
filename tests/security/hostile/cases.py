"""What a hostile program is, and the limits that every jail of the suite is opened with.

Programs end by themselves, far below anything that harms a machine: they are run against a jail without walls too.
"""

import json
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from graftline.sandbox.base import IsolationLevel, Limits, Verdict
from graftline.sandbox.jail import Case, CaseLimits
from tests.security.hostile.prelude import PRELUDE

CASE_LIMITS = CaseLimits(
    cores=1,
    cpu_s=2,
    wall_s=4.0,
    memory_mb=512,
    disk_mb=32,
    file_mb=16,
    files=500,
    processes=24,
    descriptors=64,
    output_kb=64,
)
"""Small, so that a program can go far beyond them and still be harmless."""
ACTION_LIMITS = Limits(cpu_s=1, wall_s=20, memory_mb=512, output_mb=4)
PROGRAM = "case.py"
BY_THE_WALL_CLOCK = (Verdict.WALL_TIMEOUT, Verdict.TIMED_OUT)
"""Ends of what has to be ended; who is to blame for it depends on the machine."""


@dataclass(frozen=True, slots=True)
class HostileCase:
    """A Python program that tries what a jail has to prevent.

    It runs after `prelude.PRELUDE` and says `ESCAPE` when a forbidden thing worked, `BLOCKED` when it did not, `TRIED`
    when only whoever looks from outside can tell.
    """

    program: str
    name: str = "plain"
    group: str = "machine"
    needs: IsolationLevel = "confined"
    """The weakest level that has to contain it."""
    feature: str = ""
    """What a jail of that level has to have besides; see the features of `Isolation`."""
    ends: tuple[Verdict, ...] = ()
    """Ends that say by themselves that it was contained; without them it has to end by itself and say what happened."""
    keeps: bytes = b""
    """What has to come out of the jail as it was printed."""
    is_cut: bool = False
    """Whether it prints more than is kept."""

    def case(self, facts: Mapping[str, Any]) -> Case:
        """Return it as what a jail runs; `facts` is what it may know of the machine, as JSON values."""
        text = PRELUDE.replace("{facts}", repr(json.dumps(facts)))
        return Case("python", (PROGRAM,), {PROGRAM: (text + textwrap.dedent(self.program)).encode()})


def in_group(
    group: str, cases: Mapping[str, str | HostileCase], shared: str = "", **options: Any
) -> tuple[HostileCase, ...]:
    """Return cases by their names, each with what is `shared` before its program; `options` are those of all."""
    whole = {name: HostileCase(case) if isinstance(case, str) else case for name, case in cases.items()}
    return tuple(
        replace(case, name=name, group=group, program=shared + textwrap.dedent(case.program), **options)
        for name, case in whole.items()
    )


AFTERWARDS = HostileCase(
    """
    strangers = sorted({*os.listdir(".")} - {"case.py", "__pycache__", MARKER})
    if strangers:
        say("ESCAPE", "the working folder of the next case holds", strangers[:5])
    for folder in {"/tmp", "/var/tmp", "/dev/shm", os.environ.get("TMPDIR", "/tmp")}:
        found = [name for name in listed(folder) if MARKER in name]
        if found:
            say("ESCAPE", folder, "of the next case holds", found[:5])
    if marked():
        say("ESCAPE", "the next case runs beside processes", marked())
    say("BLOCKED", "the jail still answers")
    """,
    "afterwards",
    needs="none",
)
"""What is run after every other program: whether the jail still answers, and what the next case finds."""
