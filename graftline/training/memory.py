"""`MemoryTrainingService`: the backend of this machine over a tiny random model, served in this process while it is open.

It trains by the same code as a real model: losses fall, and a run resumes exactly from a checkpoint. It answers to the name
of any model; what it learns is of no use, and is gone with it. It is for tests, and for recipes to be tried.
"""

import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Self

from graftline.training.datums import Tokenizer
from graftline.training.tinker import Ending, TinkerSDKClient

MODEL = "memory"
_KEY = f"tml-{secrets.token_hex(16)}"
_CONTEXT_TOKENS = 8192
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_THOUGHTS = ("<think>", "</think>")
"""Marks of Qwen3, so that the renderers of its family suit the tokenizer; `role_colon` needs none."""


class MemoryTrainingService(TinkerSDKClient):
    """A client of a server in this process, which runs while the block is open; `seed` is that of the model's weights."""

    def __init__(self, seed: int = 0, deadline_s: float = 600.0) -> None:
        super().__init__(_KEY, deadline_s=deadline_s)
        self._seed, self._server = seed, ExitStack()

    @property
    def base_url(self) -> str:
        """What stands for an address in records."""
        return MODEL

    def __enter__(self) -> Self:
        self._base_url = self._server.enter_context(_serve(self._seed))
        return self

    def close(self, ending: Ending = "success") -> None:
        super().close(ending)
        self._server.close()

    def served_name(self, base_model: str) -> str:
        """Return the name of the model that there is, whatever `base_model` says."""
        return MODEL


@lru_cache(maxsize=1)
def memory_tokenizer() -> Tokenizer:
    """Return the tokenizer of the model: a token is a byte of UTF-8, or one of the marks between the messages of a chat."""
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as FastTokenizer
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    # the names of bytes in a vocabulary of text; a token is the byte itself
    vocabulary = {letter: byte for byte, letter in bytes_to_unicode().items()}
    tokenizer = FastTokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*_SPECIAL])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in _THOUGHTS])
    memory_tokenizer: Tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        name_or_path=MODEL,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=_CONTEXT_TOKENS,
        clean_up_tokenization_spaces=False,
    )
    return memory_tokenizer


def _tiny_model(seed: int) -> tuple[Any, Any]:
    """Return the tokenizer and a random Qwen3 of one layer."""
    import torch
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    tokenizer: Any = memory_tokenizer()
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=_CONTEXT_TOKENS,
        # many times the usual, so that the most probable tokens stand apart from the others
        initializer_range=0.2,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    return tokenizer, model


@contextmanager
def _serve(seed: int) -> Iterator[str]:
    """Serve the model in a thread, with checkpoints in a temporary folder, until the end of the block; give the address."""
    from graftline.training.sdk import require_sdk

    require_sdk()
    import asyncio
    import socket

    from pydantic import SecretStr

    from graftline.training.local.checkpoints import CheckpointStore
    from graftline.training.local.engine import Engine, EngineSettings
    from graftline.training.local.serve import run_server
    from graftline.training.local.server import TinkerServer

    engine = Engine(Path(MODEL), MODEL, EngineSettings(threads=1, device="cpu"), load=lambda folder: _tiny_model(seed))
    started: Future[tuple[str, Callable[[], None]]] = Future()

    def start(url: str, end: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()

        def end_soon() -> None:
            loop.call_soon_threadsafe(end)

        started.set_result((url, end_soon))

    with (
        TemporaryDirectory(prefix="graftline-") as folder,
        socket.create_server(("127.0.0.1", 0)) as listener,
    ):
        server = TinkerServer(engine, CheckpointStore(Path(folder)), SecretStr(_KEY), secrets.token_bytes(32))
        thread = Thread(
            target=lambda: asyncio.run(run_server(server, listener, start)), name="memory-training", daemon=True
        )
        thread.start()
        url, end = started.result()
        try:
            yield url
        finally:
            end()
            thread.join()
