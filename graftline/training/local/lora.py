"""Adapters that are trained: their shape, their state, and the files that a checkpoint of one has.

The layout is that of PEFT, with two files more: what is needed to go on from it, and the state of the optimizer.
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

LORA_ALPHA = 32
"""Of every adapter of the service, whatever its rank."""
ADAPTER, ADAPTER_CONFIG, OPTIMIZER, FACTS = (
    "adapter_model.safetensors", "adapter_config.json", "optimizer.safetensors", "facts.json",
)  # fmt: skip
PARTS = {
    "train_attn": ("q_proj", "k_proj", "v_proj", "o_proj"),
    "train_mlp": ("gate_proj", "up_proj", "down_proj"),
    "train_unembed": ("lm_head",),
}
"""Layers that a flag is about."""


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
    """Return the shape of the adapter that `facts` are of."""
    flags = {flag: bool(facts[flag]) for flag in PARTS}
    return LoraShape(rank=int(facts["rank"]), seed=facts["seed"], **flags)


def read_facts(folder: Path) -> dict[str, Any]:
    """Return what `save` wrote of the checkpoint in `folder`.

    Raises:
        DataError: it is one that only its owner can read.
    """
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
    written = {**config, "base_model_name_or_path": base_model, "inference_mode": True}
    (folder / ADAPTER_CONFIG).write_text(json.dumps(_plain(written), indent=2, sort_keys=True) + "\n", "utf-8")
    facts = {"base_model": base_model, **asdict(run.shape), "steps": run.steps, "has_optimizer": with_optimizer}
    (folder / FACTS).write_text(json.dumps(facts, indent=2) + "\n", "utf-8")
    if with_optimizer:
        save_file(_optimizer_state(run), folder / OPTIMIZER)


def read_weights(folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a checkpoint."""
    weights: dict[str, torch.Tensor] = load_file(folder / ADAPTER)
    return weights


def _optimizer_state(run: Run) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = {}
    for number, parameter in enumerate(run.parameters):
        kept = run.optimizer.state.get(parameter, {})
        for key in ("exp_avg", "exp_avg_sq", "step"):
            if key in kept:
                # a file of tensors without dimensions cannot be read by everything
                state[f"{number}.{key}"] = torch.as_tensor(kept[key]).detach().cpu().reshape(
                    -1 if key == "step" else parameter.shape
                )  # fmt: skip
    return state or {"none": torch.zeros(1)}


def restore_optimizer(run: Run, folder: Path) -> None:
    """Put the state of the optimizer in a checkpoint into `run`."""
    state = load_file(folder / OPTIMIZER)
    for number, parameter in enumerate(run.parameters):
        if f"{number}.step" in state:
            run.optimizer.state[parameter] = {
                "step": state[f"{number}.step"].reshape(()).clone(),
                "exp_avg": state[f"{number}.exp_avg"].to(parameter.device).clone(),
                "exp_avg_sq": state[f"{number}.exp_avg_sq"].to(parameter.device).clone(),
            }


def _plain(value: Any) -> Any:
    """Return `value` with what JSON has not in its words."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, bool | int | float | str):
        return getattr(value, "value", value)
    return str(value)


class LoraLinear(lora.Linear):  # type: ignore[misc]
    """What peft is told to wrap a linear layer in (`LoraConfig._register_custom_module`)."""

    def forward(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return (..., out) of `x`, (..., in), by the adapter in use; without it where adapters are switched off."""
        (name,) = self.active_adapters
        if self.disable_adapters or name not in self.lora_A:
            plain: torch.Tensor = self.base_layer(x, *args, **kwargs)
            return plain
        base, down, up = self.base_layer, self.lora_A[name].weight, self.lora_B[name].weight
        if torch.is_autocast_enabled(x.device.type):
            x, down, up = (tensor.to(torch.get_autocast_dtype(x.device.type)) for tensor in (x, down, up))
        found: torch.Tensor = _Product.apply(x, base.weight, base.bias, down, up, self.scaling[name])
        return found


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
        found = torch.nn.functional.linear(flat, weight, bias).addmm_(low, up.T, alpha=scaling)
        return found.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        flat, low, weight, down, up = ctx.saved_tensors
        gradient = gradients[0].reshape(-1, weight.shape[0])
        back = (gradient @ up).mul_(ctx.scaling)
        of_x = (gradient @ weight).addmm_(back, down).view(ctx.shape) if ctx.needs_input_grad[0] else None
        return of_x, None, None, back.T @ flat, (gradient.T @ low).mul_(ctx.scaling), None
