"""How people ask for what a template does; the sentences are in `instructions.yaml` beside this module."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from graftline.core.config import parse_yaml


@cache
def load_instructions() -> Mapping[str, tuple[str, ...]]:
    """Return three or more sentences by template, families and their ways back; none quotes the action."""
    path = Path(__file__).with_suffix(".yaml")
    return {name: tuple(sentences) for name, sentences in parse_yaml(path.read_text("utf-8"), path.name).items()}
