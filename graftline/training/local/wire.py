"""The wire of `tinker` 0.38 in values of ours: what requests hold, and the forms of answers to them.

The messages are those of `tinker.proto`, which comes with the SDK; all else on the wire is JSON.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import zstandard
from google.protobuf.message import DecodeError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from tinker.proto import tinker_public_pb2 as pb

from graftline.core.errors import DataError
from graftline.training.local.calls import Call
from graftline.training.local.passes import Example
from graftline.training.local.sampling import Sampled, Sampling, TopK
from graftline.training.local.sessions import Span

logger = logging.getLogger(__name__)

LONG_POLL_S = 20.0
"""How long at most a request waits for the outcome of a call."""
MAX_BODY_BYTES = 256 << 20
"""Of one request, unpacked; the SDK cuts batches into pieces of 5 MB."""
_MAX_SENT_BYTES = 64 << 20
_NUMPY: dict[int, np.dtype[Any]] = {
    pb.DTYPE_FLOAT32: np.dtype(np.float32),
    pb.DTYPE_INT64: np.dtype(np.int64),
    pb.DTYPE_INT32: np.dtype(np.int32),
    pb.DTYPE_BFLOAT16: np.dtype(np.uint16),
}
_SAMPLING: Mapping[str, type[Any]] = {
    "max_tokens": int,
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "seed": int,
}

Handler = Callable[[Request], Awaitable[Response]]
Route = tuple[str, str, Handler]
"""Method, path below `/api/v1` and handler."""


def json_route(path: str, handler: Callable[[dict[str, Any]], Awaitable[Response]]) -> Route:
    """Return the route of a POST request whose handler is called with the object of JSON that it holds."""

    async def handle(request: Request) -> Response:
        return await handler(await read_json(request))

    return "POST", path, handle


async def refuse(request: Request, error: Exception) -> Response:
    """Answer a request that no handler took, or that failed."""
    if isinstance(error, HTTPException):
        return error_response(f"{request.method} {request.url.path}: {error.detail}", error.status_code)
    logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    reason = f"{type(error).__name__}; see the log of the server"
    return error_response(f"{request.method} {request.url.path}: {reason}", 500)


def error_response(text: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    """Return an error in the form of the service."""
    return JSONResponse({"detail": text}, status, headers)


def call_response(call: Call, run_id: str | None) -> Response:
    """Return the id of a call, whose outcome is asked for."""
    return JSONResponse({"request_id": call.id, "model_id": run_id, **call.facts})


def page(request: Request, key: str, rows: Sequence[Mapping[str, Any]]) -> Response:
    """Return the part of `rows` that the request names, under `key`."""
    offset, limit = (int(request.query_params.get(name, default)) for name, default in (("offset", 0), ("limit", 100)))
    cursor = {"offset": offset, "limit": limit, "total_count": len(rows)}
    return JSONResponse({key: [*rows[offset : offset + limit]], "cursor": cursor})


async def read_body(request: Request) -> bytes:
    """Return the body of a request; DataError where it is too large."""
    content = bytearray()
    async for piece in request.stream():
        content += piece
        if len(content) > _MAX_SENT_BYTES:
            raise DataError(f"the body is larger than {_MAX_SENT_BYTES} bytes; send less at a time")
    return bytes(content)


async def read_json(request: Request) -> dict[str, Any]:
    """Return the object that a request holds, an empty one where it holds nothing; DataError where it is none."""
    try:
        body = json.loads(await read_body(request) or b"{}")
    except (ValueError, RecursionError):
        raise DataError(f"{request.url.path}: the body is no JSON") from None
    if not isinstance(body, dict):
        raise DataError(f"{request.url.path}: the body is no object of JSON")
    return body


def decompress(body: bytes, encoding: str) -> bytes:
    """Return `body` without its compression; DataError where it is not what `encoding` says, or too large."""
    if encoding != "zstd":
        return body
    try:
        with zstandard.ZstdDecompressor().stream_reader(body) as reader:
            content = reader.read(MAX_BODY_BYTES + 1)
    except zstandard.ZstdError as error:
        raise DataError(f"the body is not zstd ({error})") from None
    if len(content) > MAX_BODY_BYTES:
        raise DataError(f"the body is larger than {MAX_BODY_BYTES} bytes; send fewer datums at a time")
    return content


@dataclass(frozen=True, slots=True)
class ForwardBackward:
    """A request to train on examples, or to evaluate them."""

    run_id: str
    number: int
    """Of the requests of this run: they are worked on in this order."""
    datums: Sequence[Any]
    """As they came: `read_example` says what is wrong with them."""
    loss: str
    options: dict[str, Any]
    is_training: bool


def read_forward_backward(body: bytes) -> ForwardBackward:
    """Return the request in `body`; DataError where it is none."""
    message = pb.ForwardBackwardRequest()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise DataError(f"the body is no ForwardBackwardRequest ({error})") from None
    options: dict[str, Any] = {
        key: value.text if value.HasField("text") else value.number for key, value in message.loss_fn_config_v2.items()
    } or dict(message.loss_fn_config)
    return ForwardBackward(
        run_id=message.model_id,
        number=message.seq_id,
        datums=message.data,
        loss=message.loss_fn,
        options=options,
        is_training=not message.forward_only,
    )


def read_example(datum: Any) -> Example:
    """Return one datum as an example; DataError where it holds something else than text, or an input that is no tensor."""
    tokens: list[int] = []
    for chunk in datum.model_input:
        if chunk.WhichOneof("chunk") != "encoded_text":
            raise DataError("holds something else than text, which this backend cannot train on")
        tokens += np.frombuffer(chunk.encoded_text.tokens, np.int32).tolist()
    try:
        inputs = {key: _tensor(value) for key, value in datum.loss_fn_inputs.items()}
    except (ValueError, KeyError, IndexError) as error:
        raise DataError(f"an input of its loss is no tensor ({error})") from None
    return Example(tokens, inputs)


def read_spans(messages: Sequence[Any]) -> list[Span]:
    """Return which sequences the tokens or the targets of a datum come from."""
    spans = []
    for message in messages:
        is_sampled = message.WhichOneof("span") == "sampled_tokens"
        run = message.sampled_tokens if is_sampled else message.prompt_tokens
        spans.append(Span(run.sequence_id, is_sampled, run.offset, run.length))
    return spans


def _tensor(message: Any) -> torch.Tensor:
    if message.HasField("sparse_csr"):
        values = _from_sparse(message)
    else:
        values = _array(message.dense, message.dtype).reshape(list(message.shape) or -1)
    return torch.from_numpy(values.astype(np.int64 if values.dtype.kind in "iu" else np.float32))


def _array(content: bytes, kind: int) -> np.ndarray:
    values = np.frombuffer(content, _NUMPY[kind])
    # the upper half of a float32
    return (values.astype(np.uint32) << 16).view(np.float32) if kind == pb.DTYPE_BFLOAT16 else values


def _from_sparse(message: Any) -> np.ndarray:
    """Return the dense form of rows that are compressed: https://pytorch.org/docs/stable/sparse.html#sparse-csr-tensor."""
    csr = message.sparse_csr
    values = _array(csr.values, message.dtype)
    ends = np.frombuffer(csr.crow_indices, np.int64)
    columns = np.frombuffer(csr.col_indices, np.int64)
    dense = np.zeros(list(message.shape), values.dtype)
    for row in range(dense.shape[0]):
        part = slice(int(ends[row]), int(ends[row + 1]))
        dense[row, columns[part]] = values[part]
    return dense


