"""Releases of packages as sources: what `package_releases` compares, brought by pip and npm as they are configured.

A published release never changes, so nobody is asked for a revision. Nothing of a release is run.

Of PyPI, a wheel for every platform comes by pip itself, so that every machine gets the same file. Where a release has
none, its source archive is fetched from the index directly, for pip would run its build to learn its name; where it has
none either, the first of its other wheels in the order of their names. `npm pack` downloads a published release and checks
it against the registry's checksum.
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graftline.core.download import SourceStream
from graftline.core.errors import ConfigError, DownloadError
from graftline.core.hashing import digest
from graftline.core.pip import Link, fetch_link, filename_endings, list_links, read_pip_sources, run_pip
from graftline.core.processes import ProgramResult, run_program
from graftline.core.retry import RetryPolicy, SourceBusyError
from graftline.core.web import Web
from graftline.datasets.archives import MAX_ARCHIVE_BYTES, archive_path
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.sources.base import Observation, UpstreamHub

_CHUNK_BYTES = 1 << 20
SOURCE_ENDINGS = (".tar.gz", ".zip", ".tgz", ".tar.bz2")
"""In the order of preference."""
_FOR_EVERY_PLATFORM = (
    *("--only-binary=:all:", "--platform=any", "--implementation=py", "--abi=none", "--ignore-requires-python"),
    # later than any Python there is, so that which one runs us makes no difference
    "--python-version=3.99",
)
_UNIVERSAL_WHEEL = re.compile(r"-(.*[-.])?py3\d*(\.[^-]*)?-none-any\.whl")
_SHOWN_FILES = 5
_NPM_UNKNOWN = ("E404", "ETARGET")
_NPM_REFUSED = ("E401", "E403", "ENEEDAUTH")


class RegistryHub(UpstreamHub):
    """The registries of the packages of a dataset; `environment` is that of pip and npm, ours where it is None."""

    def __init__(self, patience: RetryPolicy, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(patience)
        self._environment = environment

    def revision(self, name: str, dataset: Dataset) -> str:
        return digest([package.model_dump() for package in dataset.packages])

    def observe(self, name: str, dataset: Dataset, previous: Observation | None) -> Observation:
        return Observation(self.revision(name, dataset))

    def files(self, name: str, dataset: Dataset) -> Sequence[DatasetFile]:
        releases = self._releases(name, dataset)
        return [DatasetFile(path=path, sha256=releases[path].sha256) for path in sorted(releases)]

    def source(self, name: str, dataset: Dataset, path: str) -> "_Release":
        return self._releases(name, dataset)[path]

    def _releases(self, name: str, dataset: Dataset) -> dict[str, "_Release"]:
        environment = os.environ if self._environment is None else self._environment
        releases: dict[str, _Release] = {}
        for package in dataset.packages:
            for version, sha256 in ((package.old, package.old_sha256), (package.new, package.new_sha256)):
                path = archive_path(package.registry, package.name, version)
                earlier = releases.get(path)
                if earlier and sha256 and earlier.sha256 and sha256 != earlier.sha256:
                    raise ConfigError(
                        f"dataset {name!r}: {earlier.label} has two checksums in `packages`; take one out"
                    )
                pin = sha256 or (earlier.sha256 if earlier else None)
                releases[path] = _Release(package.registry, package.name, version, pin, environment, self._patience)
        return releases


@dataclass(frozen=True, slots=True)
class _Release:
    """One release of a package, as something to download."""

    registry: str
    package: str
    version: str
    sha256: str | None
    environment: Mapping[str, str]
    patience: RetryPolicy

    @property
    def label(self) -> str:
        return f"{self.registry}:{self.package} {self.version}"

    @contextmanager
    def open(self, offset: int, etag: str) -> Iterator[SourceStream]:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            path = self._fetch_by_npm(folder) if self.registry == "npm" else self._fetch_by_pip(folder)
            size = path.stat().st_size
            if size > MAX_ARCHIVE_BYTES:
                raise DownloadError(f"{self.label}: is {size} bytes large; at most {MAX_ARCHIVE_BYTES} are read")
            with path.open("rb") as stream:
                yield SourceStream(0, size, "", iter(lambda: stream.read(_CHUNK_BYTES), b""))

    def _fetch_by_pip(self, folder: Path) -> Path:
        release = f"{self.package}=={self.version}"
        process = run_pip(["download", "--no-deps", *_FOR_EVERY_PLATFORM, "--", release], folder, self.environment)
        if process.status == 0 and (wheels := sorted(folder.glob("*.whl"))):
            return wheels[0]
        web = Web(self.patience)
        available = list(list_links(self.package, read_pip_sources(folder, self.environment), web))
        link = self._choose_link(available, process)
        fetch_link(link, folder / "archive", lambda done, total: None, web, self.patience)
        return folder / "archive"

    def _choose_link(self, available: Sequence[Link], process: ProgramResult) -> Link:
        ending = filename_endings(self.package, self.version, (link.filename for link in available))
        ours = sorted((link for link in available if link.filename in ending), key=lambda link: link.filename)
        if any(_UNIVERSAL_WHEEL.fullmatch(ending[link.filename]) for link in ours):
            # another file in its place would make other rows of the same release
            reason = process.last_error()
            raise SourceBusyError(f"{self.label}: pip cannot bring its wheel ({reason}); check pip's configuration")
        for preferred in (*SOURCE_ENDINGS, ".whl"):
            for link in ours:
                if ending[link.filename] == preferred or (preferred == ".whl" and link.filename.endswith(preferred)):
                    return link
        project = "[-_.]+".join(map(re.escape, re.split(r"[-_.]+", self.package)))
        names = (link.filename for link in available if re.match(f"{project}-\\d", link.filename, re.IGNORECASE))
        listed = ", ".join(list(dict.fromkeys(names))[-_SHOWN_FILES:]) or "nothing of that name"
        raise DownloadError(
            f"{self.label}: no such release in pip's indexes, which have {listed}; mend `packages` of the dataset"
        )

    def _fetch_by_npm(self, folder: Path) -> Path:
        npm = shutil.which("npm", path=self.environment.get("PATH"))
        if npm is None:
            raise ConfigError(
                f"{self.label}: npm is not installed, but brings it; install Node.js, of which npm is a part"
            )
        # our own attempts are counted and spaced; npm's would only make each of them longer
        command = [npm, "pack", "--json", "--ignore-scripts", "--fetch-retries=0"]
        process = run_program([*command, "--", f"{self.package}@{self.version}"], folder, self.environment)
        try:
            answer = json.loads(process.output)
        except (ValueError, RecursionError):
            answer = None
        if process.status != 0:
            raise self._npm_error(answer, process.last_error())
        archives = sorted(folder.glob("*.tgz"))
        packed = answer[0] if isinstance(answer, list) and answer and isinstance(answer[0], dict) else {}
        # "latest" is a version to npm, but another one tomorrow
        if len(archives) != 1 or (packed.get("name"), packed.get("version")) != (self.package, self.version):
            actual = f"{packed.get('name')} {packed.get('version')}"
            raise DownloadError(f"{self.label}: npm gives {actual} instead; name a published version in `packages`")
        return archives[0]

    def _npm_error(self, answer: Any, last_line: str) -> Exception:
        error = answer.get("error") if isinstance(answer, dict) else None
        code, reason = (
            (str(error.get("code")), str(error.get("summary"))) if isinstance(error, dict) else ("", last_line)
        )
        if code in _NPM_UNKNOWN:
            return DownloadError(f"{self.label}: no such release in npm's registry; mend `packages` of the dataset")
        if code in _NPM_REFUSED:
            return ConfigError(
                f"{self.label}: npm's registry refuses us ({code}); log in with `npm login`, or mend .npmrc"
            )
        return SourceBusyError(
            f"{self.label}: npm cannot bring it ({code or 'no code'}: {reason}); check npm's configuration"
        )
