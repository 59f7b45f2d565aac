"""A tokenizer without a file: a token is a byte of UTF-8, or one of the marks between the messages of a chat."""

import re
from collections.abc import Sequence

MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
"""Those of Qwen3, so that the renderers of its family suit this tokenizer; `role_colon` needs none."""
_BYTES = 256
_END = "<|im_end|>"
_PARTS = re.compile(f"({'|'.join(map(re.escape, MARKS))})")


class MemoryTokenizer:
    """What the memory training service reads and writes; part of the interface of tokenizers of `transformers`."""

    name_or_path = "memory"
    bos_token = None
    eos_token = _END
    eos_token_id = _BYTES + MARKS.index(_END)
    vocab_size = _BYTES + len(MARKS)

    def encode(self, text: str, *, add_special_tokens: bool = False, split_special_tokens: bool = False) -> list[int]:
        """Return the tokens of `text`.

        >>> MemoryTokenizer().encode("é<|im_end|>")
        [195, 169, 258]

        Args:
            text: To be read.
            add_special_tokens: Makes no difference: there are none that texts begin with.
            split_special_tokens: Whether marks in `text` are texts like any other.
        """
        if split_special_tokens:
            return [*text.encode()]
        tokens: list[int] = []
        for part in _PARTS.split(text):
            tokens += [_BYTES + MARKS.index(part)] if part in MARKS else part.encode()
        return tokens

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of `token_ids`; bytes that are no UTF-8 become U+FFFD."""
        pieces = [bytes([token]) if token < _BYTES else MARKS[token - _BYTES].encode() for token in map(int, token_ids)]
        return b"".join(pieces).decode("utf-8", "replace")
