"""A mirror in place of sources that are elsewhere: layout, compressed files, pins."""

import gzip
import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from graftline.core.download import Download
from graftline.core.errors import ConfigError, DownloadError
from graftline.core.retry import RetryPolicy
from graftline.core.secrets import Secrets
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.sources.base import DatasetHub
from graftline.datasets.sources.folders import local_hub
from graftline.datasets.sources.mirror import MirrorHub, datasets_in_mirror
from graftline.datasets.sources.open import LocalHubConfig, MemoryHubConfig, SourcesHubConfig, open_hub

CONTENT = b"rows\n" * 5
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PACKED = gzip.compress(CONTENT, mtime=0)
SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "mirror"


def mirror(root: Path, files: Mapping[str, bytes], must_match_pins: bool = False) -> DatasetHub:
    for name, content in files.items():
        path = root / "mirror" / "demo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return MirrorHub(f"{root}/mirror/", local_hub(root), RetryPolicy(), must_match_pins)


def dataset(*paths: str, url: str | None = "hf://datasets/owner/name", **pins: Any) -> Dataset:
    files = tuple(DatasetFile(path=path, **pins) for path in paths)
    return Dataset(reader="commitpackft", url=url, version="1", license="MIT", files=files)


def fetch(hub: DatasetHub, entry: Dataset, target: Path) -> Download:
    (file,) = hub.files("demo", entry)
    return hub.fetch("demo", entry, file, target, lambda done, total: None)


@pytest.mark.parametrize("url", [None, "hf://datasets/owner/name", "https://example.com/x", "s3://bucket/x"])
def test_a_mirror_stands_for_sources_that_are_elsewhere_or_unknown(tmp_path: Path, url: str | None) -> None:
    fetched = fetch(mirror(tmp_path, {"data/rows.jsonl": CONTENT}), dataset("data/rows.jsonl", url=url), tmp_path / "t")
    assert ((tmp_path / "t").read_bytes(), fetched) == (CONTENT, Download(SHA256, len(CONTENT), is_upstream=False))


def test_folders_of_the_checkout_stay_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "rows.jsonl").write_bytes(b"sample")
    hub, entry = mirror(tmp_path, {"rows.jsonl": CONTENT}), dataset("rows.jsonl", url="samples")
    assert fetch(hub, entry, tmp_path / "t").is_upstream
    assert (tmp_path / "t").read_bytes() == b"sample"
    assert hub.revision("demo", entry) == local_hub(tmp_path).revision("demo", entry)
    assert hub.observe("demo", entry, None) == local_hub(tmp_path).observe("demo", entry, None)
    with hub.stream("demo", entry, entry.files[0]) as stream:
        assert stream.read() == b"sample"


LISTINGS = [
    ("itself", {"a.jsonl": b""}, ["a.jsonl"], ["a.jsonl"]),
    ("compressed", {"a.jsonl.gz": PACKED}, ["a.jsonl"], ["a.jsonl.gz"]),
    ("itself before compressed", {"a.jsonl": b"", "a.jsonl.gz": PACKED}, ["a.jsonl"], ["a.jsonl"]),
    ("asked for compressed", {"a.jsonl": b"", "a.jsonl.gz": PACKED}, ["a.jsonl.gz"], ["a.jsonl.gz"]),
    ("by pattern", {"x/a.jsonl.gz": PACKED, "y/a.jsonl": b""}, ["*/a.jsonl"], ["x/a.jsonl.gz", "y/a.jsonl"]),
    ("once, by two entries", {"a.jsonl.gz": PACKED}, ["*.jsonl", "*.gz", "a.jsonl"], ["a.jsonl.gz"]),
]


@pytest.mark.parametrize(
    ("files", "entries", "found"), [case[1:] for case in LISTINGS], ids=[case[0] for case in LISTINGS]
)
def test_a_file_may_lie_there_compressed(
    tmp_path: Path, files: Mapping[str, bytes], entries: list[str], found: list[str]
) -> None:
    assert [file.path for file in mirror(tmp_path, files).files("demo", dataset(*entries))] == found


@pytest.mark.parametrize("must_match_pins", [True, False])
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz"])
def test_a_pin_means_what_is_in_the_file(tmp_path: Path, name: str, must_match_pins: bool) -> None:
    stored = PACKED if name.endswith(".gz") else CONTENT
    hub = mirror(tmp_path, {name: stored}, must_match_pins)
    fetched = fetch(hub, dataset("rows.jsonl", sha256=SHA256, size_bytes=len(CONTENT)), tmp_path / name)
    assert fetched == Download(hashlib.sha256(stored).hexdigest(), len(stored), is_upstream=True)
    assert (tmp_path / name).read_bytes() == stored


NOT_PINNED = [
    ("rows.jsonl", b"other\n", "size_bytes is 6, but 25 is expected"),
    ("rows.jsonl.gz", gzip.compress(b"other\n", mtime=0), "size_bytes is 6, but 25 is expected"),
    ("rows.jsonl.gz", PACKED[:-6], "cannot be decompressed (the compressed file ends before its end-of-stream marker)"),
    ("rows.jsonl.gz", b"rows", "cannot be decompressed"),
]


