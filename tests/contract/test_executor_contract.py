"""What every executor does: snapshots that are found again, rewards that arrive as they were said, and causes.

`memory` runs nothing: what is about entrypoints holds for the others. An implementation is added by its name in `OPENED`.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from graftline.core.errors import DataError, HarborError
from graftline.harbor.contract import FailureCause, SuccessStatus, VerifierSettings
from graftline.harbor.executors.base import BuildContext, Execution, Executor, MemoryExecutor
from tests.container_engine import executor_of
from tests.daytona_server import DaytonaServer
from tests.docker_engine import DockerEngine
from tests.jails import has_user_namespaces
from tests.rollout_specs import (
    CONTEXT,
    DOES_WHAT_IS_SAID,
    SOON_OVER,
    VERIFIER,
    a_local,
    a_rollout,
    after,
    graded,
    never,
    packed_context,
    ran,
)

OPENED: dict[str, Callable[[Path], AbstractContextManager[Executor]]] = {
    "memory": lambda _: closing(MemoryExecutor()),
    "local": lambda folder: closing(a_local(folder)),
    "docker": lambda _: executor_of(DockerEngine),
    "daytona": lambda _: executor_of(DaytonaServer),
}
RUNNING = [name for name in OPENED if name != "memory"]
WITHOUT_RESULT = {
    "pass": "the entrypoint's result is not there",
    "sys.exit(3)": "the entrypoint ended with code 3 and left no result; see the log",
    "os.kill(os.getpid(), 9)": "the entrypoint ended with code 137 and left no result; see the log",
    "say('no')": "the entrypoint's result is not JSON",
    "say('0' * 5_000_000)": "the entrypoint's result has 4194305 bytes; at most 4194304 are read",
}
on_those_that_run = pytest.mark.parametrize("kind", RUNNING, indirect=True, scope="module")


@pytest.fixture(scope="module", params=OPENED)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "local" and not has_user_namespaces():
        pytest.skip("this machine gives no user namespaces")
    if request.param == "daytona":
        pytest.importorskip("daytona", reason="the SDK of Daytona is not installed; pip install 'graftline[daytona]'")
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def executor(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    with OPENED[kind](tmp_path_factory.mktemp("executor")) as executor:
        yield executor


def test_it_is_called_by_its_kind(executor: Executor, kind: str) -> None:
    assert executor.name == kind


def test_a_context_is_built_once(executor: Executor) -> None:
    first = executor.build(CONTEXT).snapshot_id

    def asked() -> bytes:
        raise AssertionError("the archive is asked for, though the snapshot is there")

    assert executor.build(BuildContext(CONTEXT.digest, asked, CONTEXT.dockerfile)).snapshot_id == first
    assert executor.has(first)


def test_two_that_build_at_the_same_time_get_the_same(kind: str, tmp_path: Path) -> None:
    with OPENED[kind](tmp_path) as opened, ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: opened.build(CONTEXT).snapshot_id, range(4)))
    assert (len(found), len(set(found))) == (4, 1)


def test_a_snapshot_that_nobody_built_is_not_there(executor: Executor) -> None:
    assert not executor.has("other-1234")


def test_without_its_snapshot_nothing_is_run(executor: Executor) -> None:
    with pytest.raises(HarborError, match="snapshot 'other-1234' is gone; build the deployment again"):
        ran(executor, snapshot_id="other-1234")


def test_what_is_cancelled_before_it_begins_is_not_run(executor: Executor) -> None:
    end = executor.run(a_rollout(executor), lambda: True)
    assert (end.reward, end.failure_cause) == (None, FailureCause.CANCELLED)


def test_the_same_rollout_ends_the_same(executor: Executor) -> None:
    first, second = ran(executor), ran(executor)
    assert (first.reward, first.result) == (second.reward, second.result)
    assert first.reward is not None


def test_it_is_closed_twice_and_then_refuses(kind: str, tmp_path: Path) -> None:
    with OPENED[kind](tmp_path) as opened:
        box = a_rollout(opened)
        opened.close()
        opened.close()
        with pytest.raises(HarborError, match="is closed; open another one"):
            opened.run(box, never)


@pytest.mark.parametrize("kind", RUNNING, indirect=True)
def test_what_runs_is_ended_when_it_is_closed(kind: str, tmp_path: Path) -> None:
    asked: list[int] = []
    runs = threading.Event()

    def is_cancelled() -> bool:
        # before it begins, and then while it runs
        asked.append(1)
        if len(asked) > 1:
            runs.set()
        return False

    with OPENED[kind](tmp_path) as opened, ThreadPoolExecutor(1) as threads:
        ending = threads.submit(opened.run, a_rollout(opened, "import time; time.sleep(60)"), is_cancelled)
        assert runs.wait(240)
        opened.close()
        end: Execution = ending.result(240)
    assert (end.reward, end.failure_cause is None) == (None, False)


@on_those_that_run
def test_what_is_no_archive_is_no_snapshot(executor: Executor) -> None:
    with pytest.raises(DataError):
        executor.build(BuildContext("0" * 64, lambda: b"no archive", "FROM scratch"))


@on_those_that_run
@pytest.mark.parametrize("mode", ["file", "stdio"])
@pytest.mark.parametrize("reward", [0.0, -1.5, 0.1, 1])
def test_a_reward_arrives_as_it_was_said(executor: Executor, mode: str, reward: float) -> None:
    more = {} if mode == "file" else {"entrypoint": "run_rollout", "entrypoint_mode": "stdio"}
    end = ran(executor, f"print('words before it'); reward({reward})", **more)
    assert (end.success_status, end.reward, end.failure_cause, end.error) == (SuccessStatus.SUCCESS, reward, None, "")
    assert end.result == {"reward_info": {"outcome_reward": reward}}


@on_those_that_run
@pytest.mark.parametrize(
    "result",
    ["{}", '{"reward_info": {"outcome_reward": "1"}}', '{"reward_info": {"outcome_reward": NaN}}', "[1]", "1", "{"],
    ids=["none", "text", "not a number", "a list", "a number", "half an object"],
)
def test_what_is_no_finite_number_is_no_reward(executor: Executor, result: str) -> None:
    end = ran(executor, f"say({result!r})")
    assert (end.success_status, end.reward) == (SuccessStatus.RUNTIME_ERROR, None)
    assert end.failure_cause in (FailureCause.VERIFIER_FAILED, FailureCause.UNCLASSIFIED)


@on_those_that_run
def test_without_a_result_there_is_no_reward(executor: Executor) -> None:
    for code, error in WITHOUT_RESULT.items():
        end = ran(executor, code)
        assert (end.reward, end.failure_cause) == (None, FailureCause.UNCLASSIFIED)
        assert end.error.startswith(error)


@on_those_that_run
def test_a_request_of_any_size_is_given_on_stdin_whether_it_is_read_or_not(executor: Executor) -> None:
    settings = {"entrypoint": "run_rollout", "entrypoint_mode": "stdio"}
    code = f"say({{'metrics': {{'reward_mean': 1.0, 'details': {{'n': len(request['code'])}}}}}})  # {'x' * 200_000}"
    end = ran(executor, code, **settings)
    assert (end.reward, end.details) == (1.0, {"n": len(code)})
    unread = executor.build(
        packed_context({"run_rollout": '#!/bin/sh\nprintf \'{"metrics": {"reward_mean": 0.5}}\'\n'})
    )
    end = ran(executor, "x" * 500_000, snapshot_id=unread.snapshot_id, **settings)
    assert (end.success_status, end.reward) == (SuccessStatus.SUCCESS, 0.5)


@on_those_that_run
@pytest.mark.parametrize("entrypoint", ["run 'it", "  "])
def test_an_entrypoint_that_is_no_command_is_not_run(executor: Executor, entrypoint: str) -> None:
    with pytest.raises(HarborError, match="entrypoint"):
        ran(executor, entrypoint=entrypoint)


@on_those_that_run
def test_an_entrypoint_that_fails_says_why(executor: Executor) -> None:
    end = ran(executor, "raise ValueError('it is Tuesday')")
    assert (end.success_status, end.reward) == (SuccessStatus.RUNTIME_ERROR, None)
    assert end.failure_cause is FailureCause.UNCLASSIFIED
    assert "ValueError: it is Tuesday" in end.log


@on_those_that_run
def test_a_result_counts_whatever_the_exit_code(executor: Executor) -> None:
    assert ran(executor, "reward(0.25); sys.exit(3)").reward == 0.25


@on_those_that_run
def test_what_takes_too_long_is_the_agents_and_has_no_reward(executor: Executor) -> None:
    end = ran(executor, "import time; print('begun', flush=True); time.sleep(60)", limits=SOON_OVER)
    assert (end.success_status, end.reward) == (SuccessStatus.TIMEOUT, None)
    assert end.failure_cause is FailureCause.AGENT_EXHAUSTED_BUDGET
    assert end.error.startswith("ended after 3 s, which is its timeout_s")
    assert "begun" in end.log


@on_those_that_run
def test_what_was_left_in_time_is_graded(executor: Executor) -> None:
    code = "import time; open('score.txt', 'w').write('0.5'); time.sleep(60)"
    end = graded(executor, code, limits=SOON_OVER)
    assert (end.success_status, end.reward) == (SuccessStatus.TIMEOUT, 0.5)
    assert end.failure_cause is FailureCause.AGENT_EXHAUSTED_BUDGET


@on_those_that_run
def test_what_is_cancelled_ends_soon(executor: Executor) -> None:
    end = executor.run(a_rollout(executor, "import time; time.sleep(60)"), after(2))
    assert (end.success_status, end.reward) == (SuccessStatus.FAILURE, None)
    assert end.failure_cause is FailureCause.CANCELLED
    assert ran(executor).reward == 0.5


@on_those_that_run
def test_files_laid_over_the_context_take_its_place(executor: Executor) -> None:
    code = "say({'reward_info': {'outcome_reward': 1, 'details': {'words': open('task/words.txt').read() + open('new/a').read()}}})"
    assert ran(executor, code).failure_cause is FailureCause.UNCLASSIFIED
    end = ran(executor, code, files={"task/words.txt": "laid over ", "new/a": "and new"})
    assert (end.reward, end.details) == (1, {"words": "laid over and new"})


@on_those_that_run
def test_a_container_starts_with_the_folders_that_its_task_names(executor: Executor) -> None:
    files = {"common/run_rollout.py": DOES_WHAT_IS_SAID, "common/words.txt": "of all, until a task has its own"}
    files |= {"tasks/a/words.txt": "of a", "tasks/b/words.txt": "of b"}
    snapshot = executor.build(packed_context(files)).snapshot_id
    code = "say({'reward_info': {'outcome_reward': 1, 'details': {'words': open('words.txt').read()}}})"
    for name in "ab":
        end = ran(executor, code, snapshot_id=snapshot, agent_files=("common", f"tasks/{name}"))
        assert (end.details, end.error) == ({"words": f"of {name}"}, "")


@on_those_that_run
def test_variables_and_secrets_are_there_and_secrets_do_not_come_back(executor: Executor) -> None:
    code = """
