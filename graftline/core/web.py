"""One answer of a web server, with limits: time-outs, size, redirects, and no secret in what is said of it.

A client lives as long as one answer, so nothing has to be closed. Files are resumed by ranges (RFC 9110, sections 13
and 14).
"""

import json
import os
import re
import ssl
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from pydantic import SecretStr

from graftline.core.download import SourceStream
from graftline.core.errors import ConfigError, DownloadError
from graftline.core.retry import RetryPolicy, SourceBusyError, UnreachableError

if TYPE_CHECKING:
    import httpx

MAX_JSON_BYTES = 16 << 20
_MAX_REDIRECTS = 10
_MAX_RETRY_AFTER_S = 24 * 3600.0
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class AnswerError(DownloadError):
    """An answer that will not be another one next time."""

    status: int = 0


@dataclass(frozen=True, slots=True)
class Web:
    """How servers are asked."""

    policy: RetryPolicy
    token: SecretStr | None = None
    """Sent to the server that is asked, and to no other that it refers to."""

    @contextmanager
    def answer(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, ok: Container[int] = (200,)
    ) -> Iterator["httpx.Response"]:
        """Ask, and yield the answer with its body unread: `chunks` and `body` read it.

        Raises:
            SourceBusyError: it may be answered later.
            AnswerError: it is refused: its status is none of `ok`.
            ConfigError: it is no URL.
        """
        import httpx

        label = public_url(url)
        all_headers = {"User-Agent": "graftline", "Accept-Encoding": "identity", **(headers or {})}
        if self.token is not None:
            all_headers["Authorization"] = f"Bearer {self.token.get_secret_value()}"
        timeout = httpx.Timeout(self.policy.read_s, connect=self.policy.connect_s)
        with (
            self._translate_errors(label),
            httpx.Client(
                timeout=timeout, follow_redirects=True, max_redirects=_MAX_REDIRECTS, verify=_certificates()
            ) as client,
            client.stream(method, url, headers=all_headers) as response,
        ):
            _check_status(label, url, response, ok)
            yield response

    def chunks(self, response: "httpx.Response", label: str) -> Iterator[bytes]:
        """Yield the body of `response` as it comes, in pieces that are not empty."""
        with self._translate_errors(label):
            yield from filter(None, response.iter_raw())

    def body(self, response: "httpx.Response", url: str, max_bytes: int, hint: str) -> bytes:
        """Return the body of `response`; AnswerError, ending in `hint`, if it is longer than `max_bytes`."""
        body = bytearray()
        for chunk in self.chunks(response, public_url(url)):
            body += chunk
            if len(body) > max_bytes:
                raise AnswerError(f"{public_url(url)}: answers with more than {max_bytes} bytes; {hint}")
        return bytes(body)

    def json(self, url: str, condition: Mapping[str, str]) -> tuple[Any, str]:
        """Return the JSON at `url` and its ETag; None where it is as the headers of `condition` say.

        Raises:
            SourceBusyError, AnswerError: as `answer`, or it is too large, or not JSON.
        """
        with self.answer("GET", url, condition, ok=(200, 304)) as response:
            etag: str = response.headers.get("ETag", "")
            return None if response.status_code == HTTPStatus.NOT_MODIFIED else self._parse(url, response), etag

    def page(self, url: str) -> tuple[Any, str]:
        """Return the JSON at `url` as `json`, and the address of the next page, empty at the last one (RFC 8288)."""
        with self.answer("GET", url) as response:
            next_url: str = response.links.get("next", {}).get("url", "")
            return self._parse(url, response), next_url

    def _parse(self, url: str, response: "httpx.Response") -> Any:
        body = self.body(response, url, MAX_JSON_BYTES, "check the address")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise AnswerError(f"{public_url(url)}: answers with something else than JSON; check the address") from None

    @contextmanager
    def _translate_errors(self, label: str) -> Iterator[None]:
        import httpx

        try:
            yield
        except httpx.ConnectTimeout:
            reason = f"no connection within {self.policy.connect_s:g} s; check the network"
            raise UnreachableError(f"{label}: {reason}") from None
        except httpx.TimeoutException:
            reason = f"silent for {self.policy.read_s:g} s; check the network or its source"
            raise SourceBusyError(f"{label}: {reason}") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise ConfigError(
                f"{label}: is not a URL that can be asked ({error}); mend its entry below configs/"
            ) from None
        except httpx.TooManyRedirects:
            reason = f"leads on more than {_MAX_REDIRECTS} times; mend its entry below configs/"
            raise AnswerError(f"{label}: {reason}") from None
        except httpx.TransportError as error:
            if _is_about_certificate(error):
                reason = "its certificate is not trusted; set SSL_CERT_FILE or mend its entry below configs/"
                raise AnswerError(f"{label}: {reason}") from None
            kind = type(error).__name__  # without its text, which may quote what was sent
            if isinstance(error, httpx.ConnectError):
                raise UnreachableError(
                    f"{label}: cannot be reached ({kind}); check the network or its source"
                ) from None
            raise SourceBusyError(f"{label}: the connection broke ({kind}); check the network or its source") from None


