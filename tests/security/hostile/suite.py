"""The hostile suite: every case against every jail and sandbox, and a table of what became of them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import get_args

from graftline.core.errors import ConfigError
from graftline.sandbox.actions import ProcessSandboxConfig, WarmSandboxConfig, open_sandbox
from graftline.sandbox.base import Sandbox
from graftline.sandbox.jail import Jail, Program
from graftline.sandbox.jail.open import JailConfig, open_jail
from graftline.sandbox.jail.served import ServedJail
from graftline.sandbox.jail.wrappers import WRAPPERS
from graftline.sandbox.probe import JAILS
from tests.security.hostile.action_cases import ACTION_CASES
from tests.security.hostile.apart_cases import APART_CASES
from tests.security.hostile.bench import JailBench, JailCase, SandboxBench, SandboxCase
from tests.security.hostile.cases import ACTION_LIMITS, CASE_LIMITS
from tests.security.hostile.counter_cases import COUNTER_CASES
from tests.security.hostile.disk_cases import DISK_CASES
from tests.security.hostile.facts import watch_host
from tests.security.hostile.file_cases import FILE_CASES
from tests.security.hostile.judging import Outcome, Status
from tests.security.hostile.kernel_cases import KERNEL_CASES
from tests.security.hostile.lifetime_cases import LIFETIME_CASES
from tests.security.hostile.machine_cases import JAIL_MACHINE_CASES, SANDBOX_MACHINE_CASES
from tests.security.hostile.memory_cases import MEMORY_CASES
from tests.security.hostile.network_cases import NETWORK_CASES
from tests.security.hostile.output_cases import OUTPUT_CASES
from tests.security.hostile.privilege_cases import PRIVILEGE_CASES
from tests.security.hostile.process_cases import PROCESS_CASES
from tests.security.hostile.program_cases import PROGRAM_CASES
from tests.security.hostile.report_cases import REPORT_CASES

PROGRAM_NAMES: tuple[Program, ...] = ("python", "pytest", "calls")
PROGRAMS = (
    *(*NETWORK_CASES, *FILE_CASES, *DISK_CASES, *PROCESS_CASES, *LIFETIME_CASES, *MEMORY_CASES),
    *(*OUTPUT_CASES, *PRIVILEGE_CASES, *KERNEL_CASES, *COUNTER_CASES, *PROGRAM_CASES),
)
JAIL_CASES: tuple[JailCase, ...] = (*PROGRAMS, *REPORT_CASES, *APART_CASES, *JAIL_MACHINE_CASES)
SANDBOX_CASES: tuple[SandboxCase, ...] = (*ACTION_CASES, *SANDBOX_MACHINE_CASES)


def run_suite(
    jails: Mapping[str, Callable[[], Jail]],
    sandboxes: Mapping[str, Callable[[], Sandbox]],
    names: Sequence[str] = (),
    on_result: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Run the cases called `names`, or of groups called so, all without names; one jail after the other.

    `jails` open with `cases.CASE_LIMITS` and the programs `python`, `pytest` and `calls`; `sandboxes` with
    `cases.ACTION_LIMITS`. They are opened here, after the environment has been given a canary, and closed again.

    Raises:
        ConfigError: a name is neither that of a case nor that of a group.
    """
    _check(names)
    outcomes: list[Outcome] = []

    def record(outcome: Outcome) -> None:
        outcomes.append(outcome)
        on_result(outcome)

    with watch_host() as host:
        for name, open_jail in jails.items():
            bench = JailBench(name, open_jail, host)
            try:
                for case in JAIL_CASES:
                    if _is_named(case, names):
                        record(bench.outcome(case))
            finally:
                bench.close()
        for name, open_sandbox in sandboxes.items():
            actions = SandboxBench(name, open_sandbox)
            try:
                for action_case in SANDBOX_CASES:
                    if _is_named(action_case, names):
                        record(actions.outcome(action_case))
            finally:
                actions.close()
    return outcomes


def table(outcomes: Sequence[Outcome]) -> tuple[list[str], list[list[str]]]:
    """Return the columns (group, case, and one per back end) and a row per case; a cell is empty where it was not tried."""
    backends = list(dict.fromkeys(outcome.backend for outcome in outcomes))
    cells = {(outcome.case, outcome.backend): _cell(outcome) for outcome in outcomes}
    cases = dict.fromkeys((outcome.group, outcome.case) for outcome in outcomes)
    rows = [[group, case, *(cells.get((case, backend), "") for backend in backends)] for group, case in cases]
    return ["group", "case", *backends], rows


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return one line: how many cases of each back end came to which end."""
    counts: dict[str, Counter[Status]] = {}
    for outcome in outcomes:
        counts.setdefault(outcome.backend, Counter())[outcome.status] += 1
    return "; ".join(
        f"{backend}: " + ", ".join(f"{count[status]} {status}" for status in get_args(Status) if count[status])
        for backend, count in counts.items()
    )


def has_failed(outcomes: Sequence[Outcome]) -> bool:
    """Return whether a case escaped that has to be contained, or was not run."""
    return any(outcome.status in ("escaped", "not run") for outcome in outcomes)


def _cell(outcome: Outcome) -> str:
    match outcome.status:
        case "contained":
            return "contained"
        case "escaped":
            return "ESCAPED"
        case "not run":
            return "NOT RUN"
        case "beyond level":
            return outcome.detail.partition(":")[0]


def _is_named(case: JailCase | SandboxCase, names: Sequence[str]) -> bool:
    return not names or case.name in names or case.group in names


def _check(names: Sequence[str]) -> None:
    every = (*JAIL_CASES, *SANDBOX_CASES)
    names_of_all = {case.name for case in every} | {case.group for case in every}
    for name in names:
        if name not in names_of_all:
            groups = ", ".join(dict.fromkeys(case.group for case in every))
            raise ConfigError(f"hostile case {name!r}: no such case or group; the groups are {groups}")


def all_jails() -> Mapping[str, Callable[[], Jail]]:
    """Return what opens each jail that is installed here, at whatever level it reaches."""
    jails: dict[str, Callable[[], Jail]] = {}
    for kind in JAILS:
        if kind not in WRAPPERS or WRAPPERS[kind].path is not None:
            config = JailConfig(kind=kind, required_level="none", programs=PROGRAM_NAMES, limits=CASE_LIMITS)
            jails[kind] = partial(open_jail, config)
        if kind == "namespaces":
            # what a container that allows no namespaces gets
            jails["confined"] = partial(ServedJail, "confined", "confined", CASE_LIMITS, PROGRAM_NAMES)
    return jails


def all_sandboxes() -> Mapping[str, Callable[[], Sandbox]]:
    """Return what opens each sandbox that isolates."""
    return {
        "warm": partial(open_sandbox, WarmSandboxConfig(limits=ACTION_LIMITS)),
        "process": partial(open_sandbox, ProcessSandboxConfig(limits=ACTION_LIMITS)),
    }
