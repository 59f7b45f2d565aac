"""Names under which other programs import this."""

from graftline.harbor.answers import HarborInstance
from graftline.harbor.instances import (
    create_harbor_instances,
    create_harbor_instances_async,
    list_harbor_instances,
    list_harbor_instances_async,
)

__all__ = [
    "HarborInstance",
    "create_harbor_instances",
    "create_harbor_instances_async",
    "list_harbor_instances",
    "list_harbor_instances_async",
]
