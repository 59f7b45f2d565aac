"""The verifier of EngineBench: the card in a fresh crate, the hidden tests behind it, `cargo check` and `cargo test`.

    python3 -m in_box.cargo_tests --logs /logs/verifier [--answer solution]

The working folder holds `base/`, `task.json`, `environment/`, `tests/`, `solution/` and what the agent left,
`submission/`, of which the card alone is taken. `--answer solution` grades the solution instead, for the ceiling; a
deployment says so, never the agent. Where nothing is known there is no `reward.json`, and the status is 3.

Covered: a card that writes the reward itself, leaves something running, ends this program, or brings tests of its own. Not
covered: a card that, run by a hidden test, prints what cargo would print and ends the process; it shares that with its tests.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .commands import adopt_orphans, end_children, run_command
from .run_rollout import SUBMISSION, WORK, lay_task
from .scoring import Score, hidden_modules, number_of_tests, scored

NOTHING_KNOWN = 3
_CONSTANT = re.compile(r"^pub const (\w+)", re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Grade what is in the working folder."""
    parser = argparse.ArgumentParser(prog="cargo_tests", description="Grade a card by its hidden tests.")
    parser.add_argument("--logs", type=Path, default=Path("/logs/verifier"), help="where reward.json goes")
    parser.add_argument("--answer", choices=("submission", "solution"), default="submission", help="what is graded")
    given = parser.parse_args(arguments)
    adopt_orphans()
    folder = Path.cwd()
    try:
        task = json.loads((folder / "task.json").read_text("utf-8"))
        score = graded(folder, task, given.answer)
        if score.score is None:
            raise ValueError(f"nothing is known of the card: {score.fault}")
        # what the card started is not to write after us
        end_children()
        _leave(given.logs / "reward.json", score.reward())
    except (OSError, ValueError, KeyError) as error:
        end_children()
        # what is there then is not ours
        _remove(given.logs / "reward.json")
        print(f"nothing can be graded: {error}", file=sys.stderr)
        return NOTHING_KNOWN
    return 0


def _leave(path: Path, reward: Mapping[str, float]) -> None:
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


def graded(folder: Path, task: Mapping[str, Any], answer: str = "submission") -> Score:
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
    written = source.read_text("utf-8", "replace")
    if answer == "solution":
        written += missing_constants(written, (work / card).read_text("utf-8") if (work / card).is_file() else "")
    (work / card).write_text(f"{written}\n\n{tests}", "utf-8")
    variables = {"CARGO_NET_OFFLINE": "true", **os.environ, "CARGO_TERM_COLOR": "never", "RUST_BACKTRACE": "0"}
    package = ["--package", task["package"]] if task.get("package") else []
    left = float(task.get("verifier_timeout_s") or 300.0)
    check = run_command(["cargo", "check", "--quiet", *package], work, variables, left)
    print(check.output)
    if check.status != 0:
        return scored(check.status, check.output, None, "", 0)
    # each with its end, so that no module whose name only begins so is meant
    stem = Path(card).stem
    modules = [f"{stem}::{name}::" for name in hidden_modules(tests)] or [f"{stem}::"]
    left = max(1.0, left - check.seconds)
    test = run_command(["cargo", "test", *package, "--", "--test-threads=1", *modules], work, variables, left)
    print(test.output)
    return scored(0, check.output, test.status, test.output, number_of_tests(tests))


def missing_constants(solution: str, stub: str) -> str:
    """Return the public constants that tests may use and that only the stub has, which the reference solutions leave out."""
    have = set(_CONSTANT.findall(solution))
    lines = (line for line in stub.splitlines() if (found := _CONSTANT.match(line)) and found[1] not in have)
    return "".join(f"\n{line}" for line in lines if line.rstrip().endswith(";"))


if __name__ == "__main__":
    sys.exit(main())
