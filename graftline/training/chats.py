"""Files that are trained on: JSON lines of `graftline trajectories export`, or of anybody else."""

import json
from pathlib import Path
from typing import Any

from graftline.core.errors import DataError


def read_rows(path: Path, field: str, format: str) -> list[dict[str, Any]]:
    """Return the objects of a file with one on every line, each with a list in `field`; `format` is that of the export.

    Raises:
        DataError: it is no such file.
    """
    rows = read_lines_of(path)
    for number, row in enumerate(rows, 1):
        if not isinstance(row.get(field), list):
            raise DataError(
                f"{path}, line {number}: has no {field}; `graftline trajectories export {format}` writes such files"
            )
    return rows


def read_lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file with one on every line.

    Raises:
        DataError: it is no such file.
    """
    rows: list[dict[str, Any]] = []
    try:
        with path.open(encoding="utf-8") as stream:
            for number, line in enumerate(stream, 1):
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise DataError(f"{path}, line {number}: is no object; one on every line was expected")
                rows.append(row)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror}); name a file in the recipe, or make it: `graftline run`, or"
            " `graftline trajectories export`"
        ) from None
    except (ValueError, RecursionError):
        raise DataError(f"{path}, line {len(rows) + 1}: is no JSON; one object on every line was expected") from None
    return rows
