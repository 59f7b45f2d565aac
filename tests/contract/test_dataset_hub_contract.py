"""What every `DatasetHub` does: whole and pinned files, or an error that says what to mend."""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from graftline.datasets.catalogue import Dataset, DatasetFile
from graftline.datasets.hub import DatasetHub, LocalHub, LocalHubConfig, MemoryHub, MemoryHubConfig, open_hub
from graftline.errors import DataError, DatasetError

CONTENT = b'{"id": 1}\r\n\x00\xff\n'
Open = Callable[[Mapping[str, bytes]], DatasetHub]


@pytest.fixture(params=["local", "memory"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Return a hub whose homes hold given files, by name below the root."""

    def local(files: Mapping[str, bytes]) -> DatasetHub:
        for name, content in files.items():
            path = tmp_path / "root" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return LocalHub(tmp_path / "root")

    return {"local": local, "memory": MemoryHub}[request.param]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where to fetch to, in an empty folder."""
    (tmp_path / "target").mkdir()
    return tmp_path / "target" / "rows.jsonl"


def dataset(*paths: str, home: str = "homes/demo", **pins: Any) -> Dataset:
    files = tuple(DatasetFile(path=path, **pins) for path in paths)
    return Dataset(reader="release_pairs", home=home, version="1", license="MIT", files=files)


def fetch(hub: DatasetHub, wanted: Dataset, target: Path) -> None:
    hub.fetch(wanted, wanted.files[0], target)


def test_fetch_writes_exactly_the_bytes_of_the_home(opened: Open, target: Path) -> None:
    fetch(opened({"homes/demo/rows.jsonl": CONTENT}), dataset("rows.jsonl"), target)
    assert ([path.name for path in target.parent.iterdir()], target.read_bytes()) == (["rows.jsonl"], CONTENT)


def test_fetch_writes_an_empty_file_too(opened: Open, target: Path) -> None:
    fetch(opened({"homes/demo/rows.jsonl": b""}), dataset("rows.jsonl"), target)
    assert target.read_bytes() == b""


def test_fetch_takes_files_of_folders_inside_the_home(opened: Open, target: Path) -> None:
    fetch(opened({"homes/demo/a/b/rows.jsonl": CONTENT}), dataset("a/b/rows.jsonl"), target)
    assert target.read_bytes() == CONTENT


def test_fetch_replaces_an_older_file(opened: Open, target: Path) -> None:
    target.write_bytes(b"older and longer than the new one")
    fetch(opened({"homes/demo/rows.jsonl": CONTENT}), dataset("rows.jsonl"), target)
    assert target.read_bytes() == CONTENT


def test_fetch_accepts_what_is_pinned(opened: Open, target: Path) -> None:
    pins = {"size_bytes": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}
    fetch(opened({"homes/demo/rows.jsonl": CONTENT}), dataset("rows.jsonl", **pins), target)
    assert target.read_bytes() == CONTENT


def test_another_size_than_pinned_is_an_error_and_leaves_no_file(opened: Open, target: Path) -> None:
    with pytest.raises(DatasetError) as error:
        fetch(opened({"homes/demo/rows.jsonl": b"12345"}), dataset("rows.jsonl", size_bytes=4), target)
    assert str(error.value) == (
        "homes/demo/rows.jsonl: size_bytes is 5, but configs/datasets.yaml pins 4;"
        " restore the file, or pin the new version if you mean to change it"
    )
    assert list(target.parent.iterdir()) == []


def test_another_checksum_than_pinned_is_an_error_and_leaves_no_file(opened: Open, target: Path) -> None:
    found, pinned = hashlib.sha256(b"12345").hexdigest(), "0" * 64
    with pytest.raises(DatasetError) as error:
        fetch(opened({"homes/demo/rows.jsonl": b"12345"}), dataset("rows.jsonl", size_bytes=5, sha256=pinned), target)
    assert str(error.value) == (
        f"homes/demo/rows.jsonl: sha256 is {found}, but configs/datasets.yaml pins {pinned};"
        " restore the file, or pin the new version if you mean to change it"
    )
    assert list(target.parent.iterdir()) == []


def test_a_mismatch_leaves_an_older_file_as_it_was(opened: Open, target: Path) -> None:
    target.write_bytes(b"older")
    with pytest.raises(DatasetError):
        fetch(opened({"homes/demo/rows.jsonl": b"12345"}), dataset("rows.jsonl", size_bytes=4), target)
    assert ([path.name for path in target.parent.iterdir()], target.read_bytes()) == (["rows.jsonl"], b"older")


def test_a_missing_file_is_an_error_that_names_it(opened: Open, target: Path) -> None:
    hub = opened({"homes/demo/other.jsonl": CONTENT})
    with pytest.raises(DatasetError, match=r"homes/demo/rows\.jsonl: no such file"):
        fetch(hub, dataset("rows.jsonl"), target)
    assert list(target.parent.iterdir()) == []


def test_a_folder_is_no_file(opened: Open, target: Path) -> None:
    hub = opened({"homes/demo/rows.jsonl/inner": CONTENT})
    with pytest.raises(DatasetError, match=r"homes/demo/rows\.jsonl: no such file"):
        fetch(hub, dataset("rows.jsonl"), target)


def test_the_revision_needs_every_file(opened: Open) -> None:
    hub = opened({"homes/demo/a.jsonl": CONTENT})
    with pytest.raises(DatasetError, match=r"homes/demo/b\.jsonl: no such file"):
        hub.revision(dataset("a.jsonl", "b.jsonl"))


def test_the_revision_is_that_of_the_content(opened: Open) -> None:
    wanted = dataset("a.jsonl", "b.jsonl")
    files = {"homes/demo/a.jsonl": b"1", "homes/demo/b.jsonl": b"2"}
    first = opened(files).revision(wanted)
    assert opened(dict(files)).revision(wanted) == first
    # a file of the home that is not of the dataset
    assert opened({**files, "homes/demo/c.jsonl": b"3"}).revision(wanted) == first
    assert opened({**files, "homes/demo/b.jsonl": b"3"}).revision(wanted) != first
    # the same contents, exchanged
    assert opened({"homes/demo/a.jsonl": b"2", "homes/demo/b.jsonl": b"1"}).revision(wanted) != first


def test_the_revision_of_other_files_is_another(opened: Open) -> None:
    hub = opened({"homes/demo/a.jsonl": b"1", "homes/demo/b.jsonl": b"1"})
    assert len({hub.revision(wanted) for wanted in (dataset("a.jsonl"), dataset("b.jsonl"))}) == 2


def test_the_time_of_a_file_is_not_in_its_revision(tmp_path: Path) -> None:
    wanted = dataset("a.jsonl", home="home")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "a.jsonl").write_bytes(CONTENT)
    first = LocalHub(tmp_path).revision(wanted)
    os.utime(tmp_path / "home" / "a.jsonl", (0, 0))
    assert LocalHub(tmp_path).revision(wanted) == first


@pytest.mark.parametrize(
    ("home", "path"),
    [
        ("homes/demo", "../secret.jsonl"),
        ("homes/demo", "a/../../secret.jsonl"),
        ("homes/demo", "/secret.jsonl"),
        ("homes/demo", "C:/secret.jsonl"),
        ("homes/demo", "rows\x00.jsonl"),
        ("../outside", "secret.jsonl"),
        ("/", "secret.jsonl"),
    ],
)
def test_a_name_that_leaves_its_folder_is_refused(opened: Open, target: Path, home: str, path: str) -> None:
    hub, wanted = opened({"homes/demo/rows.jsonl": CONTENT}), dataset(path, home=home)
    for reads in (lambda: hub.revision(wanted), lambda: fetch(hub, wanted, target)):
        with pytest.raises(DataError, match="use a plain relative path"):
            reads()
    assert list(target.parent.iterdir()) == []


def test_a_file_missing_in_memory_lists_those_there_are(target: Path) -> None:
    hub = MemoryHub({"homes/b.jsonl": b"", "homes/a.jsonl": b""})
    with pytest.raises(DatasetError) as error:
        fetch(hub, dataset("rows.jsonl"), target)
    assert str(error.value) == ("homes/demo/rows.jsonl: no such file in memory; known: homes/a.jsonl, homes/b.jsonl")


def test_every_configuration_opens_its_hub(tmp_path: Path, target: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "rows.jsonl").write_text("ä\n", "utf-8")
    for config in (LocalHubConfig(), MemoryHubConfig(files={"home/rows.jsonl": "ä\n"})):
        fetch(open_hub(config, tmp_path), dataset("rows.jsonl", home="home"), target)
        assert target.read_text("utf-8") == "ä\n"
        target.unlink()
