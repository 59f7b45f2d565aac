"""How long a text is for a model, without a model's tokenizer."""

TOKENIZER = "characters/4"
"""Name of the estimate; code has 4.3 to 4.6 characters per token of common tokenizers, so it errs on the long side."""


def token_estimate(text: str) -> int:
    """Return the estimated number of tokens of `text`."""
    return -(-len(text) // 4)
