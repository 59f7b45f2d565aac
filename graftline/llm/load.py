"""What a server says of its work on `/metrics`, in the names of vLLM and of llama.cpp."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
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
    totals = defaultdict[str, float](float)
    for sample in samples:
        totals[sample.name] += sample.value
    if "vllm:num_requests_running" in totals:
        return _of_vllm(samples, totals)
    return _of_llamacpp(totals) if "llamacpp:requests_processing" in totals else None


def _of_vllm(samples: Sequence[Sample], totals: Mapping[str, float]) -> Load:
    reasons = [sample for sample in samples if sample.name == "vllm:num_requests_waiting_by_reason"]
    waiting = round(totals["vllm:num_requests_waiting"])
    prompt, completion = round(totals["vllm:prompt_tokens_total"]), round(totals["vllm:generation_tokens_total"])
    return Load(
        running=round(totals["vllm:num_requests_running"]),
        waiting=waiting,
        # releases that do not tell the reasons wait for room, too
        waiting_for_room=round(sum(sample.value for sample in reasons if sample.labels.get("reason") == "capacity"))
        if reasons
        else waiting,
        kv_use=max((sample.value for sample in samples if sample.name == "vllm:kv_cache_usage_perc"), default=None),
        preemptions=round(totals["vllm:num_preemptions_total"]),
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


def _of_llamacpp(totals: Mapping[str, float]) -> Load:
    waiting = round(totals["llamacpp:requests_deferred"])
    prompt, completion = round(totals["llamacpp:prompt_tokens_total"]), round(totals["llamacpp:tokens_predicted_total"])
    return Load(
        running=round(totals["llamacpp:requests_processing"]),
        waiting=waiting,
        waiting_for_room=waiting,
        kv_use=None,
        preemptions=0,
        prompt_tokens=prompt,
        completion_tokens=completion,
        # tokens are counted when an answer is finished, calls of the model while it is made
        steps=prompt + completion + round(totals["llamacpp:n_decode_total"]),
    )


class Health:
    """Counts failures, and says when a probe is due."""

    def __init__(self, most_failures: int, first_pause_s: float, longest_pause_s: float) -> None:
        self._most_failures = most_failures
        self._first_pause_s, self._longest_pause_s = first_pause_s, longest_pause_s
        self._failures = 0
        self.is_in_service = True
        self.pause_s = first_pause_s
        """Until the next probe, while it is out of service."""

    def record_success(self) -> None:
        """Say that a request was answered."""
        self._failures, self.pause_s = 0, self._first_pause_s

    def record_failure(self) -> bool:
        """Say that the actor failed at something; return whether it did so too often."""
        self._failures += 1
        return self._failures >= self._most_failures

    def eject(self) -> bool:
        """Take it out of service; return whether it was in it."""
        was_in_service, self.is_in_service = self.is_in_service, False
        return was_in_service

    def record_probe(self, is_well: bool) -> None:
        """Say how a probe went. Each pause is twice as long as the one before until a request was answered: there are
        servers that answer probes, and nothing else.
        """
        self._failures, self.is_in_service = 0, is_well
        self.pause_s = min(2 * self.pause_s, self._longest_pause_s)


class Progress:
    """Finds engines that hang: work, and no step for a long time, while `/health` is as ever."""

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._steps = -1
        self._since = 0.0

    def is_stalled(self, load: Load, has_our_work: bool, now: float) -> bool:
        """Return whether nothing has moved for too long. Without work of ours it does not matter, and cannot be told:
        gauges may stay where the last step left them.
        """
        has_work = has_our_work and load.running + load.waiting > 0
        # after a restart the server counts from zero: any other number is a step
        if not has_work or load.steps != self._steps:
            self._steps, self._since = load.steps, now
        return now - self._since >= self._stall_s
