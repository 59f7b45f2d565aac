"""Training: runs, their passes and steps, and the checkpoints that are written of them.

What a client numbers is never refused before its number is taken: those after it would wait for that number.
"""

import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from graftline.core.errors import DataError
from graftline.training.local import wire
from graftline.training.local.calls import Answer, Calls
from graftline.training.local.checkpoint_routes import Handler, encrypt, recipients_of
from graftline.training.local.checkpoints import Checkpoint, CheckpointStore, NotFound
from graftline.training.local.engine import Engine
from graftline.training.local.lora import LoraShape, read_facts
from graftline.training.local.losses import checked_options
from graftline.training.local.passes import Example
from graftline.training.local.sampling import Sampling, check_request, sample
from graftline.training.local.sessions import Sampler, Samplers, Session, Sessions, with_recorded_logprobs
from graftline.training.local.wire import LONG_POLL_S, body_of, detail, json_of, submitted

_ADAM_PARAMS = ("learning_rate", "beta1", "beta2", "eps", "weight_decay", "grad_clip_norm")


class TrainingCalls:
    """Answers what is asked of training runs."""

    def __init__(
        self, engine: Engine, store: CheckpointStore, calls: Calls, sessions: Sessions, samplers: Samplers
    ) -> None:
        self._engine, self._store, self._calls = engine, store, calls
        self._sessions, self._samplers = sessions, samplers

    def handlers(self) -> list[tuple[str, str, Handler]]:
        """Return method, path and handler of what is answered to who has the key."""
        return [
            ("POST", "create_model", self._create_model),
            ("POST", "load_weights", self._load_weights),
            ("POST", "get_info", self._get_info),
            ("POST", "forward_backward", self._forward_backward),
            ("POST", "optim_step", self._optim_step),
            ("POST", "save_weights", self._save_weights),
            ("POST", "save_weights_for_sampler", self._save_for_sampler),
            ("POST", "save_weights_external", self._save_external),
            ("POST", "copy_weights", self._copy_weights),
        ]

    async def _create_model(self, request: Request) -> Response:
        body = await json_of(request)
        self._engine.check_name(body["base_model"])
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
        session = None
        if body.get("model_id") is None:
            session, run_id = self._new_run(body)
        else:
            run_id = body["model_id"]

        def load() -> Answer:
            checkpoint = self._store.parse(body["path"])
            if body.get("base_model"):
                self._engine.check_name(body["base_model"])
            _check_optimizer(body.get("optimizer_config"))
            run = self._engine.load(run_id, self._store.files(checkpoint), bool(body["optimizer"]))
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
            checked_options(asked.loss, asked.options)
            try:
                examples = [self._example(number, asked) for number in range(len(asked.datums))]
            except DataError:
                if asked.is_training:
                    self._engine.spoil(asked.run_id)
                raise
            found = self._engine.forward_backward(asked.run_id, examples, asked.loss, asked.options, asked.is_training)
            return wire.forward_backward_answer(*found)

        return self._numbered(asked.run_id, asked.number, run)

    def _example(self, number: int, asked: wire.ForwardBackward) -> Example:
        datum = asked.datums[number]
        try:
            example = wire.read_example(datum)
            if asked.loss != "stable_reinforce":
                return example
            spans = wire.read_spans(datum.model_input_spans), wire.read_spans(datum.loss_fn_input_spans)
            recordings = self._sessions[asked.run_id.partition(":")[0]].recordings
            return with_recorded_logprobs(asked.loss, example, *spans, recordings)
        except DataError as error:
            raise DataError(f"datum {number}: {error}") from None

    async def _optim_step(self, request: Request) -> Response:
        body = await json_of(request)

        def step() -> Answer:
            metrics = self._engine.optim_step(body["model_id"], **_adam_params(body))
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

    async def _save_weights(self, request: Request) -> Response:
        body = await json_of(request)

        def save() -> Answer:
            checkpoint = self._save(body, "weights", with_optimizer=True)
            return {"type": "save_weights", "path": checkpoint.uri}

        return self._numbered(body["model_id"], body["seq_id"], save)

    async def _save_for_sampler(self, request: Request) -> Response:
        body = await json_of(request)
        run_id = body["model_id"]
        sampler = f"{run_id.partition(':')[0]}:sample:{body.get('sampling_session_seq_id')}"

        def save() -> Answer:
            kind = body.get("kind", "snapshot")
            if kind not in ("snapshot", "inflight"):
                raise DataError(f"kind is {kind!r}, but 'snapshot' or 'inflight' was expected")
            checkpoint = self._save(body, "sampler_weights", with_optimizer=False)
            if body.get("path"):
                return {"type": "save_weights_for_sampler", "path": checkpoint.uri}
            if kind == "inflight":
                self._publish(run_id, checkpoint)
            follows = run_id if kind == "inflight" else None
            self._samplers[sampler] = Sampler(checkpoint, is_of_session=True, follows=follows)
            session = self._sessions.get(sampler.partition(":")[0])
            if session is not None:
                session.samplers.append(sampler)
            return {"type": "save_weights_for_sampler", "sampling_session_id": sampler}

        return self._numbered(body["model_id"], body["seq_id"], save)

    async def _save_external(self, request: Request) -> Response:
        body = await json_of(request)

        def save() -> Answer:
            recipients = recipients_of(body.get("age_encryption_recipients") or [])
            checkpoint = self._save(body, "external_weights", with_optimizer=False, recipients=recipients)
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

    def _publish(self, run_id: str, checkpoint: Checkpoint) -> None:
        """Have all samplers that follow a run sample from `checkpoint` from now on."""
        former = set()
        for name, sampler in [*self._samplers.items()]:
            if sampler.follows == run_id and sampler.checkpoint is not None:
                former.add(sampler.checkpoint)
                sampler.checkpoint = checkpoint
                self._engine.forget_sampler(name)
        for old in former:
            with suppress(NotFound):
                self._store.delete(old)

    def _save(
        self, body: Mapping[str, Any], kind: str, with_optimizer: bool, recipients: Sequence[Any] = ()
    ) -> Checkpoint:
        name = body.get("path") or f"unnamed-{uuid.uuid4().hex[:16]}"
        checkpoint = self._store.at(body["model_id"], kind, name)

        def make(folder: Path) -> None:
            self._engine.save(body["model_id"], folder, with_optimizer)
            if recipients:
                encrypt(folder, recipients)

        self._store.write(
            checkpoint, make, body.get("ttl_seconds"), body.get("user_metadata"), bool(body.get("overwrite"))
        )
        self._store.note_run(body["model_id"])
        return checkpoint


