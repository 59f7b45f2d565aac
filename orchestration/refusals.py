"""Says in a sentence what `dagster` and `dg` refuse before a run begins, where they would end with a traceback alone.

A partition, an asset or a configuration file that does not fit ends the command in its own process, so no run can say what to do.
https://docs.python.org/3/library/sys.html#sys.excepthook
"""

import argparse
import difflib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

import dagster as dg

from graftline.core.errors import GraftlineError

_MOST_NAMES = 30


def explain_refusals() -> None:
    """Where this process is a command of Dagster, end it with a sentence and not a traceback for a mistake of who typed it."""
    if Path(sys.argv[0]).name not in ("dagster", "dg"):
        return
    print_traceback = sys.excepthook

    def explain(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        is_of_partitions = isinstance(error, dg.DagsterInvalidSubsetError | dg.DagsterUnknownPartitionError)
        # what is lacking, Dagster says by an error that is meant for its own mistakes
        lacks_partition = type(error).__name__ == "CheckError" and "--partition" in str(error)
        if not (isinstance(error, GraftlineError) or is_of_partitions or lacks_partition):
            print_traceback(kind, error, traceback)
            return
        lines = []
        if not isinstance(error, GraftlineError):
            from orchestration.definitions import defs

            lines = [*_describe_missing_partitions(defs, sys.argv[1:])]
        for line in lines or [str(error)]:
            print(f"error: {line}", file=sys.stderr)

    sys.excepthook = explain


def _describe_missing_partitions(definitions: dg.Definitions, arguments: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each selected asset that lacks a partition which the command line of Dagster names."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--select", "--assets", default="*")
    parser.add_argument("--partition", default="")
    parser.add_argument("--partition-range", default="")
    options, _ = parser.parse_known_args(arguments)
    keys = [key for key in (options.partition, *options.partition_range.split("...")) if key]
    graph = definitions.resolve_asset_graph()
    try:
        selected = dg.AssetSelection.from_coercible(options.select.split(",")).resolve(graph)
    except dg.DagsterInvalidSubsetError:
        return
    with dg.DagsterInstance.get() as instance:
        for asset in sorted(selected):
            partitions = graph.get(asset).partitions_def
            if partitions is None:
                continue
            keys_of_asset = partitions.get_partition_keys(dynamic_partitions_store=instance)
            if not keys:
                yield f"{asset.to_user_string()} has partitions; name one with --partition: {_list(keys_of_asset)}"
            for key in keys:
                if key not in keys_of_asset:
                    yield f"{asset.to_user_string()} has no partition {key!r}; {_suggest(key, keys_of_asset)}"


def _suggest(name: str, names: Sequence[str]) -> str:
    """Return what may have been meant by `name`, and what there is."""
    if not names:
        return "it has none yet: `python -m assets.partitions` adds one for each file of configuration"
    close = difflib.get_close_matches(name, names, n=1)
    guess = f"did you mean {close[0]!r}? It has" if close else "it has"
    return f"{guess} {_list(names)}"


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}"
