"""Whether this machine multiplies bfloat16 faster than float32, tried in a process of its own.

What the processor says of itself is not enough: some have the instructions and take longer with them, and some virtual
machines name AMX but end a program that uses it. Where that is so, oneDNN is told to do without:
https://uxlfoundation.github.io/oneDNN/dev_guide_cpu_dispatcher_control.html.
"""

import logging
import os
import subprocess
import sys
import time
from functools import cache

import torch

logger = logging.getLogger(__name__)

_LARGEST = "ONEDNN_MAX_CPU_ISA"
_WITHOUT_AMX = "AVX512_CORE_FP16"
_WITHIN_S = 120.0
_ROWS, _INSIDE, _COLUMNS = 1024, 576, 1536
_ROUNDS, _PRODUCTS = 5, 4
_LEAST_GAIN = 1.1
"""Below which it is noise of the clock: the same machine is not to decide otherwise the next time."""


@cache
def gain_of_bfloat16() -> float:
    """Return how many times as fast as float32 it is; 0 where this machine cannot.

    Called before anything is computed: oneDNN looks once at what it may use.
    """
    if not (torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()):
        # without these instructions each product is made of several
        return 0.0
    if gain := _run_probe({}):
        return gain
    if _LARGEST not in os.environ and (gain := _run_probe({_LARGEST: _WITHOUT_AMX})):
        logger.warning("this machine names AMX, but does not run it; matrices are multiplied without")
        os.environ[_LARGEST] = _WITHOUT_AMX
        return gain
    return 0.0


def is_worth_it() -> bool:
    """Return whether bfloat16 is clearly faster here."""
    return gain_of_bfloat16() >= _LEAST_GAIN


def _run_probe(changed: dict[str, str]) -> float:
    command = [sys.executable, "-m", "graftline.training.local.bfloat16"]
    try:
        probe = subprocess.run(
            command, env={**os.environ, **changed}, capture_output=True, timeout=_WITHIN_S, check=False
        )
    except subprocess.TimeoutExpired:
        return 0.0
    return float(probe.stdout) if probe.returncode == 0 else 0.0


def _measure_gain() -> float:
    """Return the time of products as training has them, in float32 relative to bfloat16."""
    rows, weight = torch.ones(_ROWS, _INSIDE), torch.ones(_COLUMNS, _INSIDE)
    half_rows, half_weight = rows.bfloat16(), weight.bfloat16()
    # taking turns, so that both have the same machine; the first round starts threads
    whole, half = list[float](), list[float]()
    for _ in range(1 + _ROUNDS):
        whole.append(_seconds(rows, weight))
        half.append(_seconds(half_rows, half_weight))
    return min(whole[1:]) / min(half[1:])


def _seconds(rows: torch.Tensor, weight: torch.Tensor) -> float:
    began = time.perf_counter()
    for _ in range(_PRODUCTS):
        torch.nn.functional.linear(rows, weight)
    return time.perf_counter() - began


if __name__ == "__main__":
    print(_measure_gain())
