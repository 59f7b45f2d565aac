"""What the Tinker SDK is given: key, address and paths of checkpoints, refused before anything is asked if they cannot be right."""

import os
import re
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from http import HTTPStatus
from json import JSONDecodeError
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import SecretStr

from graftline.core.errors import ConfigError, DataError, GraftlineError, TrainingError, install_command

if TYPE_CHECKING:
    from tinker import APIStatusError

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


_MOST_DETAIL = 400
_NOT_FOR_USERS = re.compile(r"^Request failed: (.*) for self\.request_id=.*$", re.DOTALL)
_REMEDIES: Mapping[int, tuple[str, str]] = {
    HTTPStatus.UNAUTHORIZED: ("the API key is refused", "check that TINKER_API_KEY holds a key of this service"),
    HTTPStatus.PAYMENT_REQUIRED: ("billing is not in order", "see the billing page of the service's console"),
    HTTPStatus.FORBIDDEN: ("the API key may not do this", "use a key of the project that it belongs to"),
    HTTPStatus.NOT_FOUND: ("there is no such thing", "check its name, and whether it has expired or was deleted"),
    HTTPStatus.CONFLICT: ("something of this name is there", "choose another name"),
    HTTPStatus.GONE: ("the service has forgotten it", "make a new client from the last checkpoint"),
    HTTPStatus.TOO_MANY_REQUESTS: ("too many requests", "wait, or do less at the same time"),
}
"""What a status means, and what to do."""
_OF_THE_DATA = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)


def told(error: Exception, what: str, base_url: str, key: SecretStr | None, late: Callable[[], str]) -> GraftlineError:
    """Return what `error` means, in words of ours.

    Args:
        error: What the SDK raised.
        what: What was asked for, as the message begins: `step 3`.
        base_url: Of the service.
        key: That is not to be told.
        late: Says how it is with a service that did not answer in time.
    """
    from tinker import APIConnectionError, APIResponseValidationError, APIStatusError, RequestFailedError
    from tinker import __version__ as version
    from tinker.types import RequestErrorCategory

    kind: type[GraftlineError] = TrainingError
    status: int | None = None
    match _root(error, (APIStatusError, RequestFailedError, APIResponseValidationError, APIConnectionError)):
        case TimeoutError() | CancelledError():
            text = late()
        case RequestFailedError() as failed:
            happened = _shown(_NOT_FOR_USERS.sub(r"\1", failed.message))
            if failed.category is RequestErrorCategory.User:
                kind, text = DataError, f"is refused ({happened}); mend what was sent"
            else:
                text = f"failed at {base_url} ({happened}); try again from the last checkpoint"
        case APIStatusError() as refused:
            status = refused.status_code
            kind, text = _refused(refused, base_url)
        # the first where it is no JSON, though it says that it is
        case JSONDecodeError() | UnicodeDecodeError() | APIResponseValidationError():
            text = (
                f"{base_url} answers what tinker {version} cannot read; check that it is a Tinker service, and"
                " for this version of the SDK"
            )
        case APIConnectionError():
            text = f"the connection to {base_url} broke, again and again; check that it runs"
        case _:
            text = f"the SDK failed with {type(error).__name__} ({_shown(str(error))}); see its log (TINKER_LOG=debug)"
    if key is not None:
        text = text.replace(key.get_secret_value(), "[secret]")
    said = kind(f"{what}: {text}")
    if isinstance(said, TrainingError):
        said.status = status
    return said


def _refused(error: "APIStatusError", base_url: str) -> tuple[type[GraftlineError], str]:
    status = error.status_code
    detail = error.body.get("detail") if isinstance(error.body, dict) else None
    said = f"{base_url} answers {status}: {_shown(str(detail or error.message))}"
    if status in _OF_THE_DATA:
        return DataError, f"is refused ({said}); mend what was sent"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return TrainingError, f"the service failed ({said}); try again later"
    happened, remedy = _REMEDIES.get(status, ("is refused", "see the documentation of the service"))
    return TrainingError, f"{happened} ({said}); {remedy}"


def _root(error: BaseException, known: tuple[type[BaseException], ...]) -> BaseException:
    """Return the first of `known` among what `error` was raised from, else `error`."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, known):
        found = found.__cause__
    return found or error


def _shown(text: str) -> str:
    """Return `text` for one line; of a traceback only what it ends with."""
    if "Traceback (most recent call last)" in text:
        text = text.strip().splitlines()[-1]
    text = " ".join(text.split())
    return text if len(text) <= _MOST_DETAIL else f"{text[:_MOST_DETAIL]} ..."
