"""How a language model tries instructions (`rollouts.round_trip`), for whoever only reads configurations."""

from pydantic import Field

from graftline.core.config import Config


class RoundTripConfig(Config):
    """How a model is asked to do edits."""

    attempts: int = Field(default=4, ge=1, le=64)
    """At the edit that an instruction asks for, until one of them is right."""
    temperature: float = Field(default=0.7, gt=0, le=2)
    rewordings: int = Field(default=0, ge=0, le=16)
    """Of an instruction made of rules, until one survives; 0 leaves such instructions as they are."""
    max_tokens: int = Field(default=1024, ge=32, le=32_768)
    """Of an answer, which is a whole text."""
    deadline_s: float = Field(default=600.0, gt=0)
    """From a question to its answer."""
    seed: int = Field(default=1, ge=0)
