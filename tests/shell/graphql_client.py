"""What the UI asks: GraphQL against the real schema, an instance and the definitions of a root, in this process."""

import asyncio
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster_graphql.schema import create_schema

from orchestration.build import build_definitions

Query = Callable[[str], dict[str, Any]]


def definitions_of_root() -> dg.Definitions:
    """Return the definitions of the root that GRAFTLINE_ROOT names; what is loaded by its name takes no arguments."""
    return build_definitions()


@contextmanager
def open_graphql(instance: dg.DagsterInstance) -> Iterator[Query]:
    """Yield what answers a query as the server of the UI does, each as a request of its own."""
    schema = create_schema()
    target = LoadableTargetOrigin(module_name=__name__, attribute=definitions_of_root.__name__)
    origin = InProcessCodeLocationOrigin(target, location_name="graftline")
    with warnings.catch_warnings():
        # Dagster reads it of every schedule, whether or not it was set
        warnings.filterwarnings("ignore", "Property `ScheduleDefinition.environment_vars`", DeprecationWarning)
        process = WorkspaceProcessContext(instance, InProcessWorkspaceLoadTarget(origin), read_only=True)
    with process:

        def query(text: str) -> dict[str, Any]:
            answer = asyncio.run(schema.execute_async(text, context_value=process.create_request_context()))
            assert answer.errors is None, answer.errors
            return dict(answer.data)

        yield query
