"""Our refactoring tasks as Harbor tasks, and Harbor tasks written to folders."""

import json
import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from graftline.astgrep.action import ACTION
from graftline.core.errors import DataError
from graftline.core.hashing import sha256_text
from graftline.harbor.task_format.task_folder import TASK_ID, HarborTask, TaskFile, write_files
from graftline.harbor.task_format.task_toml import (
    AgentSection,
    EnvironmentSection,
    Package,
    TaskToml,
    VerifierSection,
    toml_text,
)
from graftline.rollouts.task import Task

SUFFIXES = {"java": "java", "javascript": "js", "python": "py", "tsx": "tsx", "typescript": "ts"}
IMAGE = "python:3.11.14-slim-bookworm"
_OWN = "graftline"
_UNNAMED = re.compile(r"[^A-Za-z0-9._-]+")
_TEST = """\
#!/bin/sh
# 1 where the file is the wanted text, else 0; line ends at the end of the file do not count
exec python3 - "$PWD/{name}" "${{TESTS_DIR:-/tests}}/wanted.{suffix}" "${{LOGS_DIR:-/logs/verifier}}" <<'END'
import json, pathlib, sys
made, wanted, logs = map(pathlib.Path, sys.argv[1:])
text = made.read_text("utf-8", "replace") if made.is_file() else ""
reward = int(text.rstrip("\\n") == wanted.read_text("utf-8").rstrip("\\n"))
logs.mkdir(parents=True, exist_ok=True)
(logs / "reward.json").write_text(json.dumps({{"reward": reward}}))
END
"""
_SOLVE = """\
#!/bin/sh
cp "${{SOLUTION_DIR:-/solution}}/wanted.{suffix}" "{name}"
"""


def harbor_task(task: Task) -> HarborTask:
    """Return a task of ours as a Harbor task: it is done when the file holds the wanted text."""
    suffix = SUFFIXES[task.language]
    name = f"source.{suffix}"
    toml = TaskToml(
        task=Package(name=f"{_OWN}/{slug(task.id)}", description=task.instruction[:200]),
        metadata={_OWN: _metadata(task)},
        agent=AgentSection(timeout_sec=300.0),
        verifier=VerifierSection(timeout_sec=60.0, environment_mode="separate"),
        environment=EnvironmentSection(
            cpus=1.0, memory_mb=1024, storage_mb=1024, workdir="/app", network_mode="no-network"
        ),
        artifacts=(name,),
    )
    instruction = f"{task.instruction}\n\nChange the file `{name}` in the working folder so, and nothing else.\n"
    texts = {
        "task.toml": toml_text(toml),
        "instruction.md": instruction,
        "environment/Dockerfile": f"FROM {IMAGE}\nWORKDIR /app\nCOPY {name} /app/{name}\n",
        f"environment/{name}": task.before,
        f"tests/wanted.{suffix}": task.target,
        f"solution/wanted.{suffix}": task.target,
        "tests/test.sh": _TEST.format(name=name, suffix=suffix),
        "solution/solve.sh": _SOLVE.format(name=name, suffix=suffix),
    }
    files = {path: TaskFile(_bytes(text), path.endswith(".sh")) for path, text in texts.items()}
    return HarborTask(slug(task.id), toml, files)


def refactoring_task(task: HarborTask) -> Task:
    """Return the task of ours that was exported as `task`.

    Raises:
        DataError: it was not.
    """
    known = task.toml.metadata.get(_OWN)
    if not isinstance(known, dict):
        raise DataError(f"{task.id}: was not exported from a refactoring task; [metadata.{_OWN}] is missing")
    suffix = SUFFIXES.get(str(known.get("language")), "txt")
    try:
        gold = [json.loads(action) for action in known.get("gold", [])]
        return Task.model_validate(
            {
                **{key: value for key, value in known.items() if key != "gold"},
                "before": _text(task, f"environment/source.{suffix}"),
                "wanted": _text(task, f"tests/wanted.{suffix}"),
                "gold_action": gold[0] if gold else None,
                "gold_next": tuple(gold[1:]),
            }
        )
    except (ValidationError, ValueError, KeyError, TypeError) as error:
        first = str(error).partition("\n")[0]
        raise DataError(f"{task.id}: [metadata.{_OWN}] is no refactoring task ({first}); export it again") from None


def export_harbor_task(task: HarborTask | Task, folder: Path) -> HarborTask:
    """Write a task to a folder of its own in `folder`, and return it as it was written.

    Raises:
        DataError: the folder is there already.
    """
    made = harbor_task(task) if isinstance(task, Task) else task
    place = folder / made.id
    if place.exists():
        raise DataError(f"{place}: is there already; nothing is written over it, so remove it or choose another folder")
    write_files(made.files, place)
    return made


def slug(name: str) -> str:
    """Return `name` as the name of a folder; one that had to be changed keeps a digest of what it was."""
    plain = _UNNAMED.sub("-", name).strip("-._")[:180]
    return name if plain == name and TASK_ID.fullmatch(name) else f"{plain or 'task'}-{sha256_text(name)[:8]}"


def _metadata(task: Task) -> dict[str, Any]:
    known = task.model_dump(mode="json", exclude={"before", "target", "gold_action", "gold_next"})
    golds = [action for action in (task.gold_action, *task.gold_next) if action is not None]
    known["gold"] = [json.dumps(ACTION.dump_python(action, mode="json"), ensure_ascii=False) for action in golds]
    return known


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise DataError(
            "a text of the task holds half of a surrogate pair, which no file can; leave the task out"
        ) from None


def _text(task: HarborTask, path: str) -> str:
    return task.files[path].content.decode()
