"""Harbor tasks in images of their own, by each executor that can: what the format says, and what is no reward."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import DataError
from graftline.harbor.contract import FailureCause, HarborLimits, SuccessStatus
from graftline.harbor.executors.base import BuildContext, Execution, Executor, RolloutSpec
from graftline.harbor.executors.local import LocalExecutor, LocalExecutorConfig
from graftline.harbor.executors.trial import Abilities, run_trial
from graftline.harbor.packager import HarborPackager
from graftline.harbor.task_format.importing import import_harbor_tasks
from graftline.harbor.task_format.packed import HARBOR_TASK
from graftline.harbor.task_format.task_folder import read_task
from tests.docker_engine import DockerEngine
from tests.harbor_tasks import BASE, TASKS, a_task
from tests.rollout_specs import never
from tests.small_root import has_containers, small_root
from tests.unit.harbor.tiny_crate import write

ON_LOCAL = pytest.param("local", marks=pytest.mark.skipif(not has_containers, reason="root and namespaces are needed"))
Run = Callable[..., Execution]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_root(tmp_path_factory.mktemp("roots") / "tiny.tar")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the executors of this module have their layers: a beginning is built once."""
    return tmp_path_factory.mktemp("local")


@pytest.fixture(params=[ON_LOCAL, "docker"])
def executor(request: pytest.FixtureRequest, root: Path, images: Path) -> Iterator[Executor]:
    if request.param == "local":
        local = LocalExecutor(images, LocalExecutorConfig(images={"tiny:*": str(root)}))
        yield local
        local.close()
    else:
        with DockerEngine() as engine:
            docker = engine.open_executor()
            yield docker
            docker.close()
            assert engine.containers == {}


@pytest.fixture
def run(executor: Executor, run_with: Callable[[Executor], Run]) -> Run:
    """What runs a task, given by its files, with an agent."""
    return run_with(executor)


@pytest.fixture
def run_with(tmp_path: Path) -> Callable[[Executor], Run]:
    """What returns such a thing for an executor."""
    return lambda executor: partial(_run_task, executor, tmp_path)


def _run_task(
    executor: Executor, tmp_path: Path, files: Mapping[str, str], agent: str = "oracle", **changes: Any
) -> Execution:
    write(tmp_path / "tasks" / "one", files)
    spec = import_harbor_tasks(tmp_path / "tasks", "mine", tmp_path / "staging", agent="nop")
    package = HarborPackager(spec).package_bytes()
    built = executor.build(BuildContext(package.digest, lambda: package.archive, ""))
    assert executor.has(built.snapshot_id)
    request = {"trace_correlation_id": "t1", "task_id": "one", "params": {"agent": agent, "model": "m"}}
    rollout = RolloutSpec("r1", 1, built.snapshot_id, spec.entrypoint, "file", request, spec.limits, **changes)
    return executor.run(rollout, never)


@pytest.mark.parametrize("name", TASKS)
def test_the_solution_earns_1_and_doing_nothing_0(run: Run, executor: Executor, name: str) -> None:
    if executor.name == "docker" and name in ("image", "no-network", "tests-with-an-image"):
        pytest.skip("the stand-in for an engine has no network of its own, and builds only the simplest images")
    solved = run(TASKS[name])
    assert (solved.reward, solved.success_status, solved.failure_cause, solved.error) == (1.0, "success", None, ""), (
        solved.log
    )
    idle = run(TASKS[name], "nop")
    assert (idle.reward, idle.failure_cause) == (0.0, None), idle.log


def test_a_task_that_was_not_imported_gets_no_more_than_a_box_may_have(tmp_path: Path) -> None:
    write(tmp_path / "one", a_task("true", "true", "[environment]\nmemory_mb = 1000000\n"))
    request = {"trace_correlation_id": "t1", "task_id": "one", "params": {"agent": "nop"}}
    rollout = RolloutSpec("r1", 1, "", HARBOR_TASK, "file", request, HarborLimits())
    with pytest.raises(DataError, match=r"environment.memory_mb \(comes to 1000000, at most 32768\)"):
        run_trial(rollout, read_task(tmp_path / "one"), Abilities(False, False), never)


def test_artifacts_of_one_folder_travel_all(run: Run) -> None:
    separate = 'artifacts = ["/logs/agent/a", "/logs/agent/b"]\n[verifier]\nenvironment_mode = "separate"\n'
    ended = run(a_task("cat /logs/agent/a /logs/agent/b", "touch /logs/agent/a /logs/agent/b", separate))
    assert (ended.reward, ended.error) == (1.0, ""), ended.log


def test_the_tests_are_nowhere_while_the_agent_acts(run: Run) -> None:
    seen = run(a_task("[[ -f nothing ]]", "[[ -e /tests || -e /logs/verifier/reward.txt ]] || touch nothing"))
    assert seen.reward == 1.0, seen.log