print(os.environ["PLACE"], os.environ["MODEL_KEY"])
say({"reward_info": {"outcome_reward": 1, "details": {os.environ["MODEL_KEY"]: [os.environ["MODEL_KEY"] + "!"]}}})
print(os.environ["MODEL_KEY"], file=sys.stderr)
"""
    end = ran(executor, code, env_vars={"PLACE": "Ghent"}, secrets={"MODEL_KEY": "very-secret-words"})
    assert end.reward == 1
    assert "Ghent" in end.log
    assert "very-secret-words" not in repr(end)


@on_those_that_run
def test_a_secret_in_an_error_does_not_come_back(executor: Executor) -> None:
    end = ran(executor, "sys.exit(os.environ['MODEL_KEY'])", secrets={"MODEL_KEY": "very-secret-words"})
    assert end.failure_cause is FailureCause.UNCLASSIFIED
    assert "very-secret-words" not in repr(end)


@on_those_that_run
def test_another_box_grades_what_was_left(executor: Executor) -> None:
    end = graded(executor, "open('score.txt', 'w').write('0.75')")
    assert (end.success_status, end.reward, end.failure_cause, end.error) == (SuccessStatus.SUCCESS, 0.75, None, "")


@on_those_that_run
def test_what_an_agent_says_is_no_reward_where_another_box_grades(executor: Executor) -> None:
    end = graded(executor, "open('score.txt', 'w').write('0.25'); reward(1.0)")
    assert (end.reward, end.details["reported_reward"]) == (0.25, 1.0)


@on_those_that_run
def test_a_reward_that_the_agent_writes_itself_has_no_effect(executor: Executor) -> None:
    code = """
