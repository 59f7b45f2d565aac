"""Bytes over all files of a dataset, fetched or streamed."""

from pathlib import Path

from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.pipeline.dataset_views.build import CountingHub
from graftline.testing.datasets import memory_hub

CONTENT = {"home/a": b"12345", "home/b": b"123"}


def dataset(*files: DatasetFile) -> Dataset:
    return Dataset(reader="release_pairs", home="home", version="1", license="MIT", files=files)


def fetched(tmp_path: Path, *files: DatasetFile) -> list[tuple[int, int]]:
    counted: list[tuple[int, int]] = []
    hub = CountingHub(memory_hub(CONTENT), lambda done, total: None)
    wanted = dataset(*files)
    for file in hub.files("demo", wanted):
        hub.fetch("demo", wanted, file, tmp_path / file.path, lambda done, total: counted.append((done, total)))
    return counted


def test_bytes_are_counted_over_all_files(tmp_path: Path) -> None:
    pinned = [DatasetFile(path="a", size_bytes=5), DatasetFile(path="b", size_bytes=3)]
    assert fetched(tmp_path, *pinned) == [(5, 8), (8, 8)]


def test_a_total_that_is_not_known_is_not_made_up(tmp_path: Path) -> None:
    assert fetched(tmp_path, DatasetFile(path="a"), DatasetFile(path="b", size_bytes=3)) == [(5, 0), (8, 0)]


def test_one_file_says_itself_how_large_it_is(tmp_path: Path) -> None:
    assert fetched(tmp_path, DatasetFile(path="a")) == [(5, 5)]


def test_what_is_streamed_is_counted_as_it_is_read_and_comes_unchanged() -> None:
    counted: list[tuple[int, int]] = []
    hub = CountingHub(memory_hub(CONTENT), lambda done, total: counted.append((done, total)))
    wanted = dataset(DatasetFile(path="a", size_bytes=5), DatasetFile(path="b", size_bytes=3))
    contents = []
    for file in hub.files("demo", wanted):
        with hub.stream("demo", wanted, file) as stream:
            contents.append(stream.read())
    # the end of each file is found by a read of nothing
    assert (contents, counted) == ([b"12345", b"123"], [(5, 8), (5, 8), (8, 8), (8, 8)])


def test_another_dataset_is_counted_from_nothing(tmp_path: Path) -> None:
    counted: list[tuple[int, int]] = []
    hub = CountingHub(memory_hub(CONTENT), lambda done, total: None)
    for path in ("a", "b"):
        wanted = dataset(DatasetFile(path=path))
        (file,) = hub.files(path, wanted)
        hub.fetch(path, wanted, file, tmp_path / path, lambda done, total: counted.append((done, total)))
    assert counted == [(5, 5), (3, 3)]
