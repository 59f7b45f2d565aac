"""What can be run in any jail: threads, processes, other programs; and what is refused."""

import os
import shutil
from collections.abc import Callable
from contextlib import closing

import pytest

from graftline.core.errors import DataError, SandboxError
from graftline.sandbox import Case, Verdict
from graftline.sandbox.jail import served
from graftline.sandbox.jail.served import ServedJail
from tests.jails import (
    LIMITS,
    dedent,
    has_process,
    how,
    is_soon,
    new_jail,
    on_served_ones_only,
    on_walled_ones_only,
    output,
    python,
)

PROGRAMS = {
    "another interpreter": (
        "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'print(5)'], capture_output=True).stdout)",
        "b'5\\n'\n",
    ),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor as T\nwith T(4) as t: print(list(t.map(abs, [-1, -2])))",
        "[1, 2]\n",
    ),
    "an event loop that starts a program": (
        """
        import asyncio, sys
        async def main():
            await asyncio.sleep(0)
            child = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(9)", stdout=-1)
            return (await child.communicate())[0]
        print(asyncio.run(main()))
        """,
        "b'9\\n'\n",
    ),
    "what event loops and databases are made of": (
        """
        import ctypes, fcntl, os, resource, select, signal, sqlite3
        poll, event = select.epoll(), os.eventfd(0)
        poll.register(event, select.EPOLLIN)
        os.eventfd_write(event, 1)
        print(poll.poll(1) == [(event, select.EPOLLIN)], ctypes.CDLL(None).timerfd_create(1, 0) > 0)
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        signal.pause()
        with sqlite3.connect("a.db") as database:
            database.execute("create table a as select 1 as b")
        print(sqlite3.connect("a.db").execute("select b from a").fetchall())
        fcntl.flock(os.open("a.db", os.O_RDONLY), fcntl.LOCK_SH)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        """,
        "True True\n[(1,)]\n",
    ),
    **{
        f"a process that speaks over a pipe, by {start}": (
            f"""
            import multiprocessing
            def answer(end): end.send(end.recv() + 1)
            if __name__ == "__main__":
                context = multiprocessing.get_context({start!r})
                ours, theirs = context.Pipe()
                child = context.Process(target=answer, args=(theirs,))
                child.start(); ours.send(41); print(ours.recv()); child.join()
            """,
            "42\n",
        )
        for start in ("fork", "spawn")
    },
    "a class of the program that is pickled": (
        "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))))",
        "<class '__main__.A'>\n",
    ),
    "only the three usual descriptors": (
        """
        import os
        def is_open(number):
            try: os.fstat(number)
            except OSError: return False
            return True
        print([number for number in range(1024) if is_open(number)])
        """,
        "[0, 1, 2]\n",
    ),
    # a library of another version than the modules lets most of them be imported, but not those
    "the library that its modules fit to": ("import ssl\nprint(bool(ssl.OPENSSL_VERSION))", "True\n"),
}


@pytest.mark.parametrize("name", PROGRAMS)
@on_served_ones_only
def test_a_program_has_what_programs_have(jail: ServedJail, name: str) -> None:
    text, expected = PROGRAMS[name]
    assert output(jail, python(dedent(text))) == expected


@pytest.mark.parametrize("kind", ["namespaces", "subprocess"], indirect=True, scope="module")
def test_processes_share_locks_and_queues(jail: ServedJail) -> None:
    # they need a folder for memory objects, which only a jail with namespaces has of its own
    text = "from concurrent.futures import ProcessPoolExecutor as P\nwith P(2) as p: print(list(p.map(abs, [-1, -2])))"
    assert output(jail, python(text)) == "[1, 2]\n"


def test_a_process_in_the_background_is_gone_afterwards(jail: ServedJail, kind: str) -> None:
    mark = f"background-{kind}-{os.getpid()}"
    text = """
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)", sys.argv[1]],
                                 start_new_session=True, stdout=subprocess.PIPE)
        print(child.stdout.readline())
    """
    assert output(jail, python(dedent(text), mark)) == "b'1\\n'\n"
    assert is_soon(lambda: not has_process(mark))


@on_served_ones_only
def test_a_grandchild_that_holds_the_output_is_not_waited_for(jail: ServedJail, kind: str) -> None:
    mark = f"daemon-{kind}-{os.getpid()}"
    text = """
        import os, sys
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(60)", sys.argv[1]])
            os._exit(0)
        os.wait()
        print("done")
    """
    end = jail.run(python(dedent(text), mark))
    assert (how(end), end.stdout) == ((Verdict.OK, 0, None), b"done\n")
    assert end.usage.wall_s < LIMITS.wall_s
    assert is_soon(lambda: not has_process(mark))


