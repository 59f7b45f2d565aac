"""The Harbor service under requests that nobody well-meaning sends, and under those that its own document allows."""

import base64
from pathlib import Path

import pytest

from tests.allowed_requests import send_allowed
from tests.harbor_parts import deployed, deployment, service
from tests.hostile_requests import DEPLOYMENTS, ROLLOUTS, hostile_requests
from tests.security.test_hostile_archives import HOSTILE


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
        sent = send_allowed(str(client.base_url), 8, (verb,))
    assert sent.failures == {}
    assert sent.count >= 50
