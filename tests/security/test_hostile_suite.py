"""Hostile cases against the jail that needs nothing but the kernel, with namespaces and without, and both sandboxes.

Without namespaces it is the cases that path rules and lost privileges have to stop. All cases are tried against all jails
that are installed by `make hostile`.
"""

from collections.abc import Iterator

import pytest

from graftline.sandbox.jail.open import JailConfig, open_jail
from tests.security.hostile.bench import JailBench, JailCase, SandboxBench, SandboxCase
from tests.security.hostile.cases import CASE_LIMITS
from tests.security.hostile.facts import Host, watch_host
from tests.security.hostile.judging import Outcome
from tests.security.hostile.report_cases import ReportCase
from tests.security.hostile.suite import JAIL_CASES, PROGRAM_NAMES, SANDBOX_CASES, all_jails, all_sandboxes

SANDBOXES = all_sandboxes()
# nothing weaker takes its place
JAILS = {**all_jails(), "namespaces": lambda: open_jail(JailConfig(limits=CASE_LIMITS, programs=PROGRAM_NAMES))}


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with watch_host() as watched:
        yield watched


@pytest.fixture(scope="module")
def jail(request: pytest.FixtureRequest, host: Host) -> Iterator[JailBench]:
    bench = JailBench(request.param, JAILS[request.param], host)
    yield bench
    bench.close()


@pytest.fixture(scope="module", params=SANDBOXES)
def sandbox(request: pytest.FixtureRequest) -> Iterator[SandboxBench]:
    bench = SandboxBench(request.param, SANDBOXES[request.param])
    yield bench
    bench.close()


UNSEEN = [case for case in JAIL_CASES if isinstance(case, ReportCase) and case.instead]
CONTAINED = [case for case in JAIL_CASES if case not in UNSEEN]
# one jail for all cases of a test: what a case leaves behind is met by the next one
in_namespaces = pytest.mark.parametrize("jail", ["namespaces"], indirect=True, scope="module")
in_confined = pytest.mark.parametrize("jail", ["confined"], indirect=True, scope="module")


@in_namespaces
@pytest.mark.parametrize("case", CONTAINED, ids=lambda case: case.name)
def test_a_jail_contains(jail: JailBench, case: JailCase) -> None:
    is_contained(jail.outcome(case))


@in_confined
@pytest.mark.parametrize("case", [case for case in CONTAINED if case.needs == "confined"], ids=lambda case: case.name)
def test_a_jail_without_namespaces_contains(jail: JailBench, case: JailCase) -> None:
    is_contained(jail.outcome(case))


@in_namespaces
@pytest.mark.parametrize("case", UNSEEN, ids=lambda case: case.name)
def test_what_tests_in_one_process_cannot_tell_is_said_to_need_another_form(jail: JailBench, case: ReportCase) -> None:
    outcome = jail.outcome(case)
    detail = f"needs {case.instead}: what is wrong passed: passed, passed"
    assert (outcome.status, outcome.detail) == ("beyond level", detail)


@pytest.mark.parametrize("case", SANDBOX_CASES, ids=lambda case: case.name)
def test_a_sandbox_contains(sandbox: SandboxBench, case: SandboxCase) -> None:
    is_contained(sandbox.outcome(case))


def is_contained(outcome: Outcome) -> None:
    if outcome.status == "beyond level":
        pytest.skip(f"{outcome.case} {outcome.detail}; this machine gives less")
    assert (outcome.status, outcome.detail) == ("contained", outcome.detail)
