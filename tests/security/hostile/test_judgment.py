"""What the end of a hostile case means."""

import pytest

from graftline.sandbox.base import IsolationLevel, Verdict
from graftline.sandbox.jail import CaseEnd
from tests.security.hostile.bare_jail import end
from tests.security.hostile.cases import CASE_LIMITS, HostileCase
from tests.security.hostile.judging import Judgment, Status, at_level, judge_end

PLAIN = HostileCase("")
ENDLESS = HostileCase("", ends=(Verdict.CPU_TIMEOUT,))


@pytest.mark.parametrize(
    ("case", "ended", "findings", "expected"),
    [
        (PLAIN, end(b"RAN \nBLOCKED a\n"), [], Judgment("contained", "a")),
        (PLAIN, end(b"RAN \nBLOCKED a\nBLOCKED b\nTRIED c\n"), [], Judgment("contained", "a; b")),
        (PLAIN, end(b"RAN \nTRIED c\n"), [], Judgment("contained", "tried: c")),
        (PLAIN, end(b"RAN \nBLOCKED a\nESCAPE b\n"), [], Judgment("escaped", "b")),
        # what is seen from outside counts, whatever the program says
        (PLAIN, end(b"RAN \nBLOCKED a\n"), ["heard it"], Judgment("escaped", "heard it")),
        (PLAIN, end(b""), ["heard it"], Judgment("escaped", "heard it")),
        # an attack that never began was not contained
        (
            PLAIN,
            end(b"", b"ImportError: x\n", exit_code=1),
            [],
            Judgment("not run", "never began: ok, exit 1, ImportError: x"),
        ),
        (PLAIN, end(b"BLOCKED a\n"), [], Judgment("not run", "never began: ok, exit 0")),
        (PLAIN, end(b"RAN \n"), [], Judgment("not run", "said nothing: ok, exit 0")),
        (
            PLAIN,
            end(b"RAN \nBLOCKED a\nBROKEN NameError\n"),
            [],
            Judgment("not run", "the program is broken: NameError"),
        ),
        (
            PLAIN,
            end(b"RAN \nBLOCKED a\n", b"Traceback\nNameError: x\n", exit_code=1),
            [],
            Judgment("not run", "ended unexpectedly: ok, exit 1, NameError: x"),
        ),
        (
            PLAIN,
            end(b"RAN \nBLOCKED a\n", verdict=Verdict.WALL_TIMEOUT, exit_code=None),
            [],
            Judgment("not run", "ended unexpectedly: wall_timeout, signal 9"),
        ),
        (PLAIN, end(b"RAN \n", verdict=Verdict.VIOLATION, exit_code=None), [], Judgment("contained", "violation")),
        (
            ENDLESS,
            end(b"RAN \n", verdict=Verdict.CPU_TIMEOUT, exit_code=None),
            [],
            Judgment("contained", "cpu_timeout"),
        ),
        (ENDLESS, end(b"", verdict=Verdict.CPU_TIMEOUT), [], Judgment("not run", "never began: cpu_timeout, exit 0")),
        (ENDLESS, end(b"RAN \n"), [], Judgment("escaped", "ended by itself, not by cpu_timeout")),
        (ENDLESS, end(b"RAN \nBLOCKED a\n"), [], Judgment("contained", "a")),
        (
            PLAIN,
            end(b"RAN \nBLOCKED a\n" + b"x" * (CASE_LIMITS.output_kb << 10)),
            [],
            Judgment("escaped", "65551 bytes of stdout were kept"),
        ),
        (
            HostileCase("", keeps=b"\xff\x00"),
            end(b"RAN \n\xef\xbf\xbd\nTRIED a\n"),
            [],
            Judgment("escaped", "what it printed came out altered"),
        ),
        (
            HostileCase("", keeps=b"\xff\x00"),
            end(b"RAN \nTRIED a\n", b"\xff\x00\n"),
            [],
            Judgment("contained", "tried: a"),
        ),
        (
            HostileCase("", is_cut=True),
            end(b"RAN \nTRIED a\n"),
            [],
            Judgment("escaped", "its output was cut, and nothing says so"),
        ),
        (
            HostileCase("", is_cut=True),
            end(b"RAN \nTRIED a\n", is_truncated=True),
            [],
            Judgment("contained", "tried: a"),
        ),
    ],
)
def test_an_end_is_judged_by_what_was_seen_and_said(
    case: HostileCase, ended: CaseEnd, findings: list[str], expected: Judgment
) -> None:
    assert judge_end(case, ended, findings, 0.1) == expected


def test_a_jail_that_was_held_for_long_was_escaped() -> None:
    assert judge_end(PLAIN, end(b"RAN \nBLOCKED a\n"), [], 100.0) == Judgment("escaped", "held the jail for 100 s")


@pytest.mark.parametrize(
    ("status", "level", "expected"),
    [
        ("escaped", "confined", Judgment("beyond level", "needs namespaces: a")),
        ("escaped", "namespaces", Judgment("escaped", "a")),
        ("escaped", "full", Judgment("escaped", "a")),
        ("contained", "none", Judgment("contained", "a")),
        ("not run", "none", Judgment("not run", "a")),
    ],
)
def test_only_what_escapes_a_weaker_jail_is_beyond_its_level(
    status: Status, level: IsolationLevel, expected: Judgment
) -> None:
    assert at_level(Judgment(status, "a"), "namespaces", level) == expected
