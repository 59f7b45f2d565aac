"""Actions and sources made to harm: each ends as a result, blamed on itself alone, and the next call works."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.core.errors import SandboxError
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.teachers.induction import MemoryTeacher
from graftline.sandbox.actions.process import ProcessSandbox
from graftline.sandbox.actions.warm import WarmSandbox
from graftline.sandbox.base import Limits, Sandbox, SandboxResult, Verdict
from tests.processes import children_with, wait_until_ended
from tests.security.hostile.action_cases import search
from tests.tasks import make_task

RENAME = PatternAction(pattern="f($A)", rewrite="g($A)")
NESTED_CALLS = "f(" * 250 + "1" + ")" * 250 + "\n"


KINDS: dict[str, Callable[[Limits], Sandbox]] = {"process": ProcessSandbox, "warm": WarmSandbox}


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Which of the jails is tried."""
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def sandbox(kind: str) -> Iterator[Sandbox]:
    with closing(KINDS[kind](Limits(cpu_s=1, memory_mb=256, output_mb=1))) as opened:
        yield opened


@pytest.fixture(scope="module")
def patient(kind: str) -> Iterator[Sandbox]:
    """A sandbox in which memory and output end before time does."""
    with closing(KINDS[kind](Limits(cpu_s=20, memory_mb=256, output_mb=1))) as opened:
        yield opened


def apply(sandbox: Sandbox, source: str, action: PatternAction | RuleAction) -> SandboxResult:
    """Return the result of `action`, after asking whether the actions beside it and the next call are unharmed."""
    [result] = sandbox.apply_many(source, "python", [action])
    assert sandbox.apply_many("f(1)\n", "python", [RENAME])[0].after == "g(1)\n"
    return result


TOO_SLOW = RuleAction(rule=search("has", 4), fix="x")
OVERFLOWING = PatternAction(pattern="x = " + "-" * 16_000 + "1", rewrite="y")
DEEP = "x = " + "-" * 16_000 + "1\n"


def test_of_several_actions_only_the_one_that_crashes_is_blamed(sandbox: Sandbox) -> None:
    good = PatternAction(pattern="x = $A", rewrite="y")
    results = sandbox.apply_many(DEEP, "python", [good, OVERFLOWING, good])
    assert [(result.verdict, result.after) for result in results] == [
        (Verdict.OK, "y\n"),
        (Verdict.CRASH, None),
        (Verdict.OK, "y\n"),
    ]


def test_a_few_kilobytes_that_make_megabytes_of_matches_are_a_flood(kind: str, patient: Sandbox) -> None:
    source = "f(" * 2000 + "1" + ")" * 2000 + "\n"
    # ast-grep's command line tells of all of them, the binding is asked for the outermost
    expected = {"process": Verdict.OUTPUT_FLOOD, "warm": Verdict.OK}[kind]
    assert apply(patient, source, RENAME).verdict is expected


GROWING = {
    new: {"replace": {"source": f"${old}", "replace": "", "by": "a" * 40}} for old, new in ("AB", "BC", "CD", "DE")
}


@pytest.mark.parametrize(
    ("source", "action"),
    [
        ("f('" + "a" * 300 + "')\n", RuleAction(rule={"pattern": "f($A)"}, fix="$E", transform=GROWING)),
        ("x=1\n" * 400_000, RENAME),
    ],
    ids=["transformations that grow", "a source that the parser has no memory for"],
)
def test_what_has_no_memory_left_says_so(patient: Sandbox, source: str, action: PatternAction | RuleAction) -> None:
    assert apply(patient, source, action).verdict is Verdict.OUT_OF_MEMORY


def test_a_busy_machine_is_told_apart_from_a_slow_action(kind: str) -> None:
    with closing(KINDS[kind](Limits(cpu_s=5, wall_s=0.2))) as opened:
        assert opened.apply_many(NESTED_CALLS, "python", [TOO_SLOW])[0].verdict is Verdict.WALL_TIMEOUT


# ---- configuration that lies about


