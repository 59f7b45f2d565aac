"""What is at an address, resumed by ranges (RFC 9110, sections 13 and 14)."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graftline.core.downloads.download import Opened
from graftline.core.downloads.web import AnswerError, Web, shown

if TYPE_CHECKING:
    import httpx

_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


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
