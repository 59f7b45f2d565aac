"""The library's configuration as Dagster's, so that a launchpad knows names, kinds and alternatives of every setting.

Not here: what the settings mean, and their ranges, which the library's own models check when a run begins.
https://docs.dagster.io/guides/operate/configuration/advanced-config-types
"""

from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import dagster as dg
from pydantic import BaseModel, Field, create_model
from pydantic.fields import FieldInfo

from graftline.pipeline.manifests import Manifest


def form_of(port: str) -> Any:
    """Return the settings of a port of manifests as the type of a field; where there are several kinds, one is chosen."""
    return _convert_type(Manifest.model_fields[port].annotation)


def fill_form(settings: BaseModel) -> dg.Config:
    """Return settings of the library in Dagster's form."""
    return _form(type(settings))(**settings.model_dump(mode="json"))


@cache
def _form(model: type[BaseModel]) -> type[dg.Config]:
    fields: dict[str, Any] = {
        name: (_convert_type(field.annotation), _describe_field(field)) for name, field in model.model_fields.items()
    }
    return create_model(model.__name__, __base__=dg.Config, __doc__=model.__doc__, **fields)


def _describe_field(field: FieldInfo) -> Any:
    if field.is_required():
        return Field(description=field.description)
    default = field.get_default(call_default_factory=True)
    if isinstance(default, BaseModel):
        default = fill_form(default)
    elif isinstance(default, tuple):
        default = [*default]
    return Field(default=default, description=field.description)


def _convert_type(kind: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _form(kind)
    if origin in (Union, UnionType):
        alternatives = [_convert_type(argument) for argument in arguments if argument is not NoneType]
        if len(alternatives) < len(arguments):
            return alternatives[0] | None
        return Union[tuple(alternatives)]  # noqa: UP007  # of a number that is known here only
    if origin is tuple:
        return list[_convert_type(arguments[0])]  # type: ignore[misc]
    if origin is dict:
        return dict[str, Any] if get_origin(arguments[1]) is not None else kind
    return kind
