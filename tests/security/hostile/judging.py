"""What the end of a hostile case means; the judgment itself, without any jail."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from graftline.sandbox.base import IsolationLevel, Verdict, is_at_least
from graftline.sandbox.jail import CaseEnd
from tests.security.hostile.cases import CASE_LIMITS, HostileCase

Status = Literal["contained", "escaped", "beyond level", "not run"]
"""`beyond level`: it was not contained, and need not be by what it was tried on; the detail says what it needs."""

MARGIN_S = 10.0
"""How much longer than the wall limit a jail may take on a busy machine."""
_DETAIL_CHARACTERS = 300


class Judgment(NamedTuple):
    """What became of one case."""

    status: Status
    detail: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one case against one jail or sandbox."""

    backend: str
    case: str
    group: str
    status: Status
    detail: str


def judge_end(case: HostileCase, end: CaseEnd, findings: Sequence[str], took_s: float) -> Judgment:
    """Return what `end` says of `case`; `found` is what was seen from outside, `took_s` how long the jail took."""
    lines = [line.partition(" ") for line in end.stdout.decode("utf-8", "replace").split("\n")]
    words = {word: [text for first, _, text in lines if first == word] for word in ("ESCAPE", "BLOCKED", "BROKEN")}
    attempts = [text for first, _, text in lines if first == "TRIED"]
    if escapes := [*findings, *words["ESCAPE"], *_beyond_limits(end, took_s)]:
        return _judgment("escaped", "; ".join(escapes))
    if not any(first == "RAN" for first, _, _ in lines):
        return _judgment("not run", f"never began: {_ending(end)}")
    if words["BROKEN"]:
        return _judgment("not run", f"the program is broken: {'; '.join(words['BROKEN'])}")
    if end.verdict in case.ends or end.verdict is Verdict.VIOLATION:
        return _fault(case, end) or _judgment("contained", end.verdict)
    if end.verdict is not Verdict.OK or end.exit_code != 0:
        return _judgment("not run", f"ended unexpectedly: {_ending(end)}")
    if not words["BLOCKED"] and not attempts:
        if case.ends:
            return _judgment("escaped", f"ended by itself, not by {' or '.join(case.ends)}")
        return _judgment("not run", f"said nothing: {_ending(end)}")
    return _fault(case, end) or _judgment(
        "contained", "; ".join(words["BLOCKED"] or [f"tried: {text}" for text in attempts])
    )


def at_level(judged: Judgment, needs: IsolationLevel, level: IsolationLevel) -> Judgment:
    """Return `judged` as it counts in a jail of `level`, for a case that has to be contained from `needs` on."""
    if judged.status == "escaped" and not is_at_least(level, needs):
        return _judgment("beyond level", f"needs {needs}: {judged.detail}")
    return judged


def with_feature(judged: Judgment, feature: str, features: Sequence[str]) -> Judgment:
    """Return `judged` as it counts in a jail with `features`, for a case that only `feature` contains."""
    if judged.status == "escaped" and feature and feature not in features:
        return _judgment("beyond level", f"needs {feature}: {judged.detail}")
    return judged


def _beyond_limits(end: CaseEnd, took_s: float) -> list[str]:
    most = CASE_LIMITS.output_kb << 10
    sizes = {"stdout": len(end.stdout), "stderr": len(end.stderr)}
    faults = [f"{size} bytes of {name} were kept" for name, size in sizes.items() if size > most]
    if took_s > CASE_LIMITS.wall_s + MARGIN_S:
        faults.append(f"held the jail for {took_s:.0f} s")
    return faults


def _fault(case: HostileCase, end: CaseEnd) -> Judgment | None:
    """Return what is wrong with the output of a case that was contained."""
    if case.keeps and case.keeps not in end.stdout + end.stderr:
        return _judgment("escaped", "what it printed came out altered")
    if case.is_cut and not end.is_truncated:
        return _judgment("escaped", "its output was cut, and nothing says so")
    return None


def _ending(end: CaseEnd) -> str:
    last = end.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
    how = f"signal {end.signal}" if end.signal is not None else f"exit {end.exit_code}"
    return f"{end.verdict}, {how}" + (f", {last}" if last else "")


def _judgment(status: Status, detail: str) -> Judgment:
    return Judgment(status, detail[:_DETAIL_CHARACTERS])
