"""Files with one JSON object per line."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

ModelT = TypeVar("ModelT", bound=BaseModel)


def read_lines(path: Path, model: type[ModelT]) -> Iterator[ModelT]:
    """Yield the rows of a JSONL file of ours."""
    with path.open("rb") as stream:
        for line in stream:
            yield model.model_validate_json(line)


def write_lines(path: Path, models: Iterable[BaseModel]) -> None:
    """Write one line of JSON per model."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        for model in models:
            stream.write(model.model_dump_json() + "\n")
