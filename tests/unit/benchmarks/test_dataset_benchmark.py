"""The benchmark of the datasets, at sizes that show that it runs and measures what it says; no clock is judged."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import datasets
from benchmarks.commands import CHECKOUT
from benchmarks.dataset_orders import orders
from benchmarks.synthetic_rows import lines, row
from graftline.datasets.language import is_clean
from graftline.datasets.readers.commitpackft import CommitRow
from tests.small_mirror import shared_data

TINY = datasets.Sizes(rows=300, repetitions=1, texts=20, curve=(100, 200), rerun=60, orders=2, rows_of_orders=25)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return [row(number) for number in range(1000)]


def test_rows_have_the_columns_of_the_dataset(rows: list[dict[str, Any]]) -> None:
    assert {tuple(found) for found in rows} == {tuple(CommitRow.model_fields)}
    assert all(CommitRow.model_validate(found) for found in rows)


def test_a_row_is_the_same_whatever_was_made_before() -> None:
    assert list(lines(3, 40)) == list(lines(43))[40:]


def test_programs_parse_but_for_one_in_a_hundred(rows: list[dict[str, Any]]) -> None:
    before = [found["old_contents"] for found in rows if found["old_contents"]]
    assert all(is_clean(text, "python") for text in before)
    assert all(ast.parse(text) for text in before)
    broken = sum(not is_clean(found["new_contents"], "python") for found in rows)
    assert 2 <= broken <= 30


def test_texts_have_the_traps_of_the_dataset(rows: list[dict[str, Any]]) -> None:
    traps = {
        "new file": sum(not found["old_contents"] for found in rows),
        "other license": sum(found["license"] in ("agpl-3.0", "lgpl-2.1", "unknown", "mpl-2.0") for found in rows),
        "address": sum("@example.org" in found["message"] for found in rows),
        "trailer": sum("Signed-off-by:" in found["message"] for found in rows),
        "fork": sum("," in found["repos"] for found in rows),
        "CRLF": sum("\r\n" in found["old_contents"] for found in rows),
        "equal": len(rows) - len({(found["message"], found["old_contents"]) for found in rows}),
    }
    assert [name for name, count in traps.items() if not 2 <= count <= 500] == []


@pytest.mark.long
def test_the_stages_are_measured_with_and_without_the_parse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]]
) -> None:
    monkeypatch.setattr(datasets, "PEERS_PYTHON", tmp_path / "no-such-python")
    figures, peers = datasets.stages(tmp_path, TINY)
    parsed, unparsed = figures["parsed"]["counts"]["normalized"], figures["unparsed"]["counts"]["normalized"]
    assert peers == {}
    assert (parsed["rows_in"], unparsed["rows_in"]) == (300, 300)
    assert unparsed["rows"] == parsed["rows"] + parsed["dropped.unparsable"]
    assert parsed["dropped.empty_pre"] == sum(not found["old_contents"] for found in rows[:300])
    assert list(figures["parsed"]["us_per_row"]) == ["normalized", "division", "splits"]


def test_the_peers_do_the_same_work(tmp_path: Path) -> None:
    if not datasets.PEERS_PYTHON.exists():
        pytest.skip("the peers are not installed: `make peers` builds .venv-peers")
    datasets.written(tmp_path / "source", 300)
    commands = {"graftline": datasets.STAGES, **datasets.peers_of_stages()}
    found = {
        name: datasets.once(name, command, tmp_path / "source", tmp_path / "work", check_syntax=True)["counts"]
        for name, command in commands.items()
    }
    ours = found.pop("graftline")
    drops = {name: count for name, count in ours["normalized"].items() if name.startswith("dropped.")}
    wanted = {"rows_in": 300, "edits": ours["normalized"]["rows"], "rows": ours["splits"]["rows"], **drops}
    assert found == {"datasets": wanted, "datatrove": wanted}


def test_minhash_is_measured_beside_datasketch(tmp_path: Path) -> None:
    figures, peers = datasets.minhash(tmp_path, TINY)
    assert figures["texts"] == 20
    if datasets.PEERS_PYTHON.exists():
        assert list(peers) == ["datasketch, sha1", "datasketch, xxhash"]


@pytest.mark.long
def test_the_curve_has_memory_of_all_processes_at_every_size(tmp_path: Path) -> None:
    figures, _ = datasets.curve(tmp_path, TINY)
    assert [point["rows"] for point in figures["points"]] == [100, 200]
    assert all(point["peak_memory_mb"] > 20 for point in figures["points"])


@pytest.mark.parametrize(
    ("points", "wanted"),
    [
        ([(1.0, 5.0), (10.0, 50.0), (100.0, 500.0)], 1.0),  # ten times the rows, ten times the time
        ([(1.0, 3.0), (10.0, 300.0)], 2.0),  # ten times the rows, a hundred times the time
        ([(1.0, 7.0), (1000.0, 7.0)], 0.0),  # no growth
    ],
)
def test_the_exponent_is_the_power_that_grows(points: list[tuple[float, float]], wanted: float) -> None:
    assert datasets.exponent(points) == wanted


def test_a_changed_source_leaves_what_does_not_depend_on_it(tmp_path: Path) -> None:
    figures, _ = datasets.rerun(tmp_path, TINY)
    assert figures["nothing_changed"]["made"] == 0
    assert sorted(figures["one_row_more_in_second"]["made"]) == [
        "division",
        "normalized/second",
        "raw/second",
        "splits/javascript/dev",
        "splits/javascript/test",
        "splits/javascript/train",
    ]
    # 2 raw, 2 normalized, 1 division, 3 splits of each of 5 languages
    assert figures["first_run"]["made"] == 20


def test_nothing_moves_in_any_order_of_the_datasets(tmp_path: Path) -> None:
    shared_data(CHECKOUT)
    figures = orders(tmp_path, TINY.orders, TINY.rows_of_orders)
    assert {name: figures[name] for name in ("orders", "datasets", "held_out_then_trained", "moved")} == {
        "orders": 2, "datasets": 7, "held_out_then_trained": 0, "moved": 0,
    }  # fmt: skip
    assert figures["rows"] > 100


def test_one_line_of_json_names_figures_peers_and_machine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "QUICK", TINY)
    monkeypatch.setattr("sys.argv", ["datasets", "--quick", "--part", "rerun"])
    datasets.main()
    printed = capsys.readouterr().out.splitlines()
    assert [list(json.loads(line)) for line in printed] == [["name", "figures", "peers", "machine"]]
