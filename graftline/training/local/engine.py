"""One frozen language model with many LoRA adapters, trained and sampled from by one thread.

A run is an adapter with an AdamW state of its own. Samplers are adapters as well, of which only those used last are kept in
memory. Nothing here is safe to use from two threads: `calls.py` keeps the order.
"""

import math
import os
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
from pydantic import Field
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from graftline.core.config import Config
from graftline.core.errors import DataError, ModelError
from graftline.training.local.bfloat16 import is_worth_it
from graftline.training.local.checkpoints import ADAPTER
from graftline.training.local.lora import (
    LORA_ALPHA,
    PARTS,
    LoraLinear,
    LoraShape,
    Run,
    read_facts,
    restore_optimizer,
    shape_of,
    write_files,
)
from graftline.training.local.losses import check_inputs, loss_options
from graftline.training.local.passes import Example, Passes

MAX_RANK = 512
_WARM_UP_TOKENS = 16


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


def load_model(folder: Path) -> tuple[Any, Any]:
    """Return the tokenizer and the model in `folder`, in float32; ModelError where one of them cannot be read."""
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


class Engine:
    """The model in `folder`, which clients know as `name`."""

    def __init__(
        self,
        folder: Path,
        name: str,
        settings: EngineSettings | None = None,
        load: Callable[[Path], tuple[Any, Any]] = load_model,
    ) -> None:
        """Load it; ModelError where there is no model in `folder`, or no tokenizer with it."""
        self.settings, self.name, self.folder = settings or EngineSettings(), name, folder
        torch.set_num_threads(self.settings.threads or len(os.sched_getaffinity(0)))
        self.device = torch.device(_device(self.settings.device))
        self.precision = _precision(self.settings.precision, self.device.type)
        is_half = self.precision == "bfloat16"
        self.tokenizer, self.base = load(folder)
        self.base.requires_grad_(False).eval().to(self.device, torch.bfloat16 if is_half else torch.float32)
        self.passes = Passes(self.base, self.device, is_half, self.settings.micro_batch_tokens)
        self.context = int(getattr(self.base.config, "max_position_embeddings", 2048))
        self.architecture = str((self.base.config.architectures or [""])[0])
        # before the first adapter: peft wraps layers, and they have other names then
        self._linear = {
            path.rpartition(".")[2] for path, part in self.base.named_modules() if isinstance(part, torch.nn.Linear)
        }
        self.vocabulary = int(self.base.get_input_embeddings().weight.shape[0])
        self._peft: Any = None
        self._runs: dict[str, Run] = {}
        self._samplers: OrderedDict[str, str] = OrderedDict()

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens that end an answer."""
        generation = self.base.generation_config
        tokens = generation.eos_token_id if generation else None
        several = tokens if isinstance(tokens, list) else [tokens]
        return frozenset(token for token in (*several, self.tokenizer.eos_token_id) if token is not None)

    def check_name(self, name: str) -> None:
        """Raise DataError where clients do not know the model as `name`."""
        if name != self.name:
            raise DataError(f"base model {name!r} is not served here; {self.name!r} is")

    # runs

    def create(self, run_id: str, shape: LoraShape) -> Run:
        """Return a new run, with weights that `shape.seed` decides; DataError where the shape does not fit the model."""
        if not 1 <= shape.rank <= MAX_RANK:
            raise DataError(f"rank is {shape.rank}, but 1 to {MAX_RANK} was expected")
        seed = shape.seed if shape.seed is not None else int.from_bytes(os.urandom(4), "little")
        name = _adapter_name("run")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._add_adapter(name, shape)
        parameters = [parameter for path, parameter in self._peft.named_parameters() if f".{name}." in path]
        optimizer = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), eps=1e-12, weight_decay=0.0)
        run = Run(name, shape, parameters, optimizer)
        self._runs[run_id] = run
        return run

    def warm_up(self) -> None:
        """Take a step of a few tokens with an adapter of its own, so that the first one of a client has nothing to load."""
        name = _adapter_name("warm-up")
        self.create(name, LoraShape(rank=1, train_unembed=False, seed=0))
        try:
            inputs = {"target_tokens": torch.zeros(_WARM_UP_TOKENS, dtype=torch.long)}
            example = Example([0] * _WARM_UP_TOKENS, inputs)
            self.forward_backward(name, [example], "cross_entropy", {}, is_training=True)
            self.optim_step(name)
        finally:
            self.forget(name)

    def run(self, run_id: str) -> Run:
        """Return a run; DataError where it is not in memory."""
        if run_id not in self._runs:
            raise DataError(f"training run {run_id} is not in memory any more; create it anew from its last checkpoint")
        return self._runs[run_id]

    def forget(self, run_id: str) -> None:
        """Free the memory of a run; nothing happens if it has none."""
        run = self._runs.pop(run_id, None)
        if run is not None:
            self._drop_adapter(run.id)

    # training

    def forward_backward(
        self, run_id: str, examples: Sequence[Example], loss: str, options: Mapping[str, object], is_training: bool
    ) -> tuple[list[np.ndarray], dict[str, float]]:
        """Return the logprobs of every example's target tokens, float32 of their shape, and metrics; add up gradients.

        Raises:
            DataError: An example or the loss does not fit, or the loss is not finite; no step can be taken then.
        """
        run, values = self.run(run_id), loss_options(loss, options)
        try:
            for number, example in enumerate(examples):
                self._check_example(number, example, loss)
            with self._using(run.id, is_training):
                return self.passes.run(self._peft.base_model.model, examples, loss, values, is_training)
        except Exception:
            if is_training:
                run.is_spoilt = True
            raise

    def spoil(self, run_id: str) -> None:
        """Have no step taken with the gradients of a run, for a part of them is missing."""
        run = self._runs.get(run_id)
        if run is not None:
            run.is_spoilt = True

    def optim_step(
        self,
        run_id: str,
        learning_rate: float = 1e-4,
        beta1: float = 0.9,
        beta2: float = 0.95,
        eps: float = 1e-12,
        weight_decay: float = 0.0,
        grad_clip_norm: float = 0.0,
    ) -> dict[str, float]:
        """Take a step of AdamW with the gradients added up since the last one.

        Raises:
            DataError: A part of them failed, or is not finite; they are dropped, and the weights stay as they are.
        """
        run = self.run(run_id)
        if run.is_spoilt:
            run.drop_gradients()
            raise DataError("no step is taken, for forward_backward failed before it; its gradients are dropped")
        run.optimizer.param_groups[0].update(lr=learning_rate, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay)
        for parameter in run.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        norm = torch.nn.utils.clip_grad_norm_(run.parameters, grad_clip_norm if grad_clip_norm > 0 else math.inf)
        if not bool(norm.isfinite()):
            run.drop_gradients()
            raise DataError(f"no step is taken, for the norm of the gradients is {float(norm)}; they are dropped")
        run.optimizer.step()
        run.optimizer.zero_grad(set_to_none=True)
        run.steps += 1
        # not `step`: the cookbook has a column of that name
        return {"grad_norm:mean": float(norm), "optimizer_step:mean": float(run.steps)}

    # checkpoints

    def save(self, run_id: str, folder: Path, with_optimizer: bool) -> None:
        """Write the adapter of a run into `folder` in the layout of PEFT, and what is needed to resume from there."""
        run = self.run(run_id)
        weights = get_peft_model_state_dict(self._peft, adapter_name=run.id, save_embedding_layers=False)
        write_files(run, self.name, weights, self._peft.peft_config[run.id].to_dict(), folder, with_optimizer)

    def load(self, run_id: str, folder: Path, with_optimizer: bool) -> Run:
        """Make a run of the checkpoint in `folder`, or put it into the run there is, which then begins anew."""
        facts = read_facts(folder)
        if facts["base_model"] != self.name:
            raise DataError(f"the checkpoint is one of {facts['base_model']!r}, but this server has {self.name!r}")
        if with_optimizer and not facts["has_optimizer"]:
            raise DataError("the checkpoint has no state of the optimizer; load the one of `save_state`")
        shape = shape_of(facts)
        run = self._runs.get(run_id) or self.create(run_id, shape)
        if replace(run.shape, seed=shape.seed) != shape:
            raise DataError(f"the checkpoint is of {shape}, but the run of {run.shape}; create a run from it instead")
        self._load_adapter(run.id, folder)
        run.drop_gradients()
        run.optimizer.state.clear()
        run.steps = 0
        if with_optimizer:
            run.steps = int(facts["steps"])
            restore_optimizer(run, folder)
        return run

    # samplers

    @contextmanager
    def sampling_from(self, sampler_id: str, folder: Path | None) -> Iterator[Any]:
        """Yield the model with the adapter in `folder`, or without any."""
        if folder is None:
            if self._peft is None:
                yield self.base
            else:
                with self._peft.disable_adapter():
                    yield self._peft
            return
        with self._using(self._sampler(sampler_id, folder), is_training=False):
            yield self._peft

    def has_sampler(self, sampler_id: str) -> bool:
        """Return whether a sampler is in memory."""
        return sampler_id in self._samplers

    def forget_sampler(self, sampler_id: str) -> None:
        """Free the memory of a sampler; nothing happens if it has none."""
        name = self._samplers.pop(sampler_id, None)
        if name is not None:
            self._drop_adapter(name)

    def _sampler(self, sampler_id: str, folder: Path) -> str:
        samplers = self._samplers
        if sampler_id in samplers:
            samplers.move_to_end(sampler_id)
            return samplers[sampler_id]
        while len(samplers) >= self.settings.samplers:
            self.forget_sampler(next(iter(samplers)))
        name = _adapter_name("sampler")
        self._add_adapter(name, shape_of(read_facts(folder)))
        self._load_adapter(name, folder)
        samplers[sampler_id] = name
        return name

    # adapters

    def _add_adapter(self, name: str, shape: LoraShape) -> None:
        layers = {part for flag, parts in PARTS.items() if getattr(shape, flag) for part in parts} & self._linear
        if not layers:
            raise DataError(f"no layer of {self.name} is to be trained; set one of {', '.join(PARTS)}")
        config = LoraConfig(
            r=shape.rank, lora_alpha=LORA_ALPHA, lora_dropout=0.0, bias="none", target_modules=sorted(layers)
        )
        config._register_custom_module({torch.nn.Linear: LoraLinear})
        with warnings.catch_warnings():
            # that merging is another matter where the output layer is the embedding
            warnings.simplefilter("ignore")
            if self._peft is None:
                self._peft = get_peft_model(self.base, config, adapter_name=name)
            else:
                self._peft.add_adapter(name, config)

    def _drop_adapter(self, name: str) -> None:
        remaining = [other for other in self._peft.peft_config if other != name]
        if not remaining:
            # peft cannot do with a wrapped model without an adapter
            self._peft.unload()
            self._peft = None
            return
        # every layer would choose another one for itself in place of the one in use
        self._peft.set_adapter(remaining[0], inference_mode=True)
        self._peft.delete_adapter(name)

    def _load_adapter(self, name: str, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            set_peft_model_state_dict(self._peft, load_file(folder / ADAPTER), adapter_name=name)

    @contextmanager
    def _using(self, name: str, is_training: bool) -> Iterator[None]:
        self._peft.set_adapter(name, inference_mode=not is_training)
        with torch.set_grad_enabled(is_training):
            yield

    # checks of requests

    def _check_example(self, number: int, example: Example, loss: str) -> None:
        if not example.tokens:
            raise DataError(f"datum {number}: has no tokens")
        if len(example.tokens) > self.context:
            raise DataError(f"datum {number}: has {len(example.tokens)} tokens, but {self.name} takes {self.context}")
        try:
            check_inputs(loss, example.inputs, len(example.tokens))
        except DataError as error:
            raise DataError(f"datum {number}: {error}") from None
        targets = example.inputs["target_tokens"]
        self.check_tokens(f"datum {number}", [*example.tokens, int(targets.min()), int(targets.max())])

    def check_tokens(self, subject: str, tokens: Sequence[int]) -> None:
        """Raise DataError, which begins with `subject`, where the model lacks one of `tokens`."""
        if tokens and not (min(tokens) >= 0 and max(tokens) < self.vocabulary):
            wrong = next(token for token in tokens if not 0 <= token < self.vocabulary)
            raise DataError(f"{subject}: token {wrong} is not one of the {self.vocabulary} of {self.name}")


def _adapter_name(kind: str) -> str:
    # peft takes no dots in it
    return f"{kind}-{os.urandom(8).hex()}"


def _device(setting: str) -> str:
    if setting == "cuda" and not torch.cuda.is_available():
        raise ModelError("device is cuda, but torch sees no GPU; use cpu, or auto")
    return setting if setting != "auto" else "cuda" if torch.cuda.is_available() else "cpu"


def _precision(setting: str, device: str) -> Literal["float32", "bfloat16"]:
    """Return what matrices are multiplied in; called before anything is computed."""
    if setting == "float32":
        return "float32"
    is_faster = torch.cuda.is_bf16_supported() if device == "cuda" else is_worth_it()
    return "bfloat16" if is_faster or setting == "bfloat16" else "float32"
