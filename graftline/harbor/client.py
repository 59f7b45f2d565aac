"""A Harbor service over HTTP: one client, for callers with an event loop and without. It alone knows httpx here.

A call has one deadline, whatever is tried within it. Reads are tried again where the connection breaks or the service
fails (408, 429, 5xx). Writes are so only with an idempotency key; without one where the service says that it did not
take the request (429 or 503 with `Retry-After`), or where it never arrived. Redirections are not followed: the key would
go with them.
"""

import asyncio
import json
import logging
import random
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal, NamedTuple, Self

import httpx
from pydantic import SecretStr

from graftline.core.errors import ConfigError, HarborError
from graftline.core.hashing import sha256_text
from graftline.core.web import retry_after_s, system_reason
from graftline.harbor.address import HarborDeploymentRef, api_key_of, backend_url_of, check_url
from graftline.harbor.event_loop import blocking

logger = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 64 << 20
_MOST_QUOTED = 2000
"""Characters of a refusal."""
_UNREACHABLE_PAUSE_S = 2.0
_READS = frozenset({"GET", "HEAD"})
_BUSY = frozenset({429, 503})
_FAILED = frozenset({408, 500, 502, 504})
_MOST_DOUBLINGS = 16
_CONNECTIONS, _IDLE_CONNECTIONS = 1024, 64
"""Of one event loop. Who waits for one loses time, so that there are as many as an evaluation runs seeds at once."""
_KEEP_ALIVE_S = 2.0
"""Servers close idle connections after 5 s; a request must not meet that."""

KeyHeader = Literal["authorization", "x-api-key"]
Query = Mapping[str, str | int | Sequence[int] | None]


class HarborAPIError(HarborError):
    """The service refuses, or fails: `status_code`, `message`, `details`, and `code`, its word for programs."""

    def __init__(
        self, status_code: int, message: str, details: Mapping[str, Any] | None = None, code: str = ""
    ) -> None:
        super().__init__(status_code, message, dict(details or {}), code)
        self.status = self.status_code = status_code
        self.message, self.details, self.code = message, dict(details or {}), code

    def __str__(self) -> str:
        return self.message


class HarborTimeoutError(HarborError, TimeoutError):
    """What was waited for did not come in time; what became of it is not known."""


class RetryPolicy(NamedTuple):
    """How long one call is tried."""

    timeout_s: float = 300.0
    """The deadline over everything, pauses included."""
    connect_s: float = 5.0
    read_s: float = 60.0
    """The longest silence of the service within one request."""
    unreachable_s: float = 20.0
    """How long a service is tried that nothing reaches."""
    max_retries: int = 5
    """Of a service that fails. One that asks to be left alone (`Retry-After`) is tried up to the deadline."""
    first_pause_s: float = 0.25
    longest_pause_s: float = 20.0


Patience = RetryPolicy
"""The name that users know."""
_POLICY = RetryPolicy()


@dataclass(slots=True)
class _Session:
    http: httpx.AsyncClient
    users: int = 0


@dataclass(slots=True)
class _Fault:
    """Why one attempt failed, where another may not."""

    error: HarborError
    kind: Literal["unreachable", "failed", "busy"]
    pause_s: float = 0.0
    """How long the service asks to be left alone."""


