"""The verifier of any Harbor task: its `tests/test.sh` over what the agent left.

    python3 -m in_box.run_tests --logs /logs/verifier [--answer solution]

Scripts find their folders in `TESTS_DIR`, `LOGS_DIR`, `SOLUTION_DIR` and the working folder; in a container whose image
says so (`TASK_IN_CONTAINER`) they also lie at `/tests`, `/solution` and the task's own working folder, as Harbor has it. `--answer solution`
runs `solution/solve.sh` on the task as it was, for the ceiling.
"""

import argparse
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .commands import run_command
from .run_rollout import SUBMISSION, lay_task, with_defaults, work_folder

NOTHING_KNOWN = 3
_AT_ROOT = ("tests", "solution")


def main(arguments: Sequence[str] | None = None) -> int:
    """Grade what is in the working folder."""
    parser = argparse.ArgumentParser(prog="run_tests", description="Grade a Harbor task by its tests/test.sh.")
    parser.add_argument("--logs", type=Path, default=Path("/logs/verifier"), help="where the script leaves its reward")
    parser.add_argument("--answer", choices=("submission", "solution"), default="submission", help="what is graded")
    given = parser.parse_args(arguments)
    try:
        task = json.loads((Path.cwd() / "task.json").read_text("utf-8"))
        return graded(Path.cwd(), task, given.logs, given.answer)
    except (OSError, ValueError) as error:
        print(f"nothing can be graded: {error}", file=sys.stderr)
        return NOTHING_KNOWN


def graded(folder: Path, task: Mapping[str, Any], logs: Path, answer: str = "submission") -> int:
    """Run the tests of the task in `folder`; return 0 where they came to an end."""
    for name in ("reward.json", "reward.txt"):
        with contextlib.suppress(FileNotFoundError):
            (logs / name).unlink()
    logs.mkdir(parents=True, exist_ok=True)
    work, is_laid = work_folder(folder, task)
    is_whole = task.get("submission") == ["."] and answer == "submission" and (folder / SUBMISSION).is_dir()
    if is_laid:
        _at_root(folder)
    elif not is_whole:  # a file that the agent removed stays removed
        lay_task(folder / "environment", work, task)
    variables = _variables(folder, task, logs)
    left = float(task.get("verifier_timeout_s") or 300.0)
    if answer == "solution":
        solved = run_command(
            ["sh", str(folder / "solution" / "solve.sh")],
            work,
            {**variables, **with_defaults(task.get("solution_env", {}))},
            left,
        )
        print(solved.output)
        if solved.status != 0:
            print("solution/solve.sh failed", file=sys.stderr)
            return NOTHING_KNOWN
    elif (folder / SUBMISSION).is_dir():
        shutil.copytree(folder / SUBMISSION, work, dirs_exist_ok=True)
    script = folder / "tests" / "test.sh"
    tested = run_command([_shell(script), str(script)], work, variables, left)
    print(tested.output)
    if tested.status is None:
        print("tests/test.sh ran out of time", file=sys.stderr)
        return NOTHING_KNOWN
    # what it leaves in its logs says more than its status
    return 0


def _at_root(folder: Path) -> None:
    for name in _AT_ROOT:
        if (folder / name).is_dir() and not (Path("/") / name).exists():
            (Path("/") / name).symlink_to(folder / name)


def _variables(folder: Path, task: Mapping[str, Any], logs: Path) -> dict[str, str]:
    return {
        **os.environ,
        **with_defaults(task.get("env", {})),
        **with_defaults(task.get("verifier_env", {})),
        "TESTS_DIR": str(folder / "tests"),
        "SOLUTION_DIR": str(folder / "solution"),
        "LOGS_DIR": str(logs),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _shell(script: Path) -> str:
    first = script.read_bytes()[:80].partition(b"\n")[0]
    return "bash" if b"bash" in first and shutil.which("bash") else "sh"


if __name__ == "__main__":
    sys.exit(main())
