"""What is said of rows that a recipe does not train on, and that a run without examples is an error with its remedy."""

import json
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from graftline.cli.main import main
from graftline.core.errors import DataError
from graftline.training.examples import check_examples, describe_dropped, notice_of_dropped
from graftline.training.recipes.base import Example, TrainingData
from graftline.training.recipes.sl_basic import SlBasicConfig
from tests.training_root import write_root

CONFIG = SlBasicConfig(model="m", dataset="a.jsonl", max_tokens=1024)


def data(examples: int, dropped: dict[str, int], too_long: list[int] | None = None) -> TrainingData:
    return TrainingData([Example((), 1, 1)] * examples, [], {}, Counter(dropped), too_long or [])


def test_no_example_is_an_error_that_says_by_how_much_rows_are_too_long_and_what_to_set() -> None:
    with pytest.raises(DataError) as error:
        check_examples(CONFIG, data(0, {"too_long": 4, "no_target": 1}, [1055, 9796, 1409, 2000]))
    assert str(error.value) == (
        "a.jsonl: no example is left to train on: 1 without an answer to learn; 4 longer than max_tokens, which is 1,024: 1,055"
        " to 9,796 tokens, half of them at most 1,409. Take them in with --set max_tokens=9796 (or 1409: half of them), which"
        " takes more time and memory, or ask in fewer words: `graftline data export` with --prompt brief, in the"
        " lineage `prompt` below data"
    )


@pytest.mark.parametrize("reason", ["bad_chat", "no_target", "not_comparable", "refused"])
def test_every_reason_is_told_in_words(reason: str) -> None:
    assert reason not in describe_dropped(CONFIG, data(1, {reason: 2}))


def test_a_large_share_that_is_left_out_is_told_before_training() -> None:
    assert notice_of_dropped(CONFIG, data(10, {"too_long": 1}, [2000])) == ""
    notice = notice_of_dropped(CONFIG, data(9, {"too_long": 1}, [2000]))
    assert notice.startswith("a.jsonl: 1 of 10 examples (10%) are not trained on: 1 longer than max_tokens")
    assert notice_of_dropped(CONFIG, data(9, {})) == ""


@pytest.mark.parametrize("command", [["estimate"], ["run", "--url", "http://127.0.0.1:9"]])
def test_a_command_without_an_example_fails(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-none")
    root = write_root(tmp_path / "root", tiny_model, max_tokens=4)
    done = CliRunner().invoke(main, ["--root", str(root), "train", *command, "tiny"])
    assert (done.exit_code, done.stdout) == (1, "")
    assert "error: data/train.jsonl: no example is left to train on: 24 longer than max_tokens" in done.stderr


def test_an_estimate_counts_what_is_left_and_what_it_costs(tmp_path: Path, tiny_model: Path) -> None:
    root = write_root(tmp_path / "root", tiny_model, max_tokens=40, usd_per_million_tokens=1e6)
    estimate = CliRunner().invoke(main, ["--root", str(root), "train", "estimate", "tiny", "--json"])
    assert estimate.exit_code == 0, estimate.output
    found = json.loads(estimate.stdout)
    assert found["examples"] + found["dropped"].get("too_long", 0) == 24
    assert found["usd"] == found["tokens_of_all_steps"] == 2 * found["tokens"]
