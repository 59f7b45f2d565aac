"""From a stored artefact to what Dagster shows of it: data version, counts, tables, plots, links.

Not here: which plots there are (`assets.pictures`), and where links lead (`assets.links`).
https://docs.dagster.io/guides/build/assets/metadata-and-tags
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import dagster as dg

from assets.links import licence_rows, with_licences
from assets.partitions import keys_of
from assets.pictures import left_out, outcomes, rows_by_partition
from graftline.actions.astgrep import Language
from graftline.building import Built
from graftline.datasets.division import Split
from graftline.errors import BoundaryError, GraftlineError
from graftline.hashing import digest
from graftline.markdown import table
from graftline.record import RECORD_NAME, DatasetRecord, NormalizedRecord, Record
from graftline.runtime.lineage import Lineage

_LOG_EVERY_S = 5.0
_TOLD = ("rows", "examples", "steps")
"""Counts that the log of a run says."""
_MOST_COLUMNS = 16


OverAll = Callable[[Mapping[str, Built]], Mapping[str, Any]]
"""What is to be known of the artefacts of a run together, which come by their partitions."""


def materialized(
    context: dg.AssetExecutionContext,
    lineage: Lineage,
    make: Callable[[], Built],
    shown: Callable[[Built], Mapping[str, Any]] | None = None,
) -> dg.MaterializeResult[Any]:
    """Make one artefact, and return what there is to know of it."""
    lineage.advance = _logged(context)
    with readable_failure():
        built = make()
    context.log.info(_sentence(built))
    metadata = {**(shown or metadata_of)(built), **outcomes(built.record.counts)}
    return dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(built.record.identity))


def materialized_partitions(
    context: dg.AssetExecutionContext,
    lineage: Lineage,
    make: Callable[[Language, Split], Built],
    over_all: OverAll = rows_by_partition,
) -> dg.MaterializeResult[Any]:
    """Make the artefact of every language and split of this run; the data version is that of all of them."""
    makes = {key: partial(make, language, split) for key, language, split in keys_of(context)}
    return materialized_each(context, lineage, makes, metadata_of, over_all)


def materialized_each(
    context: dg.AssetExecutionContext,
    lineage: Lineage,
    makes: Mapping[str, Callable[[], Built]],
    shown: Callable[[Built], Mapping[str, Any]],
    over_all: OverAll = lambda made: {},
) -> dg.MaterializeResult[Any]:
    """Make an artefact for each partition key; `shown` returns what is to be known of one, `over_all` of all together.

    Raises:
        dagster.Failure: there is none; a range whose ends are in the wrong order is empty, and would succeed.
    """
    if not makes:
        raise dg.Failure("the partition range is empty; give its ends in the order of the partitions")
    lineage.advance = _logged(context)
    made: dict[str, Built] = {}
    for key, make in makes.items():
        with readable_failure():
            made[key] = make()
        if made[key].is_fresh:
            context.log.info(_sentence(made[key]))
        context.add_asset_metadata(shown(made[key]), partition_key=key)
    if unchanged := sum(not built.is_fresh for built in made.values()):
        # in one line, for each takes the log of a run as long as looking at an artefact does
        context.log.info(f"{unchanged} of {len(made)} partitions are unchanged")
    rows = [{"partition": key, "state": _state(built), **built.record.counts} for key, built in made.items()]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    if len(columns) > _MOST_COLUMNS:
        # what is counted by families, datasets or reasons stands in the table of each partition
        columns = [column for column in columns if "." not in column]
    overview = table([{column: row.get(column) for column in columns} for row in rows])
    return dg.MaterializeResult(
        metadata={"partitions": dg.MetadataValue.md(overview), **over_all(made)},
        data_version=version_of(made),
    )


def version_of(made: Mapping[str, Built]) -> dg.DataVersion:
    """Return the data version of partitions that were made together, by their keys."""
    return dg.DataVersion(digest({key: built.record.identity for key, built in made.items()}))


@contextmanager
def readable_failure() -> Iterator[None]:
    """Turn an error that was raised on purpose, or by the file system, into a failure that says what to do.

    The way an error of the file system came is kept, for it may be our own fault.
    """
    try:
        yield
    except GraftlineError as error:
        raise dg.Failure(str(error), allow_retries=isinstance(error, BoundaryError)) from None
    except OSError as error:
        # a full disk, a folder that may not be written to, a file where a folder should be
        where, what = error.filename or "the file system", error.strerror or str(error)
        raise dg.Failure(f"{where}: {what}; mend it and run again, what was made before is untouched") from error


def metadata_of(built: Built) -> Mapping[str, Any]:
    """Return counts as numbers, for plots over time, tables of them and of what it was made from, and where the files are."""
    record, counts = built.record, built.record.counts
    lines = [{"count of": name, "number": number} for name, number in counts.items()]
    files = [{"file": f"`{name}`", "bytes": found.size_bytes} for name, found in record.files.items()]
    inputs = [{"made from": name, "identity": f"`{identity[:12]}`"} for name, identity in record.inputs.items()]
    return {
        # a count may be called what a table is called
        **{name: number for name, number in counts.items() if name != "rows"},
        "dagster/row_count": counts.get("rows", 0),
        "dagster/uri": built.folder.as_uri(),
        "folder": dg.MetadataValue.path(str(built.folder)),
        "record": dg.MetadataValue.path(str(built.folder / RECORD_NAME)),
        "files": dg.MetadataValue.md(table(files)),
        "counts": dg.MetadataValue.md(table(lines)),
        "made_from": dg.MetadataValue.md(table(inputs)),
        "state": _state(built),
        **_by_reason(counts),
        **_on_terms(record),
    }


def _by_reason(counts: Mapping[str, int]) -> dict[str, Any]:
    """Return a table of what was left out, where anything was."""
    lines = [
        {"left out": how.replace("_", " "), "reason": reason, "rows": number}
        for how, reason, number in left_out(counts)
    ]
    return {"left_out": dg.MetadataValue.md(table(lines))} if lines else {}


def _on_terms(record: Record) -> dict[str, Any]:
    """Return where a dataset came from and on what terms, and its rows by licence."""
    if not isinstance(record, DatasetRecord):
        return {}
    facts = {
        "source": record.source, "version": record.version, "licence": with_licences(record.license),
        "downloaded": f"{record.downloaded_at:%Y-%m-%d %H:%M} UTC", "sha256": f"`{record.sha256[:16]}…`",
    }  # fmt: skip
    told = {"terms": dg.MetadataValue.md(table([{"": name, "is": value} for name, value in facts.items()]))}
    if isinstance(record, NormalizedRecord):
        told["licences"] = dg.MetadataValue.md(table(licence_rows(record.licences)))
    return told


def _state(built: Built) -> str:
    return f"made: {built.reason}" if built.is_fresh else "unchanged"


def _sentence(built: Built) -> str:
    counts = ", ".join(f"{number} {name}" for name, number in built.record.counts.items() if name in _TOLD)
    return f"{built.record.kind} {built.record.name}: {_state(built)}; {counts}"


def _logged(context: dg.AssetExecutionContext) -> Callable[[int, int], None]:
    """Return what reports progress to the log of the run, every few seconds."""
    last = time.monotonic()

    def advance(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _LOG_EVERY_S:
            last = time.monotonic()
            context.log.info(f"{done} of {total}" if total else f"{done}")

    return advance
