"""The entrypoint of a box: lay one task, run an agent on it, leave what it made in `submission/`.

    python3 -m in_box.run_rollout --input /tmp/rollout.json --output /tmp/result.json

The working folder holds `agent.json`, maybe `base/` (a crate that all tasks stand on) and the task: `task.json`,
`instruction.md`, `environment/`. It writes no reward: the verifier does, in a box that the agent never saw.
"""

import argparse
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .agents import AGENTS, API_KEYS, BUDGET_EXHAUSTED, IDLE, NAMES, command_of, find_refusal
from .commands import FinishedCommand, adopt_orphans, end_children, run_command
from .needs import find_unmet

WORK, SUBMISSION = "work", "submission"
MAX_SUBMISSION_BYTES = 64 << 20
MAX_SUBMISSION_FILES = 5000
TAIL = 4000
_KEEPING_S = 15.0
_DEFAULT = re.compile(r"\$\{(\w+)(:-([^}]*))?\}")


class NoTaskError(Exception):
    """The box does not hold what is asked for."""


@dataclass(frozen=True)
class Request:
    """What a rollout is asked for, in either form of the request."""

    seed: int
    agent: str
    model: str
    inference_url: str
    prompt: str
    """Said before the instruction; empty where there is none."""
    timeout_s: float
    """Of the agent: what it leaves is to be kept before the box itself is ended."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one rollout; the result says how it ended, whatever happened."""
    parser = argparse.ArgumentParser(prog="run_rollout", description="Lay one task and run an agent on it.")
    parser.add_argument("--input", type=Path, required=True, help="the request, JSON")
    parser.add_argument("--output", type=Path, required=True, help="where the result goes, JSON")
    options = parser.parse_args(arguments)
    message = json.loads(options.input.read_text("utf-8"))
    adopt_orphans()
    result = run_rollout(message, Path.cwd())
    partial = options.output.with_name(f".{options.output.name}.partial")
    partial.write_text(json.dumps(result), "utf-8")
    partial.replace(options.output)
    return 0


