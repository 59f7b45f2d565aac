"""The proxy: what an agent asks is asked of a fleet, and recorded.

Covered: who has no key of a running attempt, models that are not served, what is too large, budgets, more calls at once than
may be, a client that hangs up (its call ends at the server too), a client that reads slowly (no more is read of the server
then), servers that refuse, break off or fall silent. Nothing is tried again: agents do that, and what they see is what the
server said. A stream whose server dies ends with an error and without an end, so that no client takes it for whole.

Not covered: what an agent does with a network of its own.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import orjson
from pydantic import Field, SecretStr
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from graftline.core.config import Config
from graftline.core.errors import DataError
from graftline.core.listener import open_listener
from graftline.harbor.executors.base import Execution, RolloutSpec
from graftline.harbor.in_box.agents import API_KEYS, BUDGET_EXHAUSTED
from graftline.harbor.localapi.served import serve_app
from graftline.harbor.model_proxy.calls import call_lines, read_calls
from graftline.harbor.model_proxy.exchange import Exchange, error_response, parse_json
from graftline.harbor.model_proxy.interfaces import INTERFACES, TokenDetail
from graftline.harbor.model_proxy.sessions import CallLimits, ProxySession, Sessions
from graftline.harbor.model_proxy.trajectories import trace_of_calls
from graftline.llm.client import ActorClient
from graftline.llm.fleet import Fleet

logger = logging.getLogger(__name__)

_MAX_BODY_BYTES = 32 << 20
_REQUESTS_OF_ONE = 64
"""Of one session at a time, so that no box takes the memory of all."""
_DETAILS: Mapping[str, TokenDetail] = {"vllm": "vllm", "vllm-cpu": "vllm", "embedded": "llama.cpp"}


class ModelProxyConfig(Config):
    """Which model agents ask through the proxy of the service, and how much of it."""

    fleet: str = Field(min_length=1)
    """Of `configs/vllm_actors.yaml`."""
    aliases: dict[str, str] = Field(default_factory=dict)
    """Names that agents may ask for in place of a served one, such as `gpt-4o-mini`; `*` is any. Others are refused."""
    limits: CallLimits = CallLimits()
    """Of one attempt at a rollout."""
    at_once: int = Field(default=512, ge=1, le=65536)
    """Calls that are forwarded at the same time."""
    waiting: int = Field(default=2048, ge=0, le=1_000_000)
    """Calls that wait for that; more are answered with 429."""
    silence_s: float = Field(default=600.0, gt=0)
    """How long a server may say nothing before its call has failed."""
    host: str = "127.0.0.1"
    """Where boxes reach it; with Docker that is the address of its bridge, such as 172.17.0.1."""
    port: int = Field(default=0, ge=0, le=65535)
    """0 for a free one."""
    url: str = ""
    """Its address as boxes have it, where that is another one; without `/v1`."""


class ModelProxy:
    """The ASGI application; `sessions` says who may ask."""

    def __init__(self, config: ModelProxyConfig, fleet: Fleet, key: SecretStr | None, folder: Path) -> None:
        self.config, self.fleet = config, fleet
        self.sessions = Sessions(folder, config.limits, fleet.price is not None)
        self.url = config.url
        """As boxes have it."""
        self._served = (fleet.called, *fleet.adapter_folders)
        self._detail = _DETAILS.get(fleet.engine, "none")
        self.clients = [ActorClient(actor.url, fleet.api_path, key) for actor in fleet.actors]
        self._slots: asyncio.Semaphore | None = None
        self._waiting = 0

    @property
    def model(self) -> str:
        """The model that is asked where nobody names one."""
        return self.fleet.called

    @contextmanager
    def session_of(
        self, rollout: RolloutSpec, job_id: str | None, budget: Mapping[str, Any], end_rollout: Callable[[], None]
    ) -> Iterator[tuple[RolloutSpec, ProxySession]]:
        """Open a session for an attempt while the context lasts, and give it with what the attempt is to be asked with.

        The box gets the address and the key of the session in place of those of any other model. `end_rollout` is called when
        the budget of the job, of which `Sessions.open` says more, is used up.

        Raises:
            DataError: it names a model that is not served.
        """
        params = dict(rollout.request.get("params") or {})
        model = params.get("model") or self.model
        if self.served_model(model) is None:
            raise DataError(self.refusal_of_model(model))
        url = f"{self.url}/v1"
        session = self.sessions.open(rollout.rollout_id, rollout.attempt, job_id, budget)
        session.end_rollout = end_rollout
        hidden = (*API_KEYS, self.fleet.api_key)
        secrets = {name: value for name, value in rollout.secrets.items() if name not in hidden}
        try:
            yield (
                replace(
                    rollout,
                    request={**rollout.request, "inference_url": url, "params": {**params, "model": model}},
                    secrets={**secrets, API_KEYS[0]: session.key},
                    overriding_vars={**rollout.overriding_vars, "OPENAI_BASE_URL": url},
                ),
                session,
            )
        finally:
            self.sessions.close(session)

    def judge(self, session: ProxySession, execution: Execution, agent: str) -> Execution:
        """Return how the attempt of a session that is closed ended, with its trajectory where the entrypoint has left none."""
        execution = session.judge(execution)
        lines = call_lines(self.sessions.path(session.rollout_id, session.attempt))
        if isinstance(execution.result.get("trace"), dict) or not lines:
            return execution
        try:
            trace = trace_of_calls([*read_calls(map(orjson.loads, lines), session.rollout_id)], agent)
        except DataError as error:
            # of a server that says something else than it should of its tokens
            logger.warning("no trajectory is made: %s", error)
            return execution
        return execution if trace is None else replace(execution, result={**execution.result, "trace": trace})

    def served_model(self, name: Any) -> str | None:
        """Return the model that is asked where a client asks for `name`; None where that is refused."""
        if name in self._served:
            return str(name)
        alias = self.config.aliases.get(str(name), self.config.aliases.get("*"))
        return alias if alias in self._served else None

    def refusal_of_model(self, name: Any) -> str:
        """Return what is said to a client that asks for a model that is not served."""
        names = ", ".join([*self._served, *self.config.aliases])
        return f"the model {str(name)[:80]!r} is not served here; served: {names}"

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Wait until one call more may be forwarded, and count it while the context lasts."""
        assert self._slots is not None
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._slots.release()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, for as long as its client waits."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        request = Request(scope, receive)
        authorization = request.headers.get("authorization", "")
        key = request.headers.get("x-api-key") or authorization.removeprefix("Bearer ").strip()
        session = self.sessions.find(key)
        if session is None:
            await _no_session()(scope, receive, send)
        elif session.requests >= _REQUESTS_OF_ONE:
            refusal = error_response(429, f"{_REQUESTS_OF_ONE} calls of this rollout wait", "rate_limit_exceeded")
            await refusal(scope, receive, send)
        else:
            session.requests += 1
            try:
                await self._answer_session(session, request, send)
            finally:
                session.requests -= 1

    async def _answer_session(self, session: ProxySession, request: Request, send: Send) -> None:
        receive, has_begun = request.receive, False

        async def send_on(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            body = await _read_body(request)
        except ClientDisconnect:
            return
        # closed with the session, and with the connection of the client
        async with anyio.create_task_group() as group:
            loop = asyncio.get_running_loop()

            def cancel() -> None:
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(group.cancel_scope.cancel)

            with session.end_with(cancel) as is_open:
                if is_open:
                    group.start_soon(_wait_for_hang_up, receive, group.cancel_scope)
                    await self._answer(session, request, body, send_on)
            group.cancel_scope.cancel()
        if session.is_closed and not has_begun:
            await _no_session()(request.scope, receive, send)

    async def _answer(self, session: ProxySession, request: Request, body: bytes | None, send: Send) -> None:
        path = request.url.path.removeprefix("/v1").removeprefix("/v1")  # clients of Anthropic add it themselves
        if request.method == "GET" and path == "/models":
            models = [{"id": name, "object": "model", "created": 0, "owned_by": "graftline"} for name in self._served]
            await JSONResponse({"object": "list", "data": models})(request.scope, request.receive, send)
            return
        refusal = call = None
        kind = INTERFACES.get(path)
        if request.method != "POST" or kind is None:
            refusal = error_response(
                404, f"{request.method} {path} is not answered; POST {', '.join(INTERFACES)}", "not_found"
            )
        elif body is None:
            refusal = error_response(413, f"the body has more than {_MAX_BODY_BYTES} bytes; send less", "too_large")
        elif not isinstance(content := parse_json(body), dict):
            refusal = error_response(400, "the body is no object of JSON", "invalid_request")
        elif (model := self.served_model(content.get("model"))) is None:
            refusal = error_response(404, self.refusal_of_model(content.get("model")), "model_not_found")
        else:
            call = kind({**content, "model": model}, self._detail)
            if reason := call.refusal():
                refusal = error_response(400, reason, "invalid_request")
            elif self._waiting >= self.config.waiting:
                refusal = error_response(
                    429, "too many calls wait; ask again", "rate_limit_exceeded", {"retry-after": "1"}
                )
            elif reason := session.begin():
                refusal = error_response(402, f"{BUDGET_EXHAUSTED}: {reason}", BUDGET_EXHAUSTED)
        if refusal is not None or call is None:
            assert refusal is not None
            reason = orjson.loads(refusal.body)["error"]["message"]
            if refusal.status_code == 429:
                session.unanswered = reason  # there is no room, which is not the agent's fault
            elif refusal.status_code != 402:
                session.refuse(reason)
            await refusal(request.scope, request.receive, send)
            return
        await Exchange(self, session, call, str(content.get("model")), len(body or b"")).run(request, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._slots = asyncio.Semaphore(self.config.at_once)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for client in self.clients:
            await client.close()
        await send({"type": "lifespan.shutdown.complete"})


@contextmanager
def serve_model_proxy(
    config: ModelProxyConfig, fleet: Fleet, key: SecretStr | None, folder: Path
) -> Iterator[ModelProxy]:
    """Serve a proxy from a thread while the context lasts; records are below `folder`.

    Raises:
        ConfigError: the address is not one of this machine, or taken.
    """
    proxy = ModelProxy(config, fleet, key, folder)
    with closing(open_listener(config.host, config.port)) as listener, serve_app(proxy, listener) as url:
        proxy.url = config.url.rstrip("/") or url
        yield proxy


def _no_session() -> JSONResponse:
    return error_response(401, "the key is none of a rollout that runs", "invalid_api_key")


async def _read_body(request: Request) -> bytes | None:
    """Return the body of a request; None where it is too large."""
    content = bytearray()
    async for piece in request.stream():
        content += piece
        if len(content) > _MAX_BODY_BYTES:
            return None
    return bytes(content)


async def _wait_for_hang_up(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
