"""Patterns of one name, and names that would lead elsewhere."""

import pytest

from graftline.core.errors import DataError, DownloadError
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.sources.base import Facts, matches, resolve

MATCHES = [
    ("*", "a.jsonl", True),
    ("*", "a/b.jsonl", False),  # one name, not a path
    ("data/*/rows.jsonl", "data/python/rows.jsonl", True),
    ("data/*/rows.jsonl", "data/a/b/rows.jsonl", False),
    ("train/*.jsonl.gz", "train/part-0.jsonl.gz", True),
    ("train/*.jsonl.gz", "train/part-0.jsonl", False),
    ("*-*.csv", "a-b-c.csv", True),
    ("*.csv", ".hidden.csv", False),  # what programs leave beside their files
    (".*.csv", ".hidden.csv", True),
    ("[a-b].csv", "a.csv", False),  # only * is special
    ("[a-b].csv", "[a-b].csv", True),
    ("a+.csv", "aa.csv", False),
    ("A.csv", "a.csv", False),
]


@pytest.mark.parametrize(("pattern", "path", "fits"), MATCHES)
def test_a_star_stands_for_any_part_of_one_name(pattern: str, path: str, fits: bool) -> None:
    assert matches(pattern, path) is fits


def dataset(*files: DatasetFile) -> Dataset:
    return Dataset(reader="marv", url="x", version="1", license="MIT", files=files)


ELSEWHERE = [
    "../a",
    "..",
    "/a",
    "a\\b",
    "a\x00",
    "a\nb",
    "C:",
    "nul",
    "aux.txt",
    "a.",
    "a ",
    "a?",
    "a\ud800",
    "x" * 256,
]


@pytest.mark.parametrize("name", ELSEWHERE)
def test_a_name_that_would_lead_elsewhere_is_refused(name: str) -> None:
    entry = dataset(DatasetFile(path="*"), DatasetFile(path="*/*"))
    with pytest.raises(DataError, match="use a plain relative path"):
        resolve("source", entry, {name: Facts(), "fine": Facts(), "fine/too": Facts()})


def test_a_name_that_nobody_asked_for_is_no_fault() -> None:
    found = resolve("source", dataset(DatasetFile(path="*.csv")), {"../a": Facts(), "b.csv": Facts(3)})
    assert found == [DatasetFile(path="b.csv", size_bytes=3)]


def test_a_pinned_entry_stands_beside_a_pattern_that_fits_it() -> None:
    entry = dataset(DatasetFile(path="a.csv", sha256="0" * 64), DatasetFile(path="*.csv"))
    assert resolve("source", entry, {"b.csv": Facts(), "a.csv": Facts(size_bytes=1)}) == [
        DatasetFile(path="a.csv", sha256="0" * 64, size_bytes=1),
        DatasetFile(path="b.csv"),
    ]


def test_an_entry_without_a_file_is_an_error_that_lists_what_there_is() -> None:
    with pytest.raises(DownloadError) as error:
        resolve("source", dataset(DatasetFile(path="*.csv")), {f"{digit}.txt": Facts() for digit in range(9)})
    assert str(error.value) == (
        "source/*.csv: no such file; mend `files` of the dataset; found: 0.txt, 1.txt, 2.txt, 3.txt, 4.txt"
    )
