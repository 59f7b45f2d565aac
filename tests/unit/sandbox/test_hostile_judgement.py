"""What the end of a hostile case means."""

import pytest

from graftline.hostile.cases import CASE_LIMITS, HostileCase
from graftline.hostile.judging import Judgement, Status, at_level, judgement
from graftline.sandbox.base import IsolationLevel, Verdict
from graftline.sandbox.jail import CaseEnd
from tests.unit.sandbox.bare_jail import end

PLAIN = HostileCase("plain", "group", "")
ENDLESS = HostileCase("endless", "group", "", ends=(Verdict.CPU_TIMEOUT,))


@pytest.mark.parametrize(
    ("case", "ended", "found", "expected"),
    [
        (PLAIN, end(b"RAN \nBLOCKED a\n"), [], Judgement("contained", "a")),
        (PLAIN, end(b"RAN \nBLOCKED a\nBLOCKED b\nTRIED c\n"), [], Judgement("contained", "a; b")),
        (PLAIN, end(b"RAN \nTRIED c\n"), [], Judgement("contained", "tried: c")),
        (PLAIN, end(b"RAN \nBLOCKED a\nESCAPE b\n"), [], Judgement("escaped", "b")),
        # what is seen from outside counts, whatever the program says
        (PLAIN, end(b"RAN \nBLOCKED a\n"), ["heard it"], Judgement("escaped", "heard it")),
        (PLAIN, end(b""), ["heard it"], Judgement("escaped", "heard it")),
        # an attack that never began was not contained
        (
            PLAIN,
            end(b"", b"ImportError: x\n", exit_code=1),
            [],
            Judgement("not run", "never began: ok, exit 1, ImportError: x"),
        ),
        (PLAIN, end(b"BLOCKED a\n"), [], Judgement("not run", "never began: ok, exit 0")),
        (PLAIN, end(b"RAN \n"), [], Judgement("not run", "said nothing: ok, exit 0")),
        (
            PLAIN,
            end(b"RAN \nBLOCKED a\nBROKEN NameError\n"),
            [],
            Judgement("not run", "the program is broken: NameError"),
        ),
        (
            PLAIN,
            end(b"RAN \nBLOCKED a\n", b"Traceback\nNameError: x\n", exit_code=1),
            [],
            Judgement("not run", "ended unexpectedly: ok, exit 1, NameError: x"),
        ),
        (
            PLAIN,
            end(b"RAN \nBLOCKED a\n", verdict=Verdict.WALL_TIMEOUT, exit_code=None),
            [],
            Judgement("not run", "ended unexpectedly: wall_timeout, signal 9"),
        ),
        (PLAIN, end(b"RAN \n", verdict=Verdict.VIOLATION, exit_code=None), [], Judgement("contained", "violation")),
        (
            ENDLESS,
            end(b"RAN \n", verdict=Verdict.CPU_TIMEOUT, exit_code=None),
            [],
            Judgement("contained", "cpu_timeout"),
        ),
        (ENDLESS, end(b"", verdict=Verdict.CPU_TIMEOUT), [], Judgement("not run", "never began: cpu_timeout, exit 0")),
        (ENDLESS, end(b"RAN \n"), [], Judgement("escaped", "ended by itself, not by cpu_timeout")),
        (ENDLESS, end(b"RAN \nBLOCKED a\n"), [], Judgement("contained", "a")),
        (
            PLAIN,
            end(b"RAN \nBLOCKED a\n" + b"x" * (CASE_LIMITS.output_kb << 10)),
            [],
            Judgement("escaped", "65551 bytes of stdout were kept"),
        ),
        (
            HostileCase("keeps", "group", "", keeps=b"\xff\x00"),
            end(b"RAN \n\xef\xbf\xbd\nTRIED a\n"),
            [],
            Judgement("escaped", "what it printed came out altered"),
        ),
        (
            HostileCase("keeps", "group", "", keeps=b"\xff\x00"),
            end(b"RAN \nTRIED a\n", b"\xff\x00\n"),
            [],
            Judgement("contained", "tried: a"),
        ),
        (
            HostileCase("is_cut", "group", "", is_cut=True),
            end(b"RAN \nTRIED a\n"),
            [],
            Judgement("escaped", "its output was cut, and nothing says so"),
        ),
        (
            HostileCase("is_cut", "group", "", is_cut=True),
            end(b"RAN \nTRIED a\n", is_truncated=True),
            [],
            Judgement("contained", "tried: a"),
        ),
    ],
)
def test_an_end_is_judged_by_what_was_seen_and_said(
    case: HostileCase, ended: CaseEnd, found: list[str], expected: Judgement
) -> None:
    assert judgement(case, ended, found, 0.1) == expected


def test_a_jail_that_was_held_for_long_was_escaped() -> None:
    assert judgement(PLAIN, end(b"RAN \nBLOCKED a\n"), [], 100.0) == Judgement("escaped", "held the jail for 100 s")


@pytest.mark.parametrize(
    ("status", "level", "expected"),
    [
        ("escaped", "confined", Judgement("beyond level", "needs namespaces: a")),
        ("escaped", "namespaces", Judgement("escaped", "a")),
        ("escaped", "full", Judgement("escaped", "a")),
        ("contained", "none", Judgement("contained", "a")),
        ("not run", "none", Judgement("not run", "a")),
    ],
)
def test_only_what_escapes_a_weaker_jail_is_beyond_its_level(
    status: Status, level: IsolationLevel, expected: Judgement
) -> None:
    assert at_level(Judgement(status, "a"), "namespaces", level) == expected
