"""A root folder with a deployment of our own, for the stages and assets of Harbor."""

import json
from pathlib import Path
from typing import Any

from graftline.astgrep.action import PatternAction
from graftline.rollouts.task import Task


def task(number: int, has_solution: bool = True) -> Task:
    """Return a task that the teacher `induction` solves."""
    return Task(
        id=f"d:{number}",
        dataset="d",
        language="python",
        instruction="Call new.",
        before=f"def f(a):\n    return old(a, b{number})\n",
        target=f"def f(a):\n    return new(a, b{number})\n",
        license="MIT",
        group="g",
        origin="o",
        gold_action=PatternAction(pattern="old($$$A)", rewrite="new($$$A)") if has_solution else None,
    )


def write_tasks(root: Path, *tasks: Task) -> None:
    """Write the tasks of the deployment `tiny`."""
    (root / "data" / "samples" / "tiny.jsonl").write_text(
        "".join(f"{one.model_dump_json()}\n" for one in tasks), "utf-8"
    )


def write_deployment(root: Path, name: str = "tiny", **changes: Any) -> None:
    """Write `configs/harbor/<name>.yaml`, with an evaluation if nothing else is said."""
    values = {
        "name": name,
        "environment": {"kind": "refactoring", "tasks": "data/samples/tiny.jsonl"},
        "limits": {"timeout_s": 60, "cpu_cores": 1, "memory_mb": 1024, "disk_mb": 1024},
        "calibration": {"is_required": False},
        "evaluation": {},
        **changes,
    }
    (root / "configs" / "harbor").mkdir(exist_ok=True)
    # JSON is YAML
    path = root / "configs" / "harbor" / f"{name}.yaml"
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not None}), "utf-8")


def use_service(root: Path, url: str, key: str) -> None:
    """Have the manifest `local` below `root` talk to a service that runs."""
    ports = {"dataset_hub": "homes", "sandbox": "memory", "teacher": "induction"}
    manifest = {port: {"kind": kind} for port, kind in ports.items()} | {"harbor": {"kind": "service", "url": url}}
    (root / "configs" / "manifests" / "local.yaml").write_text(json.dumps(manifest), "utf-8")
    (root / ".env").write_text(f"GRAFTLINE_HARBOR_KEY={key}\n", "utf-8")
