"""The report models and pages as assets, over a small checkout whose folder has a name that confuses patterns."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest

from graftline.core.paths import Paths
from tests.shell.runs import materializations, materialize
from tests.unit.datasets.fixtures import commit_row

PAGES = dg.AssetKey(["reports", "datasets"])


@dataclass
class Outcome:
    """What one run did."""

    success: bool
    checks: dict[str, bool]
    metadata: Mapping[str, Any]
    """Of the pages."""


def make(root: Path, wanted: dg.AssetSelection) -> Outcome:
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.setenv("GRAFTLINE_ROOT", str(root))
        result = materialize(root, instance, wanted)
    [metadata] = [one.metadata for one in materializations(result) if one.asset_key == PAGES]
    checks = {found.check_name: found.passed for found in result.get_asset_check_evaluations()}
    return Outcome(result.success, checks, metadata)


def configure(root: Path, **changes: Any) -> None:
    def local(reader: str, file: str, **more: Any) -> dict[str, Any]:
        return {
            "reader": reader,
            "url": "data/samples",
            "version": "1",
            "license": "MIT",
            "files": [{"path": file}],
            **more,
        }

    datasets = {
        "release_pairs": local("release_pairs", "release_pairs.jsonl"),
        "commitpackft": local("commitpackft", "commits.jsonl"),
        "marv": local("marv", "MaRV.json"),
        "unused": local("commitpackft", "unused.jsonl"),
        "leaked": local("evaluation", "leaked.jsonl"),
    }
    catalog = {
        "languages": ["java", "javascript", "python"],
        "use": ["release_pairs", "commitpackft", "marv", "leaked"],
        "datasets": datasets,
        "synthesis": {"per_partition": 0},
        **changes,
    }
    (root / "configs" / "datasets.yaml").write_text(json.dumps(catalog), "utf-8")


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def root(new_checkout: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three datasets and an evaluation, and what a fourth left that is in use no longer."""
    root: Path = new_checkout(tmp_path_factory.mktemp("roots") / "it's [a] * {x} run=3").root
    configure(root)
    pair = {
        "registry": "pypi",
        "old": "1",
        "new": "2",
        "path": "f.py",
        "qual": "f",
        "license": "MIT",
        "language": "python",
    }
    text = "def f{0}(a, b):\n    return old(a, b{0}, '```', {0})\n"
    shared = {"old_contents": "def shared():\n    old_name()\n", "new_contents": "def shared():\n    new_name()\n"}
    secret = "def secret(values):\n" + "".join(f"    total_{n} = compute(values, {n})\n" for n in range(12))
    samples = {
        "release_pairs.jsonl": lines(
            *(
                {
                    **pair, "id": f"release:{n}", "source": f"pypi:p{n} 1->2", "pkg": f"p{n}",
                    "pre": text.format(n), "post": text.format(n).replace("old", "new"),
                }
                for n in range(6)
            ),
        ),
        "commits.jsonl": lines(
            commit_row(**shared),
            commit_row(**shared, commit="f" * 40),
            commit_row(commit="a" * 40, license="gpl-3.0"),
            commit_row(commit="b" * 40, old_contents=secret, new_contents=secret.replace("compute", "measure")),
        ),
        "MaRV.json": json.dumps(
            {
                "Rename Method": [
                    {
                        "refactoring_id": 7, "commit_sha": "a" * 40, "file_path": "src/p/Outer.java",
                        "commit_link": "https://github.com/demo/tool/commit/" + "a" * 40,
                        "description": "Rename Method public a(x int) : void renamed to private b(x int) : void in class p.O",
                        "code_before": "void a(int x) {}", "code_after": "void b(int x) {}",
                        "evaluations": [{"vote": 1, "evaluator": "one"}, {"vote": 0, "evaluator": "two"}],
                    }
                ]
            }
        ),
        "leaked.jsonl": lines({"before": secret}),
    }  # fmt: skip
    for name, content in samples.items():
        (root / "data" / "samples" / name).write_text(content, "utf-8")
    left = Paths(root).normalized("unused")
    left.mkdir(parents=True)
    (left / "python-00000.parquet").write_text("not even Parquet", "utf-8")
    shutil.copytree(left, Paths(root).partition("processed", "tsx", "train"))
    return root


