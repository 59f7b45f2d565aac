"""What the sensor remembers: bounded, readable by itself alone, and with pauses that depend on nothing but names."""

import json

import pytest

from graftline.core.hashing import digest
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.sources.base import Observation
from sensors.cursor import LONGEST_ASKED_S, MAX_CURSOR_BYTES, Cursor, SourceState, pause_after

DATASET = Dataset(
    reader="commitpackft", url="hf://datasets/demo/rows", version="main", license="MIT", files=(DatasetFile(path="a"),)
)


def test_a_cursor_reads_what_it_wrote() -> None:
    known = SourceState(
        entry="e", newest="1", etag='W/"1\u00e9"', fetched="1", history="h", failures=2, not_before=5.25
    )
    cursor = Cursor(datasets={"a": known})
    assert Cursor.read(cursor.text()) == cursor


@pytest.mark.parametrize("text", [None, ""])
def test_no_cursor_is_a_new_one(text: str | None) -> None:
    assert Cursor.read(text) == Cursor()


@pytest.mark.parametrize(
    ("sources", "etag_bytes", "kept"),
    [
        (3, 100, True),
        (3, 5000, False),  # longer than any is kept
        (20, 4000, False),  # together they would be too long
        (20, 500, True),
    ],
)
def test_a_cursor_is_bounded_by_leaving_out_etags(sources: int, etag_bytes: int, kept: bool) -> None:
    known = SourceState(entry="e" * 16, newest="n" * 64, fetched="f" * 64, history="h" * 64, shown="s" * 64)
    full = {f"home_{number}": known.model_copy(update={"etag": "x" * etag_bytes}) for number in range(sources)}
    text = Cursor(datasets=full).text()
    assert len(text) <= MAX_CURSOR_BYTES
    lacking = {name: one if kept else known for name, one in full.items()}
    assert Cursor.read(text) == Cursor(datasets=lacking)


def test_pauses_double_up_to_a_limit_and_differ_from_source_to_source() -> None:
    for failures, longest in ((1, 600), (2, 1200), (3, 2400), (5, 9600), (6, 14400), (9_999, 14400)):
        pauses = [pause_after(f"home_{number}", failures) for number in range(50)]
        assert min(pauses) >= longest / 2
        assert max(pauses) < longest
        assert len(set(pauses)) == 50
    assert pause_after("source", 3) == pause_after("source", 3)


@pytest.mark.parametrize(
    ("asked_s", "at_least", "at_most"),
    [
        (0.0, 300.0, 600.0),  # our own pause after a first failure
        (30.0, 300.0, 600.0),  # ours is longer
        (4000.0, 4000.0, 4000.0),  # theirs is longer
        (1e9, LONGEST_ASKED_S, LONGEST_ASKED_S),  # nobody is obeyed for years
    ],
)
def test_a_source_is_left_alone_for_as_long_as_it_asks(asked_s: float, at_least: float, at_most: float) -> None:
    failed = SourceState(entry="e").with_failure("source", 1000.0, asked_s)
    assert at_least <= failed.not_before - 1000.0 <= at_most
    assert [failed.is_due(moment) for moment in (1000.0, failed.not_before - 1, failed.not_before)] == [
        False, False, True,
    ]  # fmt: skip


def test_a_pause_that_was_not_written_by_us_is_not_kept() -> None:
    # a clock that was set back, or a cursor that somebody wrote
    assert SourceState(entry="e", not_before=9e9).is_due(1e9)


def test_a_look_that_succeeds_ends_the_pauses() -> None:
    failed = SourceState(entry="e", newest="1", fetched="1", history="h").with_failure("source", 1000.0, 0.0)
    seen = failed.with_observation(Observation("1", "tag"), "1", "")
    assert seen == SourceState(entry="e", newest="1", etag="tag", fetched="1", history="h")


def test_a_history_tells_every_change_from_every_other() -> None:
    known, histories = SourceState(entry="e"), []
    for revision in ("1", "2", "1", "2"):
        known = known.with_observation(Observation(revision), revision, "2030-01-01")
        histories.append(known.history)
    other = SourceState(entry="e").with_observation(Observation("1"), "1", "2031-01-01")
    assert histories[0] == digest(["2030-01-01", "1"])
    assert len({*histories, other.history}) == 5


def test_another_entry_of_the_catalog_is_looked_at_anew_but_keeps_what_was_fetched() -> None:
    entry = Cursor().state_of("a", DATASET).entry
    known = SourceState(
        entry=entry, newest="2", etag="t", fetched="1", history="h", shown="s", failures=3, not_before=9.0
    )
    cursor = Cursor(datasets={"a": known})
    assert cursor.state_of("a", DATASET) == known
    other = DATASET.model_copy(update={"url": "hf://datasets/demo/others"})
    changed = cursor.state_of("a", other)
    assert changed == SourceState(entry=changed.entry, fetched="1", history="h")
    assert changed.entry != entry


def test_the_longest_catalog_still_has_a_cursor_of_one_line() -> None:
    text = Cursor(datasets={"a": SourceState(entry="e")}).text()
    assert json.loads(text)["version"] == 1
    assert text.splitlines() == [text]
