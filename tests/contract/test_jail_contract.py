"""What every jail answers, whichever implementation it is: how programs end, what they find, and what is left of them."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import FrameType

import pytest

from graftline.errors import DataError, SandboxError
from graftline.sandbox import Case, CaseEnd, CaseLimits, JailConfig, Verdict, open_jail, served
from graftline.sandbox.jail import Program
from graftline.sandbox.served import Mode, ServedJail
from graftline.sandbox.visible import interpreter
from graftline.sandbox.wrappers import WRAPPERS

SERVED = ("namespaces", "confined", "subprocess")
WRAPPED = tuple(WRAPPERS)
MODES: dict[str, Mode] = {"namespaces": "namespaces", "subprocess": "bare"}
PROGRAMS: tuple[Program, ...] = ("python", "pytest", "calls", "ast-grep")
LIMITS = CaseLimits(cpu_s=1, wall_s=15, memory_mb=256, disk_mb=8, output_kb=64, processes=16, files=100)
SHORT = LIMITS.model_copy(update={"wall_s": 0.7})
KEPT = 64 << 10

# behind a wrapper a case costs the start of a server
on_served_ones_only = pytest.mark.parametrize("kind", SERVED, indirect=True, scope="module")
# what takes long, and is the same for those that isolate nothing
on_walled_ones_only = pytest.mark.parametrize("kind", ["namespaces", "confined"], indirect=True, scope="module")


@pytest.fixture(scope="module", params=[*SERVED, *WRAPPED])
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name in WRAPPERS and WRAPPERS[name].path is None:
        pytest.skip(f"{WRAPPERS[name].program} is not installed: {WRAPPERS[name].package}")
    if name == "namespaces" and not has_user_namespaces():
        pytest.skip("this machine gives no user namespaces; see the message of `graftline sandbox probe`")
    if name == "confined" and os.getuid() == 0:
        try:
            interpreter(is_other_user=True)
        except SandboxError as error:
            pytest.skip(str(error))
    return name


@pytest.fixture(scope="module")
def jail(kind: str) -> Iterator[ServedJail]:
    opened = new_jail(kind)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def short_jail(kind: str) -> Iterator[ServedJail]:
    opened = new_jail(kind, SHORT)
    yield opened
    opened.close()


@pytest.fixture
def open_another(kind: str) -> Iterator[Callable[..., ServedJail]]:
    opened = []

    def another(*args: CaseLimits) -> ServedJail:
        opened.append(new_jail(kind, *args))
        return opened[-1]

    yield another
    for one in opened:
        one.close()


def has_user_namespaces() -> bool:
    code = "from graftline.confined import kernel; kernel.unshare(kernel.NEW_USER | kernel.NEW_MOUNTS)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def new_jail(kind: str, limits: CaseLimits = LIMITS, programs: tuple[Program, ...] = PROGRAMS) -> ServedJail:
    return ServedJail(kind, MODES.get(kind, "confined"), limits, programs, WRAPPERS.get(kind))


def python(text: str, *arguments: str, stdin: bytes = b"", **more: dict[str, bytes]) -> Case:
    files = {"main.py": text.encode(), **more.pop("files", {})}
    return Case("python", ("main.py", *arguments), files, stdin=stdin, **more)


def output(jail: ServedJail, case: Case) -> str:
    end = jail.run(case)
    assert (end.verdict, end.exit_code, end.stderr) == (Verdict.OK, 0, b"")
    return end.stdout.decode()


def how(end: CaseEnd) -> tuple[Verdict, int | None, int | None]:
    return end.verdict, end.exit_code, end.signal


def has_process(mark: str) -> bool:
    """Whether a process with this word on its command line runs on this machine, in whichever namespace."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                return True
        except OSError:
            continue
    return False


