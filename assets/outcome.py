"""From a stored artifact to what Dagster shows of it: data version, counts, tables, plots, links.

Not here: which plots there are (`assets.pictures`), and where links lead (`assets.links`).
https://docs.dagster.io/guides/build/assets/metadata-and-tags
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import dagster as dg

from assets.links import license_rows, with_licenses
from assets.partitions import keys_of
from assets.pictures import left_out, outcomes, rows_by_partition
from graftline.astgrep.binding import Language
from graftline.core.build import Built
from graftline.core.errors import BoundaryError, GraftlineError
from graftline.core.hashing import digest
from graftline.core.markdown import table
from graftline.core.record import RECORD_NAME, ArtifactRecord, DatasetRecord, NormalizedRecord
from graftline.datasets.losses import main_losses
from graftline.datasets.splits import Split
from graftline.pipeline.lineage import Lineage

_LOG_EVERY_S = 5.0
_LOGGED_COUNTS = ("rows", "examples", "steps")
"""Counts that the log of a run says."""
_MOST_COLUMNS = 16
DATA_VERSION = "dagster/data_version"
"""The tag of an event that says what Dagster takes from a result by itself."""
ROW_COUNT, _ROWS_OF_PARTITION = "dagster/row_count", "dagster/partition_row_count"
_DIMENSION = "dagster/partition/"
_OBSERVED = "identity"
"""Where an observation says which artifacts it is of, by one digest of all."""
_EVENTS_LOOKED_AT = 100


OverAll = Callable[[Mapping[str, Built]], Mapping[str, Any]]
"""What is to be known of the artifacts of a run together, which come by their partitions."""


def materialize(
    context: dg.AssetExecutionContext,
    lineage: Lineage,
    make: Callable[[], Built],
    shown: Callable[[Built], Mapping[str, Any]] | None = None,
) -> dg.MaterializeResult[Any]:
    """Make one artifact, and return what there is to know of it."""
    lineage.advance = _log_progress(context)
    with readable_failure():
        built = make()
    context.log.info(_sentence(built))
    metadata = {**(shown or metadata_of)(built), **outcomes(built.record.counts)}
    return dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(built.record.identity))


def materialize_partitions(
    context: dg.AssetExecutionContext,
    lineage: Lineage,
    make: Callable[[Language, Split], Built],
    over_all: OverAll = rows_by_partition,
) -> Iterator[dg.MaterializeResult[Any]]:
    """Make the artifact of every language and split of this run (see `materialize_each`)."""
    makes = {key: partial(make, language, split) for key, language, split in keys_of(context)}
    yield from materialize_each(context, lineage, makes, metadata_of, over_all)


def materialize_each(
    context: dg.AssetExecutionContext,
    lineage: Lineage,
    makes: Mapping[str, Callable[[], Built]],
    shown: Callable[[Built], Mapping[str, Any]],
    over_all: OverAll = lambda artifacts: {},
) -> Iterator[dg.MaterializeResult[Any]]:
    """Make an artifact for each partition key, and log an event of each with its own data version.

    Dagster copies what a result says into the events of all partitions of a run, its data version too, and an unchanged
    partition would then have another version than before. So the result says nothing, and an event follows it for each
    partition. What concerns all of them stands in one observation, which is logged where any of them changed.

    Args:
        context: Of the run, and of its partitions.
        lineage: Reports progress to the log of the run.
        makes: What makes each artifact, by partition key.
        shown: Returns what there is to know of one artifact.
        over_all: Returns what there is to know of all artifacts of the run together.

    Raises:
        dagster.Failure: there is no key; a range whose ends are in the wrong order is empty, and would succeed.
    """
    if not makes:
        raise dg.Failure("the partition range is empty; give its ends in the order of the partitions")
    lineage.advance = _log_progress(context)
    artifacts: dict[str, Built] = {}
    metadata: dict[str, Mapping[str, Any]] = {}
    for key, make in makes.items():
        with readable_failure():
            artifacts[key] = make()
        if artifacts[key].is_fresh:
            context.log.info(_sentence(artifacts[key]))
        metadata[key] = shown(artifacts[key])
    if unchanged := sum(not built.is_fresh for built in artifacts.values()):
        # in one line, for each takes the log of a run as long as looking at an artifact does
        context.log.info(f"{unchanged} of {len(artifacts)} partitions are unchanged")
    own = {key: facts.get(ROW_COUNT, 0) for key, facts in metadata.items()}
    of_asset = _rows_of_asset(context, own)
    identity = digest({key: built.record.identity for key, built in artifacts.items()})
    yield dg.MaterializeResult(data_version=dg.DataVersion(identity))
    if identity != _read_observed_identity(context):
        # else the last observation still holds, and drawing its plots again is most of what a run over the unchanged takes
        overview = {"partitions": dg.MetadataValue.md(_overview(artifacts)), **over_all(artifacts)}
        context.log_event(dg.AssetObservation(context.asset_key, metadata={**overview, _OBSERVED: identity}))
    provenance = _provenance(context)
    for key in context.partition_keys:
        tags = {**provenance, **_dimensions(key), DATA_VERSION: artifacts[key].record.identity}
        rows = {_ROWS_OF_PARTITION: own[key], **({} if of_asset is None else {ROW_COUNT: of_asset})}
        facts = {**{name: value for name, value in metadata[key].items() if name != ROW_COUNT}, **rows}
        context.log_event(dg.AssetMaterialization(context.asset_key, metadata=facts, partition=key, tags=tags))


def _rows_of_asset(context: dg.AssetExecutionContext, own: Mapping[str, int]) -> int | None:
    """Return the rows of all partitions once those of this run are `own`; None where those of the others are not known."""
    partitions = context.assets_def.partitions_def
    if partitions and len(partitions.get_partition_keys(dynamic_partitions_store=context.instance)) == len(own):
        return sum(own.values())
    last = context.instance.get_latest_materialization_event(context.asset_key)
    if last is None:
        return sum(own.values())
    replaced = (_read_last_metadata(context, partition) for partition in own)
    before = [values.get(_ROWS_OF_PARTITION) if values else dg.IntMetadataValue(0) for values in replaced]
    all_before = last.asset_materialization.metadata.get(ROW_COUNT) if last.asset_materialization else None
    if all_before is None or None in before:
        return None
    return sum(own.values()) + int(all_before.value) - sum(int(rows.value) for rows in before if rows)


def _read_last_metadata(context: dg.AssetExecutionContext, partition: str) -> Mapping[str, Any] | None:
    """Return the metadata of the newest event of a partition that has any; None where there is no event."""
    event_filter = dg.AssetRecordsFilter(asset_key=context.asset_key, asset_partitions=[partition])
    records = context.instance.fetch_materializations(event_filter, limit=1).records
    return next((record.asset_materialization.metadata for record in records if record.asset_materialization), None)


def _read_observed_identity(context: dg.AssetExecutionContext) -> str | None:
    """Return of which artifacts together the last observation is; None where there is none."""
    records = context.instance.fetch_observations(context.asset_key, limit=1).records
    observation = records[0].asset_observation if records else None
    return str(observation.metadata[_OBSERVED].value) if observation and _OBSERVED in observation.metadata else None


def _provenance(context: dg.AssetExecutionContext) -> dict[str, str]:
    """Return what the events of the result that was just yielded say of inputs and code."""
    partition = context.partition_keys[0]
    records = dg.AssetRecordsFilter(asset_key=context.asset_key, asset_partitions=[partition])
    # another run may have logged one of its own in between
    [tags] = [
        record.asset_materialization.tags or {}
        for record in context.instance.fetch_materializations(records, limit=_EVENTS_LOOKED_AT).records
        if record.run_id == context.run.run_id and record.asset_materialization
    ][:1]
    return {name: value for name, value in tags.items() if not name.startswith(_DIMENSION)}


def _dimensions(key: str) -> dict[str, str]:
    """Return the tags by which an event is known to be of a partition of several dimensions."""
    if not isinstance(key, dg.MultiPartitionKey):
        return {}
    return {f"{_DIMENSION}{name}": value for name, value in key.keys_by_dimension.items()}


def _overview(artifacts: Mapping[str, Built]) -> str:
    """Return a table of what became of every partition, and how many rows each has."""
    rows = [{"partition": key, "state": _state(built), **built.record.counts} for key, built in artifacts.items()]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    if len(columns) > _MOST_COLUMNS:
        # what is counted by families, datasets or reasons stands in the table of each partition
        columns = [column for column in columns if "." not in column]
    return table([{column: row.get(column) for column in columns} for row in rows])


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
        place, problem = error.filename or "the file system", error.strerror or str(error)
        raise dg.Failure(f"{place}: {problem}; mend it and run again, what was made before is untouched") from error


def metadata_of(built: Built) -> Mapping[str, Any]:
    """Return counts as numbers, for plots over time, tables of them and of what it was made from, and where the files are."""
    record, counts = built.record, built.record.counts
    lines = [{"count of": name, "number": number} for name, number in counts.items()]
    files = [{"file": f"`{name}`", "bytes": file.size_bytes} for name, file in record.files.items()]
    inputs = [{"made from": name, "identity": f"`{identity[:12]}`"} for name, identity in record.inputs.items()]
    return {
        # a count may be called what a table is called
        **{name: number for name, number in counts.items() if name != "rows"},
        ROW_COUNT: counts.get("rows", 0),
        "dagster/uri": built.folder.as_uri(),
        "folder": dg.MetadataValue.path(str(built.folder)),
        "record": dg.MetadataValue.path(str(built.folder / RECORD_NAME)),
        "files": dg.MetadataValue.md(table(files)),
        "counts": dg.MetadataValue.md(table(lines)),
        "made_from": dg.MetadataValue.md(table(inputs)),
        "state": _state(built),
        **_by_reason(record),
        **_on_terms(record),
    }


def _by_reason(record: ArtifactRecord) -> dict[str, Any]:
    """Return a table of what was left out, where anything was, and a warning where that is most of a dataset."""
    lines = [
        {"left out": how.replace("_", " "), "reason": reason, "rows": number}
        for how, reason, number in left_out(record.counts)
    ]
    warning = " ".join(f"{loss}." for loss in main_losses([record]))
    return {
        **({"left_out": dg.MetadataValue.md(table(lines))} if lines else {}),
        **({"warning": warning} if warning else {}),
    }


def _on_terms(record: ArtifactRecord) -> dict[str, Any]:
    """Return where a dataset came from and on what terms, and its rows by license."""
    if not isinstance(record, DatasetRecord):
        return {}
    facts = {
        "source": record.source, "version": record.version, "license": with_licenses(record.license),
        "downloaded": f"{record.downloaded_at:%Y-%m-%d %H:%M} UTC", "sha256": f"`{record.sha256[:16]}…`",
    }  # fmt: skip
    metadata = {"terms": dg.MetadataValue.md(table([{"": name, "is": value} for name, value in facts.items()]))}
    if isinstance(record, NormalizedRecord):
        metadata["licenses"] = dg.MetadataValue.md(table(license_rows(record.licenses)))
    return metadata


def _state(built: Built) -> str:
    return f"made: {built.reason}" if built.is_fresh else "unchanged"


def _sentence(built: Built) -> str:
    counts = ", ".join(f"{number} {name}" for name, number in built.record.counts.items() if name in _LOGGED_COUNTS)
    return f"{built.record.kind} {built.record.name}: {_state(built)}; {counts}"


def _log_progress(context: dg.AssetExecutionContext) -> Callable[[int, int], None]:
    """Return what reports progress to the log of the run, every few seconds."""
    last = time.monotonic()

    def advance(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _LOG_EVERY_S:
            last = time.monotonic()
            context.log.info(f"{done} of {total}" if total else f"{done}")

    return advance
