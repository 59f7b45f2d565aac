"""Changes of whole repositories as Harbor tasks: an agent gets the files at the commit, the tests the places of the change.

The test is `codemod/place_score.py`, byte by byte, with the gold beside it; neither is in what the agent sees.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graftline.codemod import place_score
from graftline.core.errors import DataError
from graftline.harbor.task_format.exporting import IMAGE, slug
from graftline.harbor.task_format.task_folder import HarborTask, TaskFile
from graftline.harbor.task_format.task_toml import (
    AgentSection,
    Artifact,
    EnvironmentSection,
    Package,
    TaskToml,
    VerifierSection,
    toml_text,
)
from graftline.rollouts.repository_task import RepositoryTask
from graftline.sandbox.jail.spec import CallsSpec, PytestSpec, TestSpec

_PROGRAMS = {"python": "python3", "node": "node", "java": "java"}
_TEST = """\
#!/bin/sh
# the F1 of the places of the change, and 0 where tests fail that the task has
exec python3 "${TESTS_DIR:-/tests}/place_score.py" "$PWD" "${TESTS_DIR:-/tests}" "${LOGS_DIR:-/logs/verifier}"
"""
_SOLVE = """\
#!/bin/sh
cp -R "${SOLUTION_DIR:-/solution}/files/." .
"""
_TASK = """\
{instruction}

Make this change everywhere in the repository in the working folder where it applies, and change nothing else.
"""


def repository_harbor_task(task: RepositoryTask, timeout_s: float = 1800.0) -> HarborTask:
    """Return a change as a Harbor task; `timeout_s` is for the agent.

    DataError if the tests are of a kind that only our own jail runs, or a file stands where the environment needs its own.
    """
    texts = task.texts
    tests = None if task.tests is None else _command(task.tests, task.id)
    gold = {
        "changed": {file.path: [file.before, file.after] for file in task.files},
        "untouched": {file.path: file.text for file in task.untouched},
        "tests": tests,
    }
    toml = TaskToml(
        task=Package(name=f"graftline/{slug(task.id)}", description=task.instruction[:200]),
        metadata={"graftline": _metadata(task)},
        agent=AgentSection(timeout_sec=timeout_s),
        verifier=VerifierSection(timeout_sec=900.0, environment_mode="separate"),
        environment=EnvironmentSection(
            cpus=1.0, memory_mb=2048, storage_mb=2048, workdir="/app", network_mode="no-network"
        ),
        # whole folders: the names of the files that change are for the agent to find
        artifacts=tuple(Artifact(source=path) for path in sorted({path.partition("/")[0] for path in texts})),
    )
    if "Dockerfile" in texts:
        raise DataError(f"{task.id}: has a file 'Dockerfile' at its top, where that of the environment stands")
    files = {
        "task.toml": toml_text(toml),
        "instruction.md": _TASK.format(instruction=task.instruction),
        "environment/Dockerfile": f"{image_of([task])}WORKDIR /app\nCOPY . /app/\n",
        **{f"environment/{path}": text for path, text in texts.items()},
        "tests/test.sh": _TEST,
        "tests/places.json": json.dumps(gold, sort_keys=True),
        "tests/place_score.py": Path(place_score.__file__).read_text("utf-8"),
        "solution/solve.sh": _SOLVE,
        **{f"solution/files/{file.path}": file.after for file in task.files},
    }
    contents = {path: TaskFile(text.encode(), path.endswith(".sh")) for path, text in files.items()}
    return HarborTask(slug(task.id), toml, contents)


def image_of(tasks: Sequence[RepositoryTask]) -> str:
    """Return the first lines of a Dockerfile that serves all of `tasks`."""
    needs_pytest = any(isinstance(task.tests, PytestSpec) for task in tasks)
    return f"FROM {IMAGE}\n" + ("RUN python3 -m pip install --no-cache-dir pytest\n" if needs_pytest else "")


def _command(tests: TestSpec, name: str) -> dict[str, Any]:
    """Return what runs the tests in a box."""
    if isinstance(tests, CallsSpec):
        raise DataError(
            f"{name}: tests of the kind 'calls' run in our own jail alone; give tests by pytest or a program"
        )
    if isinstance(tests, PytestSpec):
        options = ["-q", "-p", "no:cacheprovider", *tests.expected]
        needs = ["python3", "-c", "import pytest"]
        command = {"command": ["python3", "-m", "pytest", *options], "stdin": "", "output": None, "exit_code": 0}
    else:
        program = _PROGRAMS[tests.program]
        needs = [program, "--version"]
        command = {"command": [program, *tests.arguments], "stdin": tests.stdin}
        command |= {"output": tests.expected_stdout, "exit_code": tests.expected_exit_code}
    return {**command, "needs": needs, "files": dict(tests.files)}


def _metadata(task: RepositoryTask) -> dict[str, Any]:
    return task.model_dump(mode="json", exclude={"files", "untouched", "tests", "schema_version"}, exclude_none=True)
