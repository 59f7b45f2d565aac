"""A linear layer with a LoRA adapter, there and back in fewer passes over its output than peft's.

peft adds up `base(x) + B(A(x)) * scaling` term by term, each of which reads and writes the whole output once more; on a CPU,
that takes as long as a fifth of the products. The adapters stay those of peft: their names, files and switches.
"""

from typing import Any

import torch
from peft.tuners import lora


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
