"""Sampling: from which model, and the tokens that are drawn."""

import uuid
from collections.abc import Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from graftline.training.local import wire
from graftline.training.local.answers import json_of, submitted
from graftline.training.local.calls import Calls
from graftline.training.local.checkpoints import Checkpoint, CheckpointStore
from graftline.training.local.engine import Engine
from graftline.training.local.listing import Handler
from graftline.training.local.lora import read_facts
from graftline.training.local.sampling import Sampling, check_request, sample
from graftline.training.local.sessions import Sampler, Samplers, Sessions


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
