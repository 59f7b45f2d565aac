"""The executor `local`: what it makes of a Dockerfile, of folders of a context, of limits and of ends of a jail."""

import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from graftline.core.errors import HarborError
from graftline.harbor.contract import FailureCause, HarborLimits, SuccessStatus, VerifierSettings
from graftline.harbor.executors.base import Execution
from graftline.harbor.executors.local import LocalExecutor
from tests.rollout_specs import (
    CONTEXT,
    DOES_WHAT_IS_SAID,
    VERIFIER,
    VERIFIER_CONTEXT,
    a_local,
    a_rollout,
    after,
    graded,
    has_cargo,
    on_local,
    packed_context,
    ran,
)

pytestmark = on_local


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalExecutor]:
    opened = a_local(tmp_path_factory.mktemp("local"))
    yield opened
    opened.close()


def test_a_build_says_which_instructions_are_left_out(tmp_path: Path) -> None:
    dockerfile = "# syntax\nFROM debian:13\nRUN apt-get update && \\\n  apt-get install x\ncopy . /app\nENV A=1\n"
    context = packed_context(dockerfile=dockerfile)
    executor = a_local(tmp_path)
    built, again = executor.build(context), executor.build(context)
    left_out = "instructions of the Dockerfile that executor 'local' leaves out: ENV, FROM, RUN\n"
    assert built.log == f"the context was unpacked\n{left_out}"
    assert again.log == f"the context was there already\n{left_out}"


def test_a_context_without_a_dockerfile_is_built_and_found_by_another_executor(tmp_path: Path) -> None:
    built = a_local(tmp_path).build(replace(CONTEXT, dockerfile=""))
    assert built.log == "the context was unpacked\n"
    assert built.snapshot_id == f"local-{CONTEXT.digest}"
    assert a_local(tmp_path).has(built.snapshot_id)
    assert not a_local(tmp_path / "elsewhere").has(built.snapshot_id)
    assert not a_local(tmp_path).has("local-../../etc")


def test_limits_are_told_as_they_were_achieved(local: LocalExecutor) -> None:
    enforced = dict(ran(local, limits=HarborLimits(cpu_cores=1, memory_mb=512, disk_mb=1024)).limits_enforced)
    assert enforced.pop("isolation") in ("namespaces", "full")
    assert "namespaces" in enforced.pop("features")
    assert enforced.pop("memory_is_of") in ("all processes together", "each process")
    assert enforced == {
        "implementation": "namespaces",
        "timeout_s": 300,
        "cpu_cores": 1,
        "memory_mb": 512,
        "disk_mb": 1024,
        "network": "none",
        "runs_own": False,
    }


def test_a_box_has_the_places_of_a_container(local: LocalExecutor) -> None:
    code = """
places = {place: os.path.realpath(place) for place in ("/app", "/workspace", "/tmp", "/logs")}
own = {"/app": os.getcwd(), "/workspace": os.getcwd(), "/tmp": os.environ["TMPDIR"], "/logs": os.environ["LOGS_DIR"]}
if os.path.dirname(os.__file__).startswith("/tmp/") or any(path.startswith("/tmp/") for path in sys.path):
    del places["/tmp"], own["/tmp"]  # of the checkout, which lies there
print(places == own, sorted(os.listdir("/logs/")))
reward(1)
"""
    assert ran(local, code).log == "True ['agent', 'artifacts', 'verifier']\n"


def test_a_verifier_starts_with_folders_of_its_own(local: LocalExecutor) -> None:
    files = {
        "agent/run_rollout.py": DOES_WHAT_IS_SAID,
        "tests/verify.sh": "ls > /logs/agent/x; ls; echo 0.5 > /logs/verifier/reward.txt",
    }
    snapshot = local.build(packed_context(files)).snapshot_id
    settings = VerifierSettings(entrypoint="bash verify.sh", artifacts=("left",))
    code = "open('left', 'w').write('x'); print(os.path.exists('verify.sh'))"
    end = ran(
        local,
        code,
        snapshot_id=snapshot,
        verifier_snapshot_id=snapshot,
        verifier=settings,
        agent_files=("agent",),
        verifier_files=("tests",),
    )
    assert (end.reward, end.log) == (0.5, "False\n\nleft\nverify.sh\n")


