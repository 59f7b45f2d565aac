"""The server: what the SDK asks for over HTTP, as calls to the engine and the store of checkpoints.

What takes long is answered with the id of a call, whose outcome is asked for until it is there. Errors are `{"detail": …}`,
and those of calls `{"error": …, "category": "user" | "server"}`. What the service has beyond this answers 404 with a reason.
"""

import hmac
import logging
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from graftline.errors import DataError, GraftlineError
from graftline.training.local import wire
from graftline.training.local.answers import body_of, detail, json_of, refused, submitted
from graftline.training.local.calls import Answer, Calls
from graftline.training.local.checkpoints import Checkpoint, CheckpointStore, NotFound
from graftline.training.local.engine import Engine
from graftline.training.local.exports import Signer, encrypt, recipients_of
from graftline.training.local.listing import Handler, Listing
from graftline.training.local.lora import LoraShape, read_facts
from graftline.training.local.sampling import Sampling, check_request, sample
from graftline.training.local.sessions import Sampler, Session, Sessions

logger = logging.getLogger(__name__)

LONG_POLL_S = 20.0
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
        self._calls = Calls(_MOST_TOGETHER_TOKENS)
        self._sessions = Sessions()
        self._samplers: dict[str, Sampler] = {}
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
            at("POST", "create_model", self._create_model),
            at("POST", "load_weights", self._load_weights),
            at("POST", "get_info", self._get_info),
            at("POST", "forward_backward", self._forward_backward),
            at("POST", "optim_step", self._optim_step),
            at("POST", "save_weights", self._save_weights),
            at("POST", "save_weights_for_sampler", self._save_for_sampler),
            at("POST", "save_weights_external", self._save_external),
            at("POST", "copy_weights", self._copy_weights),
            at("POST", "create_sampling_session", self._create_sampling_session),
            at("POST", "join_sampling_session", self._join_sampling_session),
            at("GET", "samplers/{sampler:path}", self._get_sampler),
            at("POST", "asample", self._asample),
            at("POST", "retrieve_future", self._retrieve),
            at("POST", "cancel_future", self._cancel),
            *(at(*each) for each in self._listing.handlers()),
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
        return JSONResponse({"status": "ok"})

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
            for run in session.runs:
                self._engine.forget(run)
            for name, sampler in gone.items():
                self._engine.forget_sampler(name)
                if sampler.is_of_session and sampler.checkpoint is not None:
                    with suppress(NotFound):
                        self._store.delete(sampler.checkpoint)
            return {}

        self._calls.submit(f"{id}/end", free)

    # training

    async def _create_model(self, request: Request) -> Response:
        body = await json_of(request)
        self._check_model(body["base_model"])
        _check_optimizer(body.get("optimizer_config"))
        given = {key: value for key, value in (body.get("lora_config") or {}).items() if value is not None}
        shape = LoraShape(**given)
        session, run_id = self._new_run(body)

        def create() -> Answer:
            self._engine.create(run_id, shape)
            self._note(run_id, shape, body.get("user_metadata"))
            session.runs.append(run_id)
            return {"type": "create_model", "model_id": run_id}

        return submitted(self._calls.submit(f"{run_id}/create", create), run_id)

    async def _load_weights(self, request: Request) -> Response:
        body = await json_of(request)
        checkpoint = self._store.existing(self._store.parse(body["path"]))
        with_optimizer = bool(body["optimizer"])
        if body.get("base_model"):
            self._check_model(body["base_model"])
        _check_optimizer(body.get("optimizer_config"))
        session = None
        if body.get("model_id") is None:
            session, run_id = self._new_run(body)
        else:
            run_id = body["model_id"]

        def load() -> Answer:
            run = self._engine.load(run_id, self._store.files(checkpoint), with_optimizer)
            if session is not None:
                self._note(run_id, run.shape, {**(body.get("user_metadata") or {}), "loaded_from": checkpoint.uri})
                session.runs.append(run_id)
            return {"type": "load_weights", "path": checkpoint.uri, "model_id": run_id}

        if session is None:
            return self._numbered(run_id, body["seq_id"], load)
        return submitted(self._calls.submit(f"{run_id}/load", load), run_id)

    async def _get_info(self, request: Request) -> Response:
        run_id = (await json_of(request))["model_id"]
        known = self._store.run(run_id)
        return JSONResponse(
            {
                "type": "get_info",
                "model_id": run_id,
                "model_data": {
                    "arch": self._engine.architecture,
                    "model_name": self._engine.name,
                    # this machine's: client and server share it
                    "tokenizer_id": str(self._engine.folder),
                },
                "is_lora": True,
                "lora_rank": known["lora_rank"],
                "model_name": self._engine.name,
            }
        )

    async def _forward_backward(self, request: Request) -> Response:
        body = wire.unpacked(await body_of(request), request.headers.get("content-encoding", ""))
        asked = wire.read_forward_backward(body)

        def run() -> Answer:
            found = self._engine.forward_backward(
                asked.run_id, asked.examples, asked.loss, asked.options, asked.is_training
            )
            return wire.forward_backward_answer(*found)

        return self._numbered(asked.run_id, asked.number, run)

    async def _optim_step(self, request: Request) -> Response:
        body = await json_of(request)
        if "adam_params" not in body:
            raise DataError("the local backend has the optimizer of AdamParams only")

        def step() -> Answer:
            metrics = self._engine.optim_step(body["model_id"], **body["adam_params"])
            self._store.note_run(body["model_id"])
            return {"metrics": metrics}

        return self._numbered(body["model_id"], body["seq_id"], step)

    def _numbered(self, run_id: str, number: int, do: Callable[[], Answer]) -> Response:
        # or it would wait for ever for those before it
        self._sessions.going(run_id.partition(":")[0])
        return submitted(self._calls.submit(f"{run_id}/{number}", do, run_id, number), run_id)

    def _new_run(self, body: Mapping[str, Any]) -> tuple[Session, str]:
        return self._sessions.going(body["session_id"]), f"{body['session_id']}:train:{body['model_seq_id']}"

    def _note(self, run_id: str, shape: LoraShape, user_metadata: Any) -> None:
        self._store.note_run(
            run_id,
            base_model=self._engine.name,
            model_owner="local",
            is_lora=True,
            lora_rank=shape.rank,
            user_metadata=user_metadata,
        )

    def _check_model(self, name: str) -> None:
        if name != self._engine.name:
            raise DataError(f"base model {name!r} is not served here; {self._engine.name!r} is")

    # checkpoints

    async def _save_weights(self, request: Request) -> Response:
        body = await json_of(request)
        checkpoint = self._wanted(body, "weights")

        def save() -> Answer:
            self._save(body, checkpoint, with_optimizer=True)
            return {"type": "save_weights", "path": checkpoint.uri}

        return self._numbered(body["model_id"], body["seq_id"], save)

    async def _save_for_sampler(self, request: Request) -> Response:
        body = await json_of(request)
        checkpoint = self._wanted(body, "sampler_weights")
        sampler = f"{body['model_id'].partition(':')[0]}:sample:{body.get('sampling_session_seq_id')}"

        def save() -> Answer:
            self._save(body, checkpoint, with_optimizer=False)
            if body.get("path"):
                return {"type": "save_weights_for_sampler", "path": checkpoint.uri}
            self._add_sampler(sampler, Sampler(checkpoint, is_of_session=True))
            return {"type": "save_weights_for_sampler", "sampling_session_id": sampler}

        return self._numbered(body["model_id"], body["seq_id"], save)

    async def _save_external(self, request: Request) -> Response:
        body = await json_of(request)
        checkpoint = self._wanted(body, "external_weights")
        recipients = recipients_of(body.get("age_encryption_recipients") or [])

        def save() -> Answer:
            self._save(body, checkpoint, with_optimizer=False, recipients=recipients)
            return {"type": "save_weights_external", "path": checkpoint.uri}

        return self._numbered(body["model_id"], body["seq_id"], save)

    async def _copy_weights(self, request: Request) -> Response:
        body = await json_of(request)
        source = self._store.existing(self._store.parse(body["source_path"]))
        key = request.headers.get("x-idempotency-key") or uuid.uuid4().hex
        session, run_id = self._new_run(body) if body.get("session_id") else (None, f"copy-{key}")
        target = self._store.at(run_id, source.kind, source.name)

        def copy() -> Answer:
            facts = self._store.run(source.run_id)
            kept = {key: facts.get(key) for key in ("base_model", "model_owner", "is_lora", "lora_rank")}
            self._store.note_run(run_id, **kept, user_metadata={"copied_from": source.uri})
            self._store.copy(source, target, body.get("ttl_seconds"))
            if session is not None:
                session.runs.append(run_id)
            return {"tinker_path": target.uri}

        call = self._calls.submit(f"{run_id}/copy", copy)
        # the SDK wants the path itself, and asks again with the same key
        if not await self._calls.wait(call, LONG_POLL_S):
            return detail("the engine is busy, so nothing is copied yet; ask again", 503)
        if isinstance(call.answer, dict) and "error" in call.answer:
            raise DataError(str(call.answer["error"]))
        return JSONResponse(call.answer)

    def _wanted(self, body: Mapping[str, Any], kind: str) -> Checkpoint:
        return self._store.at(body["model_id"], kind, body.get("path") or f"unnamed-{uuid.uuid4().hex[:16]}")

    def _save(
        self, body: Mapping[str, Any], checkpoint: Checkpoint, with_optimizer: bool, recipients: Sequence[Any] = ()
    ) -> None:
        def make(folder: Path) -> None:
            self._engine.save(body["model_id"], folder, with_optimizer)
            if recipients:
                encrypt(folder, recipients)

        self._store.write(
            checkpoint, make, body.get("ttl_seconds"), body.get("user_metadata"), bool(body.get("overwrite"))
        )
        self._store.note_run(body["model_id"])

    # sampling

    async def _create_sampling_session(self, request: Request) -> Response:
        body = await json_of(request)
        session = self._sessions.going(body["session_id"])
        sampler = f"{body['session_id']}:sample:{body['sampling_session_seq_id']}"
        checkpoint = None
        if body.get("model_path"):
            checkpoint = self._store.parse(body["model_path"])
            model = read_facts(self._store.files(checkpoint))["base_model"]
        else:
            model = body.get("base_model")
        self._check_model(str(model))
        self._samplers[sampler] = Sampler(checkpoint)
        if sampler not in session.samplers:
            session.samplers.append(sampler)
        return JSONResponse({"type": "create_sampling_session", "sampling_session_id": sampler})

    async def _join_sampling_session(self, request: Request) -> Response:
        sampler = self._sampler((await json_of(request))["sampling_session_id"])
        sampler.clones += 1
        return JSONResponse({"type": "join_sampling_session", "client_counter": sampler.clones})

    async def _get_sampler(self, request: Request) -> Response:
        id = request.path_params["sampler"]
        checkpoint = self._sampler(id).checkpoint
        path = checkpoint.uri if checkpoint else None
        return JSONResponse({"sampler_id": id, "base_model": self._engine.name, "model_path": path})

    async def _asample(self, request: Request) -> Response:
        body = await json_of(request)
        sampler_id = body["sampling_session_id"]
        sampler, asked = self._sampler(sampler_id), wire.read_sampling(body)
        check_request(self._engine, asked)
        last = body.get("prompt_logprobs_last_n")

        def draw(items: Sequence[tuple[Sampling, int | None]]) -> list[bytes]:
            with self._engine.sampling_from(sampler_id, self._folder(sampler_id, sampler.checkpoint)) as model:
                found = sample(self._engine, model, [asked for asked, _ in items])
            return [wire.sampling_answer(one, last) for one, (_, last) in zip(found, items, strict=True)]

        number = body.get("seq_id")
        id = f"{sampler_id}/{uuid.uuid4().hex if number is None else number}"
        ids = [f"{id}/{number}" for number in range(asked.count)]
        call = self._calls.submit_shared(
            id, sampler_id, (asked, last), asked.count * asked.length, draw, {"sample_sequence_ids": ids}
        )
        return submitted(call, None)

    def _folder(self, sampler_id: str, checkpoint: Checkpoint | None) -> Path | None:
        if checkpoint is None:
            return None
        # the sums of its files are made when they are read, not for every token
        is_read = self._engine.has_sampler(sampler_id)
        return self._store.existing(checkpoint).folder if is_read else self._store.files(checkpoint)

    def _sampler(self, id: str) -> Sampler:
        if id not in self._samplers:
            raise NotFound(f"there is no sampler {id!r}: the server was started after it; make a new SamplingClient")
        return self._samplers[id]

    def _add_sampler(self, id: str, sampler: Sampler) -> None:
        self._samplers[id] = sampler
        session = self._sessions.get(id.partition(":")[0])
        if session is not None:
            session.samplers.append(id)

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


def _check_optimizer(config: Mapping[str, Any] | None) -> None:
    kind = (config or {}).get("type", "adamw")
    if kind not in ("adam", "adamw"):
        raise DataError(f"optimizer {kind!r} is not offered by the local backend; adamw is")
