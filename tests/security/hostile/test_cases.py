"""The hostile cases: each is whole, and says what it is given."""

import subprocess
import sys

import pytest

from tests.security.hostile.cases import HostileCase
from tests.security.hostile.prelude import calls
from tests.security.hostile.suite import JAIL_CASES, PROGRAMS, SANDBOX_CASES


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
    text = HostileCase("print(ascii(FACTS))").case(facts).files["case.py"].decode()
    text = text.partition("LIBC =")[0] + "print(ascii(FACTS))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == ascii(facts) + "\n"


def test_system_calls_are_numbered_for_the_machines_that_jails_know() -> None:
    assert [
        (calls(machine).get("ptrace"), calls(machine).get("iopl")) for machine in ("x86_64", "aarch64", "s390x")
    ] == [(101, 172), (117, None), (None, None)]
