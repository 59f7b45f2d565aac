"""How long a text is for a model: by a real tokenizer, whose vocabulary comes with its package, or by an estimate."""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Literal

from graftline.core.errors import ConfigError, install_command

TokenizerName = Literal["characters/4", "cl100k_base", "o200k_base"]
"""`characters/4` errs on the long side: code has 4.3 to 4.6 characters per token of common tokenizers."""

_PIECE_CHARACTERS = 20_000  # the time of one call grows faster than its text


def token_counter(name: TokenizerName) -> Callable[[str], int]:
    """Return what counts the tokens of a text; ConfigError if the vocabulary is not installed."""
    return _estimate if name == "characters/4" else _counter(name)


def count_tokens(text: str) -> int:
    """Return the tokens of `text` by `o200k_base`, or half its bytes where `graftline[tokens]` is not installed.

    The half errs on the long side for dense texts too: JSON that quotes code has 2.2 to 4.6 characters per token.
    """
    return _best_counter()(text)


def _estimate(text: str) -> int:
    return -(-len(text) // 4)


def bound_tokens(text: str) -> int:
    """Return the bytes of `text`: no tokenizer makes more tokens of it, and no vocabulary has to be loaded, which takes
    most of a second.
    """
    return len(text.encode("utf-8", "replace"))


def _half_of_bytes(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // 2)


@cache
def _best_counter() -> Callable[[str], int]:
    try:
        return _counter("o200k_base")
    except ConfigError:
        return _half_of_bytes


@cache
def _counter(name: str) -> Callable[[str], int]:
    try:
        with warnings.catch_warnings():
            # it opens its vocabularies by a function that importlib has deprecated
            warnings.simplefilter("ignore", DeprecationWarning)
            from bpe_openai import get_encoding

            # unlike `encode` it takes "<|endoftext|>" for the text that it is
            encode = get_encoding(name).encode_ordinary
    except ImportError:
        raise ConfigError(f"tokenizer {name!r} needs bpe-openai; {install_command('tokens')}") from None

    def count(text: str) -> int:
        pieces = range(0, len(text), _PIECE_CHARACTERS)
        return sum(len(encode(text[start : start + _PIECE_CHARACTERS])) for start in pieces)

    return count
