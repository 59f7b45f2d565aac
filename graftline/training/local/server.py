"""The server: what the SDK asks for over HTTP, as calls to the engine and the store of checkpoints.

What takes long is answered with the id of a call, whose outcome is asked for until it is there. Errors are `{"detail": …}`,
and those of calls `{"error": …, "category": "user" | "server"}`. What the service has beyond this answers 404 with a reason.
"""

import hmac
import re
import time
import uuid
from contextlib import suppress
from functools import partial

from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from graftline.core.errors import GraftlineError
from graftline.training.local.calls import Answer, Calls
from graftline.training.local.checkpoint_routes import Handler, Listing, Signer
from graftline.training.local.checkpoints import CheckpointStore, NotFound
from graftline.training.local.engine import Engine
from graftline.training.local.model_routes import SamplingCalls, TrainingCalls
from graftline.training.local.sessions import Samplers, Session, Sessions
from graftline.training.local.wire import LONG_POLL_S, detail, json_of, refused

_MOST_TOGETHER_TOKENS = 8192
"""Of samples that share passes, prompts included: what their keys and values take memory for."""
_LAST = {"connection": "close"}
_UNNAMED = re.compile(r"sampler_weights/unnamed-[0-9a-f]{16}")
_INFO = "Graftline's local backend: transformers and peft on this machine, not the Tinker service"


