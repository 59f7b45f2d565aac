"""The Tinker service, or a server that speaks its wire, through the Tinker SDK: nothing waits for ever, errors say what to do.

By itself the SDK waits for minutes where nothing answers, for ever where a server dies, and tries again in silence what is
refused for a while. Here one look at the service comes first, everything has a deadline, and what the SDK raises becomes a
`TrainingError`, or a `DataError` where what was sent is at fault. Importing this module does not import the SDK, which takes
seconds; the server on this machine is `training/local`, what is trained on is made in `datums.py`.
"""

import logging
import os
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from http import HTTPStatus
from http.client import HTTPException
from json import JSONDecodeError
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, Self, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from pydantic import SecretStr

from graftline.errors import ConfigError, DataError, GraftlineError, TrainingError

if TYPE_CHECKING:
    from tinker import APIFuture, APIStatusError, Checkpoint, RestClient, SamplingClient, ServiceClient, TrainingClient
    from tinker.types import (
        ExternalWeightsUrlsResponse,
        GetServerCapabilitiesResponse,
        TrainingRun,
        TrainingRunsResponse,
        WeightsInfoResponse,
    )

logger = logging.getLogger(__name__)

DEFAULT_BASE_URL = "https://tinker.thinkingmachines.dev/services/tinker-prod"
_KEY, _BASE_URL, _TELEMETRY = "TINKER_API_KEY", "TINKER_BASE_URL", "TINKER_TELEMETRY"
_KEY_PREFIXES = ("tml-", "eyJ")
"""Of keys, and of JSON web tokens."""
_HEALTH = "/api/v1/healthz"
_LOOK_S = 2.0
_CLOSE_S = 10.0
_PAGE = 100
_MOST_DETAIL = 400
_NOT_FOR_USERS = re.compile(r"^Request failed: (.*) for self\.request_id=.*$", re.DOTALL)
_REMEDIES: Mapping[int, tuple[str, str]] = {
    HTTPStatus.UNAUTHORIZED: ("the API key is refused", f"check that {_KEY} holds a key of this service"),
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

Ending = Literal["success", "errored", "interrupted"]
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class Awaited(Protocol[_T_co]):
    """What comes later: futures of the SDK, and those of the standard library."""

    def result(self, timeout: float | None = None) -> _T_co:
        """Wait for it, for `timeout` seconds at most."""


class TinkerSDKClient:
    """What is asked of one service with one key; making it sends nothing.

    Args:
        api_key: None for that of `TINKER_API_KEY`; an empty one is no key.
        base_url: None for that of `TINKER_BASE_URL`, or else of the hosted service.
        deadline_s: how long anything may take, where nothing else is said.
        telemetry: the SDK sends errors with their stack traces to the service unless `TINKER_TELEMETRY` is `0`, which it
            becomes for the whole process when a client is made and nothing else is set; true leaves the variable alone.
        project_id: of the hosted service; None for that of `TINKER_PROJECT_ID`.

    Raises:
        ConfigError: the key has the wrong shape; `base_url` is no http address; the deadline is not above 0.
    """

    def __init__(
        self,
        api_key: str | SecretStr | None = None,
        base_url: str | None = None,
        *,
        deadline_s: float = 600.0,
        telemetry: bool = False,
        project_id: str | None = None,
    ) -> None:
        self._key = _checked_key(api_key)
        self._base_url = _checked_url(base_url)
        if not deadline_s > 0:
            raise ConfigError(f"deadline_s is {deadline_s:g}, but nothing is done in no time; give seconds above 0")
        self._deadline_s, self._project_id = deadline_s, project_id
        self._service: ServiceClient | None = None
        self._lock = threading.Lock()
        if not telemetry:
            os.environ.setdefault(_TELEMETRY, "0")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(base_url={self._base_url!r}, is_available={self.is_available})"

    @property
    def is_available(self) -> bool:
        """Whether there is a key; nothing is asked of the service."""
        return self._key is not None

    @property
    def api_key(self) -> SecretStr | None:
        """The key, for what talks to the same service by itself."""
        return self._key

    @property
    def base_url(self) -> str:
        """The address, without a slash at its end."""
        return self._base_url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.close("errored" if issubclass(kind, Exception) else "interrupted")

    def close(self, ending: Ending = "success") -> None:
        """End the session, if there is one; that it cannot be ended is logged, for the service ends silent ones itself."""
        with self._lock:
            service, self._service = self._service, None
        if service is None:
            return
        try:
            self.result(_in_thread(lambda: service.close(ending).result(_CLOSE_S)), "ending the session", _CLOSE_S)
        except GraftlineError as error:
            logger.warning("%s", error)

    def preflight(self) -> None:
        """Look whether a service answers at all; two seconds at most, and the key is not sent.

        Raises:
            TrainingError: none does, or it is ill.
        """
        try:
            status = _in_thread(lambda: _status_of(self._base_url + _HEALTH)).result(_LOOK_S)
        except TimeoutError:
            why = f"does not answer within {_LOOK_S:g} s"
        except URLError as error:
            why = f"cannot be reached ({error.reason})"
        except (OSError, HTTPException) as error:
            why = f"does not speak HTTP ({type(error).__name__})"
        else:
            # whether the key is right, the service says itself
            if status < HTTPStatus.BAD_REQUEST or status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                return
            if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status == HTTPStatus.TOO_MANY_REQUESTS:
                raise TrainingError(f"{self._base_url}: answers {status} to {_HEALTH}, so it is ill; try again later")
            why = f"answers {status} to {_HEALTH}, so it is no Tinker service"
        raise TrainingError(
            f"{self._base_url}: {why}; mend base_url or {_BASE_URL}, or start the server of this machine with `graftline"
            " tinker serve`"
        )

    def result(self, future: Awaited[_T], what: str, deadline_s: float | None = None) -> _T:
        """Return what `future` comes to, within `deadline_s`.

        Args:
            what: what was asked for, as the message of an error begins: `step 3`.

        Raises:
            DataError: what was sent is refused.
            TrainingError: it is not there in time, or the service refuses or fails.
        """
        limit_s = self._deadline_s if deadline_s is None else deadline_s
        try:
            return future.result(limit_s)
        except GraftlineError:
            raise
        except Exception as error:
            # the request that the SDK's errors carry has the key in its headers
            raise self._told(error, what, limit_s) from None

    def create_training_client(
        self,
        base_model: str,
        rank: int = 32,
        seed: int | None = None,
        train_mlp: bool = True,
        train_attn: bool = True,
        train_unembed: bool = True,
        user_metadata: Mapping[str, str] | None = None,
    ) -> "TrainingClient":
        """Return a client of a new adapter on `base_model`; like all that follow, it raises what `result` does.

        Raises:
            ConfigError: there is no key, or nothing to train.
        """
        if not (train_mlp or train_attn or train_unembed):
            raise ConfigError("train_mlp, train_attn and train_unembed are all false; one of them has to be trained")
        return self._asked(
            f"creating an adapter on {base_model!r}",
            lambda: self._sessions().create_lora_training_client(
                base_model, rank, seed, train_mlp, train_attn, train_unembed, _plain(user_metadata)
            ),
        )

    def from_state(
        self, path: str, with_optimizer: bool = True, user_metadata: Mapping[str, str] | None = None
    ) -> "TrainingClient":
        """Return a client of a new run that goes on from the checkpoint at `path`.

        Raises:
            ConfigError: there is no key, or `path` is no path of a checkpoint.
        """
        _check_path(path)

        def load() -> "APIFuture[TrainingClient]":
            service = self._sessions()
            if with_optimizer:
                return service.create_training_client_from_state_with_optimizer(
                    path, user_metadata=_plain(user_metadata)
                )
            return service.create_training_client_from_state(path, user_metadata=_plain(user_metadata))

        return self._asked(f"loading {path}", load)

    def sampling_client(self, model_path: str | None = None, base_model: str | None = None) -> "SamplingClient":
        """Return a client that samples from the checkpoint at `model_path`, or from `base_model` itself.

        Raises:
            ConfigError: there is no key, or neither is given, or `model_path` is no path of a checkpoint.
        """
        if model_path is not None:
            _check_path(model_path)
        elif base_model is None:
            raise ConfigError("neither model_path nor base_model says what to sample from; give one of them")
        return self._asked(
            f"sampling from {model_path or base_model}",
            lambda: self._sessions().create_sampling_client(model_path=model_path, base_model=base_model),
        )

    def training_run(self, run_id: str) -> "TrainingRun":
        """Return what the service knows of a run."""
        return self._asked(f"looking up run {run_id}", lambda: self._rest().get_training_run(run_id))

    def training_runs(self) -> "list[TrainingRun]":
        """Return all runs of this key."""
        found: list[TrainingRun] = []

        def following() -> "APIFuture[TrainingRunsResponse]":
            return self._rest().list_training_runs(_PAGE, len(found))

        while True:
            page = self._asked("listing runs", following)
            found += page.training_runs
            if not page.training_runs or len(found) >= page.cursor.total_count:
                return found

    def checkpoints(self, run_id: str) -> "list[Checkpoint]":
        """Return the checkpoints of a run."""
        listed = self._asked(f"listing checkpoints of {run_id}", lambda: self._rest().list_checkpoints(run_id))
        return listed.checkpoints

    def weights_info(self, path: str) -> "WeightsInfoResponse":
        """Return what a checkpoint is of: its model, its rank, and what is trained."""
        _check_path(path)
        return self._asked(f"looking up {path}", lambda: self._rest().get_weights_info_by_tinker_path(path))

    def external_urls(self, path: str) -> "ExternalWeightsUrlsResponse":
        """Return an address for every file of an export, signed and good for a while."""
        _check_path(path)
        return self._asked(f"asking for the files of {path}", lambda: self._rest().get_external_weights_urls(path))

    def delete_checkpoint(self, path: str) -> None:
        """Delete a checkpoint, for ever."""
        _check_path(path)
        self._asked(f"deleting {path}", lambda: self._rest().delete_checkpoint_from_tinker_path(path))

    def set_ttl(self, path: str, seconds: int | None) -> None:
        """Have a checkpoint deleted after `seconds` from now; None keeps it."""
        _check_path(path)
        self._asked(
            f"setting the time to live of {path}",
            lambda: self._rest().set_checkpoint_ttl_from_tinker_path(path, seconds),
        )

    def capabilities(self) -> "GetServerCapabilitiesResponse":
        """Return which models the service has."""
        return self._asked("asking which models there are", lambda: self._rest().get_server_capabilities())

    def _asked(self, what: str, submit: "Callable[[], APIFuture[_T]]") -> _T:
        """Return what `submit` asks for; also where the SDK blocks before it hands out a future."""
        if self._key is None:
            raise ConfigError(f"{what}: there is no API key; set {_KEY}")
        _require_sdk()
        self.preflight()

        def ask() -> _T:
            future = submit()
            try:
                return future.result(self._deadline_s)
            finally:
                # without this the SDK goes on trying; what is done does not mind
                future.future().cancel()

        return self.result(_in_thread(ask), what)

    def _sessions(self) -> "ServiceClient":
        from tinker import ServiceClient

        assert self._key is not None  # `_asked` looks
        with self._lock:
            if self._service is None:
                self._service = ServiceClient(
                    project_id=self._project_id, base_url=self._base_url, api_key=self._key.get_secret_value()
                )
            return self._service

    def _rest(self) -> "RestClient":
        # `RestClient()` makes its connection under a lock of the process: one service that hangs would hold up all others
        return self._sessions()._rest_client()

    def _told(self, error: Exception, what: str, limit_s: float) -> GraftlineError:
        from tinker import APIConnectionError, APIResponseValidationError, APIStatusError, RequestFailedError
        from tinker import __version__ as version
        from tinker.types import RequestErrorCategory

        kind: type[GraftlineError] = TrainingError
        status: int | None = None
        match _root(error, (APIStatusError, RequestFailedError, APIResponseValidationError, APIConnectionError)):
            case TimeoutError() | CancelledError():
                text = self._late(limit_s)
            case RequestFailedError() as failed:
                happened = _shown(_NOT_FOR_USERS.sub(r"\1", failed.message))
                if failed.category is RequestErrorCategory.User:
                    kind, text = DataError, f"is refused ({happened}); mend what was sent"
                else:
                    text = f"failed at {self._base_url} ({happened}); try again from the last checkpoint"
            case APIStatusError() as refused:
                status = refused.status_code
                kind, text = self._refused(refused)
            # the first where it is no JSON, though it says that it is
            case JSONDecodeError() | UnicodeDecodeError() | APIResponseValidationError():
                text = (
                    f"{self._base_url} answers what tinker {version} cannot read; check that it is a Tinker service, and"
                    " for this version of the SDK"
                )
            case APIConnectionError():
                text = f"the connection to {self._base_url} broke, again and again; check that it runs"
            case _:
                text = (
                    f"the SDK failed with {type(error).__name__} ({_shown(str(error))}); see its log (TINKER_LOG=debug)"
                )
        if self._key is not None:
            text = text.replace(self._key.get_secret_value(), "[secret]")
        told = kind(f"{what}: {text}")
        if isinstance(told, TrainingError):
            told.status = status
        return told

    def _refused(self, error: "APIStatusError") -> tuple[type[GraftlineError], str]:
        status = error.status_code
        detail = error.body.get("detail") if isinstance(error.body, dict) else None
        said = f"{self._base_url} answers {status}: {_shown(str(detail or error.message))}"
        if status in _OF_THE_DATA:
            return DataError, f"is refused ({said}); mend what was sent"
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return TrainingError, f"the service failed ({said}); try again later"
        happened, remedy = _REMEDIES.get(status, ("is refused", "see the documentation of the service"))
        return TrainingError, f"{happened} ({said}); {remedy}"

    def _late(self, limit_s: float) -> str:
        text = f"is not done after {limit_s:g} s"
        try:
            self.preflight()
        except TrainingError as error:
            return f"{text}, and {error}"
        return (
            f"{text}, though {self._base_url} is up; the SDK waits in silence for capacity, rate limits and billing: see"
            " the service's console, or give it a longer deadline"
        )


def _checked_key(given: str | SecretStr | None) -> SecretStr | None:
    if given is None:
        key, where = os.environ.get(_KEY, ""), _KEY
    else:
        key, where = given.get_secret_value() if isinstance(given, SecretStr) else given, "api_key"
    key = key.strip()
    if not key:
        return None
    if not (key.startswith(_KEY_PREFIXES) and key.isascii() and key.isprintable() and " " not in key):
        raise ConfigError(
            f"{where}: is no key of Tinker, which begins with {_KEY_PREFIXES[0]!r} (or is a JSON web token) and has no"
            " blanks; mend it, or leave it empty for none"
        )
    return SecretStr(key)


def _checked_url(given: str | None) -> str:
    url = given or os.environ.get(_BASE_URL) or DEFAULT_BASE_URL
    where = "base_url" if given else _BASE_URL
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


def _check_path(path: str) -> None:
    _require_sdk()
    from tinker import ParsedCheckpointTinkerPath

    try:
        ParsedCheckpointTinkerPath.from_tinker_path(path)
    except ValueError:
        raise ConfigError(
            f"{path!r} is no path of a checkpoint; expected tinker://RUN/KIND/NAME, with a KIND of weights,"
            " sampler_weights or external_weights"
        ) from None


def _require_sdk() -> None:
    try:
        import tinker  # noqa: F401 - whether it is there
    except ImportError as error:
        raise ConfigError(f"training needs {error.name}; pip install 'graftline[training]'") from None


def _in_thread(do: Callable[[], _T]) -> "Future[_T]":
    """Return the outcome of `do`, which a thread comes to that nobody has to wait for, not even the end of the process."""
    found: Future[_T] = Future()

    def work() -> None:
        try:
            found.set_result(do())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=work, name="tinker", daemon=True).start()
    return found


def _status_of(url: str) -> int:
    # proxies of services refuse the name that Python gives itself
    request = Request(url, headers={"User-Agent": "graftline"})
    try:
        with urlopen(request, timeout=_LOOK_S) as answer:
            status: int = answer.status
            return status
    except HTTPError as error:
        error.close()
        return error.code


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


def _plain(user_metadata: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if user_metadata is None else dict(user_metadata)
