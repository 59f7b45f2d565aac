"""Who is let in, how much may be sent, and what a refusal says."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from graftline.core.errors import ConfigError
from graftline.core.secrets import EnvironmentSecrets, Secrets
from graftline.harbor.executors.base import MemoryExecutorConfig
from graftline.harbor.leases import is_dead, new_owner
from graftline.harbor.service.serve import HarborSettings, harbor_key, listen, serve_in_thread
from tests.harbor_parts import KEY, deployment, service

AT = "/api/harbor/deployments"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong-key-of-somebody"},
        {"X-API-Key": f"{KEY[:-1]}-of-somebody"},
    ],
)
def test_who_has_no_key_learns_nothing(sqlite_url: str, headers: dict[str, str]) -> None:
    with service(sqlite_url) as client:
        answer = httpx.get(f"{client.base_url}{AT}", headers=headers)
        assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert KEY[:6] not in answer.text
        assert "somebody" not in answer.text


def test_a_body_that_is_too_large_is_refused_before_it_is_read(sqlite_url: str) -> None:
    with service(sqlite_url, archive_mb=1) as client:
        answer = client.post(AT, json=deployment(context_tar_base64="A" * (2 << 20)))
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")
        answer = client.post(AT, content=(b" " * 65536 for _ in range(400)))
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


def test_a_refusal_does_not_say_what_was_sent(sqlite_url: str) -> None:
    with service(sqlite_url) as client:
        answer = client.post(AT, json=deployment(limits={"timeout_s": "secret-word"}))
        assert answer.status_code == 422
        assert "secret-word" not in answer.text
        assert "limits.timeout_s" in answer.json()["error"]["message"]


def test_the_service_is_served_with_a_key_of_its_own(tmp_path: Path) -> None:
    settings = HarborSettings(port=0, executor=MemoryExecutorConfig())
    with serve_in_thread(settings, tmp_path, Secrets([])) as (url, key):
        answer = httpx.get(f"{url}{AT}", headers={"X-API-Key": key.get_secret_value()})
        assert answer.json()["deployments"] == []
    assert (tmp_path / "api_key").stat().st_mode & 0o777 == 0o600
    assert harbor_key(tmp_path, Secrets([])) == key


def test_a_configured_key_has_to_be_long_enough(tmp_path: Path) -> None:
    given = Secrets([EnvironmentSecrets({"GRAFTLINE_HARBOR_KEY": "short"})])
    with pytest.raises(ConfigError, match="GRAFTLINE_HARBOR_KEY: is shorter than 16 characters"):
        harbor_key(tmp_path, given)
    long = Secrets([EnvironmentSecrets({"GRAFTLINE_HARBOR_KEY": "k" * 16})])
    assert harbor_key(tmp_path, long) == SecretStr("k" * 16)


def test_other_machines_are_served_only_behind_something_that_encrypts() -> None:
    with pytest.raises(ConfigError, match="without encryption"):
        listen(HarborSettings(host="0.0.0.0"))
    listen(HarborSettings(host="0.0.0.0", port=0, behind_proxy=True)).close()
    with listen(HarborSettings(port=0)) as named:
        # or asyncio lets every small answer wait for 40 ms
        assert named.proto == socket.IPPROTO_TCP
    with listen(HarborSettings(port=0)) as taken, pytest.raises(ConfigError, match="cannot be had"):
        listen(HarborSettings(port=taken.getsockname()[1]))


def test_an_owner_is_dead_when_its_process_is_gone() -> None:
    own = new_owner()
    assert not is_dead(own)
    program = "from graftline.harbor.leases import new_owner; print(new_owner())"
    gone = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    assert is_dead(gone)
    host, process, _, rest = own.split(":")
    assert process == str(os.getpid())
    assert is_dead(f"{host}:{process}:1:{rest}")  # another process that had the number
    assert not is_dead(f"elsewhere:{process}:1:{rest}")


def test_the_document_of_the_service_names_every_route_and_its_refusals(sqlite_url: str) -> None:
    with service(sqlite_url) as client:
        document = httpx.get(f"{client.base_url}/openapi.json").json()
    paths = {(method, path) for path, methods in document["paths"].items() for method in methods}
    assert ("post", "/api/harbor/deployments/{deployment}/rollout") in paths
    assert len(paths) == 28
    for method, path in paths - {("get", "/health")}:
        answers = document["paths"][path][method]["responses"]
        assert {"401", "413", "422"} <= set(answers), (method, path)
    assert json.dumps(document)
