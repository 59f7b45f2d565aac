"""What the definition of an asset says beside its description: the columns of its rows, and the code that makes them.

https://docs.dagster.io/guides/build/assets/metadata-and-tags/table-metadata
"""

import inspect
import warnings
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import dagster as dg
from pydantic import BaseModel

from graftline.core.parquet import Column

WEEKLY = dg.FreshnessPolicy.time_window(fail_window=timedelta(days=7))
"""Of what follows something that changes elsewhere."""
_TYPES = {"text": "string", "word": "string", "whole": "int", "number": "float", "flag": "bool", "key": "uint64", "keys": "list<uint64>"}  # fmt: skip


def describe_asset(make: Callable[..., Any], rows: dg.TableSchema | None = None) -> dict[str, Any]:
    """Return the metadata of the definition of an asset that `make` makes."""
    columns = {"dagster/column_schema": rows} if rows is not None else {}
    return {"dagster/code_references": code_of(make), **columns}


def code_of(function: Callable[..., Any]) -> dg.CodeReferencesMetadataValue:
    """Return where `function` is written, for the UI to link to."""
    code = inspect.unwrap(function).__code__
    path = Path(code.co_filename)
    with warnings.catch_warnings():
        # that its form may change concerns us, not who loads the definitions
        warnings.simplefilter("ignore", dg.BetaWarning)
        place = dg.LocalFileCodeReference(
            file_path=str(path), line_number=code.co_firstlineno, label=f"{path.stem}.{function.__name__}"
        )
        return dg.CodeReferencesMetadataValue(code_references=[place])


def columns_of(columns: Mapping[str, Column]) -> dg.TableSchema:
    """Return the columns of a Parquet file."""
    return dg.TableSchema([_column(name, kind) for name, kind in columns.items()])


def fields_of(model: type[BaseModel]) -> dg.TableSchema:
    """Return the fields of the objects in a file of JSON lines."""
    return dg.TableSchema(
        [
            dg.TableColumn(
                name,
                _name_of(field.annotation),
                field.description,
                dg.TableColumnConstraints(nullable=not field.is_required()),
            )
            for name, field in model.model_fields.items()
        ]
    )


def _name_of(annotation: Any) -> str:
    """Return a type as somebody who reads a table says it."""
    members = get_args(annotation)
    if get_origin(annotation) is Literal:
        return f"one of {', '.join(map(str, members))}" if len(members) > 1 else str(members[0])
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(_name_of(member) for member in members if member is not NoneType)
    if members and get_origin(annotation) in (tuple, list, frozenset):
        return f"list of {_name_of(members[0])}"
    if members:
        return f"object of {_name_of(members[-1])}"
    return str(getattr(annotation, "__name__", annotation))


def key_of(stage: str, dataset: str) -> dg.AssetKey:
    """Return the key of what a stage makes of one dataset; the graph of the UI shows the last part of a key alone."""
    return dg.AssetKey(f"{stage}_{dataset}")


def source_key(dataset: str) -> dg.AssetKey:
    """Return the key of a dataset at its source, which is made elsewhere."""
    return dg.AssetKey(["source", dataset])


def _column(name: str, kind: Column) -> dg.TableColumn:
    bare = kind.removesuffix("?")
    return dg.TableColumn(
        name, _TYPES.get(bare, bare), constraints=dg.TableColumnConstraints(nullable=kind.endswith("?"))
    )
