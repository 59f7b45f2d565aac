"""From configuration to a hub, and from a source to the one that knows it."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import ConfigError, DataError
from graftline.core.retry import RetryPolicy, SourceBusyError
from graftline.core.secrets import Secrets
from graftline.datasets.catalog import Dataset, DatasetFile, PackageRelease
from graftline.datasets.sources.open import LocalHubConfig, MemoryHubConfig, SourcesHub, SourcesHubConfig, open_hub
from tests.hub_server import HubServer

QUICK = RetryPolicy(connect_s=20.0, read_s=20.0, deadline_s=1.0, longest_pause_s=0.01)


def dataset(url: str | None, **changes: Any) -> Dataset:
    entry: dict[str, Any] = {"reader": "marv", "version": "1", "license": "MIT", "files": (DatasetFile(path="a.txt"),)}
    return Dataset(url=url, **{**entry, **changes})


def test_every_source_is_asked_in_its_own_way(tmp_path: Path) -> None:
    for folder in ("local", "file"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.txt").write_text(folder)
    with HubServer() as server:
        server.files["/web/a.txt"] = b"web"
        commit = server.put("owner/name", {"a.txt": b"repository"})
        hub = SourcesHub(tmp_path, QUICK, Secrets([]), server.url)
        for url, content in (
            ("local", b"local"),
            (f"file://{tmp_path}/file", b"file"),
            (f"{server.url}/web", b"web"),
            ("hf://datasets/owner/name", b"repository"),
        ):
            entry = dataset(url, version=commit)
            (file,) = hub.files("demo", entry)
            with hub.stream("demo", entry, file) as stream:
                assert stream.read() == content
            hub.fetch("demo", entry, file, tmp_path / "t", lambda done, total: None)
            assert (tmp_path / "t").read_bytes() == content
            assert hub.observe("demo", entry, None).revision == hub.revision("demo", entry)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (None, "dataset 'demo': nobody knows its source; state `url` in configs/datasets.yaml"),
        ("nowhere://x", "nowhere://x: Protocol not known: nowhere; install what fsspec needs for it, or mend it"),
    ],
)
def test_a_source_that_cannot_be_asked_is_an_error_that_says_why(tmp_path: Path, url: str | None, reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        SourcesHub(tmp_path, QUICK, Secrets([]), None).files("demo", dataset(url))
    assert str(error.value).startswith(reason)


@pytest.mark.parametrize("url", ["../outside", "/", "/etc", "C:/x", "a\\b", "."])
def test_a_folder_outside_the_root_is_refused(tmp_path: Path, url: str) -> None:
    for config in (SourcesHubConfig(), LocalHubConfig(), MemoryHubConfig()):
        hub = open_hub(config, tmp_path, Secrets([]))
        with pytest.raises(DataError, match="use a plain relative path"):
            hub.revision("demo", dataset(url))


def test_folders_alone_say_what_to_do_about_other_sources(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        open_hub(LocalHubConfig(), tmp_path, Secrets([])).revision("demo", dataset("hf://datasets/owner/name"))
    assert str(error.value) == (
        "dataset 'demo': its url 'hf://datasets/owner/name' is not a folder below the root;"
        " use `dataset_hub: {kind: sources}` in the manifest, or set GRAFTLINE_DATASET_MIRROR"
    )


def test_files_in_memory_stand_for_every_source(tmp_path: Path) -> None:
    names = {"sources/a.txt": "1", "https://example.com/x/a.txt": "2", "demo/a.txt": "3"}
    hub = open_hub(MemoryHubConfig(files=names), tmp_path, Secrets([]))
    for url, content in (("sources", b"1"), ("https://example.com/x", b"2"), (None, b"3")):
        with hub.stream("demo", dataset(url), DatasetFile(path="a.txt")) as stream:
            assert stream.read() == content


def test_packages_come_from_their_registry_even_with_a_mirror(tmp_path: Path) -> None:
    package = PackageRelease(registry="pypi", name="demo", old="1.0", new="2.0")
    entry = dataset(None, reader="package_releases", packages=(package,), files=())
    found = open_hub(SourcesHubConfig(), tmp_path, Secrets([]), f"{tmp_path}/mirror").files("demo", entry)
    assert len(found) == 2


def test_how_long_a_source_wants_to_be_left_alone_crosses_process_borders() -> None:
    error = SourceBusyError("busy")
    error.retry_after_s = 5.0
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.retry_after_s) == (SourceBusyError, "busy", 5.0)