def test_what_an_agent_writes_as_its_reward_is_none(run: Run) -> None:
    ended = run({**a_task("", "echo 1 > /logs/verifier/reward.txt"), "tests/test.sh": "#!/bin/sh\ntrue\n"})
    assert (ended.reward, ended.failure_cause) == (None, FailureCause.VERIFIER_FAILED)
    assert "neither reward.json nor reward.txt" in ended.error


@pytest.mark.parametrize("written", ["nan", "1e309", "inf", "one", ""])
def test_a_reward_that_is_no_finite_number_is_none(run: Run, written: str) -> None:
    files = {**a_task("", "true"), "tests/test.sh": f"#!/bin/sh\necho {written} > /logs/verifier/reward.txt\n"}
    ended = run(files)
    assert (ended.reward, ended.failure_cause) == (None, FailureCause.VERIFIER_FAILED)


def test_a_zero_for_want_of_a_program_is_no_reward(run: Run) -> None:
    ended = run(
        {
            **a_task("", "true"),
            "tests/test.sh": "#!/bin/sh\nrunner-of-nobody pytest; echo 0 > /logs/verifier/reward.txt\n",
        }
    )
    assert (ended.reward, ended.failure_cause) == (None, FailureCause.VERIFIER_FAILED)
    assert "needs runner-of-nobody: the box has no such program" in ended.error


def test_an_agent_that_takes_too_long_is_ended_to_the_second_and_graded(run: Run) -> None:
    ended = run(a_task("[[ -f early ]]", "touch early; sleep 60", "[agent]\ntimeout_sec = 1.5\n"))
    assert (ended.reward, ended.failure_cause) == (1.0, FailureCause.AGENT_EXHAUSTED_BUDGET)
    assert ended.error == "the agent was ended after 1.5 s"


def test_tests_that_take_too_long_are_no_reward(run: Run) -> None:
    files = {**a_task("", "true", "[verifier]\ntimeout_sec = 1\n")}
    ended = run({**files, "tests/test.sh": "#!/bin/sh\necho 1 > /logs/verifier/reward.txt; sleep 60\n"})
    assert (ended.reward, ended.error) == (None, "tests/test.sh was ended after 1 s")


@pytest.mark.parametrize(
    ("toml", "more", "lack"),
    [
        ("[environment]\ngpus = 1\n", {}, "environment.gpus"),
        (
            '[environment]\nnetwork_mode = "allowlist"\nallowed_hosts = ["example.org"]\n',
            {},
            "network_mode = allowlist",
        ),
        (
            '[verifier]\nenv = { JUDGE = "${JUDGE_KEY}" }\n',
            {},
            "verifier.env: JUDGE_KEY is for the operator to pass on",
        ),
        ("", {"tests/test.sh": "#!/bin/bash\npip install pytest\n"}, "needs network: tests/test.sh: pip install"),
    ],
)
def test_what_a_box_cannot_give_is_said_before_anything_is_made(
    run: Run, toml: str, more: dict[str, str], lack: str
) -> None:
    ended = run({**a_task("true", "true", toml), **more, "environment/Dockerfile": "FROM nothing-that-is-there:1\n"})
    assert (ended.success_status, ended.failure_cause) == (SuccessStatus.APPLY_FAILED, FailureCause.VERIFIER_FAILED)
    assert lack in ended.error


def test_a_variable_that_the_operator_passes_on_is_put_in_and_never_shown(run: Run) -> None:
    files = a_task(
        '[[ "$JUDGE" == k-0123456789 ]]; r=$?; echo "$JUDGE"; (exit $r)',
        "true",
        '[verifier]\nenv = { JUDGE = "${JUDGE_KEY}" }\n',
    )
    ended = run(files, secrets={"JUDGE_KEY": "k-0123456789"})
    assert ended.reward == 1.0
    assert "k-0123456789" not in ended.log


def test_an_image_without_the_agent_says_so(run: Run) -> None:
    ended = run(a_task("true", "true"), "codex")
    assert (ended.reward, ended.failure_cause) == (None, FailureCause.UNCLASSIFIED)
    assert ended.error == "the agent codex cannot be started: the image has no codex"


@pytest.mark.parametrize(
    ("says", "cause", "reward"),
    [
        ("echo 401 Unauthorized", FailureCause.MODEL_PROVIDER_FAILED, None),
        ("touch made", None, 1.0),
        ("exit 3", FailureCause.UNCLASSIFIED, None),
        ("touch made; echo 402 budget_exhausted; exit 1", FailureCause.AGENT_EXHAUSTED_BUDGET, 1.0),
    ],
)
def test_how_an_agent_of_the_image_ends(run: Run, says: str, cause: FailureCause | None, reward: float | None) -> None:
    files = a_task(
        "[[ -f made ]]",
        "true",
        dockerfile="WORKDIR /work/place\nCOPY codex /usr/local/bin/codex\nRUN chmod +x /usr/local/bin/codex\n",
    )
    ended = run({**files, "environment/codex": f"#!/bin/sh\n{says}\n"}, "codex")
    assert (ended.failure_cause, ended.reward) == (cause, reward), ended.error