def _adam_params(body: Mapping[str, Any]) -> dict[str, float]:
    if "adam_params" not in body:
        kind = (body.get("optimizer_params") or {}).get("type")
        raise DataError(f"optimizer {kind!r} is not offered by the local backend; send AdamParams")
    params = dict(body["adam_params"])
    for name, value in params.items():
        if name not in _ADAM_PARAMS:
            raise DataError(f"AdamParams has no {name!r}; it has {', '.join(_ADAM_PARAMS)}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise DataError(f"{name} is {value!r}, but a number was expected")
    return params


def _check_optimizer(config: Mapping[str, Any] | None) -> None:
    kind = (config or {}).get("type", "adamw")
    if kind not in ("adam", "adamw"):
        raise DataError(f"optimizer {kind!r} is not offered by the local backend; adamw is")


class SamplingCalls:
    """Answers what is asked of samplers."""

    def __init__(
        self, engine: Engine, store: CheckpointStore, calls: Calls, sessions: Sessions, samplers: Samplers
    ) -> None:
        self._engine, self._store, self._calls = engine, store, calls
        self._sessions, self._samplers = sessions, samplers

    def handlers(self) -> list[tuple[str, str, Handler]]:
        """Return method, path and handler of what is answered to who has the key."""
        return [
            ("POST", "create_sampling_session", self._create_sampling_session),
            ("POST", "join_sampling_session", self._join_sampling_session),
            ("GET", "samplers/{sampler:path}", self._get_sampler),
            ("POST", "asample", self._asample),
        ]

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
        self._engine.check_name(str(model))
        self._samplers[sampler] = Sampler(checkpoint)
        if sampler not in session.samplers:
            session.samplers.append(sampler)
        return JSONResponse({"type": "create_sampling_session", "sampling_session_id": sampler})

    async def _join_sampling_session(self, request: Request) -> Response:
        sampler = self._samplers.known((await json_of(request))["sampling_session_id"])
        sampler.clones += 1
        return JSONResponse({"type": "join_sampling_session", "client_counter": sampler.clones})

    async def _get_sampler(self, request: Request) -> Response:
        id = request.path_params["sampler"]
        checkpoint = self._samplers.known(id).checkpoint
        path = checkpoint.uri if checkpoint else None
        return JSONResponse({"sampler_id": id, "base_model": self._engine.name, "model_path": path})

    async def _asample(self, request: Request) -> Response:
        body = await json_of(request)
        sampler_id = body["sampling_session_id"]
        sampler, asked = self._samplers.known(sampler_id), wire.read_sampling(body)
        check_request(self._engine, asked)
        last = body.get("prompt_logprobs_last_n")

        session = self._sessions.going(sampler_id.partition(":")[0])

        def draw(items: Sequence[tuple[Sampling, int | None, Sequence[str]]]) -> list[bytes]:
            # the checkpoint of this moment: one that follows a run has had several
            with self._engine.sampling_from(sampler_id, self._folder(sampler_id, sampler.checkpoint)) as model:
                found = sample(self._engine, model, [asked for asked, _, _ in items])
            for one, (asked, _, recorded_ids) in zip(found, items, strict=True):
                for sequence_id, drawn in zip(recorded_ids, one.sequences, strict=bool(recorded_ids)):
                    session.recordings.record(sequence_id, asked.prompt, drawn.tokens, drawn.logprobs)
            return [wire.sampling_answer(one, last) for one, (_, last, _) in zip(found, items, strict=True)]

        number = body.get("seq_id")
        id = f"{sampler_id}/{uuid.uuid4().hex if number is None else number}"
        ids = [f"{id}/{number}" for number in range(asked.count)]
        item = asked, last, ids if body.get("record_stability_info") else ()
        call = self._calls.submit_shared(
            id, sampler_id, item, asked.count * asked.length, draw, {"sample_sequence_ids": ids}
        )
        return submitted(call, None)

    def _folder(self, sampler_id: str, checkpoint: Checkpoint | None) -> Path | None:
        if checkpoint is None:
            return None
        # the sums of its files are made when they are read, not for every token
        is_read = self._engine.has_sampler(sampler_id)
        return self._store.existing(checkpoint).folder if is_read else self._store.files(checkpoint)
