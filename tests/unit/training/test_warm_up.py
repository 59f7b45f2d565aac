"""What a server does before its first client comes: it changes nothing but how long things take."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="pip install 'graftline[training]'")

from graftline.training.local.engine import Engine, EngineSettings  # noqa: E402 - after the look for torch
from graftline.training.local.lora import LoraShape  # noqa: E402
from graftline.training.local.passes import Example  # noqa: E402

_FAULTS = """
import resource
from graftline.core.processes import keep_freed_memory
keep_freed_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bytearray(64 << 20)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

_COMPUTING = """
import os, threading
from graftline.training.local import serve
# those that python does not know of
print(len({int(one) for one in os.listdir("/proc/self/task")} - {one.native_id for one in threading.enumerate()}))
"""


def losses(model: Path, is_warm: bool) -> list[float]:
    engine = Engine(model, "tiny-qwen3", EngineSettings(threads=1))
    if is_warm:
        engine.warm_up()
    engine.create("run", LoraShape(rank=4, train_unembed=False, seed=1))
    example = Example([5, 6, 7], {"target_tokens": torch.tensor([6, 7, 8])})
    found = []
    for _ in range(3):
        found.append(engine.forward_backward("run", [example], "cross_entropy", {}, True)[1]["loss:sum"])
        engine.optim_step("run", learning_rate=1e-2)
    return found


def test_warming_up_changes_no_loss(tiny_model: Path) -> None:
    assert losses(tiny_model, is_warm=True) == losses(tiny_model, is_warm=False)


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_memory_that_was_freed_is_not_asked_of_the_kernel_again() -> None:
    # 64 MB are 16,384 pages of 4 kB
    done = subprocess.run([sys.executable, "-c", _FAULTS], capture_output=True, text=True, check=True)
    first, second = map(int, done.stdout.split())
    assert first > 1000
    assert second < 100


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.long  # a promise of speed alone
def test_importing_starts_no_thread_that_computes() -> None:
    # the library of numpy has threads as well
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}

    done = subprocess.run(
        [sys.executable, "-c", _COMPUTING], capture_output=True, text=True, check=True, env=environment
    )

    # workers of OpenMP that the importing thread keeps make those of the thread that trains sleep where they would spin
    assert int(done.stdout) == 0