class TinkerServer:
    """Answers the SDK; `app` is to be served on a loopback address."""

    def __init__(self, engine: Engine, store: CheckpointStore, api_key: SecretStr, url_secret: bytes) -> None:
        self._engine, self._store = engine, store
        self._api_key, self._listing = api_key, Listing(store, Signer(url_secret))
        self._calls = Calls(_MOST_TOGETHER_TOKENS, lost=engine.spoil)
        self._sessions = Sessions()
        self._samplers = Samplers()
        shared = engine, store, self._calls, self._sessions, self._samplers
        self._training, self._sampling = TrainingCalls(*shared), SamplingCalls(*shared)
        self.app = Starlette(routes=self._routes(), exception_handlers={Exception: refused, HTTPException: refused})

    def start(self) -> None:
        """Begin to work; called once, on the event loop."""
        self._sweep()
        for one in self._store.described():
            if _UNNAMED.fullmatch(one["checkpoint_id"]):
                # of a session of a server that was killed
                self._store.delete(self._store.parse(one["tinker_path"]))
        self._calls.start()
        self._calls.submit("warm-up", self._warm_up)

    def let_go(self) -> None:
        """Answer who waits, for the server is to end."""
        self._calls.let_go()

    def stop(self) -> None:
        """End after what is worked on."""
        self._calls.stop()

    def _routes(self) -> list[Route]:
        def at(method: str, path: str, handler: Handler) -> Route:
            return Route(f"/api/v1/{path}", partial(self._guarded, handler), methods=[method])

        return [
            Route("/api/v1/healthz", self._health, methods=["GET"]),
            Route("/files/{run}/{kind}/{name}/{file}", self._listing.file, methods=["GET"]),
            at("POST", "client/config", self._client_config),
            at("POST", "client/dynamic_config", self._dynamic_config),
            at("POST", "telemetry", self._telemetry),
            at("GET", "get_server_capabilities", self._capabilities),
            at("POST", "create_session", self._create_session),
            at("POST", "session_heartbeat", self._heartbeat),
            at("POST", "sessions/{session}/finish", self._finish),
            at("GET", "sessions", self._list_sessions),
            at("GET", "sessions/{session}", self._get_session),
            at("POST", "retrieve_future", self._retrieve),
            at("POST", "cancel_future", self._cancel),
            *(at(*each) for part in (self._training, self._sampling, self._listing) for each in part.handlers()),
            at("GET", "{path:path}", self._unknown),
            at("POST", "{path:path}", self._unknown),
        ]

    async def _guarded(self, handler: Handler, request: Request) -> Response:
        """Answer who has the key."""
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = request.headers.get("x-api-key") or bearer
        if not hmac.compare_digest(given.encode(), self._api_key.get_secret_value().encode()):
            return detail("the API key is not the one of this server", 401, _LAST)
        try:
            return await handler(request)
        except NotFound as error:
            return detail(str(error), 404)
        except GraftlineError as error:
            return detail(str(error), 400)
        except (KeyError, TypeError, ValueError) as error:
            return detail(f"{request.url.path}: the request is not understood ({error!r})", 400)

    # about the server

    async def _health(self, request: Request) -> Response:
        # what `auto` came to here; the SDK reads no more of what a model can than it knows itself
        computed_with = {"precision": self._engine.precision, "device": self._engine.device.type}
        return JSONResponse({"status": "ok", **computed_with})

    async def _client_config(self, request: Request) -> Response:
        # asked for over a connection of its own, which the SDK forgets to close
        return JSONResponse({"pjwt_auth_enabled": False, "parallel_fwdbwd_chunks": True}, headers=_LAST)

    async def _dynamic_config(self, request: Request) -> Response:
        return JSONResponse({"refresh_interval_sec": 3600, "sample_cancel_enabled": True})

    async def _telemetry(self, request: Request) -> Response:
        return JSONResponse({"status": "accepted"})

    async def _capabilities(self, request: Request) -> Response:
        model = {
            "model_name": self._engine.name,
            "max_context_length": self._engine.context,
            "trainable": True,
            "sampleable": True,
        }
        return JSONResponse({"supported_models": [model]})

    async def _unknown(self, request: Request) -> Response:
        return detail(f"{request.method} {request.url.path} is not offered by the local backend", 404)

    # sessions

    async def _create_session(self, request: Request) -> Response:
        body = await json_of(request)
        for silent in self._sessions.silent():
            self._end(silent)
        self._calls.submit(f"sweep/{uuid.uuid4().hex}", self._sweep)
        session = uuid.uuid4().hex[:16]
        self._sessions[session] = Session(body.get("user_metadata"), body.get("display_name"))
        return JSONResponse({"type": "create_session", "session_id": session, "info_message": _INFO})

    async def _heartbeat(self, request: Request) -> Response:
        id = (await json_of(request))["session_id"]
        if id in self._sessions and self._sessions[id].is_finished:
            return detail("the session is finished", 410)
        self._sessions.going(id).beat = time.monotonic()
        return JSONResponse({"type": "session_heartbeat"})

    async def _finish(self, request: Request) -> Response:
        self._end(request.path_params["session"])
        return Response(status_code=204)

    async def _list_sessions(self, request: Request) -> Response:
        return JSONResponse({"sessions": [*self._sessions]})

    async def _get_session(self, request: Request) -> Response:
        id = request.path_params["session"]
        session = self._sessions.get(id) or self._sessions.going(id)
        return JSONResponse(
            {
                "training_run_ids": session.runs,
                "sampler_ids": session.samplers,
                "user_metadata": session.user_metadata,
                "display_name": session.display_name,
            }
        )

    def _warm_up(self) -> Answer:
        self._engine.warm_up()
        return {}

    def _sweep(self) -> Answer:
        return {"removed": self._store.sweep()}

    def _end(self, id: str) -> None:
        session = self._sessions.get(id)
        if session is None or session.is_finished:
            return
        session.is_finished = True
        for run in session.runs:
            self._calls.forget_run(run)
        gone = {name: self._samplers.pop(name) for name in session.samplers if name in self._samplers}

        def free() -> Answer:
            session.recordings.clear()
            for run in session.runs:
                self._engine.forget(run)
            for name, sampler in gone.items():
                self._engine.forget_sampler(name)
                if sampler.is_of_session and sampler.checkpoint is not None:
                    with suppress(NotFound):
                        self._store.delete(sampler.checkpoint)
            return {}

        self._calls.submit(f"{id}/end", free)

    # calls

    async def _retrieve(self, request: Request) -> Response:
        id = (await json_of(request))["request_id"]
        call = self._calls.get(id)
        if call is None:
            return detail(f"call {id!r} is not known any more", 410)
        if not await self._calls.wait(call, LONG_POLL_S):
            again = {"type": "try_again", "request_id": id, "queue_state": "active"}
            return JSONResponse(again, 408)
        if isinstance(call.answer, bytes):
            return Response(call.answer, media_type="application/x-protobuf")
        return JSONResponse(call.answer)

    async def _cancel(self, request: Request) -> Response:
        self._calls.cancel((await json_of(request))["request_id"])
        return Response(status_code=204)
