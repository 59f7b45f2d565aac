"""Sources on plain web servers."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from urllib.parse import quote, urlsplit, urlunsplit

from graftline.core.errors import ConfigError
from graftline.core.hashing import canonical_json, digest
from graftline.core.retry import RetryPolicy, with_retries
from graftline.core.web import AnswerError, Web, WebFile, public_url
from graftline.datasets.catalog import Dataset, DatasetFile
from graftline.datasets.sources.base import Observation, UpstreamHub, entries

_NO_HEAD = (403, 405, 501)
"""Servers of signed addresses, of files alone, and those that were never taught."""


class HttpHub(UpstreamHub):
    """Sources that are addresses below which the files lie."""

    def __init__(self, patience: RetryPolicy) -> None:
        super().__init__(patience)
        self._web = Web(patience)

    def revision(self, name: str, dataset: Dataset) -> str:
        files = self.files(name, dataset)
        if all(file.sha256 for file in files):
            return digest([[file.path, file.sha256] for file in files])
        urls = {file.path: file_url(dataset.url or "", file.path) for file in files}
        return digest(
            {path: with_retries(self._patience, partial(marks, self._web, url)) for path, url in urls.items()}
        )

    def observe(self, name: str, dataset: Dataset, previous: Observation | None) -> Observation:
        before = _marks_in(previous.etag) if previous else {}
        after = {
            file.path: marks(self._web, file_url(dataset.url or "", file.path), before.get(file.path))
            for file in self.files(name, dataset)
        }
        return previous if previous and after == before else Observation(digest(after), canonical_json(after))

    def files(self, name: str, dataset: Dataset) -> Sequence[DatasetFile]:
        files = sorted(entries(dataset), key=lambda file: file.path)
        if pattern := next((file.path for file in files if file.is_pattern), None):
            raise ConfigError(
                f"dataset {name!r}: {pattern!r} is a pattern, but {public_url(dataset.url or '')} cannot be listed;"
                " name the files one by one"
            )
        return files

    def source(self, name: str, dataset: Dataset, path: str) -> WebFile:
        return WebFile(self._web, file_url(dataset.url or "", path))


def file_url(url: str, path: str) -> str:
    """Return the address of `path` below `url`, whose query, if it has one, stays at the end."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, f"{parts.path.rstrip('/')}/{quote(path)}", parts.query, ""))


def marks(web: Web, url: str, previous: Sequence[str] | None = None) -> list[str]:
    """Return ETag, date and size of what is at `url`; `previous`, what they were, saves the server the work.

    Raises:
        ConfigError: the server says none of them.
        SourceBusyError, AnswerError: as `Web.answer`.
    """
    headers = zip(("If-None-Match", "If-Modified-Since"), previous or (), strict=False)
    condition = {key: value for key, value in headers if value}
    try:
        current = _request_marks("HEAD", web, url, condition)
    except AnswerError as error:
        if error.status not in _NO_HEAD:
            raise
        current = _request_marks("GET", web, url, condition)
    if current is None:
        return list(previous or ())
    if not any(current):
        raise ConfigError(
            f"{public_url(url)}: its server says neither ETag nor Last-Modified nor size, so that a change would not show;"
            " pin the file by sha256 in configs/datasets.yaml"
        )
    return current


def _request_marks(method: str, web: Web, url: str, condition: Mapping[str, str]) -> list[str] | None:
    with web.answer(method, url, condition, ok=(200, 304)) as response:
        if response.status_code == 304:
            return None
        return [response.headers.get(key, "") for key in ("ETag", "Last-Modified", "Content-Length")]


def _marks_in(etag: str) -> dict[str, list[str]]:
    try:
        values = json.loads(etag)
        return {str(path): [str(mark) for mark in marks] for path, marks in values.items() if len(marks) == 3}
    except (ValueError, TypeError, AttributeError):
        return {}  # of an observation of another source