@pytest.mark.skipif(not has_containers, reason="root and namespaces are needed")
class TestLocal:
    """What only containers of this machine do."""

    @pytest.fixture
    def executor(self, root: Path, images: Path) -> Iterator[LocalExecutor]:
        executor = LocalExecutor(images, LocalExecutorConfig(images={"tiny:*": str(root)}))
        yield executor
        executor.close()

    @pytest.mark.parametrize(
        ("dockerfile", "said"),
        [
            ("FROM ubuntu:24.04\n", "image 'ubuntu:24.04': no root file system stands for it here (known: tiny:*)"),
            (
                f"{BASE}ADD https://example.org/x /x\nONBUILD RUN x\n",
                "ADD https://example.org/x /x (an address); ONBUILD",
            ),
            (f"{BASE}RUN --mount=type=secret,id=x cat /x\n", "RUN --mount=type=secret,id=x"),
            (f"{BASE}COPY nothing /x\n", "COPY nothing: is not in the context"),
            (f"{BASE}RUN echo no >&2; exit 3\n", "RUN echo no >&2; exit 3: ended with 3"),
        ],
    )
    def test_what_a_dockerfile_asks_for_in_vain_is_named(self, run: Run, dockerfile: str, said: str) -> None:
        ended = run({**a_task("true", "true"), "environment/Dockerfile": dockerfile})
        assert (ended.reward, ended.failure_cause) == (None, FailureCause.VERIFIER_FAILED)
        assert said in ended.error

    def test_stages_heredocs_and_users(self, run: Run) -> None:
        dockerfile = (
            f"{BASE.strip()} AS first\nRUN <<END\nmkdir -p /made\necho one > /made/a\nEND\n"
            f"{BASE}COPY --from=first /made/a /srv/a\nCOPY <<END /srv/b\ntwo\nEND\nRUN mkdir -p /home/smith && chmod 777 /home/smith\n"
            "WORKDIR /home/smith\nUSER smith\nENTRYPOINT_OF_NOBODY x\n"
        ).replace("ENTRYPOINT_OF_NOBODY x\n", "LABEL a=b\n")
        check = '[[ "$(cat /srv/a /srv/b) $(cat who)" == "$(echo one; echo two) 1000" && $(id -u) == 0 ]]'
        files = a_task(check, "id -u > who", '[verifier]\nuser = "root"\n')
        ended = run({**files, "environment/Dockerfile": dockerfile})
        assert ended.reward == 1.0, ended.log

    def test_roles_of_one_box_with_different_networks_are_refused(self, run: Run) -> None:
        toml = '[agent]\nnetwork_mode = "no-network"\n[verifier]\nnetwork_mode = "public"\n'
        ended = run(a_task("true", "true", toml))
        assert "agent and verifier of one box have different networks" in ended.error

    @pytest.mark.parametrize(("check", "reward"), [("false", None), ("true", 1.0)])
    def test_a_zero_of_a_solution_that_did_not_reach_its_host_is_no_reward(
        self, root: Path, images: Path, run_with: Callable[[Executor], Run], check: str, reward: float | None
    ) -> None:
        config = LocalExecutorConfig(images={"tiny:*": str(root)}, network="host")
        executor = LocalExecutor(images, config)
        ended = run_with(executor)(
            a_task(check, 'url=https://example.org/x; echo "Could not resolve host: $url"; exit 6')
        )
        executor.close()
        assert ended.reward == reward
        assert ("a script asks https://example.org" in ended.error) == (reward is None)
        assert ended.limits_enforced["network"] == "host"

    def test_what_stands_for_an_image_and_what_held_the_box_are_recorded(self, run: Run) -> None:
        ended = run(a_task("true", "true", "[environment]\nmemory_mb = 600\ncpus = 1\n"))
        assert ended.limits_enforced["image"] == "tiny:1 (tiny.tar)"
        assert ended.limits_enforced["network"] == "none"
        assert ended.limits_enforced["memory_mb"] in (600, None)

    def test_nothing_of_the_machine_is_seen_or_reached(self, run: Run, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("of the machine")
        tries = f"cat {secret} /proc/1/environ /proc/1/root/etc/shadow; kill -9 1; rm -rf /proc/sys/kernel/hostname; touch made"
        ended = run(a_task("[[ -f made ]]", tries))
        assert (ended.reward, secret.read_text()) == (1.0, "of the machine")
        assert "of the machine" not in ended.log

    def test_an_agent_that_fills_its_memory_has_no_reward(self, run: Run, tmp_path: Path) -> None:
        write(tmp_path / "tasks" / "two", a_task("true", "true", "[environment]\nmemory_mb = 1024\n"))
        files = a_task(
            "true", 'x=$(head -c 700000000 /dev/zero | tr "\\0" a); echo ${#x}', "[environment]\nmemory_mb = 512\n"
        )
        ended = run(files)
        assert (ended.reward, ended.failure_cause) == (None, FailureCause.SANDBOX_FAILED)
        assert "ran out of memory; raise memory_mb, which is 512" in ended.error
