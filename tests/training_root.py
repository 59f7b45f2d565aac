"""A root folder with chats and a recipe, for runs over the tiny model."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[1]
WORDS = [
    "answers",
    "carries",
    "describes",
    "finishes",
    "measures",
    "remembers",
    "repairs",
    "translates",
    "understands",
    "watches",
    "weighs",
    "writes",
]


def chats(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return chats whose answer repeats the question: something that can be learnt a little in a few steps."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        words = " ".join(chance.sample(WORDS, 4))
        asked = {"role": "user", "content": f"Say {number}: {words}"}
        found.append({"messages": [asked, {"role": "assistant", "content": words}]})
    return found


def write_root(root: Path, model: Path, count: int = 24, **recipe: Any) -> Path:
    """Write chats for training and to look at, and the recipe `tiny`, below `root`; return it."""
    (root / "configs" / "manifests").mkdir(parents=True)
    (root / "configs" / "recipes").mkdir()
    (root / "data").mkdir()
    shutil.copy(CHECKOUT / "configs" / "models.yaml", root / "configs")
    shutil.copy(CHECKOUT / "configs" / "manifests" / "local.yaml", root / "configs" / "manifests")
    for name, rows in (("train", chats(count)), ("held_out", chats(6, seed=1))):
        (root / "data" / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    values = {
        "recipe": "sl_basic",
        "model": "tiny-qwen3",
        "tokenizer": str(model),
        "dataset": "data/train.jsonl",
        "held_out": "data/held_out.jsonl",
        "renderer": "role_colon",
        "batch_size": 4,
        "epochs": 2,
        "learning_rate": 0.01,
        "save_every": 3,
        "eval_every": 4,
        "deadline_s": 60.0,
        **recipe,
    }
    # JSON is YAML
    (root / "configs" / "recipes" / "tiny.yaml").write_text(json.dumps(values), "utf-8")
    return root