@pytest.mark.parametrize("folder", ["absent", "task/words.txt"])
def test_a_folder_that_is_not_in_the_context_is_refused(local: LocalExecutor, folder: str) -> None:
    end = ran(local, agent_files=(folder,))
    assert (end.success_status, end.failure_cause) == (SuccessStatus.APPLY_FAILED, FailureCause.UNCLASSIFIED)
    assert end.error == f"the agent's box: folder {folder!r} of the context: is not there; name one that is"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agent_files": ("../x",)}, "file name '../x': must stay inside its folder"),
        ({"agent_files": ("/etc",)}, "file name '/etc': must be relative and use forward slashes"),
        ({"files": {"../x": ""}}, "file name '../x': must stay inside its folder"),
        ({"files": {"a": "", "a/b": ""}}, "file name 'a': is a folder too; rename one of them"),
        ({"env_vars": {"LD_PRELOAD": "x"}}, "variable 'LD_PRELOAD': is for the jail to set; give it another name"),
        ({"env_vars": {"PATH": "x"}}, "variable 'PATH': is for the jail to set; give it another name"),
        ({"env_vars": {"a b": "x"}}, "variable 'a b': expected letters, digits and '_', such as 'TASK_ID'"),
        ({"entrypoint": "curl x"}, "entrypoint: 'curl' is no file of the context"),
        (
            {"entrypoint": "node words.js", "files": {"words.js": ""}},
            "program 'node': is not among the programs of this jail; there are python, shell",
        ),
    ],
)
def test_what_no_box_can_give_is_said(local: LocalExecutor, changes: dict[str, object], message: str) -> None:
    end = ran(local, **changes)
    assert (end.success_status, end.reward, end.failure_cause) == (
        SuccessStatus.APPLY_FAILED,
        None,
        FailureCause.UNCLASSIFIED,
    )
    assert end.error.startswith(f"the agent's box: {message}")


def test_a_verifier_that_cannot_be_started_is_its_own_failure(local: LocalExecutor) -> None:
    end = graded(local, "pass", VerifierSettings(entrypoint="absent.sh"))
    assert (end.reward, end.failure_cause) == (None, FailureCause.VERIFIER_FAILED)
    assert end.error.startswith("the verifier's box: entrypoint: 'absent.sh' is no file of the context")


def test_memory_that_is_not_enough_is_no_fault_of_the_agent(local: LocalExecutor) -> None:
    end = ran(local, "x = bytearray(2 << 30)")
    assert (end.reward, end.failure_cause) == (None, FailureCause.SANDBOX_FAILED)
    assert end.error.startswith("the box ran out of memory; raise memory_mb, which is 512")


FILL = "with open('big', 'wb') as file:\n  for _ in range(200): file.write(bytes(1 << 20))\nreward(1)"


def little(**limits: int) -> HarborLimits:
    """Return limits that are soon reached: less than a deployment may ask for."""
    return HarborLimits.model_construct(timeout_s=300, cpu_cores=2, **limits)


def test_files_that_fill_the_memory_of_a_box_are_told_as_its_disk(local: LocalExecutor) -> None:
    end = ran(local, FILL, limits=little(memory_mb=128, disk_mb=4096))
    if end.limits_enforced["memory_is_of"] == "each process":
        pytest.skip("this machine gives no control group of memory")
    assert (end.reward, end.failure_cause) == (None, FailureCause.SANDBOX_FAILED)
    assert re.fullmatch(
        r"the disk of the box is full: its files take \d+ MB, and files are in memory here; raise memory_mb, which is 128"
        r" \(disk_mb is 4096\)",
        end.error,
    )


@pytest.mark.parametrize("role", ["agent", "verifier"])
def test_a_full_disk_is_named(local: LocalExecutor, role: str) -> None:
    code = FILL if role == "agent" else "open('score.txt', 'w').write('1')"
    verifier = VERIFIER_CONTEXT if role == "agent" else packed_context({"verify.py": FILL.replace("reward(1)", "")})
    snapshot = local.build(verifier).snapshot_id
    limits = little(memory_mb=512, disk_mb=32)
    end = ran(local, code, limits=limits, verifier=VERIFIER, verifier_snapshot_id=snapshot)
    assert (end.reward, end.failure_cause) == (None, FailureCause.SANDBOX_FAILED)
    assert end.error == (
        "the disk of the box is full; raise disk_mb, which is 32; its last words: OSError: [Errno 28] No space left on device"
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("reward(1); os.kill(os.getpid(), 11)", "it crashed"),
        ("reward(1)\nwhile True: print('x' * 100_000)", "it printed without end, and was ended"),
    ],
)
def test_after_a_broken_end_nothing_that_was_said_is_believed(local: LocalExecutor, code: str, words: str) -> None:
    end = ran(local, code)
    assert (end.success_status, end.reward, end.failure_cause) == (
        SuccessStatus.RUNTIME_ERROR,
        None,
        FailureCause.UNCLASSIFIED,
    )
    assert words in end.error


