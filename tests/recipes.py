"""Recipes of the lineage that train the tiny model of the memory service: one on synthetic edits, one on trajectories."""

import json
import shutil
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
SYNTHETIC = {"kind": "synthetic", "examples": 8, "held_out": 4, "per_snippet": 4}
TRAJECTORIES = {"kind": "trajectories", "held_out": 4}


def write_recipe(root: Path, name: str, data: dict[str, Any] | None, **changes: Any) -> None:
    """Write `configs/recipes/<name>.yaml` below `root`, and the catalog of models beside it."""
    values = {
        "recipe": "sl_basic",
        "model": "memory",
        "renderer": "role_colon",
        "batch_size": 2,
        "epochs": 3,
        "learning_rate": 0.05,
        "save_every": 2,
        "eval_every": 2,
        "answer_tokens": 8,
        "data": data,
        **changes,
    }
    folder = root / "configs" / "recipes"
    folder.mkdir(exist_ok=True)
    shutil.copy(CHECKOUT / "configs" / "models.yaml", root / "configs")
    # JSON is YAML
    (folder / f"{name}.yaml").write_text(json.dumps(values), "utf-8")


def write_recipes(root: Path) -> None:
    """Write `seen`, which is of trajectories, and `tiny`, which is of synthetic edits."""
    write_recipe(root, "seen", TRAJECTORIES)
    write_recipe(root, "tiny", SYNTHETIC)


def train_in_memory(root: Path) -> None:
    """Have the manifest `local` below `root` train in memory, and start no process for anything else."""
    manifest = {"dataset_hub": "homes", "sandbox": "memory", "teacher": "induction", "training_client": "memory"}
    text = json.dumps({port: {"kind": kind} for port, kind in manifest.items()})
    (root / "configs" / "manifests" / "local.yaml").write_text(text, "utf-8")
