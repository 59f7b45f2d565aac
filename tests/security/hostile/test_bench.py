"""The bench of the hostile suite sees what a jail without walls lets through."""

import os
from pathlib import Path

import pytest

from tests.security.hostile.bare_jail import BareJail, BrokenJail
from tests.security.hostile.bench import JailBench
from tests.security.hostile.cases import HostileCase
from tests.security.hostile.facts import Host
from tests.security.hostile.judging import Outcome
from tests.security.hostile.suite import PROGRAMS

PLAIN = HostileCase("")


@pytest.mark.parametrize(
    ("name", "detail"),
    [
        ("tcp_loopback", "needs confined: the TCP listener of the machine was reached; 127.0.0.1 connected"),
        ("udp_datagram", "needs confined: the UDP listener of the machine was reached"),
        ("read_what_everybody_may", "needs confined: a file of mode 644 True; by its folder True"),
        ("cut_a_file_of_the_machine", "needs confined: bait, a file of the machine, was altered"),
        ("signal_a_stranger", "needs confined: the victim"),
        ("see_others", "needs namespaces: its command line True"),
        ("daemon", "needs confined: 1 of its processes still run"),
        ("daemon_of_another_program", "needs confined: 1 of its processes still run"),
        ("many_files", "needs namespaces: 2000 files"),
        ("own_program", "needs confined: . True"),
    ],
)
def test_what_no_wall_stops_is_told_of(host: Host, name: str, detail: str) -> None:
    [case] = [case for case in PROGRAMS if case.name == name]
    outcome = JailBench("bare", BareJail, host).outcome(case)
    assert (outcome.status, outcome.detail[: len(detail)]) == ("beyond level", detail)


def test_a_jail_that_hands_its_environment_over_is_told_of(host: Host) -> None:
    [case] = [case for case in PROGRAMS if case.name == "own_environment"]
    outcomes = [
        JailBench("bare", lambda: BareJail(os.environ), host).outcome(case),
        JailBench("bare", BareJail, host).outcome(case),
    ]
    assert [outcome.status for outcome in outcomes] == ["escaped", "contained"]


def test_what_a_case_leaves_to_the_next_one_is_told_of(host: Host, tmp_path: Path) -> None:
    case = HostileCase("open('other', 'w').close()\nsay('TRIED', 'left one')\n", "leaves", "files", "none")
    outcome = JailBench("bare", lambda: BareJail(folder=tmp_path), host).outcome(case)
    detail = "left behind: the working folder of the next case holds ['other']"
    assert outcome == Outcome("bare", "leaves", "files", "escaped", detail)


def test_a_broken_program_is_not_taken_for_one_that_was_contained(host: Host) -> None:
    case = HostileCase("attempt('it', lambda: no_such_name)\n")
    outcome = JailBench("bare", BareJail, host).outcome(case)
    assert (outcome.status, outcome.detail) == (
        "not run",
        """the program is broken: it NameError("name 'no_such_name' is not defined")""",
    )


def test_a_jail_that_fails_has_not_contained_anything(host: Host) -> None:
    outcome = JailBench("broken", BrokenJail, host).outcome(PLAIN)
    assert outcome == Outcome("broken", "plain", "machine", "not run", "SandboxError: broken jail: always")
