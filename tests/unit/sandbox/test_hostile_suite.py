"""The hostile suite as a whole: which cases it runs, and the table of what became of them."""

import pytest

from graftline.astgrep.binding import Language
from graftline.core.errors import ConfigError
from graftline.hostile.judging import Outcome
from graftline.hostile.suite import SANDBOX_CASES, has_failed, run_suite, summary, table
from graftline.sandbox.base import Isolation, Request, SandboxResult, Verdict
from graftline.sandbox.memory import MemorySandbox
from tests.unit.sandbox.bare_jail import BareJail


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
