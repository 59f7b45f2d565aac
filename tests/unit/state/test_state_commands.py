"""The commands below `graftline state`: what they print, and what they end with."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from graftline.cli.main import main
from graftline.rollouts.state import AttemptLog, State, StateStore

STATE = State(goals=("replace `old`",), history=("did one", "did two"), next_focus="line 7")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "configs" / "manifests").mkdir(parents=True)
    with StateStore(stored(tmp_path), clock=lambda: datetime(2026, 1, 1, tzinfo=UTC)) as states:
        states.save("task#1", State(goals=("replace `old`",), history=("did none", "did one")))
        states.save("task#1", STATE)
        states.save("other", State(goals=("wait",)))
    return tmp_path


def stored(root: Path) -> Path:
    return root / "data" / "state" / "state.sqlite"


def run(root: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--root", str(root), "state", *arguments])


def cells(result: Result) -> list[list[str]]:
    """The rows of a printed table, head included."""
    lines = [line.strip() for line in result.stdout.splitlines()]
    return [[cell.strip() for cell in line.split("  ") if cell.strip()] for line in lines if "  " in line]


def test_dump_shows_every_text_and_what_the_state_costs(root: Path) -> None:
    assert State.model_validate_json(run(root, "dump", "task#1", "--json").stdout) == STATE
    result = run(root, "dump", "task#1")

    assert cells(result) == [
        ["field", "text"],
        ["goals", "replace `old`"],
        ["history", "did one"],
        ["history", "did two"],
        ["next_focus", "line 7"],
    ]
    assert result.stdout.splitlines()[-1] == f"{STATE.token_budget()} tokens, 81 characters of a prompt"


def test_list_shows_what_is_kept(root: Path) -> None:
    assert json.loads(run(root, "list", "--json").stdout) == [
        {"key": "other", "version": 1, "written_at": "2026-01-01T00:00:00+00:00", "attempt": None},
        {"key": "task#1", "version": 2, "written_at": "2026-01-01T00:00:00+00:00", "attempt": None},
    ]
    result = run(root, "list")

    assert result.stdout.splitlines()[0].strip() == "2 states"
    assert cells(result) == [
        ["task", "changes", "last change", "attempt"],
        ["other", "1", "2026-01-01T00:00:00+00:00", "-"],
        ["task#1", "2", "2026-01-01T00:00:00+00:00", "-"],
    ]


def test_the_state_of_a_failed_attempt_is_shown_with_why_it_failed(root: Path) -> None:
    with StateStore(stored(root), clock=lambda: datetime(2026, 1, 1, tzinfo=UTC)) as states:
        log = AttemptLog(states)
        claim, _ = log.begin("digest", "failed#1", "openai/m")
        log.add(claim, 1, "{}")
        log.end(claim, "failed", 1, "max_failed: Nothing in the text matches.")

    assert run(root, "dump", "failed#1").stdout.splitlines()[-1] == (
        "openai/m: failed after 1 step: max_failed: Nothing in the text matches."
    )
    assert json.loads(run(root, "dump", "failed#1", "--json").stdout)["attempts"] == [
        {"key": "failed#1", "teacher": "openai/m", "phase": "failed", "steps": 1,
         "reason": "max_failed: Nothing in the text matches.", "written_at": "2026-01-01T00:00:00+00:00"}
    ]  # fmt: skip
    assert cells(run(root, "list"))[1] == ["failed#1", "0", "2026-01-01T00:00:00+00:00", "failed"]


def test_history_shows_what_came_and_what_went(root: Path) -> None:
    at = "2026-01-01T00:00:00+00:00"
    assert json.loads(run(root, "history", "other", "--json").stdout) == [
        {"version": 1, "written_at": at, "changed": {"goals": ["wait"]}}
    ]

    assert cells(run(root, "history", "task#1")) == [
        ["change", "at", "field", "text"],
        ["1", at, "goals", "+ replace `old`"],
        ["1", at, "history", "+ did none"],
        ["1", at, "history", "+ did one"],
        ["2", at, "history", "- did none"],
        ["2", at, "history", "+ did two"],
        ["2", at, "next_focus", "+ line 7"],
    ]


@pytest.mark.parametrize("command", ["dump", "history"])
@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("task", "error: 'task': no state is kept for it; kept are 'task#1'\n"),
        ("nobody", "error: 'nobody': no state is kept for it; `graftline state list` shows what is kept\n"),
    ],
)
def test_an_unknown_task_is_said(root: Path, command: str, key: str, message: str) -> None:
    result = run(root, command, key)

    assert (result.exit_code, result.stdout, result.stderr) == (1, "", message)


def test_a_store_that_is_not_there_is_said_and_not_made(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "none" / "state.sqlite"
    result = run(root, "list", "--store", str(path))

    assert (result.exit_code, result.stderr) == (
        1,
        f"error: {path}: there is no such file; expected a state store: name one with --store\n",
    )
    assert not path.parent.exists()
