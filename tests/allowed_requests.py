"""Requests that the document of the Harbor service allows, and whether they are answered as it says (schemathesis)."""

from dataclasses import dataclass, field
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from tests.harbor_parts import KEY

_NOT_BY_SCHEMA = {
    "POST /api/harbor/deployments": "whether a text is a sound tar.gz",
    "POST /api/harbor/deployments/{deployment}/instances/batch": "either a count or seeds",
    "POST /api/eval/jobs": "a deployment of this service, by id or by address",
}
"""What the document cannot say of a request, so that one it allows may be refused."""


@dataclass
class AllowedRequests:
    """How many were sent, and what was wrong with the answers by operation."""

    count: int = 0
    failures: dict[str, BaseExceptionGroup[Any]] = field(default_factory=dict)


def send_allowed(url: str, examples: int, verbs: tuple[str, ...] = ()) -> AllowedRequests:
    """Send `examples` requests for each operation of the service at `url`, or for those of `verbs` alone."""
    sent = AllowedRequests()
    for operation in (each.ok() for each in schemathesis.openapi.from_url(f"{url}/openapi.json").get_all_operations()):
        if (verbs and operation.method not in verbs) or operation.path.endswith(("/events", "/stream")):
            continue

        @settings(
            max_examples=examples,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def answered(case: schemathesis.Case) -> None:
            sent.count += 1
            left_out = [schemathesis.checks.positive_data_acceptance] if case.operation.label in _NOT_BY_SCHEMA else []
            case.call_and_validate(headers={"X-API-Key": KEY}, timeout=30, excluded_checks=left_out)

        try:
            answered()
        except BaseExceptionGroup as failures:
            sent.failures[operation.label] = failures
    return sent
