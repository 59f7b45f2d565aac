"""Requests that the model works on: runs, their passes and steps, the checkpoints that are written of them, and sampling.

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
from graftline.training.local.checkpoints import Checkpoint, CheckpointStore, NotFound
from graftline.training.local.engine import Engine
from graftline.training.local.lora import LoraShape, read_facts
from graftline.training.local.losses import loss_options
from graftline.training.local.passes import Example
from graftline.training.local.sampling import Sampling, check_request, sample
from graftline.training.local.sessions import Sampler, Samplers, Session, Sessions, with_recorded_logprobs
from graftline.training.local.wire import Route, call_response, json_route

_ADAM_PARAMS = ("learning_rate", "beta1", "beta2", "eps", "weight_decay", "grad_clip_norm")
Body = dict[str, Any]


class ModelRoutes:
    """Answers what is asked of training runs and samplers."""

    def __init__(
        self, engine: Engine, store: CheckpointStore, calls: Calls, sessions: Sessions, samplers: Samplers
    ) -> None:
        self._engine, self._store, self._calls = engine, store, calls
        self._sessions, self._samplers = sessions, samplers

    def routes(self) -> list[Route]:
        """Return what is answered to who has the key."""
        return [
            json_route("create_model", self._create_model),
            json_route("load_weights", self._load_weights),
            json_route("get_info", self._get_info),
            ("POST", "forward_backward", self._forward_backward),
            json_route("optim_step", self._optim_step),
            json_route("save_weights", self._save_weights),
            json_route("save_weights_for_sampler", self._save_for_sampler),
            json_route("save_weights_external", self._save_external),
            json_route("create_sampling_session", self._create_sampling_session),
            json_route("join_sampling_session", self._join_sampling_session),
            ("GET", "samplers/{sampler:path}", self._get_sampler),
            json_route("asample", self._sample),
        ]

    # runs

    async def _create_model(self, body: Body) -> Response:
        self._engine.check_name(body["base_model"])
        _check_optimizer(body.get("optimizer_config"))
        shape = LoraShape(**{key: value for key, value in (body.get("lora_config") or {}).items() if value is not None})
        session, run_id = self._new_run(body)

        def create() -> Answer:
            self._engine.create(run_id, shape)
            self._note_run(run_id, shape, body.get("user_metadata"))
            session.runs.append(run_id)
            return {"type": "create_model", "model_id": run_id}

        return call_response(self._calls.submit(f"{run_id}/create", create), run_id)

    async def _load_weights(self, body: Body) -> Response:
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
                metadata = {**(body.get("user_metadata") or {}), "loaded_from": checkpoint.uri}
                self._note_run(run_id, run.shape, metadata)
                session.runs.append(run_id)
            return {"type": "load_weights", "path": checkpoint.uri, "model_id": run_id}

        if session is None:
            return self._submit_numbered(run_id, body["seq_id"], load)
        return call_response(self._calls.submit(f"{run_id}/load", load), run_id)

    async def _get_info(self, body: Body) -> Response:
        run_id = body["model_id"]
        run = self._store.run(run_id)
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
                "lora_rank": run["lora_rank"],
                "model_name": self._engine.name,
            }
        )

    async def _forward_backward(self, http_request: Request) -> Response:
        body = wire.decompress(await wire.read_body(http_request), http_request.headers.get("content-encoding", ""))
        request = wire.read_forward_backward(body)

        def run() -> Answer:
            loss_options(request.loss, request.options)
            try:
                examples = [self._example(number, request) for number in range(len(request.datums))]
            except DataError:
                if request.is_training:
                    self._engine.spoil(request.run_id)
                raise
            result = self._engine.forward_backward(
                request.run_id, examples, request.loss, request.options, request.is_training
            )
            return wire.forward_backward_answer(*result)

        return self._submit_numbered(request.run_id, request.number, run)

    def _example(self, number: int, request: wire.ForwardBackward) -> Example:
        datum = request.datums[number]
        try:
            example = wire.read_example(datum)
            if request.loss != "stable_reinforce":
                return example
            spans = wire.read_spans(datum.model_input_spans), wire.read_spans(datum.loss_fn_input_spans)
            recordings = self._sessions[request.run_id.partition(":")[0]].recordings
            return with_recorded_logprobs(request.loss, example, *spans, recordings)
        except DataError as error:
            raise DataError(f"datum {number}: {error}") from None

    async def _optim_step(self, body: Body) -> Response:
        def step() -> Answer:
            metrics = self._engine.optim_step(body["model_id"], **_adam_params(body))
            self._store.note_run(body["model_id"])
            return {"metrics": metrics}

        return self._submit_numbered(body["model_id"], body["seq_id"], step)

    def _submit_numbered(self, run_id: str, number: int, work: Callable[[], Answer]) -> Response:
        # of a session that ended, it would wait for ever for those before it
        self._sessions.active(run_id.partition(":")[0])
        return call_response(self._calls.submit(f"{run_id}/{number}", work, run_id, number), run_id)

    def _new_run(self, body: Body) -> tuple[Session, str]:
        return self._sessions.active(body["session_id"]), f"{body['session_id']}:train:{body['model_seq_id']}"

    def _note_run(self, run_id: str, shape: LoraShape, user_metadata: Any) -> None:
        self._store.note_run(
            run_id,
            base_model=self._engine.name,
            model_owner="local",
            is_lora=True,
            lora_rank=shape.rank,
            user_metadata=user_metadata,
        )

    # checkpoints of runs

    async def _save_weights(self, body: Body) -> Response:
        def save() -> Answer:
            return {"type": "save_weights", "path": self._save(body, "weights", with_optimizer=True).uri}

        return self._submit_numbered(body["model_id"], body["seq_id"], save)

    async def _save_for_sampler(self, body: Body) -> Response:
        run_id = body["model_id"]
        sampler_id = f"{run_id.partition(':')[0]}:sample:{body.get('sampling_session_seq_id')}"

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
            self._samplers[sampler_id] = Sampler(checkpoint, is_of_session=True, follows=follows)
            session = self._sessions.get(sampler_id.partition(":")[0])
            if session is not None:
                session.samplers.append(sampler_id)
            return {"type": "save_weights_for_sampler", "sampling_session_id": sampler_id}

        return self._submit_numbered(run_id, body["seq_id"], save)

    async def _save_external(self, body: Body) -> Response:
        def save() -> Answer:
            if body.get("age_encryption_recipients"):
                raise DataError("age_encryption_recipients is not offered by this backend; leave it out")
            checkpoint = self._save(body, "external_weights", with_optimizer=False)
            return {"type": "save_weights_external", "path": checkpoint.uri}

        return self._submit_numbered(body["model_id"], body["seq_id"], save)

    def _publish(self, run_id: str, checkpoint: Checkpoint) -> None:
        """Have all samplers that follow a run sample from `checkpoint` from now on."""
        replaced = set()
        for name, sampler in [*self._samplers.items()]:
            if sampler.follows == run_id and sampler.checkpoint is not None:
                replaced.add(sampler.checkpoint)
                sampler.checkpoint = checkpoint
                self._engine.forget_sampler(name)
        for old in replaced:
            with suppress(NotFound):
                self._store.delete(old)

    def _save(self, body: Mapping[str, Any], kind: str, with_optimizer: bool) -> Checkpoint:
        name = body.get("path") or f"unnamed-{uuid.uuid4().hex[:16]}"
        checkpoint = self._store.at(body["model_id"], kind, name)

        def make(folder: Path) -> None:
            self._engine.save(body["model_id"], folder, with_optimizer)

        self._store.write(
            checkpoint, make, body.get("ttl_seconds"), body.get("user_metadata"), bool(body.get("overwrite"))
        )
        self._store.note_run(body["model_id"])
        return checkpoint

    # samplers

    async def _create_sampling_session(self, body: Body) -> Response:
        session = self._sessions.active(body["session_id"])
        sampler_id = f"{body['session_id']}:sample:{body['sampling_session_seq_id']}"
        checkpoint = None
        if body.get("model_path"):
            checkpoint = self._store.parse(body["model_path"])
            model = read_facts(self._store.files(checkpoint))["base_model"]
        else:
            model = body.get("base_model")
        self._engine.check_name(str(model))
        self._samplers[sampler_id] = Sampler(checkpoint)
        if sampler_id not in session.samplers:
            session.samplers.append(sampler_id)
        return JSONResponse({"type": "create_sampling_session", "sampling_session_id": sampler_id})

    async def _join_sampling_session(self, body: Body) -> Response:
        sampler = self._samplers.require(body["sampling_session_id"])
        sampler.clones += 1
        return JSONResponse({"type": "join_sampling_session", "client_counter": sampler.clones})

    async def _get_sampler(self, request: Request) -> Response:
        id = request.path_params["sampler"]
        checkpoint = self._samplers.require(id).checkpoint
        path = checkpoint.uri if checkpoint else None
        return JSONResponse({"sampler_id": id, "base_model": self._engine.name, "model_path": path})

    async def _sample(self, body: Body) -> Response:
        sampler_id = body["sampling_session_id"]
        sampler, sampling = self._samplers.require(sampler_id), wire.read_sampling(body)
        check_request(self._engine, sampling)
        session = self._sessions.active(sampler_id.partition(":")[0])

        def draw(items: Sequence[tuple[Sampling, int | None, Sequence[str]]]) -> list[bytes]:
            # the checkpoint of this moment: one that follows a run has had several
            with self._engine.sampling_from(sampler_id, self._folder(sampler_id, sampler.checkpoint)) as model:
                results = sample(self._engine, model, [request for request, _, _ in items])
            for result, (request, _, recorded_ids) in zip(results, items, strict=True):
                for id, sequence in zip(recorded_ids, result.sequences, strict=bool(recorded_ids)):
                    session.recordings.record(id, request.prompt, sequence.tokens, sequence.logprobs)
            return [wire.sampling_answer(result, last) for result, (_, last, _) in zip(results, items, strict=True)]

        number = body.get("seq_id")
        id = f"{sampler_id}/{uuid.uuid4().hex if number is None else number}"
        sequence_ids = [f"{id}/{number}" for number in range(sampling.count)]
        recorded_ids = sequence_ids if body.get("record_stability_info") else ()
        call = self._calls.submit_shared(
            id,
            sampler_id,
            (sampling, body.get("prompt_logprobs_last_n"), recorded_ids),
            sampling.count * sampling.length,
            draw,
            {"sample_sequence_ids": sequence_ids},
        )
        return call_response(call, None)

    def _folder(self, sampler_id: str, checkpoint: Checkpoint | None) -> Path | None:
        if checkpoint is None:
            return None
        # the sums of its files are checked when they are read, not for every token
        is_loaded = self._engine.has_sampler(sampler_id)
        return self._store.existing(checkpoint).folder if is_loaded else self._store.files(checkpoint)


def _adam_params(body: Body) -> dict[str, float]:
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
