"""What the Tinker SDK is given, refused here where it cannot be right, and what it raises, in words that say what to do."""

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
_MAX_DETAIL = 400
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
_DATA_STATUSES = (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY)


def parse_key(value: str | SecretStr | None) -> SecretStr | None:
    """Return the key in `value`, or that of the environment for None; None where it is empty, ConfigError for a wrong shape."""
    if value is None:
        key, source = os.environ.get(KEY_VARIABLE, ""), KEY_VARIABLE
    else:
        key, source = value.get_secret_value() if isinstance(value, SecretStr) else value, "api_key"
    key = key.strip()
    if not key:
        return None
    if not (key.startswith(KEY_PREFIXES) and key.isascii() and key.isprintable() and " " not in key):
        raise ConfigError(
            f"{source}: is no key of Tinker, which begins with {KEY_PREFIXES[0]!r} (or is a JSON web token) and has no"
            " blanks; mend it, or leave it empty for none"
        )
    return SecretStr(key)


def parse_url(value: str | None) -> str:
    """Return `value`, the address of the environment or that of the hosted service; ConfigError for no http address."""
    url = value or os.environ.get(BASE_URL_VARIABLE) or DEFAULT_BASE_URL
    source = "base_url" if value else BASE_URL_VARIABLE
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or not url.isprintable() or " " in url or parts.query or parts.fragment:
        raise ConfigError(f"{source}: {url!r} is no address; expected http:// or https://, a host, and perhaps a path")
    if "@" in parts.netloc:
        raise ConfigError(f"{source}: holds a user or a password, which the SDK does not send; leave them out")
    return url.rstrip("/")


def check_path(path: str) -> None:
    """Raise ConfigError where `path` is no path of a checkpoint, or the SDK is missing."""
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
    """Raise ConfigError, with how to install it, where there is no SDK."""
    try:
        import tinker  # noqa: F401 - whether it is there
    except ImportError as error:
        raise ConfigError(f"training needs {error.name}; {install_command('training')}") from None


def translate_error(
    error: Exception, subject: str, base_url: str, key: SecretStr | None, explain_timeout: Callable[[], str]
) -> GraftlineError:
    """Return what `error` of the SDK means; the message begins with `subject`, and never holds `key`."""
    from tinker import APIConnectionError, APIResponseValidationError, APIStatusError, RequestFailedError
    from tinker import __version__ as version
    from tinker.types import RequestErrorCategory

    kind: type[GraftlineError] = TrainingError
    status: int | None = None
    match _cause(error, (APIStatusError, RequestFailedError, APIResponseValidationError, APIConnectionError)):
        case TimeoutError() | CancelledError():
            text = explain_timeout()
        case RequestFailedError() as failure:
            reason = _shorten(_NOT_FOR_USERS.sub(r"\1", failure.message))
            if failure.category is RequestErrorCategory.User:
                kind, text = DataError, f"is refused ({reason}); mend what was sent"
            else:
                text = f"failed at {base_url} ({reason}); try again from the last checkpoint"
        case APIStatusError() as response:
            status = response.status_code
            kind, text = _explain_status(response, base_url)
        # the first where it is no JSON, though it says that it is
        case JSONDecodeError() | UnicodeDecodeError() | APIResponseValidationError():
            text = (
                f"{base_url} answers what tinker {version} cannot read; check that it is a Tinker service, and"
                " for this version of the SDK"
            )
        case APIConnectionError():
            text = f"the connection to {base_url} broke, again and again; check that it runs"
        case _:
            text = (
                f"the SDK failed with {type(error).__name__} ({_shorten(str(error))}); see its log (TINKER_LOG=debug)"
            )
    if key is not None:
        text = text.replace(key.get_secret_value(), "[secret]")
    translated = kind(f"{subject}: {text}")
    if isinstance(translated, TrainingError):
        translated.status = status
    return translated


def _explain_status(error: "APIStatusError", base_url: str) -> tuple[type[GraftlineError], str]:
    status = error.status_code
    detail = error.body.get("detail") if isinstance(error.body, dict) else None
    answer = f"{base_url} answers {status}: {_shorten(str(detail or error.message))}"
    if status in _DATA_STATUSES:
        return DataError, f"is refused ({answer}); mend what was sent"
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return TrainingError, f"the service failed ({answer}); try again later"
    meaning, remedy = _REMEDIES.get(status, ("is refused", "see the documentation of the service"))
    return TrainingError, f"{meaning} ({answer}); {remedy}"


def _cause(error: BaseException, kinds: tuple[type[BaseException], ...]) -> BaseException:
    """Return the first error of `kinds` in the chain of causes of `error`, else `error`."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, kinds):
        cause = cause.__cause__
    return cause or error


def _shorten(text: str) -> str:
    """Return `text` on one line; of a traceback only its last line."""
    if "Traceback (most recent call last)" in text:
        text = text.strip().splitlines()[-1]
    text = " ".join(text.split())
    return text if len(text) <= _MAX_DETAIL else f"{text[:_MAX_DETAIL]} ..."