def forward_backward_answer(logprobs: Sequence[np.ndarray], metrics: Mapping[str, float]) -> bytes:
    """Return a `ForwardBackwardOutput`: the logprobs of every example, of the shape of its targets."""
    answer = pb.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", metrics=dict(metrics))
    groups: list[list[np.ndarray]] = []
    for values in logprobs:
        # what is in one record has the same shape behind its first dimension
        if groups and groups[-1][0].shape[1:] == values.shape[1:]:
            groups[-1].append(values)
        else:
            groups.append([values])
    for group in groups:
        record = answer.loss_fn_outputs.add()
        record.type_tag, record.num_datums = "ArrayRecord", len(group)
        values = record.fields["logprobs"]
        values.dtype = pb.DTYPE_FLOAT32
        values.data = b"".join(np.ascontiguousarray(array, np.float32).tobytes() for array in group)
        values.offsets = np.cumsum([0, *(array.size * 4 for array in group)], dtype=np.int64).tobytes()
        values.trailing_shape.extend(group[0].shape[1:])
    content: bytes = answer.SerializeToString()
    return content


def read_sampling(body: Mapping[str, Any]) -> Sampling:
    """Return the request to sample in `body`; DataError where it asks for what this backend cannot do, or is none."""
    for key in ("target_prompt_logprobs", "prompt_alt_tokens_k"):
        if body.get(key):
            raise DataError(f"{key} is not offered by this backend; leave it out")
    tokens: list[int] = []
    try:
        for chunk in body["prompt"]["chunks"]:
            if chunk.get("type", "encoded_text") != "encoded_text":
                raise DataError("the prompt holds something else than text, which this backend cannot read")
            tokens += [int(token) for token in chunk["tokens"]]
        params = body.get("sampling_params") or {}
        values = {key: kind(params[key]) for key, kind in _SAMPLING.items() if params.get(key) is not None}
        return Sampling(
            prompt=tokens,
            count=int(body.get("num_samples") or 1),
            stop=_stop(params.get("stop")),
            has_prompt_logprobs=bool(body.get("prompt_logprobs")),
            topk_prompt=int(body.get("topk_prompt_logprobs") or 0),
            topk_sampled=int(body.get("topk_sample_logprobs") or 0),
            **values,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"the request to sample is not understood ({error!r})") from None


def _stop(value: Any) -> str | list[str | int] | None:
    if value is None or isinstance(value, str):
        return value
    if not isinstance(value, list) or any(isinstance(stop, bool) or not isinstance(stop, str | int) for stop in value):
        raise DataError(f"stop is {value!r}, but a text, texts or tokens were expected")
    return value


def sampling_answer(result: Sampled, last: int | None = None) -> bytes:
    """Return a `SampleResponse`; `last` keeps the logprobs of that many tokens of the prompt only."""
    answer = pb.SampleResponse()
    for sampled in result.sequences:
        sequence = answer.sequences.add()
        is_stopped = sampled.stop_reason == "stop"
        sequence.stop_reason = pb.STOP_REASON_STOP if is_stopped else pb.STOP_REASON_LENGTH
        sequence.tokens = np.asarray(sampled.tokens, np.int32).tobytes()
        sequence.logprobs = np.asarray(sampled.logprobs, np.float32).tobytes()
        if sampled.top is not None:
            _put_top(sequence.topk_sampled_logprobs, sampled.top)
    if result.prompt_logprobs is not None:
        values = np.array([np.nan if value is None else value for value in result.prompt_logprobs], np.float32)
        if last:
            values[:-last] = np.nan
        answer.prompt_logprobs = values.tobytes()
    if result.prompt_top is not None:
        _put_top(answer.topk_prompt_logprobs, result.prompt_top)
    content: bytes = answer.SerializeToString()
    return content


def _put_top(message: Any, top: TopK) -> None:
    message.token_ids, message.logprobs = top.ids.tobytes(), top.logprobs.astype(np.float32).tobytes()
    message.length, message.k = top.ids.shape
