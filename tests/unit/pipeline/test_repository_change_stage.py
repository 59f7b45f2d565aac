"""The stage of changes that span a repository: what a run makes of sources, and that splits of edits and of changes agree."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import RecordError
from graftline.core.jsonl import read_lines
from graftline.core.paths import Paths
from graftline.datasets.edit import Edit
from graftline.datasets.repository_changes.change import RepositoryChange
from graftline.pipeline.checks import invalid_changes
from graftline.pipeline.stages.table import make
from tests.git_repositories import commit, init
from tests.lineages import Opened

SPLITS = ("train", "dev", "test")
SHOPS = [f"shop{number}" for number in range(8)]


def record(shop: str) -> dict[str, Any]:
    texts = [f"def {shop}_{number}(rows):\n    return fetch(rows, {number})\n" for number in range(3)]
    files = [
        {"path": f"{number}.py", "before": text, "after": text.replace("fetch", "get")}
        for number, text in enumerate(texts)
    ]
    return {
        "repo": f"acme/{shop}",
        "parent": "a",
        "commit": shop,
        "license": "MIT",
        "message": "Use get",
        "files": files,
    }


def rows_of(pairs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return an edit for each shop, of a package that is called like its repository."""
    python = next(row for row in pairs if row["language"] == "python")
    # so long that no two are near to each other
    pre = "def f(a):\n    return old(a, '{}')\n"
    filled = {shop: pre.format(hashlib.sha256(shop.encode()).hexdigest() * 2) for shop in SHOPS}
    return [
        {**python, "pre": text, "post": text.replace("old", "new"), "id": f"release:{shop}", "registry": "pypi", "pkg": shop}
        for shop, text in filled.items()
    ]  # fmt: skip


def splits_of(paths: Paths) -> tuple[dict[str, str], dict[str, str]]:
    """Return the split of each shop by its edit, and by its change."""
    edits, changes = dict[str, str](), dict[str, str]()
    for split in SPLITS:
        for edit in read_lines(paths.partition("processed", "python", split) / "edits.jsonl", Edit):
            edits[edit.group.partition(":")[2]] = split
        for change in read_lines(paths.repository_changes / f"{split}.jsonl", RepositoryChange):
            changes[change.repo.partition("/")[2]] = split
    return edits, changes


@pytest.mark.parametrize("first", ["edits", "changes"])
def test_a_repository_is_in_one_split_whatever_comes_first(
    opened: Opened,
    small_checkout: Any,
    varied_pairs: list[dict[str, Any]],
    reconfigure: Callable[..., None],
    first: str,
) -> None:
    paths = Paths(small_checkout.root)
    (paths.root / "changes.jsonl").write_text("".join(f"{json.dumps(record(shop))}\n" for shop in SHOPS), "utf-8")
    for is_second in (False, True):
        has_edits, has_changes = is_second or first == "edits", is_second or first == "changes"
        small_checkout.write(rows_of(varied_pairs) if has_edits else [])
        records = ["changes.jsonl"] if has_changes else []
        reconfigure(paths.root, "datasets.yaml", {"languages": ["python"], "repository_changes": {"records": records}})
        with opened() as lineage:
            for stage, names in (("raw", ["release_pairs"]), ("normalized", ["release_pairs"]), ("division", [])):
                make(stage, lineage, *names)
            make("repository_changes", lineage)
            for split in SPLITS:
                make("splits", lineage, "python", split)
            assert invalid_changes(lineage) == []
    edits, changes = splits_of(paths)
    assert {shop: edits[shop] for shop in SHOPS} == changes
    # eight of them are not in one split by chance
    assert len({*changes.values()}) > 1
    # a damaged memory of what was held out ends the run, and no new one is made up
    assigned = paths.repository_changes / "assigned.parquet"
    assigned.write_bytes(assigned.read_bytes()[:-1])
    small_checkout.write([])
    with opened() as lineage:
        for stage, names in (("raw", ["release_pairs"]), ("normalized", ["release_pairs"])):
            make(stage, lineage, *names)
        with pytest.raises(RecordError, match="is altered; it says what was held out before"):
            make("division", lineage)


def test_a_new_commit_makes_the_changes_again(
    opened: Opened, small_checkout: Any, reconfigure: Callable[..., None]
) -> None:
    root: Path = small_checkout.root
    small_checkout.write([])
    before = {f"{name}.py": f"def {name}(a):\n    return fetch(a, '{name}')\n" for name in ("one", "two", "three")}
    commit(init(root / "repo"), {**before}, "first")
    repository = {"path": "repo", "name": "acme/shop", "license": "MIT"}
    reconfigure(root, "datasets.yaml", {"repository_changes": {"repositories": [repository]}})
    reasons = []
    for _ in range(3):
        with opened() as lineage:
            for stage, names in (("raw", ["release_pairs"]), ("normalized", ["release_pairs"]), ("division", [])):
                make(stage, lineage, *names)
            built = make("repository_changes", lineage)
        reasons.append((built.reason, built.record.counts["rows"]))
        if len(reasons) == 1:
            commit(root / "repo", {name: text.replace("fetch", "get") for name, text in before.items()}, "Use get")
    assert reasons == [("not there yet", 0), ("input git/acme/shop changed", 1), ("", 1)]