@pytest.fixture(scope="module")
def made(root: Path) -> Outcome:
    """What became of a run of everything the pages stand on."""
    return make(root, dg.AssetSelection.assets(PAGES).upstream())


def test_every_model_is_built_and_every_test_passes_as_a_check(made: Outcome) -> None:
    ours = {
        "cluster_in_one_split", "group_in_one_split", "commit_in_one_split", "text_before_in_one_split",
        "instruction_and_pre_once", "token_bounds", "division_and_edits_agree", "split_or_reason", "kept_edit_is_kept",
        "funnel_adds_up", "unique_stg_edits_id", "relationships_stg_edits_license__license__ref_stg_allowed_licenses_",
    }  # fmt: skip
    assert (made.success, ours - made.checks.keys(), [name for name, passed in made.checks.items() if not passed]) == (
        True,
        set(),
        [],
    )


def test_there_is_a_page_with_plots_for_each_dataset_in_use_and_an_index(root: Path, made: Outcome) -> None:
    folder = root / "reports" / "datasets"
    assert sorted(path.name for path in folder.iterdir() if path.name != "_meta.json") == [
        "commitpackft.funnel.png",
        "commitpackft.licenses.png",
        "commitpackft.md",
        "commitpackft.tokens.png",
        "index.md",
        "marv.funnel.png",  # labels have no length and no split
        "marv.md",
        "release_pairs.funnel.png",
        "release_pairs.licenses.png",
        "release_pairs.md",
        "release_pairs.tokens.png",
    ]
    linked = {line.partition("](")[2].rstrip(")") for line in _lines(folder) if line.startswith("![")}
    assert linked == {path.name for path in folder.glob("*.png")}


def test_pages_and_plots_are_metadata(made: Outcome) -> None:
    names = ("commitpackft", "marv", "release_pairs")
    assert {key for key in made.metadata if key.startswith("page: ")} == {f"page: {name}" for name in ("index", *names)}
    assert made.metadata["plot: marv.funnel"].value.startswith("![marv.funnel](data:image/png;base64,")
    assert "![" not in made.metadata["page: release_pairs"].value


def test_the_page_says_what_became_of_every_row(root: Path, made: Outcome) -> None:
    page = (root / "reports" / "datasets" / "commitpackft.md").read_text("utf-8")
    for line in (
        "| rows read | 4 | 100.0 |",
        "| - dropped: a license that is not allowed, or none | 1 | 25.0 |",
        "| - dropped: too near to an evaluation | 1 | 25.0 |",
        "| edits | 2 | 50.0 |",
        "| - left out: instruction and text before of another edit | 1 | 25.0 |",
        "| kept | 1 | 25.0 |",
        "| dataset `leaked` | 1 | 1 |",
        "| commitpackft | instruction and text before of another edit | 1 |",
        "| BSD-3-Clause | 2 | 0 | 1 | 100.0 | 25.0 |",
        "+    new_name()",
    ):
        assert line in page
    assert "````diff" in (root / "reports" / "datasets" / "release_pairs.md").read_text("utf-8")


def test_labels_are_counted_on_the_page_of_a_dataset_that_has_some(root: Path, made: Outcome) -> None:
    page = (root / "reports" / "datasets" / "marv.md").read_text("utf-8")
    assert "| rename-method | 1 | 0 | 0 | 1 | java | Rename the method &#96;a&#96; to &#96;b&#96; in " in page
    assert "*No edit is kept.*" in page


def test_the_warehouse_holds_on_to_no_file(root: Path, made: Outcome) -> None:
    with duckdb.connect(str(Paths(root).warehouse), read_only=True) as connection:
        kinds = connection.execute("select distinct table_schema, table_type from information_schema.tables").fetchall()
    assert kinds == [("main", "BASE TABLE")]


def test_pages_that_are_made_again_have_the_same_bytes(root: Path, made: Outcome) -> None:
    folder = root / "reports" / "datasets"
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "_meta.json"}
    shutil.rmtree(folder)
    again = make(root, dg.AssetSelection.assets(PAGES))
    after = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "_meta.json"}
    assert (again.success, again.metadata["state"].value, after) == (True, "made: not there yet", before)


def _lines(folder: Path) -> list[str]:
    return [line for path in folder.glob("*.md") for line in path.read_text("utf-8").splitlines()]
