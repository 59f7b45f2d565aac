"""The Harbor service under requests that nobody well-meaning sends, and under those that its own document allows."""

import base64
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.core.failures import FailureGroup

from tests.harbor_parts import KEY, deployed, deployment, service
from tests.hostile_requests import DEPLOYMENTS, ROLLOUTS, hostile_requests
from tests.security.test_hostile_archives import HOSTILE

EXAMPLES = 8
NOT_BY_SCHEMA = {
    "POST /api/harbor/deployments": "whether a text is a sound tar.gz",
    "POST /api/harbor/deployments/{deployment}/instances/batch": "either a count or seeds",
    "POST /api/eval/jobs": "a deployment of this service, by id or by address",
}
"""What the document cannot say of a request, so that one it allows may be refused."""


def listing(folder: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.lstat().st_mode) for path in folder.rglob("*") if "harbor.sqlite" not in path.name)


def test_every_hostile_request_is_refused_and_changes_nothing(sqlite_url: str, tmp_path: Path) -> None:
    with service(sqlite_url, archive_mb=1) as client:
        deployment = deployed(client)
        before = listing(tmp_path)
        requests = hostile_requests(deployment)
        wrong = {}
        for name, request in requests.items():
            answer = client.request(
                request.method, request.path, content=request.content, headers=dict(request.headers)
            )
            if not 400 <= answer.status_code < 500 or list(answer.json()) != ["error"]:
                wrong[name] = (answer.status_code, answer.text[:200])
        assert wrong == {}
        assert len(requests) >= 150
        assert client.get(DEPLOYMENTS).json()["total"] == 1
        assert client.get(ROLLOUTS).json()["rollouts"] == []
        assert client.get(f"{DEPLOYMENTS}/{deployment}/instances").json()["total"] == 0
    assert listing(tmp_path) == before


def test_every_hostile_archive_is_refused_by_the_service_too(sqlite_url: str, tmp_path: Path) -> None:
    with service(sqlite_url) as client:
        before = listing(tmp_path)
        answers = {
            name: client.post(
                DEPLOYMENTS, json=deployment(context_tar_base64=base64.b64encode(data).decode() or "====")
            ).status_code
            for name, data in HOSTILE.items()
        }
        assert {name: status for name, status in answers.items() if status != 422} == {}
        assert client.get(DEPLOYMENTS).json()["total"] == 0
    assert listing(tmp_path) == before


def test_a_replayed_key_never_runs_another_body(sqlite_url: str) -> None:
    with service(sqlite_url) as client:
        at = f"{DEPLOYMENTS}/{deployed(client)}/rollout"
        client.post(at, json={"trace_correlation_id": "once", "env": {"seed": 1}})
        bodies = [{"env": {"seed": seed}} for seed in range(2, 12)] + [{"policy": {"config": {"model": "m"}}}]
        for body in bodies:
            assert client.post(at, json={"trace_correlation_id": "once", **body}).status_code == 422
        assert len(client.get(ROLLOUTS).json()["rollouts"]) == 1


@pytest.mark.parametrize("verb", ["get", "post"])
def test_what_the_document_allows_is_answered_as_it_says(sqlite_url: str, verb: str) -> None:
    with service(sqlite_url) as client:
        deployed(client)
        schema = schemathesis.openapi.from_url(f"{client.base_url}/openapi.json")
        operations = [operation.ok() for operation in schema.get_all_operations()]
        requests_sent = 0
        for operation in operations:
            if operation.method != verb or operation.path.endswith(("/events", "/stream")):
                continue

            @settings(
                max_examples=EXAMPLES,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy())
            def answered(case: schemathesis.Case) -> None:
                nonlocal requests_sent
                requests_sent += 1
                response = case.call(headers={"X-API-Key": KEY}, timeout=30)
                left_out = (
                    [schemathesis.checks.positive_data_acceptance] if case.operation.label in NOT_BY_SCHEMA else []
                )
                case.validate_response(response, headers={"X-API-Key": KEY}, excluded_checks=left_out)

            try:
                answered()
            except FailureGroup as failures:
                pytest.fail(f"{operation.label}: {failures}")
        assert requests_sent >= 50
