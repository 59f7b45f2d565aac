"""The hostile suite: every case against every jail and sandbox, and a table of what became of them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import get_args

from graftline.core.errors import ConfigError
from graftline.hostile.action_cases import ACTION_CASES
from graftline.hostile.apart_cases import APART_CASES
from graftline.hostile.bench import JailBench, JailCase, SandboxBench, SandboxCase
from graftline.hostile.counter_cases import COUNTER_CASES
from graftline.hostile.disk_cases import DISK_CASES
from graftline.hostile.facts import watched_host
from graftline.hostile.file_cases import FILE_CASES
from graftline.hostile.forgery_cases import FORGERY_CASES
from graftline.hostile.judging import Outcome, Status
from graftline.hostile.kernel_cases import KERNEL_CASES
from graftline.hostile.lifetime_cases import LIFETIME_CASES
from graftline.hostile.machine_cases import JAIL_MACHINE_CASES, SANDBOX_MACHINE_CASES
from graftline.hostile.memory_cases import MEMORY_CASES
from graftline.hostile.network_cases import NETWORK_CASES
from graftline.hostile.output_cases import OUTPUT_CASES
from graftline.hostile.privilege_cases import PRIVILEGE_CASES
from graftline.hostile.process_cases import PROCESS_CASES
from graftline.hostile.program_cases import PROGRAM_CASES
from graftline.hostile.report_cases import REPORT_CASES
from graftline.sandbox.base import Sandbox
from graftline.sandbox.jail import Jail

PROGRAMS = (
    *NETWORK_CASES,
    *FILE_CASES,
    *DISK_CASES,
    *PROCESS_CASES,
    *LIFETIME_CASES,
    *MEMORY_CASES,
    *OUTPUT_CASES,
    *PRIVILEGE_CASES,
    *KERNEL_CASES,
    *COUNTER_CASES,
    *PROGRAM_CASES,
)
JAIL_CASES: tuple[JailCase, ...] = (*PROGRAMS, *REPORT_CASES, *FORGERY_CASES, *APART_CASES, *JAIL_MACHINE_CASES)
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

    def tell(outcome: Outcome) -> None:
        outcomes.append(outcome)
        on_result(outcome)

    with watched_host() as host:
        for name, open_jail in jails.items():
            bench = JailBench(name, open_jail, host)
            try:
                for case in JAIL_CASES:
                    if _is_asked_for(case, names):
                        tell(bench.outcome(case))
            finally:
                bench.close()
        for name, open_sandbox in sandboxes.items():
            actions = SandboxBench(name, open_sandbox)
            try:
                for action_case in SANDBOX_CASES:
                    if _is_asked_for(action_case, names):
                        tell(actions.outcome(action_case))
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


def _is_asked_for(case: JailCase | SandboxCase, names: Sequence[str]) -> bool:
    return not names or case.name in names or case.group in names


def _check(names: Sequence[str]) -> None:
    every = (*JAIL_CASES, *SANDBOX_CASES)
    known = {case.name for case in every} | {case.group for case in every}
    for name in names:
        if name not in known:
            groups = ", ".join(dict.fromkeys(case.group for case in every))
            raise ConfigError(f"hostile case {name!r}: no such case or group; the groups are {groups}")