os.makedirs("/logs/verifier", exist_ok=True)
open("/logs/verifier/reward.json", "w").write('{"reward": 1}')
open("score.txt", "w").write("0")
"""
    end = graded(executor, code)
    assert (end.reward, end.failure_cause) == (0.0, None)


@on_those_that_run
def test_variables_of_a_rollout_reach_its_agent_and_never_its_verifier(executor: Executor) -> None:
    words = VerifierSettings(entrypoint="bash -c 'echo ${ASKED:-0}${FIXED:-0} > /logs/verifier/reward.txt'")
    code = "assert (os.environ['ASKED'], os.environ['FIXED']) == ('7', '2')"
    end = graded(executor, code, words, env_vars={"FIXED": "2"}, overriding_vars={"ASKED": "7"})
    assert (end.reward, end.failure_cause) == (2.0, None)


@on_those_that_run
def test_the_verifier_sees_the_artifacts_alone(executor: Executor) -> None:
    code = "open('score.txt', 'w').write('1'); os.mkdir('made'); open('made/a', 'w'); open('left', 'w')"
    lists = "import glob; print(sorted(glob.glob('*')), glob.glob('made/*'))"
    shown = VerifierSettings(entrypoint=f'bash -c "python3 -c \\"{lists}\\""', artifacts=("score.txt", "made"))
    assert "['made', 'score.txt', 'secret.txt', 'verify.py'] ['made/a']" in graded(executor, code, shown).log


@on_those_that_run
@pytest.mark.parametrize(
    "words", ["bash -c 'exit 3'", "bash -c 'echo NaN > /logs/verifier/reward.txt'", "bash -c 'echo {} > reward.json'"]
)
def test_a_verifier_that_says_nothing_is_no_reward(executor: Executor, words: str) -> None:
    end = graded(executor, "reward(1.0)", VERIFIER.model_copy(update={"entrypoint": words}))
    assert (end.success_status, end.reward) == (SuccessStatus.RUNTIME_ERROR, None)
    assert end.failure_cause is FailureCause.VERIFIER_FAILED


@on_those_that_run
def test_objectives_of_the_verifier_are_details(executor: Executor) -> None:
    words = """bash -c 'echo "{\\"score\\": 0.5, \\"tests\\": 3}" > /logs/verifier/reward.json'"""
    end = graded(executor, "pass", VERIFIER.model_copy(update={"entrypoint": words, "reward_key": "score"}))
    assert (end.reward, end.details["objectives"]) == (0.5, {"score": 0.5, "tests": 3.0})


@on_those_that_run
@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("say({'reward_info': {}, 'success_status': 'network_error'})", FailureCause.MODEL_PROVIDER_FAILED),
        ("open('score.txt', 'w').write('1'); sys.exit(3)", FailureCause.UNCLASSIFIED),
    ],
)
def test_an_agent_that_failed_is_not_graded(executor: Executor, code: str, cause: FailureCause) -> None:
    end = graded(executor, code)
    assert (end.reward, end.failure_cause) == (None, cause)


@on_those_that_run
def test_rollouts_at_the_same_time_do_not_mix(executor: Executor) -> None:
    with ThreadPoolExecutor(8) as threads:
        ends = list(threads.map(lambda number: ran(executor, f"open('own', 'x'); reward({number})").reward, range(8)))
    assert ends == [float(number) for number in range(8)]
