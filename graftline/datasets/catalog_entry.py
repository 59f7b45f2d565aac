"""A dataset of one's own in `configs/datasets.yaml`: where its files are, which columns they have, and its entry."""

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, get_args

from graftline.core.config import load_yaml, parse_yaml, to_yaml, validate
from graftline.core.errors import ConfigError, DataError
from graftline.core.parquet import ParquetError, parquet_rows
from graftline.core.paths import Paths
from graftline.core.record import write_atomically
from graftline.datasets.catalog import Catalog, Dataset, RowField
from graftline.datasets.formats import files_in, lines_of
from graftline.datasets.ingest import parse_row
from graftline.datasets.licenses import spdx

COLUMNS: Mapping[RowField, Sequence[str]] = {
    "before": ("before", "pre", "old_contents", "old_code", "old", "code_before", "source"),
    "after": ("after", "post", "new_contents", "new_code", "new", "code_after", "target"),
    "instruction": ("instruction", "message", "subject", "description", "prompt", "title"),
    "language": ("language", "lang"),
    "path": ("path", "file", "old_file", "filename", "file_name"),
    "group": ("group", "repo", "repository", "repos", "project", "package"),
    "commit": ("commit", "commit_sha", "sha", "commit_hash"),
    "license": ("license", "licence"),
}
"""Names by which a column is taken for a part of a row; the first that the rows have."""
ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_LOOKED_AT = 100
"""Rows whose columns are looked at."""
_MAX_FILES = 100
_MAX_LINE_BYTES = 2 << 20


def locate(source: str, patterns: Sequence[str], root: Path) -> tuple[str, list[str], Path | None]:
    """Return the `url` of a dataset, its files, and the folder where it is on this machine.

    `source` is a folder or file, from the current folder on, an address that fsspec knows, or `owner/name` of the Hugging Face
    hub. `patterns` name its files; without them, a folder of this machine has all that end in one of `ENDINGS`.

    Raises:
        ConfigError: there is no such place, or no such file, or nothing says which files.
    """
    place = Path(source).expanduser()
    if "://" in source or (not place.exists() and _HUB_NAME.fullmatch(source)):
        url = source.rstrip("/") if "://" in source else f"hf://datasets/{source}"
        if not patterns and url.endswith(ENDINGS):
            url, _, file = url.rpartition("/")
            return url, [file], None
        if not patterns:
            kind = (
                "is no folder or file here; of a dataset of the hub," if "://" not in source else "cannot be looked at;"
            )
            raise ConfigError(f"{source}: {kind} name the files with --file, as --file 'data/*.parquet'")
        return url, [*patterns], None
    if not place.exists():
        raise ConfigError(f"{source}: is no folder or file, nor an address, nor a name of the hub such as owner/name")
    folder = (place if place.is_dir() else place.parent).resolve()
    try:
        files = [path.relative_to(folder).as_posix() for path in files_in(folder, *ENDINGS)] if place.is_dir() else []
    except DataError as error:
        raise ConfigError(str(error).partition(";")[0]) from None
    names = [*patterns] or files or [place.name]
    if len(names) > _MAX_FILES:
        raise ConfigError(f"{source}: has {len(names)} files; name them with --file, as --file 'part-*.parquet'")
    is_below = folder.is_relative_to(root.resolve()) and folder != root.resolve()
    return (folder.relative_to(root.resolve()).as_posix() if is_below else f"file://{folder.as_posix()}"), names, folder


def read_columns(folder: Path, patterns: Sequence[str]) -> list[str]:
    """Return the columns of the first rows of the files that `patterns` name in `folder`.

    Raises:
        ConfigError: there is no such file, or its first rows are no objects.
    """
    for pattern in patterns:
        if not pattern or pattern.startswith("/"):
            raise ConfigError(f"file {pattern!r}: expected a path or a pattern below {folder}")
    paths = [path for pattern in patterns for path in sorted(folder.glob(pattern)) if path.is_file()]
    if not paths:
        raise ConfigError(f"{folder}: has no file {', '.join(patterns)}")
    path, rows = paths[0], list[Mapping[str, Any]]()
    if path.name.endswith(".parquet"):
        try:
            rows += islice(parquet_rows(path), 1)
        except ParquetError as error:
            raise ConfigError(f"{path}: {error}") from None
    else:
        with path.open("rb") as stream:
            lines = islice(lines_of(stream, path.name, _MAX_LINE_BYTES), _LOOKED_AT)
            parsed = [parse_row(line.content) for line in lines if isinstance(line.content, bytes)]
        rows += [row for row in parsed if isinstance(row, Mapping)]
    if not rows:
        raise ConfigError(f"{path}: none of its first {_LOOKED_AT} rows is an object; expected JSON lines or Parquet")
    return [*dict.fromkeys(column for row in rows for column in row)]