def is_soon(claim: Callable[[], bool], within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while not (is_so := claim()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return is_so


def test_output_errors_and_exit_code_come_back(jail: ServedJail) -> None:
    end = jail.run(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"))
    assert (*how(end), end.stdout, end.stderr) == (Verdict.OK, 3, None, b"out\n", b"err\n")
    assert (end.is_truncated, end.report) == (False, b"")


def test_the_signal_that_ended_it_comes_back(jail: ServedJail) -> None:
    end = jail.run(python("import os; print('before', flush=True); os.kill(os.getpid(), 15)"))
    assert (*how(end), end.stdout) == (Verdict.CRASH, None, signal.SIGTERM, b"before\n")


@on_served_ones_only
def test_every_byte_comes_through_unchanged(jail: ServedJail) -> None:
    every = bytes(range(256)) * 8
    text = "import sys; data = sys.stdin.buffer.read(); sys.stdout.buffer.write(data + open('f', 'rb').read())"
    assert jail.run(python(text, stdin=every, files={"f": every[::-1]})).stdout == every + every[::-1]


@on_served_ones_only
def test_megabytes_of_input_need_not_be_read(jail: ServedJail) -> None:
    assert output(jail, python("print(1)", stdin=bytes(7 << 20))) == "1\n"


@on_served_ones_only
def test_input_is_read_from_its_start_to_its_end(jail: ServedJail) -> None:
    assert output(jail, python("print(input() + input()); print(repr(open(0).read()))", stdin=b"a\nb\n")) == "ab\n''\n"


@on_served_ones_only
def test_without_input_there_is_an_end_of_file(jail: ServedJail) -> None:
    assert output(jail, python("import sys; print(repr(sys.stdin.read()))")) == "''\n"


@on_served_ones_only
def test_arguments_are_those_that_were_given(jail: ServedJail) -> None:
    given = ("", "a b", "--flag=ä", "-c", "\n")
    assert output(jail, python("import sys; print(sys.argv)", *given)) == f"{['main.py', *given]}\n"


@pytest.mark.parametrize("program", ["print(7)", "import os; os.write(1, b'7\\n')"])
@on_served_ones_only
def test_output_is_not_lost_however_it_is_written(jail: ServedJail, program: str) -> None:
    assert output(jail, python(program)) == "7\n"


@on_served_ones_only
def test_what_it_prints_before_it_is_ended_at_once_is_kept(jail: ServedJail) -> None:
    end = jail.run(python("import os; print('x', flush=True); os._exit(7)"))
    assert (*how(end), end.stdout) == (Verdict.OK, 7, None, b"x\n")


@on_served_ones_only
def test_half_a_character_of_output_is_no_trouble(jail: ServedJail) -> None:
    assert jail.run(python(r"import os; os.write(1, b'\xe2\x82'); print('\ud800')")).stdout == b"\xe2\x82\\ud800\n"


@on_served_ones_only
def test_a_file_runs_from_a_folder_of_its_own(jail: ServedJail) -> None:
    files = {"package/__init__.py": b"", "package/deep/er/m.py": b"value = 3\n", "data/x.txt": b"y"}
    text = "from package.deep.er import m; print(m.value, open('data/x.txt').read())"
    assert output(jail, python(text, files=files)) == "3 y\n"


@on_served_ones_only
def test_an_empty_file_is_a_file(jail: ServedJail) -> None:
    assert output(jail, python("print(open('e', 'rb').read())", files={"e": b""})) == "b''\n"


@on_served_ones_only
def test_a_program_in_a_sub_folder_runs_in_the_working_folder(jail: ServedJail) -> None:
    case = Case("python", ("sub/run.py",), {"sub/run.py": b"import os; print(sorted(os.listdir()), __name__)"})
    assert output(jail, case) == "['sub'] __main__\n"


def test_trusted_files_take_the_place_of_others_of_their_name(jail: ServedJail) -> None:
    case = python("print(open('t/a').read(), open('t/b').read())", files={"t/a": b"foreign", "t/b": b"foreign"})
    assert output(jail, Case(case.program, case.arguments, case.files, {"t/a": b"ours"})) == "ours foreign\n"


@on_served_ones_only
def test_names_that_are_spelled_otherwise_are_refused(jail: ServedJail) -> None:
    with pytest.raises(DataError, match="write it as 't/a'"):
        jail.run(python("print(1)", files={"./t//a": b"foreign"}))


@pytest.mark.parametrize("kind", ["namespaces"], indirect=True, scope="module")
@pytest.mark.parametrize(
    "way",
    [
        "open('t/a', 'w')",
        "os.chmod('t/a', 0o666)",
        "os.unlink('t/a')",
        "os.rename('t/a', 'b')",
        "os.rename('t', 'u')",
        "shutil.rmtree('t')",
        "os.truncate('t/a', 0)",
        "os.utime('t/a', (0, 0))",
        "os.replace('main.py', 't/a')",
    ],
)
def test_a_trusted_file_cannot_be_changed(jail: ServedJail, way: str) -> None:
    text = f"import os, shutil\ntry:\n    {way}\nexcept OSError:\n    print(open('t/a').read())"
    case = python(text)
    assert output(jail, Case(case.program, case.arguments, case.files, {"t/a": b"ours"})) == "ours\n"


@pytest.mark.parametrize("name", ["statistics", "random", "json", "this"])
@on_served_ones_only
def test_modules_of_a_case_come_before_those_of_the_library(jail: ServedJail, name: str) -> None:
    # as in any interpreter, whatever the server has loaded in advance
    files = {f"{name}.py": b"value = 3\n"}
    assert output(jail, python(f"import {name}; print({name}.value)", files=files)) == "3\n"


@on_served_ones_only
def test_temporary_files_have_a_place(jail: ServedJail) -> None:
    text = """
        import os, tempfile
        with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile("w+") as named:
            named.write("x")
            print(os.listdir(folder), folder.startswith(os.environ["TMPDIR"]), os.environ["HOME"] == os.environ["TMPDIR"])
        print(os.listdir(tempfile.gettempdir()))
    """
    assert output(jail, python(dedented(text))) == "[] True True\n[]\n"


@pytest.mark.parametrize("name", ["/etc/passwd", "../up", "a/../../up", "", "a\\b", "C:x", "nul", "a\0b", "x" * 300])
@pytest.mark.parametrize("where", ["files", "trusted"])
@on_served_ones_only
def test_a_name_that_leads_elsewhere_is_refused(jail: ServedJail, name: str, where: str) -> None:
    with pytest.raises(DataError, match="file name"):
        jail.run(Case("python", ("main.py",), **{where: {name: b""}}))


@pytest.mark.parametrize(
    ("files", "trusted"),
    [
        ({"a": b"", "a/b": b""}, {}),
        ({"a/b": b"", "a": b""}, {}),
        ({"a": b""}, {"a/b": b""}),
        ({"a/b": b""}, {"a": b""}),
    ],
    ids=["files", "files the other way", "trusted below a file", "trusted where a folder is"],
)
@on_served_ones_only
def test_a_name_that_is_a_file_and_a_folder_is_refused(
    jail: ServedJail, files: dict[str, bytes], trusted: dict[str, bytes]
) -> None:
    # whoever made the files has to mend them: the jail has not failed
    with pytest.raises(DataError):
        jail.run(Case("python", ("main.py",), {"main.py": b"", **files}, trusted))


@on_served_ones_only
def test_more_bytes_than_the_disk_holds_are_refused(jail: ServedJail) -> None:
    with pytest.raises(DataError, match=r"files of a case: 2 in 1 folders, 8236 KB; "):
        jail.run(python("", files={"x": bytes((8 << 20) + 1)}))


@on_served_ones_only
def test_more_files_than_the_disk_holds_are_refused(jail: ServedJail) -> None:
    with pytest.raises(DataError, match=r"files of a case: 101 in 1 folders, 436 KB; "):
        jail.run(python("", files={f"f{number}": b"" for number in range(100)}))


@pytest.mark.parametrize(
    "files",
    [
        {f"f{number}": b"" for number in range(99)},
        {f"{number}/f": b"" for number in range(60)},
        {f"f{number}": bytes(88_000) for number in range(95)},
        {"a/" * 200 + "f": b""},
    ],
    ids=["as many as allowed", "each in a folder", "rounded up to pages", "deep"],
)
@on_served_ones_only
def test_what_is_just_within_the_limits_fits_or_is_refused(jail: ServedJail, files: dict[str, bytes]) -> None:
    # never a SandboxError: nothing is wrong with the machine
    with suppress(DataError):
        assert output(jail, python("print(1)", files=files)) == "1\n"


def dedented(text: str) -> str:
    lines = text.strip("\n").splitlines()
    indent = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(line[indent:] for line in lines)


def test_an_exception_is_shown_with_its_place(jail: ServedJail) -> None:
    end = jail.run(python("def f():\n    return {}['key']\nf()\n"))
    assert how(end) == (Verdict.OK, 1, None)
    errors = end.stderr.decode()
    assert errors.startswith("Traceback (most recent call last):\n")
    assert 'File "main.py", line 2, in f' in errors
    assert errors.endswith("KeyError: 'key'\n")


@pytest.mark.parametrize(
    ("text", "code", "errors"),
    [
        ("import sys; sys.exit()", 0, b""),
        ("import sys; sys.exit(0)", 0, b""),
        ("import sys; sys.exit(True)", 1, b""),
        ("import sys; sys.exit(255)", 255, b""),
        ("import sys; sys.exit(-1)", 255, b""),
        ("import sys; sys.exit('text')", 1, b"text\n"),
        ("raise SystemExit([1])", 1, b"[1]\n"),
        ("import os; os._exit(7)", 7, b""),
        ("import atexit, os; atexit.register(os._exit, 9)", 9, b""),
        ("import threading, sys; threading.Thread(target=sys.exit, args=(3,)).start()", 0, b""),
    ],
)
@on_served_ones_only
def test_exit_codes_are_those_of_an_interpreter(jail: ServedJail, text: str, code: int, errors: bytes) -> None:
    end = jail.run(python(text))
    assert (*how(end), end.stderr) == (Verdict.OK, code, None, errors)


@pytest.mark.parametrize(
    "text", ["x = =", "raise KeyboardInterrupt", "class E(BaseException): pass\nraise E", "open('no')"]
)
@on_served_ones_only
def test_whatever_is_raised_ends_it_with_one(jail: ServedJail, text: str) -> None:
    assert how(jail.run(python(text))) == (Verdict.OK, 1, None)


@on_served_ones_only
def test_a_file_that_is_not_there_ends_it_with_one(jail: ServedJail) -> None:
    end = jail.run(Case("python", ("absent.py",)))
    assert how(end) == (Verdict.OK, 1, None)
    assert end.stderr.endswith(b"No such file or directory: 'absent.py'\n")


@on_served_ones_only
def test_threads_are_waited_for_but_not_those_that_are_daemons(jail: ServedJail) -> None:
    text = """
        import threading, time
        def late(): time.sleep(0.2); print("late")
        def never(): time.sleep(60); print("never")
        threading.Thread(target=late).start()
        threading.Thread(target=never, daemon=True).start()
    """
    assert output(jail, python(dedented(text))) == "late\n"


@on_served_ones_only
def test_what_is_registered_for_the_end_runs(jail: ServedJail) -> None:
    assert output(jail, python("import atexit; atexit.register(print, 'bye')")) == "bye\n"


@pytest.mark.parametrize(
    "text",
    ["raise MemoryError", "x = bytearray(1 << 30)", "x = []\nwhile True:\n    x.append(bytearray(1 << 20))"],
    ids=["raised", "at once", "bit by bit"],
)
@on_served_ones_only
def test_want_of_memory_is_out_of_memory(jail: ServedJail, text: str) -> None:
    assert jail.run(python(text)).verdict is Verdict.OUT_OF_MEMORY


@on_served_ones_only
def test_an_endless_loop_is_a_cpu_timeout(jail: ServedJail) -> None:
    end = jail.run(python("while True: pass"))
    assert how(end) == (Verdict.CPU_TIMEOUT, None, signal.SIGXCPU)
    assert end.usage.cpu_s == pytest.approx(1.0, abs=0.3)


@pytest.mark.parametrize("kind", ["namespaces"], indirect=True, scope="module")
def test_an_endless_loop_that_ignores_signals_is_a_cpu_timeout(jail: ServedJail) -> None:
    end = jail.run(python("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass"))
    assert how(end) == (Verdict.CPU_TIMEOUT, None, signal.SIGKILL)


@on_served_ones_only
def test_sleep_is_a_wall_timeout_and_the_next_case_works(short_jail: ServedJail) -> None:
    end = short_jail.run(python("import time; print('x', flush=True); time.sleep(60)"))
    assert (*how(end), end.stdout) == (Verdict.WALL_TIMEOUT, None, None, b"x\n")
    assert 0.7 <= end.usage.wall_s < 1.5
    assert output(short_jail, python("print(1)")) == "1\n"


@pytest.mark.parametrize(
    "text",
    [
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
        "import os, signal, time\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\ntime.sleep(60)",
        "import os, time; os.close(1); os.close(2); time.sleep(60)",
    ],
    ids=["it stops itself", "it ignores signals", "it closes its outputs"],
)
@on_walled_ones_only
def test_nothing_keeps_a_case_beyond_its_time(short_jail: ServedJail, text: str) -> None:
    assert how(short_jail.run(python(text))) == (Verdict.WALL_TIMEOUT, None, None)


def test_a_flood_of_output_is_ended_and_its_beginning_kept(jail: ServedJail) -> None:
    end = jail.run(python("while True: print('x' * 9999)"))
    assert (*how(end), end.is_truncated) == (Verdict.OUTPUT_FLOOD, None, None, True)
    assert end.stdout == (b"x" * 9999 + b"\n")[:10000] * 6 + b"x" * (KEPT - 60_000)


@pytest.mark.parametrize(
    ("printed", "is_truncated"), [(KEPT - 1, False), (KEPT, False), (KEPT + 1, True), (15 * KEPT, True)]
)
@on_served_ones_only
def test_as_much_output_is_kept_as_the_limits_say(jail: ServedJail, printed: int, is_truncated: bool) -> None:
    end = jail.run(python(f"import sys; sys.stdout.write('x' * {printed})"))
    assert (end.verdict, end.stdout, end.is_truncated) == (Verdict.OK, b"x" * min(printed, KEPT), is_truncated)


@on_served_ones_only
def test_outputs_are_kept_each_on_its_own(jail: ServedJail) -> None:
    end = jail.run(python(f"import sys; sys.stdout.write('x' * {KEPT}); sys.stderr.write('y' * {KEPT})"))
    assert (end.stdout, end.stderr, end.is_truncated) == (b"x" * KEPT, b"y" * KEPT, False)


@on_served_ones_only
def test_a_segmentation_fault_is_a_crash(jail: ServedJail) -> None:
    assert how(jail.run(python("import ctypes; ctypes.string_at(0)"))) == (Verdict.CRASH, None, signal.SIGSEGV)


@on_served_ones_only
def test_a_case_that_kills_itself_is_a_crash(jail: ServedJail) -> None:
    end = jail.run(python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    assert how(end) == (Verdict.CRASH, None, signal.SIGKILL)


@on_served_ones_only
def test_another_interpreter_starts(jail: ServedJail) -> None:
    text = (
        "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'print(5)'], capture_output=True).stdout)"
    )
    assert output(jail, python(text)) == "b'5\\n'\n"


@on_served_ones_only
def test_threads_run(jail: ServedJail) -> None:
    text = "from concurrent.futures import ThreadPoolExecutor as T\nwith T(4) as t: print(list(t.map(abs, [-1, -2])))"
    assert output(jail, python(text)) == "[1, 2]\n"


@on_served_ones_only
def test_an_event_loop_runs_and_starts_programs(jail: ServedJail) -> None:
    text = """
        import asyncio, sys
        async def main():
            await asyncio.sleep(0)
            child = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(9)", stdout=-1)
            return (await child.communicate())[0]
        print(asyncio.run(main()))
    """
    assert output(jail, python(dedented(text))) == "b'9\\n'\n"


@pytest.mark.parametrize("start", ["fork", "spawn"])
@on_served_ones_only
def test_processes_speak_over_pipes(jail: ServedJail, start: str) -> None:
    text = f"""
        import multiprocessing
        def answer(end): end.send(end.recv() + 1)
        if __name__ == "__main__":
            context = multiprocessing.get_context({start!r})
            ours, theirs = context.Pipe()
            child = context.Process(target=answer, args=(theirs,))
            child.start(); ours.send(41); print(ours.recv()); child.join()
    """
    assert output(jail, python(dedented(text))) == "42\n"


@pytest.mark.parametrize("kind", ["namespaces", "subprocess"], indirect=True, scope="module")
def test_processes_share_locks_and_queues(jail: ServedJail) -> None:
    # they need a folder for memory objects, which only who has namespaces has of its own
    text = "from concurrent.futures import ProcessPoolExecutor as P\nwith P(2) as p: print(list(p.map(abs, [-1, -2])))"
    assert output(jail, python(text)) == "[1, 2]\n"


@on_served_ones_only
def test_classes_of_the_program_can_be_pickled(jail: ServedJail) -> None:
    text = "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))))"
    assert output(jail, python(text)) == "<class '__main__.A'>\n"


@on_served_ones_only
def test_only_the_three_usual_descriptors_are_open(jail: ServedJail) -> None:
    text = """
        import os
        def is_open(number):
            try: os.fstat(number)
            except OSError: return False
            return True
        print([number for number in range(1024) if is_open(number)])
    """
    assert output(jail, python(dedented(text))) == "[0, 1, 2]\n"


def test_a_process_in_the_background_is_gone_afterwards(jail: ServedJail, kind: str) -> None:
    mark = f"background-{kind}-{os.getpid()}"
    text = """
        import subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)", sys.argv[1]],
                                 start_new_session=True, stdout=subprocess.PIPE)
        print(child.stdout.readline())
    """
    assert output(jail, python(dedented(text), mark)) == "b'1\\n'\n"
    assert is_soon(lambda: not has_process(mark), within_s=2)


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
    end = jail.run(python(dedented(text), mark))
    assert (how(end), end.stdout) == ((Verdict.OK, 0, None), b"done\n")
    assert end.usage.wall_s < 5
    assert is_soon(lambda: not has_process(mark), within_s=2)


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


@pytest.mark.skipif(shutil.which("java") is None, reason="java is not installed: apt-get install default-jdk")
@on_walled_ones_only
def test_java_runs(kind: str) -> None:
    # a virtual machine has threads and memory of its own
    limits = LIMITS.model_copy(update={"memory_mb": 2048, "processes": 64, "cpu_s": 30, "wall_s": 30.0})
    with closing(new_jail(kind, limits, ("python", "java"))) as jail:
        text = b"class A { public static void main(String[] a) { System.out.println(a[0]); System.exit(4); } }"
        end = jail.run(Case("java", ("A.java", "x"), {"A.java": text}))
    assert (*how(end), end.stdout, end.stderr) == (Verdict.OK, 4, None, b"x\n", b"")


@pytest.mark.parametrize("argument", ["a\0b", "a\ud800b"])
@on_served_ones_only
def test_an_argument_that_no_program_can_have_is_refused(jail: ServedJail, argument: str) -> None:
    # it must not look as if the program had run
    with pytest.raises(DataError):
        jail.run(Case("ast-grep", ("run", "-p", argument)))


@on_served_ones_only
def test_an_argument_that_is_too_long_is_refused(jail: ServedJail) -> None:
    with pytest.raises(DataError):
        jail.run(Case("ast-grep", ("run", "-p", "a" * 200_000)))


@on_served_ones_only
def test_usage_is_that_of_the_program(jail: ServedJail) -> None:
    text = """
        import time
        data = bytearray(b"x") * (64 << 20)
        time.sleep(0.2)
        end = time.process_time() + 0.2
        while time.process_time() < end: pass
    """
    used = jail.run(python(dedented(text))).usage
    assert 0.2 <= used.cpu_s < 0.9
    assert 0.4 <= used.wall_s < 10
    assert 64 < used.peak_memory_mb < 256


@on_served_ones_only
def test_what_was_used_until_the_time_was_up_is_told(short_jail: ServedJail) -> None:
    text = "import time\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass\ntime.sleep(60)"
    used = short_jail.run(python(text)).usage
    assert used.cpu_s >= 0.1
    assert used.peak_memory_mb > 1


def test_the_tools_are_those_that_ran(jail: ServedJail) -> None:
    text = "import platform, pytest; print(platform.python_version(), pytest.__version__)"
    end = jail.run(python(text))
    assert end.stdout.decode().split() == [end.tools["python"], end.tools["pytest"]]


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
    assert output(jail, python(dedented(dirty))) == "dirty\n"
    expected = "['main.py'] [] False False False False False 0o22 False\n"
    assert output(jail, python(dedented(clean))) == expected


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


@on_walled_ones_only
def test_two_jails_at_the_same_time_do_not_see_each_other(
    jail: ServedJail, open_another: Callable[..., ServedJail], kind: str
) -> None:
    mark = f"victim-{kind}-{os.getpid()}"
    victim = """
        import os, subprocess, sys, tempfile
        open(sys.argv[1], "w").write("secret"); open(os.path.join(tempfile.gettempdir(), sys.argv[1]), "w").close()
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1.5)", sys.argv[1]])
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
    thread = threading.Thread(target=lambda: ends.append(other.run(python(dedented(victim), mark))))
    thread.start()
    assert is_soon(lambda: has_process(mark), within_s=10)
    seen = jail.run(python(dedented(spy), mark)).stdout
    thread.join()
    # the command line of the spy itself names the mark nowhere: programs of ours are forks
    assert (seen, [(end.exit_code, end.stdout) for end in ends]) == (b"[]\n", [(0, b"0\n")])


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
    assert is_soon(lambda: processes_of(group) == [], within_s=2)
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
    text = "import subprocess, sys; print(subprocess.call([sys.executable, '-c', 'import time; time.sleep(1)', sys.argv[1]]))"
    user = threading.Thread(target=lambda: ends.append(jail.run(python(text, mark))))
    user.start()
    assert is_soon(lambda: has_process(mark), within_s=10)
    may_end.set()
    starter.join()
    user.join()
    assert [(how(end), end.stdout) for end in ends] == [((Verdict.OK, 0, None), b"0\n")]


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
        from graftline.sandbox.served import ServedJail
        jail = ServedJail({kind!r}, {MODES.get(kind, "confined")!r}, CaseLimits(), ("python",))
        case = Case("python", ("a.py",), {{"a.py": b"print(1)"}})
        jail.run(case)
        if os.fork() == 0:
            sys.exit(0)
        os.wait()
        print(jail.run(case).verdict.value)
        jail.close()
    """
    done = subprocess.run([sys.executable, "-c", dedented(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")


@on_walled_ones_only
def test_a_server_that_was_killed_between_calls_is_started_again(open_another: Callable[..., ServedJail]) -> None:
    jail = open_another()
    assert output(jail, python("print(1)")) == "1\n"
    os.killpg(jail._server.pid, signal.SIGKILL)
    assert is_soon(lambda: not jail._server.is_running, within_s=5)
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
    assert is_soon(lambda: has_process(mark), within_s=10)
    os.killpg(jail._server.pid, signal.SIGKILL)
    caller.join()
    assert [str(error).partition(" (")[0] for error in errors] == [f"{kind} jail: its server died"]
    assert output(jail, python("print(2)")) == "2\n"
    if kind == "namespaces" or "total_processes" in jail.isolation.features:
        assert is_soon(lambda: not has_process(mark), within_s=2)


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


def processes_of(group: int) -> list[int]:
    """Return the ids of what runs in a process group."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(folder.name))
    return found


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