@pytest.mark.parametrize(("name", "stored", "reason"), NOT_PINNED)
def test_another_file_than_the_pinned_one_is_refused_where_it_must_match(
    tmp_path: Path, name: str, stored: bytes, reason: str
) -> None:
    hub = mirror(tmp_path, {name: stored}, must_match_pins=True)
    with pytest.raises(DownloadError) as error:
        fetch(hub, dataset("rows.jsonl", sha256=SHA256, size_bytes=len(CONTENT)), tmp_path / "target" / name)
    assert str(error.value).startswith(f"{tmp_path}/mirror/demo/{name}: {reason}")
    assert list((tmp_path / "target").iterdir()) == []


@pytest.mark.parametrize(("name", "stored", "reason"), NOT_PINNED)
def test_another_file_than_the_pinned_one_is_used_with_one_warning_where_it_need_not_match(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, stored: bytes, reason: str
) -> None:
    entry = dataset("rows.jsonl", sha256=SHA256, size_bytes=len(CONTENT))
    fetched = fetch(mirror(tmp_path, {name: stored}), entry, tmp_path / name)
    assert ((tmp_path / name).read_bytes(), fetched.is_upstream) == (stored, False)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith(f"{tmp_path}/mirror/demo/{name}: is not the pinned file, but is used: {reason}")


def test_the_revision_is_that_of_the_mirror(tmp_path: Path) -> None:
    entry = dataset("rows.jsonl", sha256=SHA256)
    first = mirror(tmp_path, {"rows.jsonl": CONTENT}).revision("demo", entry)
    second = mirror(tmp_path, {"rows.jsonl": b"other"}).revision("demo", entry)
    assert first != second == mirror(tmp_path, {}).observe("demo", entry, None).revision


def test_a_stream_of_the_mirror_is_checked_as_a_fetch_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    entry = dataset("rows.jsonl", sha256="0" * 64)
    for must_match_pins in (False, True):
        hub = mirror(tmp_path, {"rows.jsonl": CONTENT}, must_match_pins)
        with hub.stream("demo", entry, hub.files("demo", entry)[0]) as stream:
            if not must_match_pins:
                assert stream.read() == CONTENT
                assert len(caplog.records) == 1
                continue
            with pytest.raises(DownloadError, match="sha256 is"):
                stream.read()


def test_a_compressed_stream_cannot_be_checked_and_says_so(tmp_path: Path) -> None:
    entry = dataset("rows.jsonl", sha256=SHA256)
    hub = mirror(tmp_path, {"rows.jsonl.gz": PACKED})
    with hub.stream("demo", entry, hub.files("demo", entry)[0]) as stream:
        assert stream.read() == PACKED
    strict = mirror(tmp_path, {}, must_match_pins=True)
    with pytest.raises(DownloadError, match=r"cannot be checked while it is read; keep 'rows.jsonl' itself there"):
        strict.stream("demo", entry, hub.files("demo", entry)[0])


def test_what_a_mirror_holds_is_known_by_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror(tmp_path, {"rows.jsonl": CONTENT})
    monkeypatch.chdir(tmp_path)
    names = ["demo", "agentpack"]
    for named in (f"{tmp_path}/mirror", f"file://{tmp_path}/mirror/", "mirror"):
        assert datasets_in_mirror(named, names) == {"demo"}
    for named in (f"{tmp_path}/nowhere", "s4://nowhere"):
        with pytest.raises(ConfigError, match=r"nowhere"):
            datasets_in_mirror(named, names)


def test_a_mirror_applies_to_every_hub_but_the_one_in_memory(tmp_path: Path) -> None:
    mirror(tmp_path, {"rows.jsonl": CONTENT})
    opened = [
        open_hub(config, tmp_path, Secrets([]), f"{tmp_path}/mirror")
        for config in (SourcesHubConfig(), LocalHubConfig(), MemoryHubConfig(files={"demo/rows.jsonl": "memory"}))
    ]
    for hub, content in zip(opened, (CONTENT, CONTENT, b"memory"), strict=True):
        fetch(hub, dataset("rows.jsonl", url=None), tmp_path / "t")
        assert (tmp_path / "t").read_bytes() == content


@pytest.mark.skipif(not SHARED.is_dir(), reason="no folder shared/data/mirror beside the checkout")
def test_the_shared_mirror_is_one(tmp_path: Path) -> None:
    assert datasets_in_mirror(str(SHARED), ["agentpack", "marv", "oce_dataft"]) == {"agentpack", "marv"}
    hub = MirrorHub(str(SHARED), local_hub(tmp_path), RetryPolicy(), must_match_pins=False)
    found = [file.path for file in hub.files("commitpackft", dataset("data/*/data.jsonl"))]
    assert found == [f"data/{language}/data.jsonl.gz" for language in ("java", "javascript", "python", "typescript")]
