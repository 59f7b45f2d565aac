"""`graftline lineage` and `graftline licenses` over a small root with an adapter."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from graftline.cli.main import main
from graftline.core.paths import Paths
from graftline.core.progress import progress_bars
from graftline.pipeline.run import run_all
from tests.recipes import train_in_memory, write_recipes


@pytest.fixture(scope="module")
def _root(new_checkout: Any, varied_pairs: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("tinker", reason="pip install 'graftline[training]'")
    small = new_checkout(tmp_path_factory.mktemp("lineage") / "root")
    small.write([row for row in varied_pairs if row["language"] == "python"])
    small.configure(languages=("python",), per_partition=1)
    train_in_memory(small.root)
    write_recipes(small.root)
    with progress_bars() as bars:
        run_all(Paths(small.root), "local", {}, bars)
    root: Path = small.root
    return root


@pytest.fixture
def graftline(_root: Path, tmp_path: Path) -> Callable[..., Result]:
    """Call the command over a root of its own."""
    root = Path(shutil.copytree(_root, tmp_path / "root"))

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["--root", str(root), *arguments])

    return call


def test_the_tree_has_everything_down_to_the_raw_files(graftline: Callable[..., Result]) -> None:
    shown = graftline("lineage", "seen")
    assert shown.exit_code == 0, shown.output
    for words in (
        "trained_adapter seen", "sft_dataset seen", "teacher_trajectories python/train/induction", "run sl_basic-",
        "raw release_pairs",
        "licenses MIT 3", "license MIT", "base_model memory", "prompt brief", "Rows by rule", "all as they were.",
    ):  # fmt: skip
        assert words in shown.output


def test_what_changed_is_said_and_ends_with_1(graftline: Callable[..., Result], tmp_path: Path) -> None:
    with (tmp_path / "root/data/tasks/python/train/tasks.jsonl").open("a") as stream:
        stream.write("\n")
    shown = graftline("lineage", "seen")
    assert (shown.exit_code, "altered: file 'tasks.jsonl' was altered" in shown.output) == (1, True)
    graph = graftline("lineage", "seen", "--mermaid")
    assert (graph.exit_code, graph.output.startswith("flowchart RL\n")) == (1, True)


def test_rows_are_listed_by_pages(graftline: Callable[..., Result]) -> None:
    whole = json.loads(graftline("lineage", "seen", "--rows", "--limit", "100", "--json").output)
    page = json.loads(graftline("lineage", "seen", "--rows", "--offset", "1", "--limit", "1", "--json").output)
    assert (len(page["rows"]), page["rows"][0]) == (1, whole["rows"][1])
    assert whole["stands_on"]["rows"] == len(whole["rows"])
    assert "rows" not in json.loads(graftline("lineage", "seen", "--json").output)
    shown = graftline("lineage", "seen", "--rows", "--limit", "1").output
    assert "release_pairs.jsonl:" in shown
    assert f"Rows 1 to 1 of {len(whole['rows'])}" in shown


def test_an_unknown_adapter_is_one_message(graftline: Callable[..., Result]) -> None:
    for command in ("lineage", "licenses"):
        refusal = graftline(command, "none")
        assert (refusal.exit_code, refusal.output.startswith("error: adapter 'none' is unknown: ")) == (1, True)
        assert refusal.output.count("\n") == 1


def test_the_bill_is_shown_and_told_to_programs(graftline: Callable[..., Result]) -> None:
    shown = graftline("licenses", "seen")
    assert shown.exit_code == 0, shown.output
    assert "base model memory: license unknown; find out on what terms it is" in shown.output
    bill = json.loads(graftline("licenses", "seen", "--json").output)
    assert [row["license"] for row in bill["licenses"]] == ["MIT"]
    assert graftline("licenses", "seen", "--notice").output.splitlines() == bill["notices"]
    document = json.loads(graftline("licenses", "seen", "--cyclonedx").output)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
