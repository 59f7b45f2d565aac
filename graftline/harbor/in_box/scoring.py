"""The score of EngineBench: 0.0 where the crate does not compile, else 0.3 and 0.7 times the share of tests that pass.

It is worked out here alone, for whichever way a rollout comes. Deviations from the first scorers: (1) the numbers are those
of all `test result:` lines, for cargo prints one per binary; (2) where nothing is known of the tests there is no score
instead of 0.3: no test ran, or others than the hidden ones; (3) a build or a run that the machine ended, out of memory or of
room or without the right to run anything, says nothing of the card.
"""

import re
from dataclasses import dataclass

FOR_COMPILING, FOR_TESTS = 0.3, 0.7
_RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored;", re.MULTILINE)
_TEST = re.compile(r"^[ \t]*#\[(?:\w+::)*test\]", re.MULTILINE)
_MODULE = re.compile(r"^(?:pub[ \t]+)?mod[ \t]+(\w+)[ \t\n]*\{", re.MULTILINE)
_NOT_COMPILED = re.compile(r"^error: could not compile ", re.MULTILINE)
_ENDED_ITSELF = re.compile(r"^ *process didn't exit successfully: .*\((?:signal|exit status): ", re.MULTILINE)
_NOT_STARTED = re.compile(r"^ *could not execute process ", re.MULTILINE)
_OF_THE_MACHINE = re.compile(r"\(signal: 9, SIGKILL|\(os error (?:12|28)\)|LLVM ERROR: out of memory")


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


def hidden_modules(tests: str) -> list[str]:
    """Return the names of the modules at the top of the hidden tests; none where the tests stand in none."""
    return _MODULE.findall(tests)


def number_of_tests(tests: str) -> int:
    """Return how many tests a Rust source declares."""
    return len(_TEST.findall(tests))


def scored(check_status: int | None, check_output: str, test_status: int | None, output: str, expected: int) -> Score:
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
        is_the_card = bool(_NOT_COMPILED.search(check_output)) and not _OF_THE_MACHINE.search(check_output)
        fault = "cargo check failed, and not for what is in the crate"
        return Score(False, 0, 0, 0.0) if is_the_card else Score(False, 0, 0, None, fault)
    if test_status is None:
        return Score(True, 0, 0, None, "cargo test ran out of time")
    results = [tuple(map(int, found)) for found in _RESULT.findall(output)]
    passed, failed = sum(each[0] for each in results), sum(each[1] for each in results)
    ran = passed + failed + sum(each[2] for each in results)
    if test_status != 0 and ran < expected and _OF_THE_MACHINE.search(output):
        return Score(True, passed, ran, None, "the machine ended cargo test")
    is_the_card = bool(_NOT_COMPILED.search(output) or (not results and _ENDED_ITSELF.search(output)))
    if test_status != 0 and ran < expected and is_the_card:
        # the card lacks what the tests use, or ended the process they ran in
        return Score(True, 0, expected, FOR_COMPILING)
    if ran == 0 and _NOT_STARTED.search(output):
        return Score(
            True, 0, 0, None, "the tests cannot be started: this box runs nothing that was built in it (runs_own)"
        )
    if ran == 0:
        return Score(True, 0, 0, None, "no test ran; the filter or the hidden tests are wrong")
    if expected not in (0, ran):
        return Score(True, passed, ran, None, f"{ran} tests ran where {expected} are hidden")
    total = passed + failed
    if total == 0:
        return Score(True, 0, 0, None, "every test is ignored")
    return Score(True, passed, total, round(FOR_COMPILING + FOR_TESTS * passed / total, 6))
