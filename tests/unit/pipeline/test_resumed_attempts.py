"""An attempt whose worker gave up or was killed: the next worker goes on where it stopped."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from graftline.core.errors import ActorError
from graftline.rollouts.state import AttemptLog, StateStore
from graftline.rollouts.trajectory import Trajectory
from tests.resumed_attempts import Attempts

CHECKOUT = Path(__file__).resolve().parents[3]


def fail_at(*numbers: int) -> Callable[[int], None]:
    def before(number: int) -> None:
        if number in numbers:
            raise ActorError("nobody answered")

    return before


def without_time(trajectory: Trajectory) -> str:
    """Return what is stored of `trajectory`, but for the seconds that answers took."""
    return re.sub(r'"latency_s":[0-9.e-]+', '"latency_s":0', trajectory.model_dump_json())


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Attempts:
    attempts = Attempts(tmp_path_factory.mktemp("uninterrupted"))
    attempts.make()
    return attempts


def test_a_worker_that_is_killed_in_the_middle_leaves_its_steps_to_the_next_one(
    tmp_path: Path, uninterrupted: Attempts
) -> None:
    command = [sys.executable, "-m", "tests.resumed_attempts", str(tmp_path), "3"]
    killed = subprocess.run(command, cwd=CHECKOUT, check=False)
    assert (killed.returncode, Attempts(tmp_path).stored()) == (-signal.SIGKILL, [])

    following = Attempts(tmp_path)
    following.make()
    [whole], [resumed] = uninterrupted.stored(), following.stored()
    assert (len(whole.steps), whole.is_verified) == (4, True)
    assert without_time(resumed) == without_time(whole)
    assert following.requests == uninterrupted.requests[2:]
    # each process counts what it asked for
    assert (following.spent.steps, following.spent.tokens) == (
        2,
        sum(asked.prompt_tokens + asked.completion_tokens for step in whole.steps[2:]
            if (asked := step.model_output.generation)),
    )  # fmt: skip


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_an_attempt_that_nobody_answered_goes_on_after_its_last_step(
    tmp_path: Path, uninterrupted: Attempts, number: int
) -> None:
    attempts = Attempts(tmp_path, fail_at(number))
    ended = attempts.make()
    [whole], [resumed] = uninterrupted.stored(), attempts.stored()
    assert (without_time(resumed), dict(ended)) == (without_time(whole), {"given_back": 1, "finished": 1})
    # the request that failed is made again, and no other one
    expected = [*uninterrupted.requests[:number], *uninterrupted.requests[number - 1 :]]
    assert attempts.requests == expected
    assert attempts.spent == uninterrupted.spent


@pytest.mark.parametrize("changed", [{"made_by": "other settings"}, {"code_version": "other code"}])
def test_what_other_settings_or_code_saved_is_not_resumed(tmp_path: Path, changed: dict[str, str]) -> None:
    Attempts(tmp_path, fail_at(3)).make(max_tries=1)
    following = Attempts(tmp_path)
    following.make(**changed)
    assert len(following.requests) == 4


def test_a_saved_step_that_is_damaged_begins_the_attempt_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Attempts(tmp_path, fail_at(3)).make(max_tries=1)
    with StateStore(tmp_path / "data" / "state" / "state.sqlite") as states, states.writing() as connection:
        connection.execute("UPDATE steps SET step = json_remove(step, '$.prompt') WHERE number = 2")
    following = Attempts(tmp_path)
    following.make()
    [stored] = following.stored()
    assert (len(following.requests), stored.is_verified) == (4, True)
    assert "d:1#1: its saved steps are no steps, so that it begins anew" in caplog.text


def test_the_state_says_how_far_an_attempt_came_and_why_it_stopped(tmp_path: Path) -> None:
    attempts = Attempts(tmp_path, fail_at(3))
    attempts.make(max_tries=1)
    with StateStore(tmp_path / "data" / "state" / "state.sqlite") as states:
        [status] = AttemptLog(states).statuses("d:1#1")
        assert (status.phase, status.steps, status.reason) == ("interrupted", 2, "ActorError: nobody answered")
        # the second step failed, and changed nothing
        assert states.load("d:1#1").history == ("changed old($A)",)
    Attempts(tmp_path).make()
    with StateStore(tmp_path / "data" / "state" / "state.sqlite") as states:
        [status] = AttemptLog(states).statuses("d:1#1")
        assert (status.phase, status.steps, status.reason) == ("verified", 4, "")
        assert states.load("d:1#1").history == ("changed old($A)", "changed g($A)", "changed k($A)")
