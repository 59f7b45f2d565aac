"""What training on this machine takes: SmolLM2-135M behind `graftline tinker serve`, asked by the unmodified Tinker SDK.

* `create_s`, `first_step_s`: a training client of rank 8, and its first step, forward_backward and optim_step on 65 tokens;
* `tokens_per_s`: trained, of steps of 4 x 128 tokens of which half have a weight; median;
* `engine_tokens_per_s`, `overhead_percent`: the same steps without server and SDK, and what these add to them. Both take a
  step in turns, so that what else the machine does meets both; `overhead_percent` is the median over the pairs, and
  `cpu_overhead_percent` the same of processor time, client included;
* `sampled_tokens_per_s`: 8 sequences of 24 tokens from a prompt of 80;
* `peak_mb`: the most memory that the server had;
* `bfloat16_tokens_per_s`: trained with `--precision bfloat16`; null where the processor cannot multiply in it;
* `kills`: runs of `graftline train run` that are killed with SIGKILL at random steps and go on: the largest difference of a
  loss to that of a run which nobody disturbed.

Nothing else should be running: server, client and all that trains share the cores of this machine. `load` says what was,
when it began.

    graftline model fetch smollm2-135m
    python -m benchmarks.training [--quick]
"""

import argparse
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.commands import CHECKOUT
from benchmarks.machine import machine