def test_the_exit_code_and_the_last_words_are_told(local: LocalExecutor) -> None:
    assert dict(ran(local, "reward(0.5); sys.exit(3)").details) == {"exit_code": 3}
    end = ran(local, "sys.exit('no such task')")
    assert end.error == "the entrypoint ended with code 1 and left no result; see the log; its last words: no such task"
    end = ran(local, "def f(): raise ValueError('no such task')\nf()")
    assert end.error.endswith("; see the log; its last words: ValueError: no such task")


def test_waiting_for_a_free_place_ends_when_it_is_cancelled(tmp_path: Path) -> None:
    executor = a_local(tmp_path, at_once=1)
    is_over, runs = threading.Event(), threading.Event()
    asked: list[int] = []

    def first_is_over() -> bool:
        # before it begins, and then while it runs
        asked.append(1)
        if len(asked) > 1:
            runs.set()
        return is_over.is_set()

    ends: list[Execution] = []
    first = threading.Thread(
        target=lambda: ends.append(executor.run(a_rollout(executor, "import time; time.sleep(60)"), first_is_over))
    )
    first.start()
    assert runs.wait(240)
    second = executor.run(a_rollout(executor), after(2))
    is_over.set()
    first.join()
    executor.close()
    assert [end.failure_cause for end in (second, *ends)] == [FailureCause.CANCELLED] * 2


def test_a_context_that_does_not_fit_is_refused(local: LocalExecutor) -> None:
    end = ran(local, limits=HarborLimits.model_construct(timeout_s=30, cpu_cores=1, memory_mb=512, disk_mb=1))
    assert end.error == "the agent's box: the context takes 1 MB, and disk_mb is 1; raise it"


def test_jails_of_other_limits_take_the_place_of_the_oldest(tmp_path: Path) -> None:
    executor = a_local(tmp_path, at_once=1, jails_kept=1)
    rewards = [ran(executor, limits=HarborLimits(memory_mb=size)).reward for size in (512, 600, 512)]
    executor.close()
    assert rewards == [0.5, 0.5, 0.5]


def test_a_machine_that_is_weaker_than_required_runs_nothing(tmp_path: Path) -> None:
    executor = a_local(tmp_path, jail="subprocess")
    with pytest.raises(HarborError, match="isolates nothing; take kind 'namespaces', or say required_level 'none'"):
        ran(executor)


def test_without_namespaces_an_entrypoint_is_told_where_its_files_are(tmp_path: Path) -> None:
    executor = a_local(tmp_path, jail="subprocess", required_level="none")
    end = graded(executor, "open('score.txt', 'w').write('0.5')")
    second = ran(executor, "reward(0.25)", entrypoint="run_rollout --input /tmp/rollout.json --output /tmp/result.json")
    executor.close()
    assert (end.reward, second.reward) == (0.5, 0.25)


@pytest.mark.skipif(not has_cargo, reason="cargo is not installed")
def test_tests_in_rust_run_where_boxes_may_run_what_they_build(tmp_path: Path) -> None:
    files = {
        "Cargo.toml": '[package]\nname = "tiny"\nversion = "0.1.0"\nedition = "2021"\n',
        "src/lib.rs": "#[test]\nfn adds() { assert_eq!(1 + 1, 2) }\n",
    }
    executor = a_local(tmp_path, programs=("python", "cargo"), runs_own=True)
    snapshot = executor.build(packed_context(files)).snapshot_id
    end = ran(executor, snapshot_id=snapshot, entrypoint="cargo test --lib", limits=HarborLimits())
    executor.close()
    assert "test adds ... ok" in end.log
    assert end.limits_enforced["runs_own"] is True
    assert "no_exec" not in end.limits_enforced["features"]


def test_a_program_of_the_context_runs_where_it_may(tmp_path: Path) -> None:
    text = '#!/usr/bin/awk -f\nBEGIN { print "{\\"reward_info\\": {\\"outcome_reward\\": 0.5}}" }\n'
    executor = a_local(tmp_path, runs_own=True)
    snapshot = executor.build(packed_context({"tool": text})).snapshot_id
    end = ran(executor, snapshot_id=snapshot, entrypoint="./tool", entrypoint_mode="stdio")
    executor.close()
    assert end.reward == 0.5


def test_a_snapshot_that_was_made_again_is_seen_by_the_next_rollout(tmp_path: Path) -> None:
    executor = a_local(tmp_path)
    before = ran(executor).reward
    shutil.rmtree(tmp_path / CONTEXT.digest)
    after_it = ran(executor).reward
    executor.close()
    assert (before, after_it) == (0.5, 0.5)