def run_rollout(message: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the result of one rollout in `folder`; nothing of it runs on afterwards."""
    correlation_id = str(message.get("trace_correlation_id", ""))
    try:
        request = read_request(message, _read_json(folder / "agent.json"))
        task = _read_json(folder / "task.json")
        work, is_laid = work_folder(folder, task)
        if lack := find_unmet(task, folder, is_laid, is_verifier=False):
            # before an agent is paid for what nobody can grade
            error = f"nothing can be graded: {lack}"
            return _result(correlation_id, "verifier_failed", "apply_failed", error, {"task_id": task["task_id"]})
        if not is_laid:
            # what all tasks share, and what this one adds
            if (folder / "base").is_dir():
                shutil.copytree(folder / "base", work, dirs_exist_ok=True)
            lay_task(folder / "environment", work, task)
    except (NoTaskError, OSError) as error:
        return _result(correlation_id, "sandbox_failed", "apply_failed", str(error))
    except (ValueError, KeyError, TypeError) as error:
        # asked for again, it would end the same
        return _result(correlation_id, "unclassified", "apply_failed", str(error))
    details: dict[str, Any] = {"task_id": task["task_id"], "agent": request.agent, "seed": request.seed}
    cause, status, detail, command = _run_agent(request, task, work, folder)
    end_children()
    if command is not None:
        details.update(agent_duration_s=round(command.seconds, 3), agent_status=command.status)
        details["agent_output_tail"] = command.output[-TAIL:]
    try:
        details["submitted"] = submit(work, folder / SUBMISSION, task.get("submission", ["."]))
    except (OSError, ValueError) as fault:
        cause, status, detail = cause or "unclassified", "runtime_error", detail or str(fault)
    return _result(correlation_id, cause, status, detail, details)


def read_request(message: Mapping[str, Any], settings: Mapping[str, Any]) -> Request:
    """Return what `message` asks for: of the unified contract, or as the first runners had it.

    Raises:
        ValueError: it names an agent that is not known.
    """
    environment, policy = _object(message, "env"), _object(_object(message, "policy"), "config")
    params = _object(message, "params")
    seed = environment.get("seed", message.get("seed", 0))
    # what a deployment is made to be is not for its requests to change
    idle = settings.get("agent") in IDLE
    agent = settings["agent"] if idle else _first((policy, params, settings), "agent", "agent_type")
    if agent not in NAMES or (not idle and agent in IDLE):
        raise ValueError(f"agent {str(agent)[:80]!r} is not known; known: {', '.join(AGENTS)}")
    limits = [_object(message, "limits").get("timeout_s"), settings.get("timeout_s")]
    longest_s = min((float(limit) for limit in limits if isinstance(limit, (int, float)) and limit > 0), default=600.0)
    prompt = policy.get("prompt", policy.get("system_prompt"))
    if isinstance(prompt, dict):
        prompt = "\n\n".join(part for part in prompt.values() if isinstance(part, str) and part)
    return Request(
        seed=seed if isinstance(seed, int) else 0,
        agent=agent,
        model=str(_first((policy, params, settings), "model") or ""),
        inference_url=str(message.get("inference_url") or policy.get("inference_url") or ""),
        prompt=prompt if isinstance(prompt, str) else "",
        timeout_s=longest_s - min(_KEEPING_S, longest_s / 5),
    )


def with_defaults(variables: Mapping[str, str]) -> dict[str, str]:
    """Return a task's variables: `${NAME:-default}` is its default, and one without a default is left out.

    Nothing is taken from the box: a task could name its secrets.
    """
    return {
        name: _DEFAULT.sub(lambda match: match[3] or "", value)
        for name, value in variables.items()
        if all(match[2] is not None for match in _DEFAULT.finditer(value))
    }


def submit(work: Path, submission: Path, paths: Sequence[str]) -> list[str]:
    """Copy the files at `paths` of `work` to `submission`, and return which; links are left out.

    Raises:
        ValueError: there are too many of them, or they are too large.
    """
    shutil.rmtree(submission, ignore_errors=True)
    submission.mkdir()
    copied: list[str] = []
    remaining = MAX_SUBMISSION_BYTES
    for path, file in sorted(pair for name in paths for pair in _plain_files(work, name)):
        remaining -= file.stat().st_size
        if remaining < 0 or len(copied) >= MAX_SUBMISSION_FILES:
            raise ValueError(
                f"what the agent left is more than {MAX_SUBMISSION_BYTES} bytes or {MAX_SUBMISSION_FILES} files"
            )
        if path not in copied:
            (submission / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, submission / path, follow_symlinks=False)
            (submission / path).chmod(0o755 if os.access(file, os.X_OK) else 0o644)
            copied.append(path)
    return copied


def _run_agent(
    request: Request, task: Mapping[str, Any], work: Path, folder: Path
) -> tuple[str | None, str, str, FinishedCommand | None]:
    """Return cause, status and error of the agent's turn, and how its command ended."""
    if request.agent in IDLE:
        return None, "success", "", None
    agent = AGENTS[request.agent]
    key = next((os.environ[name] for name in API_KEYS if os.environ.get(name)), "")
    home = folder / "home"
    for path, text in agent.files(request.model, request.inference_url).items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text, "utf-8")
    variables = {
        **{name: value for name, value in os.environ.items() if name not in API_KEYS},
        **with_defaults(task.get("env", {})),
        **agent.variables(request.inference_url, key),
        "HOME": str(home),
    }
    timeout_s = min(request.timeout_s, task.get("agent_timeout_s") or request.timeout_s)
    before = _state(work)
    try:
        instruction = (folder / "instruction.md").read_text("utf-8")
        command = command_of(agent, request.model, "\n\n".join(filter(None, (request.prompt, instruction))))
        result = run_command(command, work, variables, timeout_s)
    except ValueError as error:
        return "unclassified", "apply_failed", str(error), None
    except FileNotFoundError as error:
        # asked for again, it would end the same
        lack = (
            f"this box has no {error.filename}: agents come with an image that has them (--executor docker or daytona)"
        )
        return "unclassified", "apply_failed", f"the agent {request.agent} cannot be started: {lack}", None
    except OSError as error:
        # never a reward: nothing has tried
        return "sandbox_failed", "apply_failed", f"the agent {request.agent} cannot be started: {error}", None
    if result.status is None:
        return "agent_exhausted_budget", "timeout", f"the agent was ended after {timeout_s:g} s", result
    fault = f"the agent ended with status {result.status}"
    if result.status != 0 and BUDGET_EXHAUSTED in result.output[-TAIL:]:
        return "agent_exhausted_budget", "timeout", f"{fault}, and the budget of its model is used up", result
    if refusal := find_refusal(result.output[-TAIL:], result.status, _state(work) != before):
        return "model_provider_failed", "network_error", f"{fault}, and its provider refused it: {refusal}", result
    if result.status != 0:
        return "unclassified", "runtime_error", fault, result
    return None, "success", "", result


