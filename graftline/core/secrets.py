"""Secrets: from the environment, a `.env` file or HashiCorp Vault, and never into a log.

A secret is looked up by the name of its environment variable, first in the process environment, then in `.env`,
then, when `VAULT_ADDR` is set, in the KV version 2 store of Vault at `GRAFTLINE_VAULT_PATH`
(https://developer.hashicorp.com/vault/api-docs/secret/kv/kv-v2).
"""

import logging
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from pydantic import SecretStr

from graftline.core.errors import BoundaryError, ConfigError, install_command

VAULT_PATH = "secret/graftline"
_SECRET_NAME = re.compile(r"(^|_)(TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIALS?)$", re.IGNORECASE)
_SHORTEST_REDACTED = 6  # shorter values are words of ordinary messages


class SecretSource(Protocol):
    """Where secrets come from."""

    def get(self, name: str) -> SecretStr | None:
        """Return the secret called `name`, None where this source has none."""


class EnvironmentSecrets:
    """The process environment over a `.env` file."""

    def __init__(self, environment: Mapping[str, str], dotenv: Path | None = None) -> None:
        self._values = {**_dotenv_values(dotenv), **environment}

    def get(self, name: str) -> SecretStr | None:
        value = self._values.get(name)
        return SecretStr(value) if value else None

    def secret_values(self) -> list[str]:
        """Return the values whose names say that they are secret."""
        return [value for name, value in self._values.items() if _SECRET_NAME.search(name)]


class VaultSecrets:
    """One KV version 2 path of a Vault server, read once, on first use."""

    def __init__(self, address: str, token: SecretStr, path: str = VAULT_PATH) -> None:
        self._address, self._token = address, token
        self._mount, _, self._path = path.partition("/")
        if not self._path:
            raise ConfigError(f"GRAFTLINE_VAULT_PATH: {path!r} has no folder; expected 'mount/folder'")
        self._values: dict[str, str] | None = None

    def get(self, name: str) -> SecretStr | None:
        if self._values is None:
            self._values = self._read()
        value = self._values.get(name)
        return SecretStr(value) if value else None

    def _read(self) -> dict[str, str]:
        try:
            import hvac
            from hvac.exceptions import VaultError
            from requests.exceptions import RequestException
        except ImportError:
            raise ConfigError(f"VAULT_ADDR is set, but hvac is missing; {install_command('vault')}") from None
        client = hvac.Client(url=self._address, token=self._token.get_secret_value(), timeout=10)
        label = f"vault {self._address}: {self._mount}/{self._path}"
        try:
            response = client.secrets.kv.v2.read_secret_version(
                path=self._path, mount_point=self._mount, raise_on_deleted_version=True
            )
        except VaultError as error:
            raise BoundaryError(
                f"{label}: {type(error).__name__}; check VAULT_TOKEN, GRAFTLINE_VAULT_PATH and the token's policy"
            ) from None
        except RequestException as error:
            raise BoundaryError(f"{label}: cannot be reached ({type(error).__name__}); check VAULT_ADDR") from None
        try:
            return {key: str(value) for key, value in response["data"]["data"].items() if value is not None}
        except (AttributeError, KeyError, TypeError):
            raise BoundaryError(
                f"{label}: answers with something else than a KV version 2 secret; check VAULT_ADDR and the mount"
            ) from None


class Secrets:
    """The secrets of a process: the first source that knows a name answers. What was handed out, or is known to be
    secret from the start, is redacted.
    """

    def __init__(self, sources: list[SecretSource], redacted: Iterable[str] = ()) -> None:
        self._sources = sources
        self._redacted = set(redacted)

    def get(self, name: str) -> SecretStr | None:
        """Return the secret called `name`, None where no source has it."""
        for source in self._sources:
            if (secret := source.get(name)) is not None:
                self._redacted.add(secret.get_secret_value())
                return secret
        return None

    def require(self, name: str, purpose: str) -> SecretStr:
        """Return the secret called `name`.

        Raises:
            ConfigError: no source has it; the message says what it is for.
        """
        if (secret := self.get(name)) is not None:
            return secret
        raise ConfigError(f"{name}: is not set, but {purpose} needs it; put it into .env or Vault")

    def redact(self, text: str) -> str:
        """Return `text` with every secret that was handed out replaced."""
        values = sorted((value for value in self._redacted if len(value) >= _SHORTEST_REDACTED), key=len, reverse=True)
        return re.sub("|".join(map(re.escape, values)), "[secret]", text) if values else text


class RedactingFilter(logging.Filter):
    """Takes secrets out of log records, arguments and tracebacks included. Belongs on a handler."""

    def __init__(self, secrets: Secrets) -> None:
        super().__init__()
        self._secrets = secrets

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except (KeyError, TypeError, ValueError):
            # arguments that do not fit the message: logging would print them as they are
            message = f"{record.msg} {record.args!r}"
        record.msg, record.args = self._secrets.redact(message), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = self._secrets.redact(record.exc_text)
        return True


def open_secrets(environment: Mapping[str, str], root: Path) -> Secrets:
    """Return the secrets of `environment`, of `root/.env`, and of Vault when `VAULT_ADDR` is set.

    Raises:
        ConfigError: `VAULT_ADDR` is set without `VAULT_TOKEN`.
    """
    local = EnvironmentSecrets(environment, root / ".env")
    sources: list[SecretSource] = [local]
    if address := local.get("VAULT_ADDR"):
        token = local.get("VAULT_TOKEN")
        if token is None:
            raise ConfigError("VAULT_ADDR is set, but VAULT_TOKEN is not; set both or neither")
        path = local.get("GRAFTLINE_VAULT_PATH")
        sources.append(VaultSecrets(address.get_secret_value(), token, path.get_secret_value() if path else VAULT_PATH))
    return Secrets(sources, local.secret_values())


def local_secrets(environment: Mapping[str, str], root: Path) -> Secrets:
    """Return the secrets of `environment` and of `root/.env` alone: enough to keep them out of logs."""
    local = EnvironmentSecrets(environment, root / ".env")
    return Secrets([local], local.secret_values())


def secret_in(path: Path, prefix: str = "") -> str:
    """Return the secret in `path`; if there is none it is made, beginning with `prefix`, for this user's eyes only."""
    with suppress(FileNotFoundError):
        return path.read_text("utf-8").strip()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(prefix + secrets.token_hex(32))
        os.fsync(stream.fileno())
    # of two that make one at the same time, both take the first
    with suppress(FileExistsError):
        os.link(partial, path)
    partial.unlink()
    return path.read_text("utf-8").strip()


def _dotenv_values(path: Path | None) -> dict[str, str]:
    if path is None or not path.is_file():
        return {}
    from dotenv import dotenv_values

    try:
        # no interpolation: a secret may hold "$"
        values = dotenv_values(path, interpolate=False)
    except (OSError, UnicodeDecodeError) as error:
        reason = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else f"cannot be read ({error.strerror})"
        raise ConfigError(f"{path}: {reason}; expected lines NAME=value") from None
    return {name: value for name, value in values.items() if value}
