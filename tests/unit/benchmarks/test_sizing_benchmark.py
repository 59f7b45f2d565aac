"""The benchmark of sizes: it runs to its end, its rows are those of the dataset, and its tables follow from its rates."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import sizing
from benchmarks.commands import CHECKOUT
from benchmarks.synthetic_rows import agent_row
from graftline.datasets.edit import Edit, Rejection
from graftline.datasets.readers.agentpack import number_of_files

TINY = sizing.Sizes(rows=40, pairs=3, instances=5, rollouts=3)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "sizing.md"
    path.write_text(f"# Sizing\n{sizing.MARK}\nold\n{sizing.MARK}\nrest\n")
    return path


@pytest.mark.long
def test_it_measures_all_it_tells_and_puts_the_tables_into_the_page(
    page: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sizing, "QUICK", TINY)
    sizing.main(["--quick", "--into", str(page)])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["name"], told["peers"]) == ("sizing", {})
    figures = told["figures"]
    assert figures["edits"]["measured"] == 80
    assert 0 < figures["edits"]["edits_per_row"] < 1
    assert all(figures[of]["measured"] > 0 for of in ("attempts", "rollouts"))
    text = page.read_text()
    assert text.startswith(f"# Sizing\n{sizing.MARK}\nMeasured on ")
    assert text.endswith(f"{sizing.MARK}\nrest\n")
    assert "old" not in text


def test_a_page_without_marks_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(_: sizing.Sizes) -> dict[str, Any]:
        raise AssertionError("is not reached")

    monkeypatch.setattr(sizing, "measure", measured)
    (tmp_path / "page.md").write_text("# Sizing\n")
    for path in (tmp_path / "page.md", tmp_path / "none.md"):
        with pytest.raises(SystemExit, match="is no page with two lines"):
            sizing.main(["--into", str(path)])


def test_what_one_core_does_alone_is_not_divided_by_the_cores() -> None:
    row = sizing.row_of("rows", core_hours=10.0, kept_bytes=2e9, alone_hours=2.0)
    assert row == "| rows | 10.0 | 6.0 h | 3.0 h | 2.0 GB |"


def test_the_page_has_marks_and_is_of_a_full_run() -> None:
    tables = (CHECKOUT / "docs" / "sizing.md").read_text("utf-8").split(sizing.MARK)
    assert len(tables) == 3
    assert f"with {2 * sizing.FULL.rows:,} rows" in tables[1]


def test_rows_of_agentpack_are_commits_as_patches_of_which_a_fifth_is_of_one_file() -> None:
    from graftline.datasets.catalog import Dataset
    from graftline.datasets.readers.agentpack import SOURCE

    dataset = Dataset.model_validate(
        {"reader": "agentpack", "url": "source", "version": "1", "license": "MIT", "files": ({"path": "*.jsonl"},)}
    )
    rows = [agent_row(number) for number in range(300)]
    assert rows[7] == agent_row(7)
    files = [number_of_files(row["patch"]) for row in rows]
    assert 0.12 < files.count(1) / len(files) < 0.26
    outcomes = [outcome for row in rows for outcome in SOURCE.outcomes(row, "agentpack", dataset)]
    drops = {outcome.reason.value for outcome in outcomes if isinstance(outcome, Rejection)}
    assert sum(isinstance(outcome, Edit) for outcome in outcomes) > 30
    assert "bad_patch" not in drops
    assert "several_files" in drops
