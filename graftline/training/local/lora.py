"""Adapters that are trained: their shape, their layers, their state, and the files that a checkpoint of one has.

The layout is that of PEFT, with two files more: what is needed to resume from it, and the state of the optimizer.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from peft.tuners import lora
from safetensors.torch import load_file, save_file

from graftline.core.errors import DataError
from graftline.training.local.checkpoints import ADAPTER, ADAPTER_CONFIG, FACTS, OPTIMIZER

LORA_ALPHA = 32
"""Of every adapter of the service, whatever its rank."""
PARTS = {
    "train_attn": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "train_mlp": ("gate_proj", "up_proj", "down_proj"),
    "train_unembed": ("lm_head",),
}
"""The layers that each flag trains."""


@dataclass(frozen=True, slots=True)
class LoraShape:
    """Which layers get an adapter, and how large it is."""

    rank: int = 32
    train_attn: bool = True
    train_mlp: bool = True
    train_unembed: bool = True
    seed: int | None = None


@dataclass(slots=True)
class Run:
    """An adapter that is trained."""

    id: str
    shape: LoraShape
    parameters: list[torch.nn.Parameter]
    optimizer: torch.optim.AdamW
    steps: int = 0
    """Optimizer steps since its creation, those before its checkpoint included."""
    is_spoilt: bool = False
    """Whether a part of its gradients is missing, so that no step may be taken with them."""

    def drop_gradients(self) -> None:
        """Begin the next step anew."""
        self.is_spoilt = False
        self.optimizer.zero_grad(set_to_none=True)


def shape_of(facts: Mapping[str, Any]) -> LoraShape:
    """Return the shape of the adapter of a checkpoint with these `facts`."""
    flags = {flag: bool(facts[flag]) for flag in PARTS}
    return LoraShape(rank=int(facts["rank"]), seed=facts["seed"], **flags)


def read_facts(folder: Path) -> dict[str, Any]:
    """Return the facts of the checkpoint in `folder`; DataError where only its owner can read it, as version 0.1.0 could write."""
    path = folder / FACTS
    if not path.exists():
        raise DataError("the checkpoint is encrypted; name one of `save_state` or `save_weights_for_sampler`")
    facts: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return facts


def write_files(
    run: Run,
    base_model: str,
    weights: Mapping[str, torch.Tensor],
    config: Mapping[str, Any],
    folder: Path,
    with_optimizer: bool,
) -> None:
    """Write a checkpoint of `run`: its `weights`, and their `config` for PEFT."""
    save_file({key: value.detach().cpu().contiguous() for key, value in weights.items()}, folder / ADAPTER)
    values = {**config, "base_model_name_or_path": base_model, "inference_mode": True}
    (folder / ADAPTER_CONFIG).write_text(json.dumps(jsonable(values), indent=2, sort_keys=True) + "\n", "utf-8")
    facts = {"base_model": base_model, **asdict(run.shape), "steps": run.steps, "has_optimizer": with_optimizer}
    (folder / FACTS).write_text(json.dumps(facts, indent=2) + "\n", "utf-8")
    if with_optimizer:
        save_file(_optimizer_state(run), folder / OPTIMIZER)


def _optimizer_state(run: Run) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for number, parameter in enumerate(run.parameters):
        state = run.optimizer.state.get(parameter, {})
        for key in ("exp_avg", "exp_avg_sq", "step"):
            if key in state:
                # a file of tensors without dimensions cannot be read by everything
                shape = -1 if key == "step" else parameter.shape
                tensors[f"{number}.{key}"] = torch.as_tensor(state[key]).detach().cpu().reshape(shape)
    return tensors or {"none": torch.zeros(1)}


def restore_optimizer(run: Run, folder: Path) -> None:
    """Put the state of the optimizer in a checkpoint into `run`."""
    tensors = load_file(folder / OPTIMIZER)
    for number, parameter in enumerate(run.parameters):
        if f"{number}.step" in tensors:
            run.optimizer.state[parameter] = {
                "step": tensors[f"{number}.step"].reshape(()).clone(),
                "exp_avg": tensors[f"{number}.exp_avg"].to(parameter.device).clone(),
                "exp_avg_sq": tensors[f"{number}.exp_avg_sq"].to(parameter.device).clone(),
            }


def jsonable(value: Any) -> Any:
    """Return `value` without types that JSON lacks: sets are sorted lists, enumerations their values."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return getattr(value, "value", value)
    return str(value)


class LoraLinear(lora.Linear):  # type: ignore[misc]
    """What peft wraps a linear layer in (`LoraConfig._register_custom_module`), in fewer passes over its output than peft's.

    peft adds up `base(x) + B(A(x)) * scaling` term by term, each of which reads and writes the whole output once more; on a
    CPU, that takes as long as a fifth of the products. The adapters stay those of peft: their names, files and switches.
    """

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return (..., out) of `x`, (..., in), by the adapter in use; without it where adapters are switched off."""
        (name,) = self.active_adapters
        if self.disable_adapters or name not in self.lora_A:
            plain: torch.Tensor = self.base_layer(x, *args, **kwargs)
            return plain
        base, down, up = self.base_layer, self.lora_A[name].weight, self.lora_B[name].weight
        if torch.is_autocast_enabled(x.device.type):
            x, down, up = (tensor.to(torch.get_autocast_dtype(x.device.type)) for tensor in (x, down, up))
        output: torch.Tensor = _Product.apply(x, base.weight, base.bias, down, up, self.scaling[name])
        return output


class _Product(torch.autograd.Function):  # type: ignore[misc]
    """`x W' + bias + scaling x A' B'` of a frozen W, (out, in), and of A, (rank, in), and B, (out, rank)."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        down: torch.Tensor,
        up: torch.Tensor,
        scaling: float,
    ) -> torch.Tensor:
        flat = x.reshape(-1, x.shape[-1])
        low = flat @ down.T
        ctx.save_for_backward(flat, low, weight, down, up)
        ctx.scaling, ctx.shape = scaling, x.shape
        output = torch.nn.functional.linear(flat, weight, bias).addmm_(low, up.T, alpha=scaling)
        return output.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        flat, low, weight, down, up = ctx.saved_tensors
        gradient = gradients[0].reshape(-1, weight.shape[0])
        back = (gradient @ up).mul_(ctx.scaling)
        x_gradient = (gradient @ weight).addmm_(back, down).view(ctx.shape) if ctx.needs_input_grad[0] else None
        return x_gradient, None, None, back.T @ flat, (gradient.T @ low).mul_(ctx.scaling), None
