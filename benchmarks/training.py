"""What training on this machine takes: SmolLM2-135M behind `graftline tinker serve`, asked by the unmodified Tinker SDK.

* `create_s`, `first_step_s`: a training client of rank 8, and its first step of forward_backward and optim_step;
* `tokens_per_s`: trained, of steps of 4 x 128 tokens of which half have a weight; median;
* `engine_tokens_per_s`, `overhead_percent`: the same steps without server and SDK, and what these add to them;
* `sampled_tokens_per_s`: 8 sequences of 24 tokens from a prompt of 80;
* `peak_mb`: the most memory that the server had;
* `kills`: runs of `graftline train run` that are killed with SIGKILL at random steps and go on: the largest difference of a
  loss to that of a run which nobody disturbed.

Nothing else should be running: server, client and all that trains share the cores of this machine.

    graftline models fetch smollm2-135m
    python -m benchmarks.training [--quick]
"""

import argparse
import json
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


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little of each: shows that it runs, not what it takes")
    parser.add_argument("--engine", type=int, metavar="STEPS", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engine:
        print(json.dumps(engine_seconds(arguments.engine)))
        return
    steps, kills = (2, 1) if arguments.quick else (8, 10)
    environment = {**os.environ, "TINKER_API_KEY": KEY, "TINKER_TELEMETRY": "0", "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        with served(Path(folder, "served"), environment) as (url, server):
            figures = measure(url, server, steps)
        bare = subprocess.run(
            [sys.executable, "-m", "benchmarks.training", "--engine", str(steps)],
            cwd=CHECKOUT, env={**environment, "GOMP_SPINCOUNT": "30000"}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        seconds = statistics.median(json.loads(bare.stdout.splitlines()[-1]))
        figures["engine_tokens_per_s"] = round(4 * 128 / seconds, 1)
        figures["overhead_percent"] = round(100 * (figures.pop("step_s") / seconds - 1), 1)
        with served(Path(folder, "killed"), environment) as (url, _):
            figures["kills"] = killed_runs(Path(folder), {**environment, "TINKER_BASE_URL": url}, kills)
    print(json.dumps({"name": "training", "figures": figures, "peers": {}, "machine": machine()}))


@contextmanager
def served(root: Path, environment: Mapping[str, str]) -> Iterator[tuple[str, psutil.Process]]:
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
        "--root",
        root,
    ]
    with subprocess.Popen(
        command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["url"], psutil.Process(process.pid)
        finally:
            process.terminate()


def measure(url: str, server: psutil.Process, steps: int) -> dict[str, Any]:
    """Return the figures of one client."""
    import tinker
    from tinker import types

    figures: dict[str, Any] = {}
    with tinker.ServiceClient(base_url=url, api_key=KEY) as service:
        service.get_server_capabilities()
        began = time.perf_counter()
        trainer = service.create_lora_training_client(MODEL, rank=8, seed=1, train_unembed=False).result(_WAIT_S)
        figures["create_s"] = round(time.perf_counter() - began, 2)
        seconds = []
        batch = [
            types.Datum(
                model_input=types.ModelInput.from_ints(tokens[:-1]),
                loss_fn_inputs={"target_tokens": tokens[1:], "weights": weights},
            )
            for tokens, weights in examples()
        ]
        for _ in range(steps + 1):
            began = time.perf_counter()
            gradients = trainer.forward_backward(batch, "cross_entropy")
            trainer.optim_step(types.AdamParams(learning_rate=1e-4)).result(_WAIT_S)
            gradients.result(_WAIT_S)
            seconds.append(time.perf_counter() - began)
        figures["first_step_s"], figures["step_s"] = round(seconds[0], 2), statistics.median(seconds[1:])
        figures["tokens_per_s"] = round(4 * 128 / figures["step_s"], 1)
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


def engine_seconds(steps: int) -> list[float]:
    """Return the seconds of steps without a server, after one that warms up."""
    import torch

    from graftline.models.stored import converted_folder
    from graftline.paths import Paths
    from graftline.training.local.engine import Engine, Example, LoraShape

    engine = Engine(converted_folder(MODEL, Paths(CHECKOUT), os.environ), MODEL)
    engine.create("run", LoraShape(rank=8, train_unembed=False, seed=1))
    batch = [
        Example(tokens[:-1], {"target_tokens": torch.tensor(tokens[1:]), "weights": torch.tensor(weights)})
        for tokens, weights in examples()
    ]
    seconds = []
    for _ in range(steps + 1):
        began = time.perf_counter()
        engine.forward_backward("run", batch, "cross_entropy", {}, True)
        engine.optim_step("run", learning_rate=1e-4)
        seconds.append(time.perf_counter() - began)
    return seconds[1:]


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


def _peak_bytes(process: psutil.Process) -> int:
    for line in Path(f"/proc/{process.pid}/status").read_text("utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    raise RuntimeError("the kernel does not say how much memory a process had")


if __name__ == "__main__":
    main()
