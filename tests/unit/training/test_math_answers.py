"""Answers to mathematical problems: what is right, what cannot be read, and what does not end; in real workers."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from graftline.errors import ConfigError
from graftline.math_answers import MAX_CHARACTERS, MathVerifier, Verdict
from tests.processes import children_with, wait_until_ended

pytest.importorskip("math_verify", reason="pip install 'graftline[training]'")

TOWER = "$9^{9^{9}}$"
MATRIX = r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"

SCRIPT = r"""
import os
import psutil
from graftline.math_answers import batch_verify, verify_answer
print("begun", flush=True)
rights = [verify_answer("1/2", "0.5").correct, batch_verify([("1", "2")])[0].correct]
if not (child := os.fork()):
    print(verify_answer("1" * 10_001, "3").status, flush=True)  # which needs no worker of its own
    os._exit(0)
os.waitpid(child, 0)
print(*rights, verify_answer("4", "4").correct)
print(*(child.pid for child in psutil.Process().children() if "multiprocessing.spawn" in "".join(child.cmdline())))
"""

ORPHAN = r"""
import threading
import psutil
from graftline.math_answers import MathVerifier
verifier = MathVerifier(timeout_s=100)
verifier.verify_answer("1", "1")
print(*(child.pid for child in psutil.Process().children() if "multiprocessing.spawn" in "".join(child.cmdline())), flush=True)
verifier.verify_answer("1", "$9^{9^{9}}$")
"""


@pytest.fixture(scope="module")
def verifier() -> Iterator[MathVerifier]:
    with MathVerifier(timeout_s=30) as verifier:  # more than any of these takes on a busy machine
        yield verifier


def workers() -> set[int]:
    # not the resource tracker of multiprocessing, which stays until the program ends
    return {child.pid for child in children_with("multiprocessing.spawn")}


@pytest.mark.parametrize(
    ("reference", "prediction"),
    [
        (r"$\frac{1}{2}$", "0.5"),
        ("1/2", r"So it is $\frac{2}{4}$."),
        ("42", "#### 42"),
        ("42", r"Hence \boxed{42}."),
        ("42", "**42**"),
        ("1000", "1,000"),
        ("1 000", "1000"),  # 1 times 0, if read as LaTeX
        (r"$\{1, 2, 3\}$", r"$\{3, 1, 2\}$"),
        (f"${MATRIX}$", rf"\boxed{{{MATRIX}}}"),
        ("$[1, 2)$", r"\boxed{[1, 2)}"),
        ("$x^2+2x+1$", "$(x+1)^2$"),
        ("$x = 5$", "5"),
        ("$1 < x < 2$", "$(1, 2)$"),
        # bare expressions, of which math-verify by itself reads a part or nothing
        (r"2\sqrt{2}", r"\boxed{\sqrt{8}}"),
        (r"3\frac{1}{2}", "3.5"),
        ("3+4i", "$4i+3$"),
        ("6,7,8", r"$\{6,7,8\}$"),
        ("(1,2)", "$(1,2)$"),
        (MATRIX, f"${MATRIX}$"),
        (r"\text{Paris}", r"\boxed{\text{Paris}}"),
        ("5", "2\n5"),
    ],
)
def test_equal_answers_are_right(verifier: MathVerifier, reference: str, prediction: str) -> None:
    verdict = verifier.verify_answer(reference, prediction)
    assert (verdict.correct, verdict.status) == (True, "ok")


@pytest.mark.parametrize(
    ("reference", "prediction"),
    [
        ("42", "43"),
        ("1/3", "0.333"),
        (r"$\{1, 2\}$", r"$\{1, 3\}$"),
        ("$[1, 2)$", "$(1, 2)$"),
        ("$(1, 2)$", "$1 < x < 2$"),  # the other way round it is right
        (f"${MATRIX}$", r"$\begin{pmatrix}1&2\\3&5\end{pmatrix}$"),
        (r"2\sqrt{2}", "2"),  # right, if only the 2 is read
        ("3+4i", "3"),
        ("1, 2", "2"),
    ],
)
def test_other_answers_are_wrong(verifier: MathVerifier, reference: str, prediction: str) -> None:
    verdict = verifier.verify_answer(reference, prediction)
    assert (verdict.correct, verdict.status) == (False, "ok")


def test_a_verdict_shows_what_was_read(verifier: MathVerifier) -> None:
    assert verifier.verify_answer(r"$\frac{1}{2}$", "#### 7") == Verdict(False, "ok", "1/2", "7")


def test_the_tolerance_is_a_number_of_decimals(verifier: MathVerifier) -> None:
    # 0.333 and 1/3 are 0.33 with two decimals, 0.3330 and 0.3333 with four
    verdicts = [verifier.verify_answer("1/3", "0.333", tolerance) for tolerance in (1e-2, 1e-4)]
    assert [verdict.correct for verdict in verdicts] == [True, False]


@pytest.mark.parametrize("tolerance", [0.0, -1e-6, 9e-13, 1.1, float("nan")])
def test_a_tolerance_out_of_range_is_refused(verifier: MathVerifier, tolerance: float) -> None:
    with pytest.raises(ConfigError, match="expected a number from 1e-12 to 1"):
        verifier.verify_answer("1", "1", tolerance)


@pytest.mark.parametrize(("count", "timeout_s"), [(0, 3.0), (1, 0.0), (1, float("inf"))])
def test_a_verifier_without_workers_or_limit_is_refused(count: int, timeout_s: float) -> None:
    with pytest.raises(ConfigError, match="expected 1 or more"):
        MathVerifier(count, timeout_s)


@pytest.mark.parametrize("reference", ["", "see the figure", r"\foo{", r"$\foo{$"])
def test_a_reference_that_cannot_be_read_says_nothing_of_the_answer(verifier: MathVerifier, reference: str) -> None:
    assert verifier.verify_answer(reference, reference) == Verdict(None, "unparsed_reference")


@pytest.mark.parametrize("prediction", ["", "no idea", r"$\foo{$", "\ud800"])
def test_a_prediction_that_cannot_be_read_is_wrong(verifier: MathVerifier, prediction: str) -> None:
    assert verifier.verify_answer("7", prediction) == Verdict(False, "unparsed_prediction", "7")


def test_a_text_that_is_too_long_never_reaches_a_worker() -> None:
    before, long = workers(), "1" * (MAX_CHARACTERS + 1)
    with MathVerifier() as verifier:
        assert verifier.batch_verify([(long, "1"), ("1", long)]) == [
            Verdict(None, "unparsed_reference", reason="the reference is longer than 10000 characters"),
            Verdict(False, "unparsed_prediction", reason="the prediction is longer than 10000 characters"),
        ]
        assert workers() == before


def test_a_power_tower_times_out_and_the_next_pairs_are_judged() -> None:
    with MathVerifier(timeout_s=2.5) as verifier:
        assert verifier.batch_verify([("1", "1"), ("5", TOWER), ("2", "2"), ("3", "4")]) == [
            Verdict(True, "ok", "1", "1"),
            Verdict(None, "timeout", reason="no verdict after 2.5 s"),
            Verdict(True, "ok", "2", "2"),
            Verdict(False, "ok", "3", "4"),
        ]


def test_memory_is_bounded_and_what_ran_short_of_it_is_not_called_wrong() -> None:
    before = workers()
    # 1.4 GB and more without a limit
    with MathVerifier(timeout_s=30, memory_bytes=200 << 20) as verifier:
        verdict = verifier.verify_answer("5", r"$(1+\sqrt{2})^{10^{7}}$")
        assert verdict == Verdict(None, "error", reason="it needs more than half of 209715200 bytes of memory")
        assert workers() == before  # for what it keeps may be what the next pair lacks


def test_a_worker_that_died_is_replaced_and_outlives_the_thread_that_asked(verifier: MathVerifier) -> None:
    verifier.verify_answer("1", "1")
    [old] = workers()
    os.kill(old, signal.SIGKILL)
    wait_until_ended(old)
    verdicts: list[Verdict] = []
    thread = threading.Thread(target=lambda: verdicts.append(verifier.verify_answer("1/2", "0.5")))
    thread.start()
    thread.join()
    [new] = workers()
    time.sleep(0.1)  # for the kernel, to which the thread that starts a process is its parent
    verdicts.append(verifier.verify_answer("1", "2"))
    assert [verdict.correct for verdict in verdicts] == [True, False]
    assert workers() == {new} != {old}


def test_order_is_kept_and_no_process_is_left() -> None:
    before = workers()
    with MathVerifier(workers=2) as verifier:
        verdicts = verifier.batch_verify([(str(i), str(i + i % 2)) for i in range(50)])
        assert verdicts == [Verdict(i % 2 == 0, "ok", str(i), str(i + i % 2)) for i in range(50)]
        assert len(workers() - before) == 2
    assert workers() == before
    with pytest.raises(RuntimeError, match="shutdown"):
        verifier.verify_answer("1", "1")


def test_a_worker_that_is_killed_at_work_leaves_the_pair_open(verifier: MathVerifier) -> None:
    verifier.verify_answer("1", "1")
    [worker] = workers()
    threading.Timer(0.3, os.kill, (worker, signal.SIGKILL)).start()
    assert verifier.verify_answer("5", TOWER) == Verdict(None, "error", reason="the worker ended before its verdict")


def test_a_missing_library_is_named_with_what_brings_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "math_verify.py").write_text("raise ModuleNotFoundError('no', name='math_verify')", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)  # a worker has the path of its parent
    expected = r"^math_verify is missing, but math verification needs it; \.venv/bin/pip install -c constraints\.txt -e '\.\[training\]'$"
    with MathVerifier() as verifier, pytest.raises(ConfigError, match=expected):
        verifier.verify_answer("1", "1")


def test_the_functions_share_a_verifier_until_the_program_ends(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, "utf-8")  # which a worker must not run again
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=True)
    begun, in_fork, in_program, worker = done.stdout.splitlines()
    assert (begun, in_fork, in_program, done.stderr) == ("begun", "unparsed_reference", "True False True", "")
    wait_until_ended(int(worker))


def test_a_busy_worker_dies_with_its_parent(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        time.sleep(0.3)  # until it is at work, where it reads nothing from its parent
        parent.kill()
    wait_until_ended(worker)
