"""Where a Harbor service is, and with which key it is asked: as given, else as the environment says."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Self
from urllib.parse import quote, unquote, urlsplit

from pydantic import SecretStr

from graftline.core.errors import ConfigError

URL_VARIABLES = ("GRAFTLINE_HARBOR_URL", "SYNTH_BACKEND_URL")
KEY_VARIABLES = ("GRAFTLINE_HARBOR_KEY", "SYNTH_API_KEY")
"""In the order of their precedence; the second ones are those that other programs set."""
DEPLOYMENTS = "/api/harbor/deployments"
_URL = re.compile(rf"(?P<backend>.+){DEPLOYMENTS}/(?P<deployment>[^/?#]+)/?")


def backend_url_of(url: str | None, environment: Mapping[str, str] | None = None) -> str:
    """Return the base URL of the service, without a slash at its end.

    Raises:
        ConfigError: none is given, and none is set.
    """
    values = os.environ if environment is None else environment
    url = url or next((values[name] for name in URL_VARIABLES if values.get(name)), "")
    if not url:
        raise ConfigError(f"backend_url: no Harbor service is named; give backend_url, or set {URL_VARIABLES[0]}")
    return url.rstrip("/")


def api_key_of(key: str | SecretStr | None, environment: Mapping[str, str] | None = None) -> SecretStr:
    """Return the key of the service. Raises ValueError where none is given, and none is set; or it cannot be sent."""
    values = os.environ if environment is None else environment
    plain = key.get_secret_value() if isinstance(key, SecretStr) else key
    value = plain or next((values[name] for name in KEY_VARIABLES if values.get(name)), "")
    if not value:
        raise ValueError(f"api_key: no key is given; give api_key, or set {' or '.join(KEY_VARIABLES)}")
    return sendable_key(value)


def sendable_key(key: str) -> SecretStr:
    """Return `key` as what a header takes.

    Raises:
        ValueError: it holds a blank, a line end, or a character beyond ASCII.
    """
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError("api_key: holds a character that no key has; expected printable ASCII without blanks")
    return SecretStr(key)


def check_url(url: str, allow_http: bool = False) -> str:
    """Return `url` without a slash at its end; a key goes there, so plain http is for this machine alone.

    Raises:
        ConfigError: it is no address of a service, or is not encrypted.
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("http", "https") or not url.isprintable() or " " in url:
        raise ConfigError(f"{_without_password(url)!r}: is no URL of a service; expected https://host[:port][/path]")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(
            f"{_without_password(url)!r}: holds a user, a query or a fragment; expected https://host[:port][/path]"
        )
    if parts.scheme == "http" and not (allow_http or is_loopback(host)):
        raise ConfigError(
            f"{url!r}: would send the key unencrypted to another machine; use https, a tunnel to this machine, or pass allow_http=True"
        )
    return url.rstrip("/")


def is_loopback(host: str) -> bool:
    """Return whether `host` is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _without_password(url: str) -> str:
    """Return `url` for a message: what stands before an `@` may be a password."""
    scheme, _, address = url.rpartition("@")
    return f"…@{address}" if scheme else address


def deployment_path(deployment_id: str) -> str:
    """Return the path of a deployment, named by its id or its name."""
    return f"{DEPLOYMENTS}/{quote(deployment_id, safe='')}"


@dataclass(frozen=True, slots=True)
class HarborDeploymentRef:
    """Names a deployment; what is None is read from the environment when it is needed."""

    deployment_id: str
    """Its id, or its name: that is the newest version."""
    backend_url: str | None = None
    api_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.deployment_id.strip("./ "):
            raise ValueError(f"deployment_id: {self.deployment_id!r} names no deployment")

    @classmethod
    def of_url(cls, url: str, api_key: str | None = None) -> Self | None:
        """Return what `…/api/harbor/deployments/<id>` names; None for the URL of another task app."""
        match = _URL.fullmatch(url)
        return cls(unquote(match["deployment"]), match["backend"], api_key) if match else None

    @property
    def task_app_url(self) -> str:
        """The deployment as a task app."""
        return backend_url_of(self.backend_url) + deployment_path(self.deployment_id)
