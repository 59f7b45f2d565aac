"""Markdown for reports and for metadata in the Dagster UI."""

from collections.abc import Mapping, Sequence
from typing import Any


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> str:
    """Return `rows` as a table; `columns` chooses and orders, else the first row does. Numbers stand right."""
    if not rows:
        return "*none*\n"
    names = list(columns or rows[0])
    right = [all(_is_number(row[name]) for row in rows) for name in names]
    lines = [
        "| " + " | ".join(map(_cell, names)) + " |",
        "|" + "|".join("---:" if is_right else "---" for is_right in right) + "|",
        *("| " + " | ".join(_cell(row[name]) for name in names) + " |" for row in rows),
    ]
    return "\n".join(lines) + "\n"


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
