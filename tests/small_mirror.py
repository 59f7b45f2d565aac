"""A mirror that holds every dataset, small enough to be worked on in seconds.

The first rows of the mirror beside the checkout, which are read and never kept in it, and rows made up for the datasets
that one lacks, in the shapes they have at their source. Some rows are planted: they hold texts of the evaluation.
"""

import gzip
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graftline.core.config import load_yaml
from graftline.datasets.catalog import Catalog

LANGUAGES = ("java", "javascript", "python", "typescript")
PLANTED_LINES = (1, 2)
"""Lines of CommitPackFT's Python that hold texts of the evaluation."""

Row = dict[str, Any]


def shared_data(checkout: Path) -> Path:
    """Return the folder of real rows beside the checkout; without it the test is skipped."""
    folder = checkout.parent / "shared" / "data"
    if not (folder / "mirror").is_dir():
        pytest.skip("needs real rows beside the checkout, in ../shared/data")
    return folder


def small_mirror(shared: Path, folder: Path, rows: int = 25) -> Path:
    """Make `folder` a mirror with at most `rows` rows per file."""
    evaluation = first_rows(shared / "canitedit_eval_only.jsonl.gz", 40)
    for language in LANGUAGES:
        path = f"commitpackft/data/{language}/data.jsonl.gz"
        kept = first_rows(shared / "mirror" / path, rows)
        if language == "python":
            kept = [*planted(kept[0], evaluation), *kept]
            put_table(folder / "editpackft/data/train.parquet", edit_pack(kept[len(PLANTED_LINES) :][:8]))
            put_lines(folder / "oce_dataft/ocedataft.jsonl", grown_from(kept[-1]["commit"]))
        put_lines(folder / path, kept)
    path = "agentpack/train/part-0000.jsonl.gz"
    put_lines(folder / path, first_rows(shared / "mirror" / path, rows * 3))
    pairs = json.loads((shared / "mirror/marv/MaRV.json").read_text("utf-8"))
    (folder / "marv").mkdir()
    (folder / "marv/MaRV.json").write_text(json.dumps({kind: of[:rows] for kind, of in pairs.items()}), "utf-8")
    shutil.copytree(shared / "mirror/smellycode", folder / "smellycode")
    put_table(folder / "canitedit/data/test.parquet", evaluation)
    return folder


def first_rows(path: Path, rows: int) -> list[Row]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line, _ in zip(stream, range(rows), strict=False)]


def put_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write lines of JSON, compressed where the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)


def put_table(path: Path, rows: list[Row]) -> None:
    """Write a Parquet file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def planted(like: Row, evaluation: list[Row]) -> list[Row]:
    """Return commits in which texts of the evaluation stand: one as it is, one laid out anew among other code."""
    first, second = sorted(evaluation, key=lambda row: -len(row["after"]))[1:3]
    indented = "".join(f"    {line}\n" for line in second["after"].splitlines())
    return [
        {**like, "commit": "1" * 40, "old_contents": first["before"], "new_contents": first["after"]},
        {
            **like,
            "commit": "2" * 40,
            "old_contents": "def outer():\n    return 1\n",
            "new_contents": f"def outer():\n{indented}    return 2\n",
        },
    ]


def edit_pack(commits: list[Row]) -> list[Row]:
    """Return rows of EditPackFT made of CommitPackFT's: without comments at the start, with an instruction."""
    return [
        {
            **commit,
            "old_contents": _without_comments(commit["old_contents"]),
            "new_contents": _without_comments(commit["new_contents"]),
            "instruction": commit["subject"],
            "content": "## Code Before:\n",
        }
        for commit in commits
    ]


def _without_comments(text: str) -> str:
    lines = text.splitlines(keepends=True)
    while lines and lines[0].startswith("#"):
        lines.pop(0)
    return "".join(lines)


def grown_from(commit: str) -> list[Row]:
    """Return rows of OCEDataFT in both of its shapes, grown from one commit."""
    pre, post = (
        "def total(prices):\n    return sum(prices)\n",
        "def total(prices, tax):\n    return sum(prices) * tax\n",
    )
    asked = f"## Code Before:\n{pre}\n## Instruction:\nTake the tax into account.\n## Code After:\n"
    return [
        {
            "commit": commit,
            "instr_type": "qwen3_lazy",
            "code_before_purify": f"```python\n{pre}```",
            "code_after_purify": post,
            "instruct_purify": "Add tax.",
        },
        {
            "commit": [commit],
            "instr_type": "ds_descriptive",
            "old_code": pre,
            "new_code": post,
            "messages": [{"role": "system", "content": "You edit code."}, {"role": "user", "content": asked}],
        },
    ]


def configure(checkout: Path, root: Path) -> None:
    """Give `root` the configuration of the checkout, with terms under which all datasets are used, and no recipe to train."""
    shutil.copytree(checkout / "configs", root / "configs", ignore=shutil.ignore_patterns("recipes"))
    tree = load_yaml(root / "configs" / "datasets.yaml", Catalog).model_dump(mode="json")
    tree["datasets"]["agentpack"]["licenses"] = {"*": "MIT"}
    tree["datasets"]["oce_dataft"]["license"] = "MIT"
    tree["use"] = [name for name in tree["datasets"] if name != "release_pairs"]
    tree["synthesis"]["per_partition"] = 0
    (root / "configs" / "datasets.yaml").write_text(json.dumps(tree), "utf-8")
