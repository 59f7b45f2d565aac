"""How long a chat is for a model, before it is asked, and which seed its answer is drawn with."""

from collections.abc import Callable, Sequence

from graftline.core.hashing import sha256_text
from graftline.core.tokens import bound_tokens, count_tokens
from graftline.llm.base import Message

_OF_MESSAGE = 8
"""Tokens that the template of a model puts round a message."""
_MARGIN = 1.15
"""Tokenizers of small vocabularies make more tokens of the same text than the one that is counted with."""


def count_chat_tokens(messages: Sequence[Message]) -> int:
    """Return about how many tokens `messages` take, those of the template of the model included; rather too many."""
    return _count(messages, count_tokens)


def fits_into(context_tokens: int, messages: Sequence[Message], answer_tokens: int) -> bool:
    """Return whether a context holds `messages` and an answer; tokens are counted only where their bound does not tell."""
    return any(_count(messages, count) + answer_tokens <= context_tokens for count in (bound_tokens, count_tokens))


def _count(messages: Sequence[Message], count: Callable[[str], int]) -> int:
    return round(_MARGIN * sum(count(message.content) + _OF_MESSAGE for message in messages))


def seed_of(*parts: str | int) -> int:
    """Return the seed of a draw, the same whichever draws are made beside it."""
    return int(sha256_text("\0".join(map(str, parts)))[:8], 16) >> 1
