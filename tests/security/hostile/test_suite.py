"""The hostile suite as a whole: which cases it runs, and the table of what became of them."""

from collections import Counter

import pytest

from graftline.astgrep.binding import Language
from graftline.core.errors import ConfigError
from graftline.sandbox.actions.memory import MemorySandbox
from graftline.sandbox.base import Isolation, IsolationLevel, Request, SandboxResult, Verdict
from tests.security.hostile.__main__ import main
from tests.security.hostile.bare_jail import BareJail
from tests.security.hostile.judging import Outcome
from tests.security.hostile.suite import JAIL_CASES, SANDBOX_CASES, has_failed, run_suite, summary, table


def test_every_case_has_a_name_of_its_own() -> None:
    names = Counter(case.name for case in (*JAIL_CASES, *SANDBOX_CASES))
    assert [name for name, count in names.items() if count > 1] == []


def test_names_choose_cases_and_groups() -> None:
    recorded: list[Outcome] = []
    outcomes = run_suite({"bare": BareJail}, {"memory": MemorySandbox}, ["odd_names", "actions"], recorded.append)
    actions = [case.name for case in SANDBOX_CASES if case.group == "actions"]
    assert [(outcome.backend, outcome.case) for outcome in outcomes] == [
        ("bare", "odd_names"),
        *(("memory", name) for name in actions),
    ]
    assert recorded == outcomes


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
        [["files", "x", "contained", "ESCAPED"], ["files", "y", "needs full", ""], ["actions", "z", "", "NOT RUN"]],
    )
    assert summary(outcomes) == "a: 1 contained, 1 beyond level; b: 1 escaped, 1 not run"
    assert [has_failed(outcomes[:2]), has_failed(outcomes[:3]), has_failed(outcomes[3:])] == [False, True, True]


def test_the_command_says_which_groups_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no_such_case"]) == 1
    expected = "error: hostile case 'no_such_case': no such case or group; the groups are network,"
    assert capsys.readouterr().err.startswith(expected)


@pytest.mark.parametrize(("level", "code", "cell"), [("none", 0, "needs confined"), ("confined", 1, "ESCAPED")])
def test_the_command_ends_with_1_where_a_case_escapes(
    level: IsolationLevel, code: int, cell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Jail(BareJail):
        isolation = Isolation(level, "bare")

    monkeypatch.setattr("tests.security.hostile.__main__.all_jails", lambda: {"bare": Jail})
    monkeypatch.setattr("tests.security.hostile.__main__.all_sandboxes", dict)
    assert main(["tcp_loopback"]) == code
    assert cell in capsys.readouterr().out