def _state(work: Path) -> dict[str, tuple[int, int]]:
    """Return what tells whether files of the working folder have changed."""
    states = {path: file.stat() for path, file in _plain_files(work, ".")}
    return {path: (state.st_size, state.st_mtime_ns) for path, state in states.items()}


def work_folder(folder: Path, task: Mapping[str, Any]) -> tuple[Path, bool]:
    """Return where a task is worked on, and whether its image has already laid it there."""
    workdir = Path(task.get("workdir") or "/")
    if task.get("lay") is None and os.environ.get("TASK_IN_CONTAINER") and len(workdir.parts) > 1 and workdir.is_dir():
        return workdir, True
    work = folder / WORK
    work.mkdir(exist_ok=True)
    return work, False


def lay_task(environment: Path, work: Path, task: Mapping[str, Any]) -> None:
    """Lay the files of a task over `work`: those that `lay` names, each at its place, else all but the Dockerfile."""
    lay = task.get("lay")
    if lay is None:
        if environment.is_dir():
            shutil.copytree(environment, work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("Dockerfile"))
        lay = {}
    for target, source in lay.items():
        (work / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(environment / source, work / target)
    for target, line in task.get("append", {}).items():
        text = (work / target).read_text("utf-8") if (work / target).exists() else ""
        if line not in text.splitlines():
            (work / target).parent.mkdir(parents=True, exist_ok=True)
            (work / target).write_text(f"{text.rstrip()}\n{line}\n".lstrip(), "utf-8")


def _plain_files(work: Path, name: str) -> Iterator[tuple[str, Path]]:
    start = work / name
    if start.is_symlink():
        return
    if start.is_file():
        yield start.relative_to(work).as_posix(), start
    for parent, folders, names in os.walk(start):
        # what a build made, as it says itself, is made again by whoever grades
        folders[:] = [
            name for name in folders if name != ".git" and not (Path(parent) / name / "CACHEDIR.TAG").exists()
        ]
        for file in (Path(parent) / name for name in names):
            if file.is_file() and not file.is_symlink():
                yield file.relative_to(work).as_posix(), file


def _result(
    correlation_id: str, cause: str | None, status: str, error: str, details: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "trace_correlation_id": correlation_id,
        "reward_info": {"outcome_reward": None, "details": details or {}},
        "success_status": status,
        "failure_cause": cause,
        "status_detail": error or None,
        "success": cause is None,
        "error": error or None,
    }


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        raise NoTaskError(f"{path.name} cannot be read; the context was not made by the import of tasks") from None
    if not isinstance(value, dict):
        raise NoTaskError(f"{path.name} is not an object of JSON")
    return value


def _object(tree: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = tree.get(key)
    return value if isinstance(value, dict) else {}


def _first(trees: Sequence[Mapping[str, Any]], *names: str) -> Any:
    return next((tree[name] for tree in trees for name in names if tree.get(name)), None)


if __name__ == "__main__":
    sys.exit(main())
