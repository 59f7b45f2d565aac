"""The hostile suite itself: what it says of an end, and that it sees what a jail without walls lets through."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from graftline.actions.action import ACTION
from graftline.actions.astgrep import Language
from graftline.errors import ConfigError, SandboxError
from graftline.hostile.bench import JailBench
from graftline.hostile.cases import CASE_LIMITS, HostileCase
from graftline.hostile.facts import CANARY_VARIABLE, Host, watched_host
from graftline.hostile.judging import Judgement, Outcome, Status, at_level, judgement
from graftline.hostile.prelude import calls
from graftline.hostile.report_cases import CALLS, TESTS
from graftline.hostile.suite import (
    JAIL_CASES,
    PROGRAMS,
    SANDBOX_CASES,
    has_failed,
    run_suite,
    summary,
    table,
)
from graftline.sandbox.base import Isolation, IsolationLevel, Request, SandboxResult, Usage, Verdict
from graftline.sandbox.jail import Case, CaseEnd
from graftline.sandbox.memory import MemorySandbox

ISOLATION = Isolation("none", "bare")
PLAIN = HostileCase("plain", "group", "")
ENDLESS = HostileCase("endless", "group", "", ends=(Verdict.CPU_TIMEOUT,))


class BareJail:
    """A child process in a folder of its own, with nothing around it."""

    def __init__(self, environment: Mapping[str, str] | None = None, folder: Path | None = None) -> None:
        """`folder` is kept from one case to the next."""
        self._environment = {} if environment is None else environment
        self._folder = folder

    @property
    def isolation(self) -> Isolation:
        return ISOLATION

    def run(self, case: Case) -> CaseEnd:
        # pipes would be held open by what a program leaves behind
        with tempfile.TemporaryDirectory() as own, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            folder = self._folder or Path(own)
            for name, data in case.files.items():
                Path(folder, name).write_bytes(data)
            command = [sys.executable, "-B", *case.arguments]
            code = subprocess.run(
                command,
                cwd=folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                timeout=60,
                check=False,
            ).returncode
            out.seek(0)
            err.seek(0)
            return end(out.read(), err.read(), exit_code=code)

    def close(self) -> None:
        """Nothing is held."""


class BrokenJail(BareJail):
    """A jail that fails whenever it is asked to run something."""

    def run(self, case: Case) -> CaseEnd:
        raise SandboxError("broken jail: always")


def end(
    stdout: bytes,
    stderr: bytes = b"",
    verdict: Verdict = Verdict.OK,
    exit_code: int | None = 0,
    is_truncated: bool = False,
) -> CaseEnd:
    signal_ = None if exit_code is not None else signal.SIGKILL
    return CaseEnd(verdict, exit_code, signal_, stdout, stderr, is_truncated, b"", Usage(0.1, 0.1, 10.0), ISOLATION)


@pytest.fixture
def host() -> Iterator[Host]:
    with watched_host() as watched:
        yield watched


# ---- what an end means


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


# ---- the cases


def test_every_case_has_a_name_of_its_own() -> None:
    names = [case.name for case in (*JAIL_CASES, *SANDBOX_CASES)]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_there_are_as_many_cases_as_were_promised() -> None:
    assert len(PROGRAMS) >= 75
    assert len(JAIL_CASES) + len(SANDBOX_CASES) >= 150


@pytest.mark.parametrize("case", PROGRAMS, ids=lambda case: case.name)
def test_every_program_compiles_and_has_an_end(case: HostileCase) -> None:
    [text] = case.case({"marker": "m"}).files.values()
    compile(text, case.name, "exec", dont_inherit=True)
    assert b"while True" not in text


def test_facts_arrive_as_they_are() -> None:
    facts = {"marker": "a'b\"c\\d\n{facts}", "limits": {}, "calls": {}, "victim": 1}
    text = HostileCase("echo", "group", "print(ascii(FACTS))").case(facts).files["case.py"].decode()
    text = text.partition("LIBC =")[0] + "print(ascii(FACTS))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == ascii(facts) + "\n"


def test_actions_are_as_models_write_them() -> None:
    # what is refused before it is applied is refused for its own fault
    assert ACTION.validate_python({"pattern": "f($A)", "rewrite": "g($A)"}).model_dump() == {
        "pattern": "f($A)",
        "rewrite": "g($A)",
    }
    assert (TESTS.expected, CALLS.module) == (("test_m.py::test_add", "test_m.py::test_more"), "m")


def test_system_calls_are_numbered_for_the_machines_that_jails_know() -> None:
    assert [
        (calls(machine).get("ptrace"), calls(machine).get("iopl")) for machine in ("x86_64", "aarch64", "s390x")
    ] == [
        (101, 172),
        (117, None),
        (None, None),
    ]


# ---- what is seen from outside


def test_nothing_is_found_where_nothing_was_done(host: Host) -> None:
    assert host.findings() == []


def test_listeners_tell_who_reached_them(host: Host) -> None:
    with socket.create_connection(("127.0.0.1", host.facts["tcp_port"])), socket.socket(socket.AF_UNIX) as link:
        link.connect("\0" + host.facts["abstract_name"])
        assert host.findings() == [
            "the TCP listener of the machine was reached",
            "the abstract unix listener of the machine was reached",
        ]
    assert host.findings() == []


def test_the_victim_tells_of_signals(host: Host) -> None:
    os.kill(host.facts["victim"], signal.SIGUSR2)
    assert awaited(host) == [f"the victim got signal {int(signal.SIGUSR2)}"]


def test_a_victim_that_was_killed_is_replaced(host: Host) -> None:
    before = host.facts["victim"]
    os.kill(before, signal.SIGKILL)
    assert awaited(host) == ["the victim was ended (-9)"]
    os.kill(host.facts["victim"], 0)
    assert host.facts["victim"] != before


def test_files_that_come_into_being_are_found_and_removed(host: Host) -> None:
    place = Path(host.facts["open_folder"], host.marker)
    place.touch()
    assert host.findings() == [f"{place} has come into being"]
    assert (place.exists(), host.findings()) == (False, [])


@pytest.mark.parametrize("harm", ["write", "touch", "mode", "link", "remove"])
def test_a_file_of_the_machine_that_was_altered_is_found_and_laid_anew(host: Host, harm: str) -> None:
    bait = Path(host.facts["bait"])
    match harm:
        case "write":
            bait.write_text("other", "utf-8")
        case "touch":
            os.utime(bait)
        case "mode":
            bait.chmod(0o600)
        case "link":
            os.link(bait, bait.with_name("other"))
        case "remove":
            bait.unlink()
    assert host.findings() == ["bait, a file of the machine, was altered"]
    assert host.findings() == []


def test_a_process_that_stays_is_found_and_ended(host: Host) -> None:
    command = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(20)", host.marker]
    child = subprocess.Popen(command)
    assert host.findings() == ["1 of its processes still run"]
    assert child.wait() == -signal.SIGKILL


def test_nothing_is_left_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    # the path of a socket may not be long, as those of the tests' own folders are
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        with watched_host() as watched:
            victim = watched.facts["victim"]
            assert os.environ[CANARY_VARIABLE] in watched.facts["canaries"]
        left = list(Path(folder).iterdir())
    assert (left, CANARY_VARIABLE in os.environ, Path(f"/proc/{victim}").exists()) == ([], False, False)


def awaited(host: Host) -> list[str]:
    deadline = time.monotonic() + 10
    while not (found := host.findings()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


# ---- programs against a jail without walls


@pytest.mark.parametrize(
    ("name", "told"),
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
def test_what_no_wall_stops_is_told_of(host: Host, name: str, told: str) -> None:
    [case] = [case for case in PROGRAMS if case.name == name]
    outcome = JailBench("bare", BareJail, host).outcome(case)
    assert (outcome.status, outcome.detail[: len(told)]) == ("beyond level", told)


def test_a_jail_that_hands_its_environment_over_is_told_of(host: Host) -> None:
    [case] = [case for case in PROGRAMS if case.name == "own_environment"]
    outcomes = [
        JailBench("bare", lambda: BareJail(os.environ), host).outcome(case),
        JailBench("bare", BareJail, host).outcome(case),
    ]
    assert [outcome.status for outcome in outcomes] == ["escaped", "contained"]


def test_what_a_case_leaves_to_the_next_one_is_told_of(host: Host, tmp_path: Path) -> None:
    case = HostileCase("leaves", "files", "open('other', 'w').close()\nsay('TRIED', 'left one')\n", needs="none")
    outcome = JailBench("bare", lambda: BareJail(folder=tmp_path), host).outcome(case)
    told = "left behind: the working folder of the next case holds ['other']"
    assert outcome == Outcome("bare", "leaves", "files", "escaped", told)


def test_a_broken_program_is_not_taken_for_one_that_was_contained(host: Host) -> None:
    case = HostileCase("broken", "files", "attempt('it', lambda: no_such_name)\n")
    outcome = JailBench("bare", BareJail, host).outcome(case)
    assert (outcome.status, outcome.detail) == (
        "not run",
        """the program is broken: it NameError("name 'no_such_name' is not defined")""",
    )


def test_a_jail_that_fails_has_not_contained_anything(host: Host) -> None:
    outcome = JailBench("broken", BrokenJail, host).outcome(PLAIN)
    assert outcome == Outcome("broken", "plain", "group", "not run", "SandboxError: broken jail: always")


# ---- the suite


def test_names_choose_cases_and_groups() -> None:
    told: list[Outcome] = []
    outcomes = run_suite({"bare": BareJail}, {"memory": MemorySandbox}, ["odd_names", "actions"], told.append)
    actions = [case.name for case in SANDBOX_CASES if case.group == "actions"]
    assert [(outcome.backend, outcome.case) for outcome in outcomes] == [
        ("bare", "odd_names"),
        *(("memory", name) for name in actions),
    ]
    assert told == outcomes


def test_an_unknown_name_is_an_error_that_lists_the_groups() -> None:
    with pytest.raises(ConfigError, match="'no_such': no such case or group; the groups are network, files, disk"):
        run_suite({}, {}, ["no_such"])


def test_actions_are_not_applied_in_this_process() -> None:
    [outcome] = run_suite({}, {"memory": MemorySandbox}, ["stack_overflow_of_a_match"])
    assert outcome == Outcome(
        "memory", "stack_overflow_of_a_match", "actions", "beyond level", "needs compute: not tried"
    )


def test_a_sandbox_that_answers_wrongly_was_escaped() -> None:
    class Wrong(MemorySandbox):
        @property
        def isolation(self) -> Isolation:
            return Isolation("compute", "wrong")

        def apply_many(self, source: str, language: Language, actions: object) -> list[SandboxResult]:
            after = "g(1)\n" if source == "f(1)\n" else "other"
            return [SandboxResult(Verdict.OK, after, self.isolation)]

        def apply_each(self, requests: object) -> list[list[SandboxResult]]:
            raise NotImplementedError(Request)

    [outcome] = run_suite({}, {"wrong": Wrong}, ["leading_dash"])
    assert outcome == Outcome("wrong", "leading_dash", "actions", "escaped", "ended as ok, 'other'")


def test_the_table_has_a_row_per_case_and_a_column_per_back_end() -> None:
    outcomes = [
        Outcome("a", "x", "files", "contained", ""),
        Outcome("a", "y", "files", "beyond level", "needs full: 5 MB"),
        Outcome("b", "x", "files", "escaped", "it did"),
        Outcome("b", "z", "actions", "not run", "no"),
    ]
    assert table(outcomes) == (
        ["group", "case", "a", "b"],
        [
            ["files", "x", "contained", "ESCAPED"],
            ["files", "y", "needs full", ""],
            ["actions", "z", "", "NOT RUN"],
        ],
    )
    assert summary(outcomes) == "a: 1 contained, 1 beyond level; b: 1 escaped, 1 not run"
    assert [has_failed(outcomes[:2]), has_failed(outcomes[:3]), has_failed(outcomes[3:])] == [False, True, True]
