"""Homes on plain web servers, and files that are resumed by ranges (RFC 9110, sections 13 and 14)."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import quote, urlsplit, urlunsplit

from graftline.datasets.catalogue import Dataset, DatasetFile
from graftline.datasets.hub.base import Advance, Fetched, Observation
from graftline.datasets.hub.download import Opened, download
from graftline.datasets.hub.listing import entries
from graftline.datasets.hub.retry import Patience, persistently
from graftline.datasets.hub.stream import streamed
from graftline.datasets.hub.web import AnswerError, Web, shown
from graftline.errors import ConfigError
from graftline.hashing import canonical_json, digest

if TYPE_CHECKING:
    import httpx

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")
_NO_HEAD = (403, 405, 501)
"""Servers of signed addresses, of files alone, and those that were never taught."""


class HttpHub:
    """Homes that are addresses below which the files lie."""

    def __init__(self, patience: Patience) -> None:
        self._patience, self._web = patience, Web(patience)

    def revision(self, name: str, dataset: Dataset) -> str:
        files = self.files(name, dataset)
        if all(file.sha256 for file in files):
            return digest([[file.path, file.sha256] for file in files])
        urls = {file.path: file_url(dataset.home or "", file.path) for file in files}
        return digest(
            {path: persistently(self._patience, partial(marks, self._web, url)) for path, url in urls.items()}
        )

    def observe(self, name: str, dataset: Dataset, known: Observation | None) -> Observation:
        before = _marks_in(known.etag) if known else {}
        found = {
            file.path: marks(self._web, file_url(dataset.home or "", file.path), before.get(file.path))
            for file in self.files(name, dataset)
        }
        if known is not None and found == before:
            return known
        return Observation(digest(found), canonical_json(found))

    def is_home(self, name: str, dataset: Dataset) -> bool:
        return True

    def files(self, name: str, dataset: Dataset) -> Sequence[DatasetFile]:
        wanted = sorted(entries(dataset), key=lambda file: file.path)
        for file in wanted:
            if file.is_pattern:
                raise ConfigError(
                    f"dataset {name!r}: {file.path!r} is a pattern, but {shown(dataset.home or '')} cannot be listed;"
                    " name the files one by one"
                )
        return wanted

    def fetch(self, name: str, dataset: Dataset, file: DatasetFile, target: Path, advance: Advance) -> Fetched:
        return download(self._source(dataset, file), file, target, advance, self._patience)

    def stream(self, name: str, dataset: Dataset, file: DatasetFile) -> AbstractContextManager[IO[bytes]]:
        return streamed(self._source(dataset, file), file, self._patience)

    def _source(self, dataset: Dataset, file: DatasetFile) -> "WebFile":
        return WebFile(self._web, file_url(dataset.home or "", file.path))


def file_url(home: str, path: str) -> str:
    """Return the address of `path` below `home`, whose query, if it has one, stays at the end."""
    parts = urlsplit(home)
    return urlunsplit((parts.scheme, parts.netloc, f"{parts.path.rstrip('/')}/{quote(path)}", parts.query, ""))


def marks(web: Web, url: str, known: Sequence[str] | None = None) -> list[str]:
    """Return ETag, date and size of what is at `url`; `known`, what they were, saves the server the work.

    Raises:
        ConfigError: the server says none of them.
        HomeBusyError, AnswerError: as `Web.answer`.
    """
    condition = {}
    if known:
        condition = {
            key: value for key, value in (("If-None-Match", known[0]), ("If-Modified-Since", known[1])) if value
        }
    try:
        found = _marks_by("HEAD", web, url, condition)
    except AnswerError as error:
        if error.status not in _NO_HEAD:
            raise
        found = _marks_by("GET", web, url, condition)
    if found is None:
        return list(known or ())
    if not any(found):
        raise ConfigError(
            f"{shown(url)}: its server says neither ETag nor Last-Modified nor size, so that a change would not show;"
            " pin the file by sha256 in configs/datasets.yaml"
        )
    return found


def _marks_by(method: str, web: Web, url: str, condition: Mapping[str, str]) -> list[str] | None:
    with web.answer(method, url, condition, ok=(200, 304)) as response:
        if response.status_code == 304:
            return None
        return [response.headers.get(key, "") for key in ("ETag", "Last-Modified", "Content-Length")]


def _marks_in(etag: str) -> dict[str, list[str]]:
    try:
        values = json.loads(etag)
        return {str(path): [str(mark) for mark in found] for path, found in values.items() if len(found) == 3}
    except (ValueError, TypeError, AttributeError):
        return {}  # of an observation of another home


@dataclass(frozen=True, slots=True)
class WebFile:
    """What is at an address, as something to download."""

    web: Web
    url: str

    @property
    def label(self) -> str:
        return shown(self.url)

    @contextmanager
    def open(self, offset: int, etag: str) -> Iterator[Opened]:
        if offset:
            with self._from(offset, etag) as opened:
                if opened is not None:
                    yield opened
                    return
        with self.web.answer("GET", self.url) as response:
            self._check(response)
            yield self._whole(response)

    @contextmanager
    def _from(self, offset: int, etag: str) -> Iterator[Opened | None]:
        """Yield the rest from `offset`, all of a new version, or None where it has to be asked for without a range."""
        headers = {"Range": f"bytes={offset}-"}
        if etag and not etag.startswith("W/"):  # a weak one says nothing of single bytes
            headers["If-Range"] = etag
        with self.web.answer("GET", self.url, headers, ok=(200, 206, 416)) as response:
            if response.status_code == 416:
                yield None
                return
            self._check(response)
            if response.status_code == 200:
                yield self._whole(response)
                return
            found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            version = _version(response)
            if found is None or int(found[1]) != offset or (etag and version and version != etag):
                yield None
                return
            size_bytes = None if found[3] == "*" else int(found[3])
            yield Opened(offset, size_bytes, version or etag, self.web.chunks(response, self.label))

    def _whole(self, response: "httpx.Response") -> Opened:
        size = response.headers.get("Content-Length", "")
        size_bytes = int(size) if size.isdecimal() else None
        return Opened(0, size_bytes, _version(response), self.web.chunks(response, self.label))

    def _check(self, response: "httpx.Response") -> None:
        coding = response.headers.get("Content-Encoding", "identity").lower()
        # many servers call every .gz file a coding of something else, and send it as it is
        is_file_itself = coding in ("gzip", "x-gzip") and self.label.endswith((".gz", ".tgz"))
        if coding != "identity" and not is_file_itself:
            raise AnswerError(
                f"{self.label}: comes with Content-Encoding {coding!r}, though it was asked for as it is;"
                " have its server send it unchanged"
            )


def _version(response: "httpx.Response") -> str:
    version: str = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
    return version
