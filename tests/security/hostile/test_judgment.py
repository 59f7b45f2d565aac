"""What the end of a hostile case means."""

import pytest

from graftline.sandbox.base import IsolationLevel, Verdict
from graftline.sandbox.jail import CaseEnd
from tests.security.hostile.bare_jail import end
from tests.security.hostile.cases import CASE_LIMITS, HostileCase
from tests.security.hostile.judging import Judgment, Status, at_level, judge_end

PLAIN = HostileCase("")
ENDLESS = HostileCase("", ends=(Verdict.CPU_TIMEOUT,))
KEEPS, IS_CUT = HostileCase("", keeps=b"\xff\x00"), HostileCase("", is_cut=True)
CPU, WALL, VIOLATION = (
    {"verdict": verdict, "exit_code": None}
    for verdict in (Verdict.CPU_TIMEOUT, Verdict.WALL_TIMEOUT, Verdict.VIOLATION)
)
BROKEN, FAULT = b"RAN \nBLOCKED a\nBROKEN NameError\n", b"Traceback\nNameError: x\n"
FLOOD = b"RAN \nBLOCKED a\n" + b"x" * (CASE_LIMITS.output_kb << 10)


@pytest.mark.parametrize(
    ("case", "ended", "findings", "status", "detail"),
    [
        (PLAIN, end(b"RAN \nBLOCKED a\n"), [], "contained", "a"),
        (PLAIN, end(b"RAN \nBLOCKED a\nBLOCKED b\nTRIED c\n"), [], "contained", "a; b"),
        (PLAIN, end(b"RAN \nTRIED c\n"), [], "contained", "tried: c"),
        (PLAIN, end(b"RAN \nBLOCKED a\nESCAPE b\n"), [], "escaped", "b"),
        # what is seen from outside counts, whatever the program says
        (PLAIN, end(b"RAN \nBLOCKED a\n"), ["heard it"], "escaped", "heard it"),
        (PLAIN, end(b""), ["heard it"], "escaped", "heard it"),
        # an attack that never began was not contained
        (PLAIN, end(b"", b"E: x\n", exit_code=1), [], "not run", "never began: ok, exit 1, E: x"),
        (PLAIN, end(b"BLOCKED a\n"), [], "not run", "never began: ok, exit 0"),
        (PLAIN, end(b"RAN \n"), [], "not run", "said nothing: ok, exit 0"),
        (PLAIN, end(BROKEN), [], "not run", "the program is broken: NameError"),
        (PLAIN, end(BROKEN[:15], FAULT, exit_code=1), [], "not run", "ended unexpectedly: ok, exit 1, NameError: x"),
        (PLAIN, end(BROKEN[:15], **WALL), [], "not run", "ended unexpectedly: wall_timeout, signal 9"),
        (PLAIN, end(b"RAN \n", **VIOLATION), [], "contained", "violation"),
        (ENDLESS, end(b"RAN \n", **CPU), [], "contained", "cpu_timeout"),
        (ENDLESS, end(b"", verdict=Verdict.CPU_TIMEOUT), [], "not run", "never began: cpu_timeout, exit 0"),
        (ENDLESS, end(b"RAN \n"), [], "escaped", "ended by itself, not by cpu_timeout"),
        (ENDLESS, end(b"RAN \nBLOCKED a\n"), [], "contained", "a"),
        (PLAIN, end(FLOOD), [], "escaped", "65551 bytes of stdout were kept"),
        (KEEPS, end(b"RAN \n\xef\xbf\xbd\nTRIED a\n"), [], "escaped", "what it printed came out altered"),
        (KEEPS, end(b"RAN \nTRIED a\n", b"\xff\x00\n"), [], "contained", "tried: a"),
        (IS_CUT, end(b"RAN \nTRIED a\n"), [], "escaped", "its output was cut, and nothing says so"),
        (IS_CUT, end(b"RAN \nTRIED a\n", is_truncated=True), [], "contained", "tried: a"),
    ],
)
def test_an_end_is_judged_by_what_was_seen_and_said(
    case: HostileCase, ended: CaseEnd, findings: list[str], status: Status, detail: str
) -> None:
    assert judge_end(case, ended, findings, 0.1) == Judgment(status, detail)


def test_a_jail_that_was_held_for_long_was_escaped() -> None:
    assert judge_end(PLAIN, end(b"RAN \nBLOCKED a\n"), [], 100.0) == Judgment("escaped", "held the jail for 100 s")


@pytest.mark.parametrize(
    ("status", "level", "expected"),
    [
        ("escaped", "confined", ("beyond level", "needs namespaces: a")),
        ("escaped", "namespaces", ("escaped", "a")),
        ("escaped", "full", ("escaped", "a")),
        ("contained", "none", ("contained", "a")),
        ("not run", "none", ("not run", "a")),
    ],
)
def test_only_what_escapes_a_weaker_jail_is_beyond_its_level(
    status: Status, level: IsolationLevel, expected: tuple[Status, str]
) -> None:
    assert at_level(Judgment(status, "a"), "namespaces", level) == expected
