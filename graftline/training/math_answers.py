"""Whether an answer to a problem of mathematics is right, and problems to train on, as GSM8K has them.

Numbers are compared here, exactly as they are written. What is no number is LaTeX, which `math-verify` compares
(https://github.com/huggingface/Math-Verify) in a process with little time and memory: a model may write a power that no machine
works out.
"""

import json
import math
import re
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from fractions import Fraction

from pydantic import BaseModel, ConfigDict, Field

from graftline.core.errors import TrainingError, install_command

_MAX_DIGITS, _MAX_CHARACTERS = 40, 2_000
_CPU_S, _MEMORY_BYTES, _WALL_S = 5, 2 << 30, 60.0
_MARK, _BOX = "####", "\\boxed{"
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:\s*/\s*\d+)?%?|-?\.\d+")
_BEFORE_NUMBER = re.compile(r"^(?:\\?\$|\\\(|\s)+|(?:\\?\$|\\\)|\.|\s)+$")

Pair = tuple[str, str]
"""The answer that is known, and that of a model."""


class MathProblem(BaseModel):
    """A problem with its answer: a row of GSM8K, whose answers end with `####` and a number (https://arxiv.org/abs/2110.14168)."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    question: str = Field(min_length=1)
    answer: str = Field(min_length=1)


def verify_answer(reference: str, prediction: str, tolerance: float = 1e-6) -> bool:
    """Return whether `prediction` ends with what `reference` ends with; `tolerance` is relative, and absolute around 0.

    What counts is what is boxed last (`\\boxed{…}`), else what follows `####`, else the last number. TrainingError where the
    expressions cannot be compared on this machine.
    """
    return verify_answers([(reference, prediction)], tolerance)[0]


def verify_answers(pairs: Sequence[Pair], tolerance: float = 1e-6) -> list[bool]:
    """Return of each pair what `verify_answer` says; all expressions are compared in one process."""
    verdicts: list[bool | None] = []
    for reference, prediction in pairs:
        expected, answer = find_answer(reference), find_answer(prediction)
        value, number = read_number(expected), read_number(answer)
        if value is not None and number is not None:
            verdicts.append(math.isclose(value, number, rel_tol=tolerance, abs_tol=tolerance))
        elif not answer or not expected:
            verdicts.append(False)
        else:
            verdicts.append(True if expected == answer else None)
    unknown = [number for number, verdict in enumerate(verdicts) if verdict is None]
    compared = iter(_compare_expressions([(find_answer(pairs[n][0]), find_answer(pairs[n][1])) for n in unknown]))
    return [next(compared) if verdict is None else verdict for verdict in verdicts]


def find_answer(text: str) -> str:
    """Return what a solution ends with; empty where it says nothing, or too much to be an answer."""
    start = text.rfind(_BOX)
    if start >= 0:
        answer = _read_box(text[start + len(_BOX) :])
    elif _MARK in text:
        answer = text.rpartition(_MARK)[2].strip().partition("\n")[0]
    else:
        answer = next(reversed(_NUMBER.findall(text)), "")
    answer = answer.strip()
    return answer if len(answer) <= _MAX_CHARACTERS else ""


def read_number(answer: str) -> Fraction | None:
    """Return the number that an answer is: a decimal, a fraction or a percentage, with commas or a sign of dollars; else None."""
    match = _NUMBER.fullmatch(_BEFORE_NUMBER.sub("", answer))
    if match is None or sum(sign.isdigit() for sign in match[0]) > _MAX_DIGITS:
        return None
    numerator, _, denominator = match[0].removesuffix("%").replace(",", "").replace(" ", "").partition("/")
    if denominator and int(denominator) == 0:
        return None
    value = Fraction(numerator) / Fraction(denominator or 1)
    return value / 100 if match[0].endswith("%") else value


def _read_box(text: str) -> str:
    depth = 1
    for position, sign in enumerate(text):
        depth += (sign == "{") - (sign == "}")
        if depth == 0:
            return text[:position]
    return ""


def _compare_expressions(pairs: Sequence[Pair]) -> list[bool]:
    """Return which pairs are the same expression; what takes too long is not."""
    verdicts: list[bool] = []
    while len(verdicts) < len(pairs):
        command = [sys.executable, "-I", "-m", __name__]
        try:
            request = json.dumps(pairs[len(verdicts) :]).encode()
            ended = subprocess.run(command, input=request, capture_output=True, timeout=_WALL_S)
            output, errors = ended.stdout, ended.stderr
        except subprocess.TimeoutExpired as error:
            output, errors = error.stdout or b"", b""
        if b"ModuleNotFoundError" in errors:
            raise TrainingError(f"math-verify is missing, which compares expressions; {install_command('training')}")
        # the one that it was at when it ended is none that a machine works out
        verdicts += [line == b"True" for line in output.split()]
        if len(verdicts) < len(pairs):
            verdicts.append(False)
    return verdicts


def _main() -> None:
    """Compare the pairs on the input, and print a verdict a line."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    from math_verify import LatexExtractionConfig, parse, verify

    pairs = json.loads(sys.stdin.read())
    for pair in pairs:
        resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + _CPU_S, resource.RLIM_INFINITY))
        # of LaTeX alone: what reads plain text evaluates it
        sides = [parse(f"${text}$", [LatexExtractionConfig()], parsing_timeout=None) for text in pair]
        print(bool(all(sides)) and verify(*sides, timeout_seconds=None), flush=True)


if __name__ == "__main__":
    _main()
