"""What is left of a case in any jail, how jails are opened and closed, and what becomes of one that is lost."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

from graftline.core.errors import DataError, SandboxError
from graftline.sandbox import CaseEnd, JailConfig, Verdict, open_jail
from graftline.sandbox.jail import served
from graftline.sandbox.jail.served import ServedJail
from graftline.sandbox.jail.wrappers import WRAPPERS
from tests.jails import (
    MODES,
    SHORT,
    WRAPPED,
    dedent,
    has_process,
    how,
    is_soon,
    new_jail,
    on_served_ones_only,
    on_walled_ones_only,
    output,
    pids_of,
    processes_of,
    python,
)


def test_the_isolation_is_that_of_the_jail_before_and_after(jail: ServedJail, kind: str) -> None:
    before = jail.isolation
    end = jail.run(python(""))
    assert before == end.isolation == jail.isolation
    assert before.implementation == kind


@on_served_ones_only
def test_the_isolation_is_the_same_object_while_the_server_lives(jail: ServedJail) -> None:
    before = jail.isolation
    assert jail.run(python("")).isolation is before is jail.isolation


def test_nothing_of_one_is_seen_by_the_next(jail: ServedJail) -> None:
    dirty = """
        import builtins, os, sys, tempfile, json, random, types
        open("left", "w").close()
        open(os.path.join(tempfile.gettempdir(), "left"), "w").close()
        os.makedirs("a/b/c"); os.chmod("a/b", 0)
        os.environ["LEFT"] = "1"
        sys.modules["left"] = types.ModuleType("left")
        builtins.left = json.left = 1
        sys.path.append("left")
        os.umask(0o777)
        print("dirty")
    """
    clean = """
        import builtins, json, os, sys, tempfile
        mask = os.umask(0o22)
        print(os.listdir(), os.listdir(tempfile.gettempdir()), "LEFT" in os.environ, "left" in sys.modules,
              hasattr(builtins, "left"), hasattr(json, "left"), "left" in sys.path, oct(mask), os.path.exists("/tmp/left"))
    """
    assert output(jail, python(dedent(dirty))) == "dirty\n"
    expected = "['main.py'] [] False False False False False 0o22 False\n"
    assert output(jail, python(dedent(clean))) == expected


@on_walled_ones_only
def test_memory_objects_of_one_are_not_seen_by_the_next(jail: ServedJail) -> None:
    left = "import os\ntry: open('/dev/shm/left', 'w').close()\nexcept OSError: pass"
    output(jail, python(left))
    assert output(jail, python("import os; print(os.path.exists('/dev/shm/left'))")) == "False\n"
    assert not Path("/dev/shm/left").exists()


@on_served_ones_only
def test_the_same_case_says_the_same_twice(jail: ServedJail, open_another: Callable[..., ServedJail]) -> None:
    case = python("print({chr(c) * 3 for c in range(97, 123)}, hash('x'))")
    assert output(jail, case) == output(jail, case) == output(open_another(), case)


# in namespaces the hostile suite says so
@pytest.mark.parametrize("kind", ["confined"], indirect=True, scope="module")
def test_two_jails_at_the_same_time_do_not_see_each_other(
    jail: ServedJail, open_another: Callable[..., ServedJail], kind: str
) -> None:
    mark = f"victim-{kind}-{os.getpid()}"
    victim = """
        import os, subprocess, sys, tempfile
        open(sys.argv[1], "w").write("secret"); open(os.path.join(tempfile.gettempdir(), sys.argv[1]), "w").close()
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", sys.argv[1]])
        print(child.wait())
    """
    spy = """
        import os, signal, sys
        found = [os.path.join(top, name) for root in ("/tmp", "/case", "/dev/shm", "/var/tmp")
                 for top, folders, files in os.walk(root) for name in (*folders, *files) if name == sys.argv[1]]
        try: pids = [name for name in os.listdir("/proc") if name.isdigit()]
        except OSError: pids = range(2, 2000)
        for pid in pids:
            try: line = open(f"/proc/{pid}/cmdline", "rb").read()
            except OSError: continue
            if sys.argv[1].encode() in line: found.append(line)
        try: os.kill(-1, signal.SIGTERM)
        except OSError as error: pass
        print(found)
    """
    ends: list[CaseEnd] = []
    other = open_another()
    thread = threading.Thread(target=lambda: ends.append(other.run(python(dedent(victim), mark))))
    thread.start()
    assert is_soon(lambda: has_process(mark))
    seen = jail.run(python(dedent(spy), mark)).stdout
    end_by_hand(mark)
    thread.join()
    # the command line of the spy itself names the mark nowhere: programs of ours are forks
    assert (seen, [(end.exit_code, end.stdout) for end in ends]) == (b"[]\n", [(0, b"-9\n")])


def end_by_hand(mark: str) -> None:
    """End what a case waits for, and so the case, once all has been looked at."""
    for pid in pids_of(mark):
        os.kill(pid, signal.SIGKILL)


def test_close_twice_and_use_again(open_another: Callable[..., ServedJail]) -> None:
    jail = open_another()
    assert output(jail, python("print(1)")) == "1\n"
    jail.close()
    jail.close()
    assert output(jail, python("print(2)")) == "2\n"


@on_served_ones_only
def test_closing_what_never_started_does_nothing(open_another: Callable[..., ServedJail]) -> None:
    open_another().close()


@on_served_ones_only
def test_closing_leaves_no_process_and_no_folder(open_another: Callable[..., ServedJail]) -> None:
    jail = open_another()
    output(jail, python("print(1)"))
    group, folder = jail._server.pid, jail._folder
    assert processes_of(group) != []
    jail.close()
    assert is_soon(lambda: processes_of(group) == [])
    assert folder is None or not Path(folder.path).exists()


@on_walled_ones_only
def test_a_case_outlives_the_thread_that_started_the_jail(open_another: Callable[..., ServedJail]) -> None:
    jail = open_another()
    may_end, ends = threading.Event(), []

    def start() -> None:
        assert jail.isolation
        has_started.set()
        may_end.wait()

    has_started = threading.Event()
    starter = threading.Thread(target=start)
    starter.start()
    has_started.wait()
    mark = f"thread-{jail._name}-{os.getpid()}"
    text = "import subprocess, sys; print(subprocess.call([sys.executable, '-c', 'import time; time.sleep(60)', sys.argv[1]]))"
    user = threading.Thread(target=lambda: ends.append(jail.run(python(text, mark))))
    user.start()
    assert is_soon(lambda: has_process(mark))
    may_end.set()
    starter.join()
    end_by_hand(mark)
    user.join()
    assert [(how(end), end.stdout) for end in ends] == [((Verdict.OK, 0, None), b"-9\n")]


@on_served_ones_only
def test_a_forked_process_opens_a_jail_of_its_own(jail: ServedJail, kind: str) -> None:
    assert output(jail, python("print(1)")) == "1\n"
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            own = new_jail(kind)
            os.write(writer, own.run(python("print(2)")).stdout)
            own.close()
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read()
    os.waitpid(child, 0)
    assert (said, output(jail, python("print(3)"))) == (b"2\n", "3\n")


@on_served_ones_only
def test_a_forked_process_that_ends_leaves_the_jail_of_its_parent(kind: str) -> None:
    program = f"""
        import os, sys
        from graftline.sandbox import Case, CaseLimits
        from graftline.sandbox.jail.served import ServedJail
        jail = ServedJail({kind!r}, {MODES.get(kind, "confined")!r}, CaseLimits(), ("python",))
        case = Case("python", ("a.py",), {{"a.py": b"print(1)"}})
        jail.run(case)
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
        print(jail.run(case).verdict.value)
        jail.close()
    """
    done = subprocess.run([sys.executable, "-c", dedent(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


def test_who_waits_outside_of_namespaces_ends_as_the_process_that_was_to_enter_them() -> None:
    program = """
        import os
        from graftline.sandbox.inside import case_jail, kernel
        kernel.unshare = lambda namespaces: os._exit(7)
        case_jail.enter_namespaces({"user": None})
    """
    done = subprocess.run([sys.executable, "-c", dedent(program)], check=False, timeout=240)
    assert done.returncode == 7


@on_walled_ones_only
def test_a_server_that_was_killed_between_calls_is_started_again(open_another: Callable[..., ServedJail]) -> None:
    jail = open_another()
    assert output(jail, python("print(1)")) == "1\n"
    os.killpg(jail._server.pid, signal.SIGKILL)
    assert is_soon(lambda: not jail._server.is_running)
    assert output(jail, python("print(2)")) == "2\n"


@on_walled_ones_only
def test_a_server_that_is_killed_during_a_call_fails_that_call_only(
    open_another: Callable[..., ServedJail], kind: str
) -> None:
    jail = open_another()
    mark = f"killed-{kind}-{os.getpid()}"
    text = "import subprocess, sys; subprocess.call([sys.executable, '-c', 'import time; time.sleep(60)', sys.argv[1]])"
    errors: list[BaseException] = []

    def call() -> None:
        try:
            jail.run(python(text, mark))
        except SandboxError as error:
            errors.append(error)

    assert jail.isolation
    caller = threading.Thread(target=call)
    caller.start()
    assert is_soon(lambda: has_process(mark))
    os.killpg(jail._server.pid, signal.SIGKILL)
    caller.join()
    assert [str(error).partition(" (")[0] for error in errors] == [f"{kind} jail: its server died"]
    assert output(jail, python("print(2)")) == "2\n"
    if kind == "namespaces" or "total_processes" in jail.isolation.features:
        assert is_soon(lambda: not has_process(mark))


@on_walled_ones_only
def test_a_server_that_is_stopped_fails_the_call_in_the_end(
    open_another: Callable[..., ServedJail], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "_MARGIN_S", 0.3)
    jail = open_another(SHORT)
    assert output(jail, python("print(1)")) == "1\n"
    os.killpg(jail._server.pid, signal.SIGSTOP)
    with pytest.raises(
        SandboxError, match=rf"{kind} jail: its server died \(TimeoutError\(\)\); see `graftline doctor`"
    ):
        jail.run(python("print(2)"))
    assert output(jail, python("print(3)")) == "3\n"


@on_walled_ones_only
def test_an_interrupted_call_does_not_answer_the_next_one(open_another: Callable[..., ServedJail]) -> None:
    class InterruptionError(Exception):
        pass

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise InterruptionError

    jail = open_another()
    assert jail.isolation
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(InterruptionError):
            jail.run(python("import time; time.sleep(2); print('late')"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert output(jail, python("print('next')")) == "next\n"


@on_served_ones_only
def test_a_refused_case_does_not_disturb_the_next_one(jail: ServedJail) -> None:
    with pytest.raises(DataError):
        jail.run(python("", files={"../x": b""}))
    assert output(jail, python("print(1)")) == "1\n"


def test_a_jail_that_is_weaker_than_required_is_refused() -> None:
    with pytest.raises(SandboxError) as caught:
        open_jail(JailConfig(kind="subprocess"))
    assert str(caught.value) == (
        "subprocess jail: isolates nothing; take kind 'namespaces', or say required_level 'none';"
        " 'namespaces' is required"
    )


def test_whoever_asks_for_nothing_gets_it() -> None:
    jail = open_jail(JailConfig(kind="subprocess", required_level="none"))
    assert (jail.isolation.level, jail.isolation.implementation) == ("none", "subprocess")
    jail.close()


@pytest.mark.parametrize("kind", ["namespaces"], indirect=True, scope="module")
def test_confined_is_enough_but_namespaces_are_taken_where_they_can_be_had(kind: str) -> None:
    jail = open_jail(JailConfig(required_level="confined"))
    assert jail.isolation.implementation == kind
    jail.close()


@pytest.mark.parametrize("wrapper", WRAPPED)
def test_a_wrapper_that_is_missing_is_named(wrapper: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SandboxError) as caught:
        open_jail(JailConfig.model_validate({"kind": wrapper}))
    program, package = WRAPPERS[wrapper].program, WRAPPERS[wrapper].package
    assert str(caught.value) == f"{wrapper} jail: {program} is missing; {package}; 'namespaces' is required"
