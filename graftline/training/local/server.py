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
from typing import Any

from pydantic import SecretStr
from starlette import routing
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from graftline.core.errors import GraftlineError
from graftline.training.local.calls import Answer, Calls
from graftline.training.local.checkpoint_routes import CheckpointRoutes, Signer
from graftline.training.local.checkpoints import CheckpointStore, NotFound
from graftline.training.local.engine import Engine
from graftline.training.local.model_routes import ModelRoutes
from graftline.training.local.sessions import Samplers, Session, Sessions
from graftline.training.local.wire import LONG_POLL_S, Handler, Route, error_response, json_route, refuse

_MAX_SHARED_TOKENS = 8192
"""Of samples that share passes, prompts included: what their keys and values take memory for."""
_LAST = {"connection": "close"}
_UNNAMED = re.compile(r"sampler_weights/unnamed-[0-9a-f]{16}")
_INFO = "Graftline's local backend: transformers and peft on this machine, not the Tinker service"


class TinkerServer:
    """Answers the SDK; `app` is to be served on a loopback address."""

    def __init__(self, engine: Engine, store: CheckpointStore, api_key: SecretStr, url_secret: bytes) -> None:
        self._engine, self._store, self._api_key = engine, store, api_key
        self._calls = Calls(_MAX_SHARED_TOKENS, on_lost=engine.spoil)
        self._sessions, self._samplers = Sessions(), Samplers()
        checkpoint_routes = CheckpointRoutes(store, Signer(url_secret))
        model_routes = ModelRoutes(engine, store, self._calls, self._sessions, self._samplers)
        self.app = Starlette(
            routes=[
                routing.Route("/api/v1/healthz", self._health, methods=["GET"]),
                routing.Route("/files/{run}/{kind}/{name}/{file}", checkpoint_routes.send_file, methods=["GET"]),
                *(
                    routing.Route(f"/api/v1/{path}", partial(self._guard, handler), methods=[method])
                    for method, path, handler in (
                        *self._session_routes(),
                        *model_routes.routes(),
                        *checkpoint_routes.routes(),
                        ("GET", "{path:path}", _refuse_unknown),
                        ("POST", "{path:path}", _refuse_unknown),
                    )
                ),
            ],
            exception_handlers={Exception: refuse, HTTPException: refuse},
        )

    def start(self) -> None:
        """Begin to work; called once, on the event loop."""
        self._store.sweep()
        for checkpoint in self._store.list_checkpoints():
            if _UNNAMED.fullmatch(checkpoint["checkpoint_id"]):
                # of a session of a server that was killed
                self._store.delete(self._store.parse(checkpoint["tinker_path"]))
        self._calls.start()
        self._calls.submit("warm-up", self._warm_up)

    def release_waiters(self) -> None:
        """Answer all who wait, for the server is to end."""
        self._calls.release_waiters()

    def stop(self) -> None:
        """End after what is worked on."""
        self._calls.stop()

    def _session_routes(self) -> list[Route]:
        return [
            ("POST", "client/config", _client_config),
            ("POST", "client/dynamic_config", _dynamic_config),
            ("POST", "telemetry", _accept_telemetry),
            ("GET", "get_server_capabilities", self._capabilities),
            json_route("create_session", self._create_session),
            json_route("session_heartbeat", self._beat),
            ("POST", "sessions/{session}/finish", self._finish_session),
            ("GET", "sessions", self._list_sessions),
            ("GET", "sessions/{session}", self._get_session),
            json_route("retrieve_future", self._retrieve),
            json_route("cancel_future", self._cancel),
        ]

    async def _guard(self, handler: Handler, request: Request) -> Response:
        """Answer who has the key."""
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        key = request.headers.get("x-api-key") or bearer
        if not hmac.compare_digest(key.encode(), self._api_key.get_secret_value().encode()):
            return error_response("the API key is not the one of this server", 401, _LAST)
        try:
            return await handler(request)
        except NotFound as error:
            return error_response(str(error), 404)
        except GraftlineError as error:
            return error_response(str(error), 400)
        except (KeyError, TypeError, ValueError) as error:
            return error_response(f"{request.url.path}: the request is not understood ({error!r})", 400)

    # about the server

    async def _health(self, request: Request) -> Response:
        # what `auto` came to here; the SDK reads no more of what a model can than it knows itself
        computed_with = {"precision": self._engine.precision, "device": self._engine.device.type}
        return JSONResponse({"status": "ok", **computed_with})

    async def _capabilities(self, request: Request) -> Response:
        model = {
            "model_name": self._engine.name,
            "max_context_length": self._engine.context,
            "trainable": True,
            "sampleable": True,
        }
        return JSONResponse({"supported_models": [model]})

    # sessions

    async def _create_session(self, body: dict[str, Any]) -> Response:
        for silent in self._sessions.silent():
            self._end_session(silent)
        self._calls.submit(f"sweep/{uuid.uuid4().hex}", lambda: {"removed": self._store.sweep()})
        id = uuid.uuid4().hex[:16]
        self._sessions[id] = Session(body.get("user_metadata"), body.get("display_name"))
        return JSONResponse({"type": "create_session", "session_id": id, "info_message": _INFO})

    async def _beat(self, body: dict[str, Any]) -> Response:
        id = body["session_id"]
        if id in self._sessions and self._sessions[id].is_finished:
            return error_response("the session is finished", 410)
        self._sessions.active(id).beat = time.monotonic()
        return JSONResponse({"type": "session_heartbeat"})

    async def _finish_session(self, request: Request) -> Response:
        self._end_session(request.path_params["session"])
        return Response(status_code=204)

    async def _list_sessions(self, request: Request) -> Response:
        return JSONResponse({"sessions": [*self._sessions]})

    async def _get_session(self, request: Request) -> Response:
        id = request.path_params["session"]
        session = self._sessions.get(id) or self._sessions.active(id)
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

    def _end_session(self, id: str) -> None:
        session = self._sessions.get(id)
        if session is None or session.is_finished:
            return
        session.is_finished = True
        for run in session.runs:
            self._calls.forget_run(run)
        samplers = {name: self._samplers.pop(name) for name in session.samplers if name in self._samplers}

        def free() -> Answer:
            session.recordings.clear()
            for run in session.runs:
                self._engine.forget(run)
            for name, sampler in samplers.items():
                self._engine.forget_sampler(name)
                if sampler.is_of_session and sampler.checkpoint is not None:
                    with suppress(NotFound):
                        self._store.delete(sampler.checkpoint)
            return {}

        self._calls.submit(f"{id}/end", free)

    # calls

    async def _retrieve(self, body: dict[str, Any]) -> Response:
        id = body["request_id"]
        call = self._calls.get(id)
        if call is None:
            return error_response(f"call {id!r} is not known any more", 410)
        if not await self._calls.wait(call, LONG_POLL_S):
            return JSONResponse({"type": "try_again", "request_id": id, "queue_state": "active"}, 408)
        if isinstance(call.answer, bytes):
            return Response(call.answer, media_type="application/x-protobuf")
        return JSONResponse(call.answer)

    async def _cancel(self, body: dict[str, Any]) -> Response:
        self._calls.cancel(body["request_id"])
        return Response(status_code=204)


async def _client_config(request: Request) -> Response:
    # asked for over a connection of its own, which the SDK forgets to close
    return JSONResponse({"pjwt_auth_enabled": False, "parallel_fwdbwd_chunks": True}, headers=_LAST)


async def _dynamic_config(request: Request) -> Response:
    return JSONResponse({"refresh_interval_sec": 3600, "sample_cancel_enabled": True})


async def _accept_telemetry(request: Request) -> Response:
    return JSONResponse({"status": "accepted"})


async def _refuse_unknown(request: Request) -> Response:
    return error_response(f"{request.method} {request.url.path} is not offered by the local backend", 404)
