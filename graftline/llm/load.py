"""What a server says of its work on `/metrics`, in the names of vLLM and of llama.cpp."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

_PREFIXES = (
    "vllm:num_requests_",
    "vllm:kv_cache_usage_perc",
    "vllm:num_preemptions",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:engine_sleep_state",
    "llamacpp:",
)
"""The histograms, which are most of it, take most of the time to read."""


@dataclass(frozen=True, slots=True)
class Load:
    """Summed over the engines of the server."""

    running: int
    waiting: int
    waiting_for_room: int
    """Of `waiting`, those for which the KV cache has no room, or for which there is no slot."""
    kv_use: float | None
    """Share of the KV cache that is taken, of the fullest engine; None where the server does not say."""
    preemptions: int
    """Since it was started: requests that were put back for others and read again."""
    prompt_tokens: int
    completion_tokens: int
    steps: int
    """Since it was started: whatever shows that the engine moves, answers or not."""
    is_asleep: bool = False
    """One of the engines has let go of its weights: requests would hang."""


def read_load(metrics: str) -> Load | None:
    """Return the load in a page of metrics; None where it is neither vLLM's nor llama.cpp's."""
    lines = [line for line in metrics.splitlines() if line.startswith(_PREFIXES)]
    try:
        families = list(text_string_to_metric_families("\n".join(lines) + "\n"))
    except ValueError:
        return None
    samples = [sample for family in families for sample in family.samples if math.isfinite(sample.value)]
    names = {sample.name for sample in samples}
    if "vllm:num_requests_running" in names:
        return _of_vllm(samples)
    return _of_llamacpp(samples) if "llamacpp:requests_processing" in names else None


def _of_vllm(samples: list[Sample]) -> Load:
    reasons = [sample for sample in samples if sample.name == "vllm:num_requests_waiting_by_reason"]
    waiting = _total(samples, "vllm:num_requests_waiting")
    prompt = _total(samples, "vllm:prompt_tokens_total")
    completion = _total(samples, "vllm:generation_tokens_total")
    return Load(
        running=_total(samples, "vllm:num_requests_running"),
        waiting=waiting,
        # releases that do not tell the reasons wait for room, too
        waiting_for_room=round(sum(one.value for one in reasons if one.labels.get("reason") == "capacity"))
        if reasons
        else waiting,
        kv_use=max((one.value for one in samples if one.name == "vllm:kv_cache_usage_perc"), default=None),
        preemptions=_total(samples, "vllm:num_preemptions_total"),
        prompt_tokens=prompt,
        completion_tokens=completion,
        steps=prompt + completion,
        is_asleep=any(
            sample.name == "vllm:engine_sleep_state"
            and sample.labels.get("sleep_state") == "awake"
            and sample.value == 0
            for sample in samples
        ),
    )


def _of_llamacpp(samples: list[Sample]) -> Load:
    waiting = _total(samples, "llamacpp:requests_deferred")
    prompt = _total(samples, "llamacpp:prompt_tokens_total")
    completion = _total(samples, "llamacpp:tokens_predicted_total")
    return Load(
        running=_total(samples, "llamacpp:requests_processing"),
        waiting=waiting,
        waiting_for_room=waiting,
        kv_use=None,
        preemptions=0,
        prompt_tokens=prompt,
        completion_tokens=completion,
        # tokens are counted when an answer is finished, calls of the model while it is made
        steps=prompt + completion + _total(samples, "llamacpp:n_decode_total"),
    )


def _total(samples: Iterable[Sample], name: str) -> int:
    return round(sum(sample.value for sample in samples if sample.name == name))
