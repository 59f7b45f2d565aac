"""The verifier of EngineBench: the card in a fresh crate, the hidden tests behind it, `cargo check` and `cargo test`.

    python3 -m in_box.cargo_tests --logs /logs/verifier [--answer solution]

The working folder holds `base/`, `task.json`, `environment/`, `tests/`, `solution/` and what the agent left,
`submission/`, of which the card alone is taken. `--answer solution` grades the solution instead, for the ceiling; a
deployment says so, never the agent. Where nothing is known there is no `reward.json`, and the status is 3.

Covered: a card that writes the reward itself, leaves something running, ends this program, or brings tests of its own. Not
covered: a card that, run by a hidden test, prints what cargo would print and ends the process; it shares that with its tests.

The score is 0.0 where the crate does not compile, else 0.3 and 0.7 times the share of tests that pass. Deviations from
the first scorers: (1) the numbers are those of all `test result:` lines, for cargo prints one per binary; (2) where nothing
is known of the tests there is no score instead of 0.3: no test ran, or others than the hidden ones; (3) a build or a run that
the machine ended, out of memory or of room or without the right to run anything, says nothing of the card.
"""

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .commands import adopt_orphans, end_children, run_command
from .run_rollout import SUBMISSION, WORK, lay_task
from .run_tests import NOTHING_KNOWN, parse_arguments

FOR_COMPILING, FOR_TESTS = 0.3, 0.7
_CONSTANT = re.compile(r"^pub const (\w+)", re.MULTILINE)
_RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;", re.MULTILINE)
TEST = re.compile(r"^[ \t]*#\[(?:\w+::)*test\]", re.MULTILINE)
MODULE = re.compile(r"^(?:pub[ \t]+)?mod[ \t]+(\w+)[ \t\n]*\{", re.MULTILINE)
_NOT_COMPILED = re.compile(r"^error: could not compile ", re.MULTILINE)
_ENDED_ITSELF = re.compile(r"^ *process didn't exit successfully: .*\((?:signal|exit status): ", re.MULTILINE)
_NOT_STARTED = re.compile(r"^ *could not execute process ", re.MULTILINE)
_MACHINE_FAULT = re.compile(r"\(signal: 9, SIGKILL|\(os error (?:12|28)\)|LLVM ERROR: out of memory")


