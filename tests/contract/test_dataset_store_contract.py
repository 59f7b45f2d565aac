"""What every dataset store does, whichever implementation it is."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import pytest

from graftline.core.errors import DataError
from graftline.datasets.store import DatasetStore, FilesDatasetStoreConfig, MemoryDatasetStoreConfig, open_dataset_store

FILES = {"b.jsonl": '{"a": 1}\n{"a": "für 🎉"}\n', "sets/a.jsonl": "", "sets/deep/c.jsonl": "{}\n"}
Opener = Callable[[Mapping[str, str]], DatasetStore]


@pytest.fixture(params=["files", "memory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Open a store that holds files."""

    def of_files(files: Mapping[str, str]) -> DatasetStore:
        folder = tmp_path / "datasets"
        folder.mkdir()
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, "utf-8")
        return open_dataset_store(FilesDatasetStoreConfig(folder="datasets"), tmp_path)

    def of_memory(files: Mapping[str, str]) -> DatasetStore:
        return open_dataset_store(MemoryDatasetStoreConfig(files=dict(files)), tmp_path)

    return of_files if request.param == "files" else of_memory


@pytest.fixture
def store(opened: Opener) -> DatasetStore:
    return opened(FILES)


def test_names_are_listed_in_order(store: DatasetStore) -> None:
    assert store.names() == ["b.jsonl", "sets/a.jsonl", "sets/deep/c.jsonl"]


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        ("sets/", ["sets/a.jsonl", "sets/deep/c.jsonl"]),
        ("sets/d", ["sets/deep/c.jsonl"]),
        ("b.jsonl", ["b.jsonl"]),
        ("c", []),
        ("nothing/here", []),
        ("../", []),
        ("/", []),
    ],
)
def test_names_are_listed_by_what_they_begin_with(store: DatasetStore, prefix: str, names: list[str]) -> None:
    assert store.names(prefix) == names


def test_a_dataset_is_read_as_it_is(store: DatasetStore) -> None:
    for name, text in FILES.items():
        with store.open(name) as stream:
            assert stream.read() == text.encode()
        assert store.sha256(name) == sha256(text.encode()).hexdigest()


def test_lines_are_read_one_by_one(store: DatasetStore) -> None:
    with store.open("b.jsonl") as stream:
        assert [len(line) for line in stream] == [9, 19]


def test_every_dataset_is_the_file_of_its_name_in_the_folder(store: DatasetStore) -> None:
    with store.folder() as folder:
        assert {name: (folder / name).read_text("utf-8") for name in store.names()} == FILES


def test_one_that_is_not_there_is_an_error_that_says_which_are(store: DatasetStore) -> None:
    for ask in (store.open, store.sha256):
        with pytest.raises(DataError) as error:
            ask("sets/b.jsonl")
        assert str(error.value).startswith(f"{store.label}: has no dataset 'sets/b.jsonl'; it has ")
        assert "sets/a.jsonl" in str(error.value)


def test_an_empty_store_has_nothing(opened: Opener) -> None:
    store = opened({})
    assert store.names() == []
    with pytest.raises(DataError, match=r"has no dataset 'a\.jsonl'; it has none"):
        store.open("a.jsonl")
    with store.folder() as folder:
        assert [*folder.iterdir()] == []


@pytest.mark.parametrize(
    "name", ["", "/a.jsonl", "../a.jsonl", "a//b.jsonl", "./a.jsonl", ".a.jsonl", "a/.b.jsonl", "a.json", "a\nb.jsonl"]
)
def test_a_name_that_no_dataset_can_have_is_refused(store: DatasetStore, name: str) -> None:
    for ask in (store.open, store.sha256):
        with pytest.raises(DataError, match="name"):
            ask(name)


def test_threads_read_side_by_side(store: DatasetStore) -> None:
    with ThreadPoolExecutor(4) as threads:
        assert len({*threads.map(store.sha256, ["b.jsonl"] * 16)}) == 1
