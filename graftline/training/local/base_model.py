"""The model that adapters stand on: how it is computed with, and how it is loaded."""

from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field
from transformers import AutoModelForCausalLM, AutoTokenizer

from graftline.core.config import Config
from graftline.core.errors import ModelError
from graftline.training.local.bfloat16 import is_worth_it


class EngineSettings(Config):
    """How a model is computed with."""

    threads: int = Field(default=0, ge=0, le=256)
    """Of torch; 0 for one per core that this process may use."""
    micro_batch_tokens: int = Field(default=1024, ge=1)
    """Tokens that go through the model at once, with padding where there is any: what memory is needed for."""
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """What matrices are multiplied in, and the weights that are not trained kept in; adapters, losses and the optimizer are
    in float32 either way. `auto` is bfloat16 where the device multiplies it clearly faster."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    samplers: int = Field(default=8, ge=1, le=256)
    """Adapters to sample from that are kept in memory."""


def device_of(wanted: str) -> str:
    """Return what torch calls the device that is `wanted`.

    Raises:
        ModelError: there is none.
    """
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ModelError("device is cuda, but torch sees no GPU; use cpu, or auto")
    return wanted if wanted != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def precision_of(wanted: str, device: str) -> Literal["float32", "bfloat16"]:
    """Return what matrices are multiplied in, where `wanted` is `auto` too; before anything is computed."""
    if wanted == "float32":
        return "float32"
    is_faster = torch.cuda.is_bf16_supported() if device == "cuda" else is_worth_it()
    return "bfloat16" if is_faster or wanted == "bfloat16" else "float32"


def load(folder: Path) -> tuple[Any, Any]:
    """Return the tokenizer and the model in `folder`, in float32.

    Raises:
        ModelError: one of them is not there, or cannot be read.
    """
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder}: holds no model, for it has no config.json; name the folder of a converted model")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(f"{folder}: its tokenizer cannot be loaded ({reason}); put tokenizer.json beside it") from None
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise ModelError(f"{folder}: its weights cannot be loaded ({reason}); convert the model again") from None
    return tokenizer, model