MODEL = "smollm2-135m"
KEY = "tml-of-the-benchmark"
GRAFTLINE = str(Path(sys.executable).with_name("graftline"))
_TOKENS = (20, 40_000)
_WAIT_S = 600.0
_STEP_TOKENS = 4 * 128
_FIRST_TOKENS = 65


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little of each: shows that it runs, not what it takes")
    parser.add_argument("--engine", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engine:
        take_steps()
        return
    steps, kills = (2, 3) if arguments.quick else (8, 10)
    environment = {**os.environ, "TINKER_API_KEY": KEY, "TINKER_TELEMETRY": "0", "HF_HUB_OFFLINE": "1"}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        with served(Path(folder, "served"), environment) as (url, server), bare_engine(environment) as engine:
            figures = {"load": round(load, 1), **measure(url, server, engine, steps)}
        figures["bfloat16_tokens_per_s"] = None
        if has_bfloat16():
            with served(Path(folder, "bfloat16"), environment, "--precision", "bfloat16") as (url, server):
                figures["bfloat16_tokens_per_s"] = measure(url, server, None, steps)["tokens_per_s"]
        with served(Path(folder, "killed"), environment) as (url, _):
            figures["kills"] = killed_runs(Path(folder), {**environment, "TINKER_BASE_URL": url}, kills)
    print(json.dumps({"name": "training", "figures": figures, "peers": {}, "machine": machine()}))


def has_bfloat16() -> bool:
    """Return whether the processor multiplies in bfloat16 by itself."""
    words = Path("/proc/cpuinfo").read_text("utf-8").split()
    return "avx512_bf16" in words or "amx_bf16" in words


@contextmanager
def served(root: Path, environment: Mapping[str, str], *options: str) -> Iterator[tuple[str, psutil.Process]]:
    """Serve the model with checkpoints below `root`."""
    command = [
        GRAFTLINE,
        "tinker",
        "serve",
        "--model",
        MODEL,
        "--port",
        "0",
        "--json",
        "--store",
        root,
        *options,
    ]
    with subprocess.Popen(
        command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"], psutil.Process(process.pid)
        finally:
            process.terminate()


@dataclass
class Spent:
    """What a step took."""

    seconds: float
    cpu_seconds: float


@dataclass
class BareEngine:
    """A process that takes the same steps without server and SDK, when it is told to."""

    process: subprocess.Popen[str]

    def step(self) -> Spent:
        """Have it take one."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print("step", file=self.process.stdin, flush=True)
        return Spent(**json.loads(self.process.stdout.readline()))


@contextmanager
def bare_engine(environment: Mapping[str, str]) -> Iterator[BareEngine]:
    """Start the process, and have it take the step that warms up."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.training", "--engine"],
        cwd=CHECKOUT, env={**environment, "GOMP_SPINCOUNT": "30000", "THP_MEM_ALLOC_ENABLE": "1"}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            engine = BareEngine(process)
            engine.step()
            yield engine
        finally:
            process.terminate()


def measure(url: str, server: psutil.Process, engine: BareEngine | None, steps: int) -> dict[str, Any]:
    """Return the figures of one client, and of `engine` where there is one."""
    import tinker
    from tinker import types

    figures: dict[str, Any] = {}
    with tinker.ServiceClient(base_url=url, api_key=KEY) as service:
        service.get_server_capabilities()
        began = time.perf_counter()
        trainer = service.create_lora_training_client(MODEL, rank=8, seed=1, train_unembed=False).result(_WAIT_S)
        figures["create_s"] = round(time.perf_counter() - began, 2)
        batch = [
            types.Datum(
                model_input=types.ModelInput.from_ints(tokens[:-1]),
                loss_fn_inputs={"target_tokens": tokens[1:], "weights": weights},
            )
            for tokens, weights in examples()
        ]

        def step(batch: Sequence[types.Datum]) -> Spent:
            began, cpu = time.perf_counter(), _cpu_seconds(server)
            gradients = trainer.forward_backward([*batch], "cross_entropy")
            trainer.optim_step(types.AdamParams(learning_rate=1e-4)).result(_WAIT_S)
            gradients.result(_WAIT_S)
            return Spent(time.perf_counter() - began, _cpu_seconds(server) - cpu)

        short = types.Datum(
            model_input=types.ModelInput.from_ints(examples()[0][0][:_FIRST_TOKENS]),
            loss_fn_inputs={
                "target_tokens": examples()[0][0][1 : _FIRST_TOKENS + 1],
                "weights": [0.0] * 32 + [1.0] * (_FIRST_TOKENS - 32),
            },
        )
        figures["first_step_s"] = round(step([short]).seconds, 2)
        step(batch)
        # in turns, and each of the two as often first as second
        pairs = []
        for number in range(steps):
            if engine is None:
                pairs.append((step(batch), Spent(math.nan, math.nan)))
            elif number % 2:
                alone = engine.step()
                pairs.append((step(batch), alone))
            else:
                pairs.append((step(batch), engine.step()))
        figures["tokens_per_s"] = _rate([whole.seconds for whole, _ in pairs])
        if engine is not None:
            figures["engine_tokens_per_s"] = _rate([alone.seconds for _, alone in pairs])
            figures["overhead_percent"] = _added_percent([(whole.seconds, alone.seconds) for whole, alone in pairs])
            figures["cpu_overhead_percent"] = _added_percent(
                [(whole.cpu_seconds, alone.cpu_seconds) for whole, alone in pairs]
            )
        sampler = service.create_sampling_client(base_model=MODEL).result(_WAIT_S)
        prompt = types.ModelInput.from_ints(examples()[0][0][:80])
        asked = types.SamplingParams(max_tokens=24, temperature=1.0, seed=1, stop=[])
        rates = []
        for _ in range(min(steps, 3)):
            began = time.perf_counter()
            found = sampler.sample(prompt, 8, asked).result(_WAIT_S)
            rates.append(sum(len(one.tokens) for one in found.sequences) / (time.perf_counter() - began))
        figures["sampled_tokens_per_s"] = round(statistics.median(rates), 1)
        figures["peak_mb"] = round(_peak_bytes(server) / 1e6)
    return figures


def take_steps() -> None:
    """Take a step without a server for every line on standard input, and print what it took."""
    import torch

    from graftline.core.paths import Paths
    from graftline.core.processes import keep_freed_memory
    from graftline.llm.weights.catalog import safetensors_folder
    from graftline.training.local.engine import Engine
    from graftline.training.local.lora import LoraShape
    from graftline.training.local.passes import Example

    keep_freed_memory(1 << 30, (1 << 31) - 1)
    engine = Engine(safetensors_folder(MODEL, Paths(CHECKOUT), os.environ), MODEL)
    engine.create("run", LoraShape(rank=8, train_unembed=False, seed=1))
    batch = [
        Example(tokens[:-1], {"target_tokens": torch.tensor(tokens[1:]), "weights": torch.tensor(weights)})
        for tokens, weights in examples()
    ]
    for _ in sys.stdin:
        began, cpu = time.perf_counter(), time.process_time()
        engine.forward_backward("run", batch, "cross_entropy", {}, True)
        engine.optim_step("run", learning_rate=1e-4)
        spent = Spent(time.perf_counter() - began, time.process_time() - cpu)
        print(json.dumps(asdict(spent)), flush=True)


def examples() -> list[tuple[list[int], list[float]]]:
    """Return tokens and weights of a batch: four of 128, of which the second half is trained."""
    chance = random.Random(1)
    return [([chance.randrange(*_TOKENS) for _ in range(129)], [0.0] * 64 + [1.0] * 64) for _ in range(4)]


def killed_runs(folder: Path, environment: Mapping[str, str], kills: int) -> dict[str, Any]:
    """Return what became of a run that is killed so often, compared with one that is not."""
    root = _root(folder / "root")
    whole = _trained(root, "whole", environment)
    chance = random.Random(7)
    at = sorted(chance.sample(range(1, len(whole)), kills))
    for step in at:
        _kill_at(root, "killed", environment, step)
    killed = _trained(root, "killed", environment)
    return {
        "at_steps": at,
        "steps": len(whole),
        "most_loss_difference": max(abs(one - other) for one, other in zip(whole, killed, strict=True)),
    }


def _root(root: Path) -> Path:
    (root / "configs" / "manifests").mkdir(parents=True)
    (root / "configs" / "recipes").mkdir()
    (root / "configs" / "models.yaml").write_bytes((CHECKOUT / "configs" / "models.yaml").read_bytes())
    words = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]
    chance = random.Random(3)
    chats = []
    for number in range(48):
        said = " ".join(chance.sample(words, 3))
        chats.append(
            {"messages": [{"role": "user", "content": f"{number}: {said}"}, {"role": "assistant", "content": said}]}
        )
    (root / "chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats), "utf-8")
    recipe = {
        "recipe": "sl_basic",
        "model": MODEL,
        "dataset": "chats.jsonl",
        "renderer": "qwen3_instruct",
        "batch_size": 2,
        "save_every": 3,
    }
    # JSON is YAML
    (root / "configs" / "recipes" / "small.yaml").write_text(json.dumps(recipe), "utf-8")
    return root


def _command(root: Path, run: str) -> Sequence[str]:
    given = ("train", "run", "small", "--run-id", run, "--no-download", "--json")
    return (GRAFTLINE, "--root", str(root), *given)


def _models(environment: Mapping[str, str]) -> dict[str, str]:
    return {"GRAFTLINE_MODELS": str(CHECKOUT / "data" / "models"), **environment}


def _trained(root: Path, run: str, environment: Mapping[str, str]) -> list[float]:
    subprocess.run(_command(root, run), env=_models(environment), capture_output=True, check=True)
    return [json.loads(line)["loss"] for line in _steps(root, run).read_text("utf-8").splitlines()]


def _kill_at(root: Path, run: str, environment: Mapping[str, str], step: int) -> None:
    with subprocess.Popen(
        _command(root, run), env=_models(environment), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None and _count(_steps(root, run)) < step:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)


def _steps(root: Path, run: str) -> Path:
    return root / "models" / "adapters" / "tinker" / "runs" / f"{run}.steps.jsonl"


def _count(path: Path) -> int:
    return path.read_text("utf-8").count("\n") if path.exists() else 0


def _rate(seconds: Sequence[float]) -> float:
    """Return tokens a second of the median step."""
    return round(_STEP_TOKENS / statistics.median(seconds), 1)


def _added_percent(pairs: Sequence[tuple[float, float]]) -> float:
    return round(100 * (statistics.median(whole / alone for whole, alone in pairs) - 1), 1)


def _cpu_seconds(server: psutil.Process) -> float:
    """Return the processor time of server and client together."""
    times = server.cpu_times()
    return float(times.user + times.system) + time.process_time()


def _peak_bytes(process: psutil.Process) -> int:
    for line in Path(f"/proc/{process.pid}/status").read_text("utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise RuntimeError("the kernel does not say how much memory a process had")


if __name__ == "__main__":
    main()