class HttpClient:
    """Asks one server. It may be used by several threads and event loops; between calls it holds no connection."""

    def __init__(self, url: str, key: SecretStr | None, key_header: KeyHeader, patience: RetryPolicy = _POLICY) -> None:
        self.url, self.patience, self._key = url, patience, key
        secret = key.get_secret_value() if key else ""
        value = f"Bearer {secret}" if key_header == "authorization" else secret
        self._headers: dict[str, str] = {key_header: value} if secret else {}
        self._tls: ssl.SSLContext | None = None
        self._sessions: dict[asyncio.AbstractEventLoop, _Session] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    async def request_async(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Query | None = None,
        idempotency_key: str = "",
        patience: RetryPolicy | None = None,
    ) -> Any:
        """Return the JSON that the service answers; `patience` is that of this call, but for `connect_s` and `read_s`.

        Raises:
            ConfigError: `body` holds what JSON cannot say.
            HarborAPIError: it refuses, or fails still when it was tried as often as may be.
            HarborTimeoutError: the deadline is over.
            HarborError: it cannot be reached, or the connection broke.
        """
        patience = patience or self.patience
        content = _encode(body, f"{method} {path}")
        request = httpx.Request(
            method,
            self.url + path,
            params={name: value for name, value in (query or {}).items() if value is not None},
            headers=self._headers_of(content, idempotency_key),
            content=content,
        )
        try:
            async with asyncio.timeout(patience.timeout_s), self.session() as http:
                return await self._with_retries(http, request, method in _READS or bool(idempotency_key), patience)
        except TimeoutError:
            raise HarborTimeoutError(
                f"{method} {self.url}{path}: no answer within {patience.timeout_s:g} s; it may have been carried out"
            ) from None

    request = blocking(request_async)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[httpx.AsyncClient]:
        """Keep connections open for all calls within, of this event loop."""
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None:
            session = self._sessions[loop] = _Session(self._new_http())
        session.users += 1
        try:
            yield session.http
        finally:
            session.users -= 1
            if not session.users:
                del self._sessions[loop]
                await session.http.aclose()

    async def stream(self, path: str, headers: Mapping[str, str]) -> AsyncGenerator[bytes, None]:
        """Yield what is at `path` as it comes; nothing is tried again.

        Raises:
            HarborAPIError: the service refuses.
            HarborError: the connection broke.
        """
        request = httpx.Request("GET", self.url + path, headers={**self._headers, **headers})
        async with self.session() as http:
            try:
                response = await http.send(request, stream=True)
                try:
                    if not response.is_success:
                        raise self._fault(request, response, await _content(response, f"GET {_url_of(request)}"))
                    async for piece in response.aiter_bytes():
                        yield piece
                finally:
                    await response.aclose()
            except httpx.TransportError as error:
                raise HarborError(
                    f"GET {_url_of(request)}: the connection broke ({type(error).__name__}); ask again"
                ) from None

    def _fault(self, request: httpx.Request, response: httpx.Response, content: bytes) -> HarborAPIError:
        """Return what a refusal says, without the key, whoever echoes it."""
        code, message, details = _parse_refusal(content)
        status = response.status_code
        if self._key is not None:
            secret = self._key.get_secret_value()
            message = message.replace(secret, "[secret]")
            details = json.loads(json.dumps(details).replace(json.dumps(secret)[1:-1], "[secret]"))
        answer = (
            f"{status} {httpx.codes.get_reason_phrase(status)}".rstrip()
        )  # not the phrase of the server, which may echo
        advice = "; check the key" if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN) else ""
        if pause_s := retry_after_s(response.headers.get("retry-after", "")):
            advice = f"; asks to be left alone for {pause_s:g} s"
        return HarborAPIError(
            status,
            f"{request.method} {_url_of(request)}: answers {answer}: {message}{advice}",
            details,
            code,
        )

    async def _with_retries(
        self, http: httpx.AsyncClient, request: httpx.Request, is_repeatable: bool, patience: RetryPolicy
    ) -> Any:
        began, attempts, failures = time.monotonic(), 0, 0
        while isinstance(outcome := await self._attempt(http, request, is_repeatable), _Fault):
            fault, is_unreachable = outcome, outcome.kind == "unreachable"
            failures += fault.kind == "failed"
            # a service that is started again is there within seconds, and refuses at no cost
            longest_s = _UNREACHABLE_PAUSE_S if is_unreachable else patience.longest_pause_s
            jitter_s = random.uniform(0, min(longest_s, patience.first_pause_s * 2**attempts))
            pause_s = max(fault.pause_s, jitter_s)
            limit_s = min(patience.unreachable_s if is_unreachable else patience.timeout_s, patience.timeout_s)
            if failures > patience.max_retries or time.monotonic() - began + pause_s > limit_s:
                raise fault.error
            # people wait for it: they are told once what for
            level = logging.WARNING if is_unreachable and not attempts else logging.INFO
            logger.log(level, "%s; next attempt in %.1f s", fault.error, pause_s)
            attempts = min(attempts + 1, _MOST_DOUBLINGS)
            await asyncio.sleep(pause_s)
        return outcome

    async def _attempt(self, http: httpx.AsyncClient, request: httpx.Request, is_repeatable: bool) -> Any:
        """Return the JSON that is answered, or a `_Fault` after which the request may be sent again."""
        title = f"{request.method} {_url_of(request)}"
        try:
            response = await http.send(request, stream=True)
            try:
                content = await _content(response, title)
            finally:
                await response.aclose()
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            # it was never sent
            advice = "is the service running there? `graftline env serve` starts one here"
            return _Fault(HarborError(f"{title}: cannot be reached ({system_reason(error)}); {advice}"), "unreachable")
        except httpx.TransportError as error:
            # without its text, which may quote what was sent
            fault = HarborError(f"{title}: the connection broke ({type(error).__name__}); it may have been carried out")
            if is_repeatable:
                return _Fault(fault, "failed")
            raise fault from None
        if response.is_success:
            return _decode_answer(content, title)
        refusal, status = self._fault(request, response, content), response.status_code
        if "retry-after" in response.headers and status in _BUSY:
            return _Fault(refusal, "busy", retry_after_s(response.headers["retry-after"]))
        if is_repeatable and status in (*_BUSY, *_FAILED):
            return _Fault(refusal, "failed")
        raise refusal

    def _headers_of(self, content: bytes, idempotency_key: str) -> dict[str, str]:
        headers = {"accept": "application/json", **self._headers}
        if content:
            headers["content-type"] = "application/json"
        if idempotency_key:
            is_sendable = idempotency_key.isascii() and idempotency_key.isprintable() and " " not in idempotency_key
            headers["idempotency-key"] = idempotency_key if is_sendable else sha256_text(idempotency_key)
        return headers

    def _new_http(self) -> httpx.AsyncClient:
        is_encrypted = self.url.startswith("https:")
        if self._tls is None:
            # reading certificates that nobody asks for takes 20 ms
            self._tls = httpx.create_ssl_context() if is_encrypted else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        timeouts = httpx.Timeout(
            connect=self.patience.connect_s, read=self.patience.read_s, write=self.patience.read_s, pool=None
        )
        limits = httpx.Limits(
            max_connections=_CONNECTIONS, max_keepalive_connections=_IDLE_CONNECTIONS, keepalive_expiry=_KEEP_ALIVE_S
        )
        # proxies of the environment are for what is outside
        return httpx.AsyncClient(verify=self._tls, timeout=timeouts, limits=limits, trust_env=is_encrypted)