@dataclass(frozen=True, slots=True)
class WebFile:
    """What is at an address, as a source."""

    web: Web
    url: str

    @property
    def label(self) -> str:
        return public_url(self.url)

    @contextmanager
    def open(self, offset: int, etag: str) -> Iterator[SourceStream]:
        if offset:
            with self._open_range(offset, etag) as stream:
                if stream is not None:
                    yield stream
                    return
        with self.web.answer("GET", self.url) as response:
            yield self._whole(response)

    @contextmanager
    def _open_range(self, offset: int, etag: str) -> Iterator[SourceStream | None]:
        """Yield the rest from `offset`, all of a new version, or None where it has to be asked for without a range."""
        headers = {"Range": f"bytes={offset}-"}
        if etag and not etag.startswith("W/"):  # a weak one says nothing of single bytes
            headers["If-Range"] = etag
        with self.web.answer("GET", self.url, headers, ok=(200, 206, 416)) as response:
            if response.status_code == 416:
                yield None
                return
            if response.status_code == 200:
                yield self._whole(response)
                return
            self._check_encoding(response)
            match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            version = _version(response)
            if match is None or int(match[1]) != offset or (etag and version and version != etag):
                yield None
                return
            size_bytes = None if match[3] == "*" else int(match[3])
            yield SourceStream(offset, size_bytes, version or etag, self.web.chunks(response, self.label))

    def _whole(self, response: "httpx.Response") -> SourceStream:
        self._check_encoding(response)
        size = response.headers.get("Content-Length", "")
        size_bytes = int(size) if size.isdecimal() else None
        return SourceStream(0, size_bytes, _version(response), self.web.chunks(response, self.label))

    def _check_encoding(self, response: "httpx.Response") -> None:
        coding = response.headers.get("Content-Encoding", "identity").lower()
        # many servers call every .gz file a coding of something else, and send it as it is
        is_file_itself = coding in ("gzip", "x-gzip") and self.label.endswith((".gz", ".tgz"))
        if coding != "identity" and not is_file_itself:
            raise AnswerError(
                f"{self.label}: comes with Content-Encoding {coding!r}, though it was asked for as it is;"
                " have its server send it unchanged"
            )


def public_url(url: str) -> str:
    """Return `url` without what may be secret: user, password, query and fragment."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("?")[0].rpartition("@")[2]
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def system_reason(error: BaseException | None) -> str:
    """Return what the system says of a connection that failed; httpx says that it failed."""
    reason = str(error) or type(error).__name__
    while error is not None:
        if isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, ssl.SSLError):
            return str(error)
        if isinstance(error, OSError) and error.errno:
            reason = os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
        error = error.__cause__ or error.__context__
    return reason


def retry_after_s(value: str) -> float:
    """Return the seconds that a `Retry-After` asks for, 0 where it says nothing that is understood."""
    try:
        if value.isdecimal():
            seconds = float(value)
        else:
            moment = parsedate_to_datetime(value)
            seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - datetime.now(
                UTC
            ).timestamp()
    except (TypeError, ValueError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), _MAX_RETRY_AFTER_S)


def _check_status(label: str, url: str, response: "httpx.Response", ok: Container[int]) -> None:
    status, final_url = response.status_code, public_url(str(response.url))
    if status in _BUSY:
        busy = SourceBusyError(f"{label}: answers {_describe_status(status)}; try again later")
        busy.retry_after_s = retry_after_s(response.headers.get("Retry-After", ""))
        raise busy
    if url.lower().startswith("https:") and response.url.scheme != "https":
        raise AnswerError(f"{label}: leads on to {final_url}, which is not https; mend its entry below configs/")
    if status not in ok:
        redirect = f" (at {final_url})" if final_url != label else ""
        reason = "no such file" if status in (404, 410) else f"answers {_describe_status(status)}"
        refusal = AnswerError(f"{label}: {reason}{redirect}; mend its entry below configs/")
        refusal.status = status
        raise refusal


@cache
def _certificates() -> ssl.SSLContext:
    """Return whom we trust: reading it takes longer than most answers."""
    import httpx

    return httpx.create_ssl_context()


def _is_about_certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _describe_status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _version(response: "httpx.Response") -> str:
    version: str = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
    return version