def choose_fields(columns: Sequence[str] | None, fields: Mapping[str, str]) -> dict[str, str]:
    """Return which column holds which part of a row: what `fields` says, else what the names of `columns` say.

    `columns` is None where the files are not here, and nobody can look at them.

    Raises:
        ConfigError: there is no such part or column, or none for `before` or `after`.
    """
    parts: tuple[str, ...] = get_args(RowField)
    for part, column in fields.items():
        if part not in parts:
            raise ConfigError(f"--field {part}: is no part of a row; known: {', '.join(parts)}")
        if columns is not None and column not in columns:
            raise ConfigError(f"--field {part}={column}: the rows have no such column; known: {', '.join(columns)}")
    chosen = dict[str, str]()
    for part, names in COLUMNS.items():
        guess = next((name for name in names if name in (columns or ())), None)
        if part in fields or guess is not None:
            chosen[part] = fields.get(part) or guess or ""
    for part in ("before", "after"):
        if part not in chosen:
            advice = f"; the rows have {', '.join(columns)}" if columns else ""
            raise ConfigError(f"nothing says which column is `{part}`; name it, as --field {part}=COLUMN{advice}")
    return chosen


def describe_dataset(
    source: str, root: Path, reader: str, license_: str | None, patterns: Sequence[str], fields: Mapping[str, str],
    language: str | None, version: str | None,
) -> dict[str, Any]:  # fmt: skip
    """Return the entry of a dataset, as `configs/datasets.yaml` has it; see `locate` and `choose_fields`.

    Raises:
        ConfigError: as they do; or neither `license_` nor a column of the rows says under which license they are.
    """
    url, files, folder = locate(source, patterns, root)
    is_general = reader == "edits"
    columns = read_columns(folder, files) if is_general and folder else None
    chosen = choose_fields(columns, fields) if is_general else dict(fields)
    if license_ is None and "license" not in chosen and is_general:
        raise ConfigError(
            f"{source}: nothing says under which license its rows are, and rows without an allowed license are never used;"
            " say it with --license, as --license MIT, or name the column that does, as --field license=COLUMN"
        )
    is_hub = url.startswith("hf://")
    return {
        "reader": reader,
        "url": url,
        "version": version or ("main" if is_hub else "1"),
        **({"follow": True} if is_hub and version is None else {}),
        "license": spdx(license_ or ""),
        "files": [{"path": file} for file in files],
        **({"fields": chosen} if chosen else {}),
        **({"language": language} if language else {}),
    }


def warnings_about(paths: Paths, name: str, dataset: Dataset) -> list[str]:
    """Return what is to be known of a dataset before it is built: that its rows would be left out for their license."""
    allowed = load_yaml(paths.configs / "datasets.yaml", Catalog).cleaning.licenses
    if dataset.license in allowed:
        return []
    rows = (
        "its rows" if dataset.reader == "edits" and "license" not in dataset.fields else "rows that do not say theirs"
    )
    return [
        f"warning: the license of {name} is {dataset.license}, which `cleaning.licenses` does not allow ({', '.join(allowed)}):"
        f" {rows} will be left out"
    ]


def add_entry(paths: Paths, name: str, entry: Mapping[str, Any]) -> Dataset:
    """Write the dataset called `name` to the end of `datasets` in `configs/datasets.yaml`, and return it; the rest stays as it is.

    Raises:
        ConfigError: the name is taken, the entry does not fit, or the file is written in a way that cannot be added to.
    """
    path = paths.configs / "datasets.yaml"
    catalog = load_yaml(path, Catalog)
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is no name of a dataset; expected lower-case letters, digits and _, a letter first"
        )
    validate(entry, Dataset, f"dataset {name!r}")
    if name in catalog.datasets:
        raise ConfigError(
            f"dataset {name!r} is there already; known in {paths.relative(path)}: {', '.join(catalog.datasets)}"
        )
    text = path.read_text("utf-8")
    lines, body = text.splitlines(keepends=True), to_yaml({name: entry})
    start = next((number for number, line in enumerate(lines) if re.match(r"datasets:\s*(#.*)?$", line)), None)
    end, indent = start, "  "
    for number, line in enumerate(lines[start + 1 :] if start is not None else (), (start or 0) + 1):
        if line[0] not in " #\r\n":
            break
        if line.strip() and line[0] == " " and not line.lstrip().startswith("#"):
            indent = re.match(" *", line)[0] if end == start else indent  # type: ignore[index]  # it always fits
            end = number
    added = "".join(f"{indent}{line}" for line in body.splitlines(keepends=True))
    if end is not None:
        before = "".join(lines[: end + 1])
        text = f"{before}{'' if before.endswith(chr(10)) else chr(10)}\n{added}{''.join(lines[end + 1 :])}"
    tree = parse_yaml(path.read_text("utf-8"), str(path))
    tree["datasets"][name] = {**entry}
    changed = validate(tree, Catalog, str(path))
    if end == start or parse_yaml(text, str(path)) != tree:
        raise ConfigError(
            f"{path}: an entry cannot be added to what `datasets` holds as it is written; add this to it:\n{body}"
        )
    write_atomically(path, text)
    return changed.datasets[name]
