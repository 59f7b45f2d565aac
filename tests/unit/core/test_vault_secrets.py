"""Vault: a server on the loopback that speaks the read half of the KV version 2 protocol, and what is said of it."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from graftline.core.errors import BoundaryError, ConfigError
from graftline.core.secrets import Secrets, VaultSecrets, open_secrets
from tests.http_server import HttpAnswer, HttpRequest, json_answer, serve_answers

TOKEN = "s.token-of-the-test"


class Vault:
    """Answers `GET /v1/<mount>/data/<path>` to who shows the token."""

    def __init__(self) -> None:
        self.secrets: dict[str, dict[str, Any]] = {
            "/v1/secret/data/graftline": {"TINKER_API_KEY": "tml-0123456789", "EMPTY": "", "PORT": 8200}
        }
        self.requests: list[str] = []
        self.failure: HttpAnswer | None = None
        self.address = ""

    def answer(self, request: HttpRequest) -> HttpAnswer:
        self.requests.append(request.path)
        if self.failure:
            return self.failure
        if request.headers["X-Vault-Token"] != TOKEN:
            return json_answer({"errors": ["permission denied"]}, 403)
        if request.path not in self.secrets:
            return json_answer({"errors": []}, 404)
        # as the KV version 2 documentation shows it
        version = {"created_time": "2026-01-02T03:04:05Z", "deletion_time": "", "destroyed": False, "version": 1}
        return json_answer({"data": {"data": self.secrets[request.path], "metadata": version}})


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> Iterator[Vault]:
    for name in ("VAULT_ADDR", "VAULT_TOKEN", "VAULT_NAMESPACE", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    vault = Vault()
    with serve_answers(vault.answer) as vault.address:
        yield vault


def opened(vault: Vault, root: Path, **more: str) -> Secrets:
    return open_secrets({"VAULT_ADDR": vault.address, "VAULT_TOKEN": TOKEN, **more}, root)


def value(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None


def test_vault_is_asked_once_for_all_names_and_only_when_it_is_needed(vault: Vault, tmp_path: Path) -> None:
    secrets = opened(vault, tmp_path, HERE="x")
    secrets.get("HERE")
    before = list(vault.requests)
    for name in ("TINKER_API_KEY", "NOT_THERE", "TINKER_API_KEY"):
        secrets.get(name)
    assert (before, vault.requests) == ([], ["/v1/secret/data/graftline"])


@pytest.mark.parametrize(("name", "expected"), [("NOT_THERE", None), ("EMPTY", None), ("NULL", None), ("PORT", "8200")])
def test_what_vault_holds_is_text_or_not_there(vault: Vault, tmp_path: Path, name: str, expected: str | None) -> None:
    vault.secrets["/v1/secret/data/graftline"]["NULL"] = None
    assert value(opened(vault, tmp_path).get(name)) == expected


def test_the_environment_and_the_file_go_before_vault(vault: Vault, tmp_path: Path) -> None:
    vault.secrets["/v1/secret/data/graftline"] = {"A": "vault", "B": "vault", "C": "vault"}
    (tmp_path / ".env").write_text("A=file\nB=file\n", "utf-8")
    secrets = opened(vault, tmp_path, A="process")
    assert [value(secrets.get(name)) for name in "ABC"] == ["process", "file", "vault"]


def test_address_and_token_may_stand_in_the_file(vault: Vault, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"VAULT_ADDR={vault.address}\nVAULT_TOKEN={TOKEN}\n", "utf-8")
    assert value(open_secrets({}, tmp_path).get("TINKER_API_KEY")) == "tml-0123456789"


def test_another_path_may_be_named(vault: Vault, tmp_path: Path) -> None:
    vault.secrets["/v1/team/data/training/keys"] = {"TINKER_API_KEY": "of the team"}
    secrets = opened(vault, tmp_path, GRAFTLINE_VAULT_PATH="team/training/keys")
    assert value(secrets.get("TINKER_API_KEY")) == "of the team"


POLICY = "check VAULT_TOKEN, GRAFTLINE_VAULT_PATH and the token's policy"
NO_SECRET = "answers with something else than a KV version 2 secret; check VAULT_ADDR and the mount"


@pytest.mark.parametrize(
    ("failure", "token", "path", "reason"),
    [
        (None, "s.another-token", "secret/graftline", f"Forbidden; {POLICY}"),
        (None, TOKEN, "secret/elsewhere", f"InvalidPath; {POLICY}"),
        ((b'{"errors": ["no"]}', 400), TOKEN, "secret/graftline", f"InvalidRequest; {POLICY}"),
        ((b'{"errors": ["no"]}', 500), TOKEN, "secret/graftline", f"InternalServerError; {POLICY}"),
        ((b'{"errors": ["no"]}', 503), TOKEN, "secret/graftline", f"VaultDown; {POLICY}"),
        *(
            ((body, 200), TOKEN, "secret/graftline", NO_SECRET)
            for body in (
                *(b"<html>Welcome</html>", b"{}", b'{"data": null}'),
                *(b'{"data": {"TINKER_API_KEY": "of version 1"}}', b'{"data": {"data": ["a"]}}'),
            )
        ),
    ],
)
def test_what_is_no_secret_is_a_fault_outside(
    vault: Vault, failure: tuple[bytes, int] | None, token: str, path: str, reason: str
) -> None:
    vault.failure = failure and HttpAnswer(*failure)
    with pytest.raises(BoundaryError) as raised:
        VaultSecrets(vault.address, SecretStr(token), path).get("TINKER_API_KEY")
    assert str(raised.value) == f"vault {vault.address}: {path}: {reason}"


def test_a_server_that_cannot_be_reached_is_a_fault_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        # bound but not listening: whoever connects is refused, and nobody else can take the port
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(BoundaryError) as raised:
            VaultSecrets(address, SecretStr(TOKEN)).get("TINKER_API_KEY")
    assert str(raised.value) == (
        f"vault {address}: secret/graftline: cannot be reached (ConnectionError); check VAULT_ADDR"
    )


def test_no_message_holds_the_token(vault: Vault) -> None:
    vault.failure = json_answer({"errors": [f"bad token {TOKEN}"]}, 403)
    with pytest.raises(BoundaryError) as raised:
        VaultSecrets(vault.address, SecretStr(TOKEN)).get("TINKER_API_KEY")
    assert (TOKEN in str(raised.value), raised.value.__cause__, raised.value.__suppress_context__) == (
        False,
        None,
        True,
    )


def test_vault_is_asked_again_after_it_failed(vault: Vault) -> None:
    source = VaultSecrets(vault.address, SecretStr(TOKEN))
    vault.failure = HttpAnswer(b"{}", 503)
    with pytest.raises(BoundaryError):
        source.get("TINKER_API_KEY")
    vault.failure = None
    assert value(source.get("TINKER_API_KEY")) == "tml-0123456789"


def test_an_address_without_a_token_is_a_fault_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        open_secrets({"VAULT_ADDR": "http://127.0.0.1:8200"}, tmp_path)
    assert str(raised.value) == "VAULT_ADDR is set, but VAULT_TOKEN is not; set both or neither"


@pytest.mark.parametrize("path", ["secret", "secret/", ""])
def test_a_path_without_a_folder_is_a_fault_of_the_configuration(path: str) -> None:
    with pytest.raises(ConfigError) as raised:
        VaultSecrets("http://127.0.0.1:8200", SecretStr(TOKEN), path)
    assert str(raised.value) == f"GRAFTLINE_VAULT_PATH: {path!r} has no folder; expected 'mount/folder'"
