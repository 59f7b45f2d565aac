"""The verifier of any Harbor task: its `tests/test.sh` over what the agent left.

    python3 -m in_box.run_tests --logs /logs/verifier [--answer solution]

Scripts find their folders in `TESTS_DIR`, `LOGS_DIR`, `SOLUTION_DIR` and the working folder; in a container whose image
says so (`TASK_IN_CONTAINER`) they also lie at `/tests`, `/solution` and the task's own working folder, as Harbor has
it. `--answer solution` runs `solution/solve.sh` on the task as it was, for the ceiling.

Where the box has not what the task needs, by its `task.json` or by what its scripts came to, nothing is left that could
be taken for a reward: the status is 3, and the last line says what was missing.
"""

import argparse
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .commands import FinishedCommand, run_command
from .needs import command_of, find_missing, find_unmet, has_network, is_disk_full
from .run_rollout import SUBMISSION, lay_task, with_defaults, work_folder

NOTHING_KNOWN = 3
_AT_ROOT = ("tests", "solution")


def parse_arguments(program: str, description: str, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return `logs` and `answer` of a verifier's command."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--logs", type=Path, default=Path("/logs/verifier"), help="where the reward goes")
    parser.add_argument("--answer", choices=("submission", "solution"), default="submission", help="what is graded")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Grade what is in the working folder."""
    options = parse_arguments("run_tests", "Grade a Harbor task by its tests/test.sh.", arguments)
    try:
        task = json.loads((Path.cwd() / "task.json").read_text("utf-8"))
        return grade(Path.cwd(), task, options.logs, options.answer)
    except (OSError, ValueError) as error:
        _remove_rewards(options.logs)
        print(f"nothing can be graded: {error}", file=sys.stderr)
        return NOTHING_KNOWN


def grade(folder: Path, task: Mapping[str, Any], logs: Path, answer: str = "submission") -> int:
    """Run the tests of the task in `folder`; return 0 where they came to an end."""
    _remove_rewards(logs)
    logs.mkdir(parents=True, exist_ok=True)
    work, is_laid = work_folder(folder, task)
    if os.environ.get("TASK_IN_CONTAINER"):
        for name in _AT_ROOT:
            if (folder / name).is_dir() and not (Path("/") / name).exists():
                (Path("/") / name).symlink_to(folder / name)
    solution_task = {**task, "needs": task.get("solution_needs")}
    for needy in (task, solution_task) if answer == "solution" else (task,):
        if lack := find_unmet(needy, folder, is_laid, is_verifier=True):
            raise ValueError(lack)
    is_whole = task.get("submission") == ["."] and answer == "submission" and (folder / SUBMISSION).is_dir()
    if not is_laid and not is_whole:  # a file that the agent removed stays removed
        lay_task(folder / "environment", work, task)
    variables = {
        **os.environ,
        **with_defaults(task.get("env", {})),
        **with_defaults(task.get("verifier_env", {})),
        "TESTS_DIR": str(folder / "tests"),
        "SOLUTION_DIR": str(folder / "solution"),
        "LOGS_DIR": str(logs),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    timeout_s = float(task.get("verifier_timeout_s") or 300.0)
    if answer == "solution":
        solve = folder / "solution" / "solve.sh"
        own = with_defaults(task.get("solution_env", {}))
        solution = run_command(command_of(solve), work, {**variables, **own}, timeout_s)
        print(solution.output)
        _check_machine(solution, solve.parent, work)
        if solution.status != 0:
            raise ValueError("solution/solve.sh failed")
    elif (folder / SUBMISSION).is_dir():
        shutil.copytree(folder / SUBMISSION, work, dirs_exist_ok=True)
    script = folder / "tests" / "test.sh"
    test = run_command(command_of(script), work, variables, timeout_s)
    print(test.output)
    if test.status is None:
        raise ValueError("tests/test.sh ran out of time")
    _check_machine(test, script.parent, work)
    # what it leaves in its logs says more than its status
    return 0


def _check_machine(command: FinishedCommand, scripts: Path, work: Path) -> None:
    """See that a script did not fail for want of something of the machine."""
    texts = [path for path in sorted(scripts.rglob("*")) if path.suffix in (".sh", ".py") and path.is_file()]
    lack = find_missing(command.output, [path.read_text("utf-8", "replace") for path in texts], has_network())
    if not lack and is_disk_full([work, Path(tempfile.gettempdir())]):
        lack = "the disk of the box is full: raise disk_mb"
    if lack:
        raise ValueError(lack)


def _remove_rewards(logs: Path) -> None:
    for name in ("reward.json", "reward.txt"):
        with contextlib.suppress(FileNotFoundError):
            (logs / name).unlink()


if __name__ == "__main__":
    sys.exit(main())
