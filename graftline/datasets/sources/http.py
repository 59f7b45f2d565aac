"""Homes on plain web servers."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import IO
from urllib.parse import quote, urlsplit, urlunsplit

from graftline.core.download import Advance, Download, download, open_stream
from graftline.core.errors import ConfigError
from graftline.core.hashing import canonical_json, digest
from graftline.core.retry import RetryPolicy, with_retries
from graftline.core.web import AnswerError, Web, WebFile, public_url
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.sources.base import Observation
from graftline.datasets.sources.listing import entries

_NO_HEAD = (403, 405, 501)
"""Servers of signed addresses, of files alone, and those that were never taught."""


class HttpHub:
    """Homes that are addresses below which the files lie."""

    def __init__(self, patience: RetryPolicy) -> None:
        self._patience, self._web = patience, Web(patience)

    def revision(self, name: str, dataset: Dataset) -> str:
        files = self.files(name, dataset)
        if all(file.sha256 for file in files):
            return digest([[file.path, file.sha256] for file in files])
        urls = {file.path: file_url(dataset.home or "", file.path) for file in files}
        return digest(
            {path: with_retries(self._patience, partial(marks, self._web, url)) for path, url in urls.items()}
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
                    f"dataset {name!r}: {file.path!r} is a pattern, but {public_url(dataset.home or '')} cannot be listed;"
                    " name the files one by one"
                )
        return wanted

    def fetch(self, name: str, dataset: Dataset, file: DatasetFile, target: Path, advance: Advance) -> Download:
        return download(self._source(dataset, file), file, target, advance, self._patience)

    def stream(self, name: str, dataset: Dataset, file: DatasetFile) -> AbstractContextManager[IO[bytes]]:
        return open_stream(self._source(dataset, file), file, self._patience)

    def _source(self, dataset: Dataset, file: DatasetFile) -> WebFile:
        return WebFile(self._web, file_url(dataset.home or "", file.path))


def file_url(home: str, path: str) -> str:
    """Return the address of `path` below `home`, whose query, if it has one, stays at the end."""
    parts = urlsplit(home)
    return urlunsplit((parts.scheme, parts.netloc, f"{parts.path.rstrip('/')}/{quote(path)}", parts.query, ""))


def marks(web: Web, url: str, known: Sequence[str] | None = None) -> list[str]:
    """Return ETag, date and size of what is at `url`; `known`, what they were, saves the server the work.

    Raises:
        ConfigError: the server says none of them.
        SourceBusyError, AnswerError: as `Web.answer`.
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
            f"{public_url(url)}: its server says neither ETag nor Last-Modified nor size, so that a change would not show;"
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