class HarborClient(HttpClient):
    """Asks one Harbor service."""

    def __init__(
        self,
        backend_url: str | None = None,
        api_key: str | SecretStr | None = None,
        patience: RetryPolicy = _POLICY,
        allow_http: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Take the URL and the key as given, else from the environment.

        Raises:
            ConfigError: there is no URL, or one that a key must not go to.
            ValueError: there is no key.
        """
        key = api_key_of(api_key, environment)
        url = check_url(backend_url_of(backend_url, environment), allow_http)
        super().__init__(url, key, "authorization", patience)

    @classmethod
    def of_deployment(cls, ref: HarborDeploymentRef, patience: RetryPolicy = _POLICY, allow_http: bool = False) -> Self:
        """Return a client of the service that `ref` names."""
        return cls(ref.backend_url, ref.api_key, patience, allow_http)


async def _content(response: httpx.Response, title: str) -> bytes:
    pieces, size = [], 0
    async for piece in response.aiter_bytes():
        pieces.append(piece)
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            raise HarborError(f"{title}: answers with more than {MAX_ANSWER_BYTES} bytes; check backend_url")
    return b"".join(pieces)


def _url_of(request: httpx.Request) -> str:
    return str(request.url.copy_with(query=None))


def _encode(body: Any, title: str) -> bytes:
    if body is None:
        return b""
    try:
        return json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{title}: holds what JSON cannot say ({error}); expected texts, numbers, lists and mappings"
        ) from None


def _decode_answer(content: bytes, title: str) -> Any:
    """Return the JSON of an answer, None where it is empty.

    Raises:
        HarborError: it is not JSON; `title` stands before that.
    """
    if not content:
        return None
    try:
        # NaN and its like are no JSON, and no reward
        return json.loads(content, parse_constant=lambda name: None)
    except (ValueError, RecursionError):
        raise HarborError(f"{title}: the answer is not JSON; check backend_url") from None


def _parse_refusal(content: bytes) -> tuple[str, str, dict[str, Any]]:
    """Return the code, the sentence and the details of a refusal, whoever wrote it."""
    try:
        refusal = json.loads(content)
    except (ValueError, RecursionError):
        refusal = content.decode("utf-8", "replace").strip()
    if isinstance(refusal, dict):
        refusal = refusal.get("error", refusal.get("detail", refusal))
    if not isinstance(refusal, dict):
        text = refusal if isinstance(refusal, str) else json.dumps(refusal)
        return "", text[:_MOST_QUOTED] or "nothing", {}
    details, message = refusal.get("details"), refusal.get("message")
    text = message if isinstance(message, str) else json.dumps(refusal)
    return str(refusal.get("code", "")), text[:_MOST_QUOTED], details if isinstance(details, dict) else {}
