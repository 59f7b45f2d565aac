"""Markdown for reports and for metadata in the Dagster UI."""

from collections.abc import Mapping, Sequence
from typing import Any

_MARKUP = str.maketrans({character: f"&#{ord(character)};" for character in "&<>`*[]"})


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


def plain_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """As `table`, of texts of others: what would be markup in a cell or a title is shown, and does nothing."""
    return table([{_plain(name): _plain(value) for name, value in row.items()} for row in rows])


def _plain(value: Any) -> Any:
    return value.translate(_MARKUP) if isinstance(value, str) else value


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    line = text.replace("\r\n", " ").replace("\n", " ").replace("\t", " ")
    # what moves the cursor of a terminal, ends a row, or has it read in another order
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    return shown.replace("\\", "\\\\").replace("|", "\\|")
