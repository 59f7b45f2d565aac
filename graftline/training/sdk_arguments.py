"""What the Tinker SDK is given: key, address and paths of checkpoints, refused before anything is asked if they cannot be right."""

import os
from urllib.parse import urlsplit

from pydantic import SecretStr

from graftline.core.errors import ConfigError, install_command

DEFAULT_BASE_URL = "https://tinker.thinkingmachines.dev/services/tinker-prod"
KEY_VARIABLE, BASE_URL_VARIABLE = "TINKER_API_KEY", "TINKER_BASE_URL"
KEY_ADVICE = (
    f"set {KEY_VARIABLE}; for `graftline tinker serve` of this machine, also {BASE_URL_VARIABLE} to the address that it"
    " prints: its key is in data/tinker/api_key"
)
KEY_PREFIXES = ("tml-", "eyJ")
"""Of keys, and of JSON web tokens."""


def checked_key(given: str | SecretStr | None) -> SecretStr | None:
    """Return the key that is given, or that of the environment; None where it is empty.

    Raises:
        ConfigError: it has the wrong shape.
    """
    if given is None:
        key, where = os.environ.get(KEY_VARIABLE, ""), KEY_VARIABLE
    else:
        key, where = given.get_secret_value() if isinstance(given, SecretStr) else given, "api_key"
    key = key.strip()
    if not key:
        return None
    if not (key.startswith(KEY_PREFIXES) and key.isascii() and key.isprintable() and " " not in key):
        raise ConfigError(
            f"{where}: is no key of Tinker, which begins with {KEY_PREFIXES[0]!r} (or is a JSON web token) and has no"
            " blanks; mend it, or leave it empty for none"
        )
    return SecretStr(key)


def checked_url(given: str | None) -> str:
    """Return the address that is given, or that of the environment, or that of the hosted service.

    Raises:
        ConfigError: it is no http address.
    """
    url = given or os.environ.get(BASE_URL_VARIABLE) or DEFAULT_BASE_URL
    where = "base_url" if given else BASE_URL_VARIABLE
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or not url.isprintable() or " " in url or parts.query or parts.fragment:
        raise ConfigError(f"{where}: {url!r} is no address; expected http:// or https://, a host, and perhaps a path")
    if "@" in parts.netloc:
        raise ConfigError(f"{where}: holds a user or a password, which the SDK does not send; leave them out")
    return url.rstrip("/")


def check_path(path: str) -> None:
    """Refuse what is no path of a checkpoint.

    Raises:
        ConfigError: it is none, or the SDK is missing.
    """
    require_sdk()
    from tinker import ParsedCheckpointTinkerPath

    try:
        ParsedCheckpointTinkerPath.from_tinker_path(path)
    except ValueError:
        raise ConfigError(
            f"{path!r} is no path of a checkpoint; expected tinker://RUN/KIND/NAME, with a KIND of weights,"
            " sampler_weights or external_weights"
        ) from None


def require_sdk() -> None:
    """Say what is missing where there is no SDK.

    Raises:
        ConfigError: there is none.
    """
    try:
        import tinker  # noqa: F401 - whether it is there
    except ImportError as error:
        raise ConfigError(f"training needs {error.name}; {install_command('training')}") from None
