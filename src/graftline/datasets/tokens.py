"""How long a text is for a model: by an estimate that needs no vocabulary, or by a real tokenizer."""

from collections.abc import Callable
from functools import cache
from typing import Literal

from graftline.errors import ConfigError

TokenizerName = Literal["characters/4", "cl100k_base", "o200k_base"]
"""`characters/4` errs on the long side: code has 4.3 to 4.6 characters per token of common tokenizers."""

_PIECE_CHARACTERS = 20_000  # the time of one call grows faster than its text


def token_counter(name: TokenizerName) -> Callable[[str], int]:
    """Return what counts the tokens of a text.

    Raises:
        ConfigError: the vocabulary is not installed.
    """
    return _estimate if name == "characters/4" else _counter(name)


def _estimate(text: str) -> int:
    return -(-len(text) // 4)


@cache
def _counter(name: str) -> Callable[[str], int]:
    try:
        from bpe_openai import get_encoding
    except ImportError:
        raise ConfigError(f"tokenizer {name!r} needs bpe-openai; pip install 'graftline[tokens]'") from None
    # unlike `encode` it takes "<|endoftext|>" for the text that it is
    encode = get_encoding(name).encode_ordinary

    def count(text: str) -> int:
        pieces = range(0, len(text), _PIECE_CHARACTERS)
        return sum(len(encode(text[start : start + _PIECE_CHARACTERS])) for start in pieces)

    return count
