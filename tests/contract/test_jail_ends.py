"""How programs end in any jail, by themselves or at a limit, and what is kept and told of them."""

import signal

import pytest

from graftline.sandbox import Case, Verdict
from graftline.sandbox.jail.served import ServedJail
from tests.jails import KEPT, LIMITS, SHORT, dedent, how, on_served_ones_only, output, python


def test_an_exception_is_shown_with_its_place(jail: ServedJail) -> None:
    end = jail.run(python("def f():\n    return {}['key']\nf()\n"))
    assert how(end) == (Verdict.OK, 1, None)
    errors = end.stderr.decode()
    assert errors.startswith("Traceback (most recent call last):\n")
    assert 'File "main.py", line 2, in f' in errors
    assert errors.endswith("KeyError: 'key'\n")


@pytest.mark.parametrize(
    ("text", "end"),
    [
        *(
            (text, (Verdict.OK, 1, None))
            for text in ("x = =", "raise KeyboardInterrupt", "class E(BaseException): pass\nraise E", "open('no')")
        ),
        ("import ctypes; ctypes.string_at(0)", (Verdict.CRASH, None, signal.SIGSEGV)),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", (Verdict.CRASH, None, signal.SIGKILL)),
    ],
)
@on_served_ones_only
def test_what_is_raised_ends_it_with_one_and_a_signal_with_a_crash(
    jail: ServedJail, text: str, end: tuple[Verdict, int | None, int | None]
) -> None:
    assert how(jail.run(python(text))) == end


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
    assert output(jail, python(dedent(text))) == "late\n"


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


@on_served_ones_only
def test_sleep_is_a_time_out_and_the_next_case_works(short_jail: ServedJail) -> None:
    end = short_jail.run(python("import time; print('x', flush=True); time.sleep(60)"))
    assert (*how(end), end.stdout) == (Verdict.TIMED_OUT, None, None, b"x\n")
    assert SHORT.wall_s <= end.usage.wall_s < 30
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
# in namespaces the hostile suite says so
@pytest.mark.parametrize("kind", ["confined"], indirect=True, scope="module")
def test_nothing_keeps_a_case_beyond_its_time(short_jail: ServedJail, text: str) -> None:
    assert how(short_jail.run(python(text))) == (Verdict.TIMED_OUT, None, None)


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
def test_usage_is_that_of_the_program(jail: ServedJail) -> None:
    text = """
        import time
        data = bytearray(b"x") * (64 << 20)
        time.sleep(0.2)
        end = time.process_time() + 0.2
        while time.process_time() < end: pass
    """
    used = jail.run(python(dedent(text))).usage
    assert 0.2 <= used.cpu_s < 0.9
    assert 0.4 <= used.wall_s < LIMITS.wall_s
    assert 64 < used.peak_memory_mb < 256


@on_served_ones_only
def test_what_was_used_until_the_time_was_up_is_told(short_jail: ServedJail) -> None:
    text = "import time\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass\ntime.sleep(60)"
    used = short_jail.run(python(text)).usage
    assert used.cpu_s >= 0.1
    assert used.peak_memory_mb > 1