def test_what_is_not_listed_is_refused_with_the_list(jail: ServedJail) -> None:
    with pytest.raises(DataError) as caught:
        jail.run(Case("node", ("a.js",), {"a.js": b""}))
    assert str(caught.value) == (
        "program 'node': is not among the programs of this jail; there are ast-grep, calls, pytest, python"
    )


def test_what_is_not_installed_is_refused_with_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    jail = new_jail("subprocess", programs=("python", "node"))
    with pytest.raises(DataError) as caught:
        jail.run(Case("node", ("a.js",), {"a.js": b""}))
    assert str(caught.value) == "program 'node': is not installed; there are python"


@on_served_ones_only
def test_ast_grep_runs(jail: ServedJail) -> None:
    end = jail.run(Case("ast-grep", ("run", "-p", "f($A)", "-r", "g($A)", "m.py"), {"m.py": b"x = f(1)\n"}))
    assert how(end) == (Verdict.OK, 0, None)
    assert b"g(1)" in end.stdout


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed: apt-get install nodejs")
@on_served_ones_only
def test_node_runs(kind: str) -> None:
    with closing(new_jail(kind, programs=("python", "node"))) as jail:
        text = b"console.log(process.argv[2], require('fs').readFileSync(0, 'utf8')); process.exit(4)"
        end = jail.run(Case("node", ("a.js", "x"), {"a.js": text}, stdin=b"in"))
    assert (*how(end), end.stdout, end.stderr) == (Verdict.OK, 4, None, b"x in\n", b"")


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed: apt-get install nodejs")
@on_walled_ones_only
def test_node_says_that_it_cannot_watch_and_looks_again_and_again_instead(kind: str) -> None:
    text = b"""
        const fs = require('fs');
        try { fs.watch('.'); } catch (error) { console.log(error.code); }
        const grows = setInterval(() => fs.appendFileSync('b', 'x'), 5);
        fs.watchFile('b', {interval: 5}, now => {
            if (now.size) { console.log('seen'); fs.unwatchFile('b'); clearInterval(grows); }
        });
    """
    with closing(new_jail(kind, programs=("python", "node"))) as jail:
        end = jail.run(Case("node", ("a.js",), {"a.js": text}))
    assert (*how(end), end.stdout, end.stderr) == (Verdict.OK, 0, None, b"ENOSYS\nseen\n", b"")


@pytest.mark.skipif(shutil.which("java") is None, reason="java is not installed: apt-get install default-jdk")
@on_walled_ones_only
def test_java_runs(kind: str) -> None:
    # a virtual machine has threads and memory of its own
    limits = LIMITS.model_copy(update={"memory_mb": 2048, "processes": 64, "cpu_s": 30, "wall_s": 30.0})
    with closing(new_jail(kind, limits, ("python", "java"))) as jail:
        text = b"class A { public static void main(String[] a) { System.out.println(a[0]); System.exit(4); } }"
        end = jail.run(Case("java", ("A.java", "x"), {"A.java": text}))
    assert (*how(end), end.stdout, end.stderr) == (Verdict.OK, 4, None, b"x\n", b"")


@pytest.mark.parametrize("argument", ["a\0b", "a\ud800b", "a" * 200_000])
@on_served_ones_only
def test_an_argument_that_no_program_can_have_is_refused(jail: ServedJail, argument: str) -> None:
    # it must not look as if the program had run
    with pytest.raises(DataError):
        jail.run(Case("ast-grep", ("run", "-p", argument)))


@pytest.mark.parametrize("argument", ["a\0b", "a\ud800b"])
@on_walled_ones_only
def test_a_program_that_cannot_be_started_has_not_ended(
    open_another: Callable[[], ServedJail], argument: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as if nothing had been found wrong outside
    monkeypatch.setattr(served, "fault_of_arguments", lambda arguments: "")
    with pytest.raises(SandboxError, match=r"a case was not started \(/.+/ast-grep: "):
        open_another().run(Case("ast-grep", ("run", "-p", argument)))


def test_the_tools_are_those_that_ran(jail: ServedJail) -> None:
    text = "import platform, pytest; print(platform.python_version(), pytest.__version__)"
    end = jail.run(python(text))
    assert end.stdout.decode().split() == [end.tools["python"], end.tools["pytest"]]