@dataclass(frozen=True)
class Score:
    """What the verifier says of one card; `score` is None, and `fault` says why, where nothing is known."""

    compile_ok: bool
    tests_passed: int
    tests_total: int
    score: float | None
    fault: str = ""

    @property
    def pass_rate(self) -> float:
        """Share of the tests that pass."""
        return self.tests_passed / self.tests_total if self.tests_total else 0.0

    def reward(self) -> dict[str, float]:
        """Return what goes into `reward.json`; only for a score that is known."""
        assert self.score is not None
        return {
            "compile_ok": int(self.compile_ok),
            "tests_passed": self.tests_passed,
            "tests_total": self.tests_total,
            "pass_rate": round(self.pass_rate, 6),
            "score": self.score,
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Grade what is in the working folder."""
    options = parse_arguments("cargo_tests", "Grade a card by its hidden tests.", arguments)
    adopt_orphans()
    folder, reward = Path.cwd(), options.logs / "reward.json"
    try:
        task = json.loads((folder / "task.json").read_text("utf-8"))
        score = grade(folder, task, options.answer)
        if score.score is None:
            raise ValueError(f"nothing is known of the card: {score.fault}")
        # what the card started is not to write after us
        end_children()
        _write(reward, score.reward())
    except (OSError, ValueError, KeyError) as error:
        end_children()
        # what is there then is not ours
        _remove(reward)
        print(f"nothing can be graded: {error}", file=sys.stderr)
        return NOTHING_KNOWN
    return 0


def _write(path: Path, reward: Mapping[str, float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o755)
    _remove(path)
    partial = path.with_name(f".{path.name}.partial")
    _remove(partial)
    partial.write_text(json.dumps(reward, indent=2) + "\n", "utf-8")
    partial.replace(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def grade(folder: Path, task: Mapping[str, Any], answer: str = "submission") -> Score:
    """Return the score of the card in `folder`, built in `work` there."""
    card = str(task["card_file"])
    work = folder / WORK
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(folder / "base", work)
    lay_task(folder / "environment", work, task)
    source = folder / "solution" / task["solution"] if answer == "solution" else folder / SUBMISSION / card
    if not source.is_file() or source.is_symlink():
        # it was removed: there is nothing that compiles
        return Score(False, 0, 0, 0.0)
    tests = (folder / "tests" / task["tests"]).read_text("utf-8")
    text = source.read_text("utf-8", "replace")
    if answer == "solution":
        text += missing_constants(text, (work / card).read_text("utf-8") if (work / card).is_file() else "")
    (work / card).write_text(f"{text}\n\n{tests}", "utf-8")
    variables = {"CARGO_NET_OFFLINE": "true", **os.environ, "CARGO_TERM_COLOR": "never", "RUST_BACKTRACE": "0"}
    package = ["--package", task["package"]] if task.get("package") else []
    timeout_s = float(task.get("verifier_timeout_s") or 300.0)
    check = run_command(["cargo", "check", "--quiet", *package], work, variables, timeout_s)
    print(check.output)
    if check.status != 0:
        return score_card(check.status, check.output, None, "", 0)
    # each with its end, so that no module whose name only begins so is meant
    stem = Path(card).stem
    modules = [f"{stem}::{name}::" for name in MODULE.findall(tests)] or [f"{stem}::"]
    command = ["cargo", "test", *package, "--", "--test-threads=1", *modules]
    test = run_command(command, work, variables, max(1.0, timeout_s - check.seconds))
    print(test.output)
    return score_card(0, check.output, test.status, test.output, len(TEST.findall(tests)))


def missing_constants(solution: str, stub: str) -> str:
    """Return the public constants that tests may use and that only the stub has, which the reference solutions leave out."""
    present = set(_CONSTANT.findall(solution))
    lines = (line for line in stub.splitlines() if (match := _CONSTANT.match(line)) and match[1] not in present)
    return "".join(f"\n{line}" for line in lines if line.rstrip().endswith(";"))


def score_card(
    check_status: int | None, check_output: str, test_status: int | None, output: str, expected: int
) -> Score:
    """Return the score of a card.

    Args:
        check_status: Of `cargo check`; None where its time was up.
        check_output: What it printed.
        test_status: Of `cargo test` over the hidden tests alone; None where its time was up.
        output: What `cargo test` printed.
        expected: How many hidden tests there are; 0 where that is not known.
    """
    if check_status is None:
        return Score(False, 0, 0, None, "cargo check ran out of time")
    if check_status != 0:
        is_the_card = bool(_NOT_COMPILED.search(check_output)) and not _MACHINE_FAULT.search(check_output)
        fault = "cargo check failed, and not for what is in the crate"
        return Score(False, 0, 0, 0.0) if is_the_card else Score(False, 0, 0, None, fault)
    if test_status is None:
        return Score(True, 0, 0, None, "cargo test ran out of time")
    results = [tuple(map(int, numbers)) for numbers in _RESULT.findall(output)]
    passed, failed, ignored = (sum(numbers) for numbers in zip((0, 0, 0), *results, strict=True))
    ran = passed + failed + ignored
    if test_status != 0 and ran < expected and _MACHINE_FAULT.search(output):
        return Score(True, passed, ran, None, "the machine ended cargo test")
    is_the_card = bool(_NOT_COMPILED.search(output) or (not results and _ENDED_ITSELF.search(output)))
    if test_status != 0 and ran < expected and is_the_card:
        # the card lacks what the tests use, or ended the process they ran in
        return Score(True, 0, expected, FOR_COMPILING)
    if ran == 0 and _NOT_STARTED.search(output):
        fault = "the tests cannot be started: this box runs nothing that was built in it (runs_own)"
        return Score(True, 0, 0, None, fault)
    if ran == 0:
        return Score(True, 0, 0, None, "no test ran; the filter or the hidden tests are wrong")
    if expected not in (0, ran):
        return Score(True, passed, ran, None, f"{ran} tests ran where {expected} are hidden")
    total = passed + failed
    if total == 0:
        return Score(True, 0, 0, None, "every test is ignored")
    return Score(True, passed, total, round(FOR_COMPILING + FOR_TESTS * passed / total, 6))


if __name__ == "__main__":
    sys.exit(main())
