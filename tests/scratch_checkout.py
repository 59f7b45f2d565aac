"""A checkout as a newcomer has it, in which everything is small: what pages say to type is typed there.

It has the code of this checkout, its shells, its Makefile and its configuration as shipped, but for what would take minutes:
fewer rows, fewer synthetic edits, and models of three layers that know nothing under the names of the real ones.
"""

import gzip
import json
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graftline.core.build import Contents, Request, build
from graftline.core.config import parse_yaml
from graftline.core.hashing import sha256_file
from graftline.core.paths import Paths
from graftline.llm.weights.catalog import CONVERTED_KIND, load_models, model_file, safetensors_path
from tests.tiny_gguf import make_model, write_gguf

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDERS = ("assets", "configs", "examples", "orchestration", "resources", "sensors", "data/samples")
FILES = ("Makefile", "pyproject.toml", "constraints.txt", "dagster.yaml", "workspace.yaml")
ROWS = {"python": 24, "javascript": 6, "java": 6}
"""How many rows of the shipped sample are kept, of each language."""
CONTEXT_TOKENS = 8192


def write_scratch_checkout(root: Path) -> Path:
    """Write the small checkout to `root`, with the environment of this one as its `.venv`."""
    skip = shutil.ignore_patterns("__pycache__")
    for name in FOLDERS:
        shutil.copytree(CHECKOUT / name, root / name, ignore=skip)
    for name in FILES:
        shutil.copy(CHECKOUT / name, root)
    _link_environment(root)
    _shorten_sample(root)
    edit_yaml(
        root / "configs" / "trajectories.yaml",
        {
            r"least_verified_steps: \d+": "least_verified_steps: 1",
            r"max_steps: \d+": "max_steps: 1",
            r"most_tasks: \d+": "most_tasks: 1",
        },
    )
    edit_yaml(
        root / "configs" / "recipes" / "first_adapter.yaml",
        {r"examples: \d+": "examples: 14", r"held_out: \d+": "held_out: 4"},
    )
    return root


def _link_environment(root: Path) -> None:
    """Give `root` the environment that runs this test; `make` must find it installed, and installs nothing."""
    (root / ".venv").mkdir()
    for part in ("bin", "lib", "include", "pyvenv.cfg"):
        (root / ".venv" / part).symlink_to(Path(sys.prefix) / part)
    (root / ".venv" / ".installed").touch()
    # newer than what it is made of, so that `make` leaves it as it is
    manifest = root / "assets" / "reports" / "target" / "manifest.json"
    if manifest.exists():
        manifest.touch()


def _shorten_sample(root: Path) -> None:
    sample = root / "data" / "samples" / "release_pairs.jsonl.gz"
    with gzip.open(sample, "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    # short ones, of every package in turn, so that every split gets some
    rows.sort(key=lambda row: len(row["pre"]))
    chosen = [
        row
        for language, count in ROWS.items()
        for row in spread([row for row in rows if row["language"] == language], count)
    ]
    sample.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in chosen).encode()))
    edit_yaml(
        root / "configs" / "datasets.yaml",
        {
            r"size_bytes: 375902": f"size_bytes: {sample.stat().st_size}",
            r"sha256: c972bd79\w+": f"sha256: {sha256_file(sample)}",
            r"per_partition: \d+": "per_partition: 4",
        },
    )


def spread(rows: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Return the first `count` rows of `rows`, those of different packages first."""
    seen: dict[str, int] = {}
    order = []
    for at, row in enumerate(rows):
        seen[row["pkg"]] = seen.get(row["pkg"], 0) + 1
        order.append((seen[row["pkg"]], at))
    return [rows[at] for _, at in sorted(order)[:count]]


def edit_yaml(path: Path, replacements: Mapping[str, str]) -> None:
    """Replace what each pattern matches, which has to be there."""
    text = path.read_text("utf-8")
    for pattern, replacement in replacements.items():
        text, count = re.subn(pattern, replacement, text, count=1)
        assert count == 1, f"{path}: nothing matches {pattern!r}"
    path.write_text(text, "utf-8")


def write_tiny_models(root: Path, folder: Path) -> None:
    """Put a tiny model where `root` has the weights of each model of its catalog, as fetched and as converted."""
    model = make_model(folder / "tiny", "llama", context_tokens=CONTEXT_TOKENS)
    weights = write_gguf(model, "llama", folder / "tiny.gguf")
    paths, environment = Paths(root), dict[str, str]()
    catalog = paths.configs / "models.yaml"
    tree = parse_yaml(catalog.read_text("utf-8"), str(catalog))
    for entry in tree["models"].values():
        entry |= {"size_bytes": weights.stat().st_size, "sha256": sha256_file(weights)}
        entry["places"] = [place for place in entry["places"] if place["kind"] == "hub"]
    # JSON is YAML
    catalog.write_text(json.dumps(tree), "utf-8")
    for name, entry in load_models(paths).models.items():
        target = paths.data / "models" / entry.file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(weights, target)
        model_file(name, paths, environment)  # remembers that it was checked

        def write(partial: Path) -> Contents:
            shutil.copytree(model, partial, dirs_exist_ok=True)
            return Contents({})

        request = Request(CONVERTED_KIND, name, "1", {"weights": entry.sha256}, {})
        build(safetensors_path(name, paths, environment), request, write)