def test_project_files_of_ast_grep_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules").mkdir()
    project = "ruleDirs: [rules]\nlanguageGlobs:\n  javascript: ['*']\n"
    rule = '{"id": "a0", "language": "python", "rule": {"kind": "integer"}, "fix": "2"}'
    (tmp_path / "sgconfig.yml").write_text(project, "utf-8")
    (tmp_path / "rules" / "rule.yml").write_text(rule, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    # the folder of the jail lies inside this one
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with closing(ProcessSandbox(Limits())) as opened:
        assert opened.apply_many("f(1)\n", "python", [RENAME])[0].after == "g(1)\n"
        assert len(list(tmp_path.glob("graftline-cases-*"))) == 1
    assert list(tmp_path.glob("graftline-cases-*")) == []


@pytest.mark.parametrize("name", ["sgconfig.yml", "sgconfig.yaml"])
def test_a_broken_project_file_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / name).write_text(": [not yaml", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with closing(ProcessSandbox(Limits())) as opened:
        assert opened.apply_many("f(1)\n", "python", [RENAME])[0].after == "g(1)\n"


def test_the_environment_of_the_caller_changes_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = {"RUST_BACKTRACE": "1", "LD_PRELOAD": "/no/such.so", "PYTHONPATH": "/no/such", "LANG": "C"}
    for name, value in hostile.items():
        monkeypatch.setenv(name, value)
    with closing(KINDS[kind](Limits())) as opened:
        results = opened.apply_many("é(1)\n", "python", [PatternAction(pattern="é($A)", rewrite="ü($A)"), OVERFLOWING])
        assert [result.after for result in results] == ["ü(1)\n", None]


# ---- the worker and its parent; of the jail of `process` the contract of jails says the same


@pytest.fixture
def fresh() -> Iterator[tuple[Sandbox, psutil.Process]]:
    before = {child.pid for child in children_with("warm_worker")}
    opened = WarmSandbox(Limits(cpu_s=1))
    opened.apply_many("f(1)\n", "python", [RENAME])
    [worker] = [child for child in children_with("warm_worker") if child.pid not in before]
    yield opened, worker
    opened.close()


def test_a_worker_killed_between_calls_is_started_again(fresh: tuple[Sandbox, psutil.Process]) -> None:
    sandbox, worker = fresh
    worker.kill()
    wait_until_ended(worker.pid)
    assert sandbox.apply_many("f(1)\n", "python", [RENAME])[0].after == "g(1)\n"


def test_a_worker_killed_during_a_call_is_an_error_once(fresh: tuple[Sandbox, psutil.Process]) -> None:
    sandbox, worker = fresh
    timer = threading.Timer(0.2, worker.kill)
    timer.start()
    with pytest.raises(SandboxError, match=r"^warm sandbox: its warm_worker died \(EOFError"):
        sandbox.apply_many(NESTED_CALLS, "python", [RENAME, TOO_SLOW])
    timer.join()
    assert sandbox.apply_many("f(1)\n", "python", [RENAME])[0].after == "g(1)\n"


def test_a_closed_sandbox_leaves_no_worker_behind(fresh: tuple[Sandbox, psutil.Process]) -> None:
    sandbox, worker = fresh
    sandbox.close()
    assert psutil.pid_exists(worker.pid) is False


@pytest.mark.parametrize("ending", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(1)", "raise SystemExit"])
@pytest.mark.parametrize("config", ["ProcessSandboxConfig", "WarmSandboxConfig"])
def test_a_parent_that_ends_without_closing_leaves_nothing_behind(tmp_path: Path, config: str, ending: str) -> None:
    program = f"""
import os, signal
import psutil
from graftline.sandbox import {config}, open_sandbox
sandbox = open_sandbox({config}())
print(psutil.Process().children()[0].pid, flush=True)
{ending}
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False, env=environment)
    wait_until_ended(int(done.stdout))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_inner_process_that_cannot_start_is_an_error(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SandboxError, match=r"does not (start|say where its modules are)"):
        _ = KINDS[kind](Limits()).isolation


def test_the_command_can_write_nothing_and_knows_nothing_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFTLINE_TOKEN", "secret")
    seen: list[dict[str, str]] = []
    ended = threading.Event()

    def look() -> None:
        while not (seen or ended.is_set()):
            for child in psutil.Process().children(recursive=True):
                with suppress(OSError, psutil.Error):
                    folder = Path("/proc", str(child.pid))
                    if (folder / "comm").read_text() == "ast-grep\n":
                        seen.append({name: (folder / name).read_text() for name in ("limits", "status", "environ")})

    with closing(ProcessSandbox(Limits(cpu_s=2, memory_mb=256))) as opened:
        watcher = threading.Thread(target=look)
        watcher.start()
        opened.apply_many(NESTED_CALLS, "python", [TOO_SLOW])
        ended.set()
        watcher.join()
    [command, *_] = seen
    for limit in ("Max file size +0 +0", "Max open files +64 +64"):
        assert re.search(limit, command["limits"])
    for right in ("CapEff:\t0+\n", "NoNewPrivs:\t1", "Seccomp:\t2"):
        assert re.search(right, command["status"])
    assert "GRAFTLINE_TOKEN" not in command["environ"]


def test_a_command_that_somebody_kills_says_nothing_about_the_action() -> None:
    finished = threading.Event()

    def kill() -> None:
        while not finished.wait(0.001):
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if process.name() == "ast-grep":
                        process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with closing(ProcessSandbox(Limits())) as sandbox:
        try:
            with pytest.raises(SandboxError, match="ended by signal 9"):
                sandbox.apply_many(NESTED_CALLS, "python", [TOO_SLOW])
        finally:
            finished.set()
            killer.join()
        assert sandbox.apply_many("f(1)\n", "python", [RENAME])[0].after == "g(1)\n"


# ---- a broken machine is no wrong answer


TASK = make_task("f(1)\n", "g(1)\n", instruction="Rename f.", gold_action=RENAME)


def test_an_attempt_during_which_the_worker_dies_is_made_again_and_rewarded_for_what_it_is(
    fresh: tuple[Sandbox, psutil.Process],
) -> None:
    sandbox, worker = fresh
    os.kill(worker.pid, signal.SIGSTOP)
    timer = threading.Timer(0.1, worker.kill)
    timer.start()
    trajectory = collect(TASK, MemoryTeacher(), sandbox, RolloutConfig())
    timer.join()
    assert (trajectory.ending, trajectory.reward.value) == ("done", 1.0)


def test_an_attempt_on_a_machine_that_stays_broken_has_no_reward_at_all(
    fresh: tuple[Sandbox, psutil.Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox, worker = fresh
    worker.kill()
    wait_until_ended(worker.pid)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SandboxError):
        collect(TASK, MemoryTeacher(), sandbox, RolloutConfig())
