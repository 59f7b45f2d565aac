"""The Tinker service, or a server that speaks its wire, through the Tinker SDK: nothing waits for ever, errors say what to do.

By itself the SDK waits for minutes where nothing answers, for ever where a server dies, and retries in silence what is
refused for a while. Here a health check comes first, everything has a deadline, and what the SDK raises becomes a
`TrainingError`, or a `DataError` where what was sent is at fault. Importing this module does not import the SDK, which takes
seconds; the server of this machine is `training/local`.
"""

import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from http import HTTPStatus
from http.client import HTTPException
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from pydantic import SecretStr

from graftline.core.errors import ConfigError, GraftlineError, TrainingError
from graftline.training.sdk import (
    BASE_URL_VARIABLE,
    KEY_ADVICE,
    check_path,
    parse_key,
    parse_url,
    require_sdk,
    translate_error,
)

if TYPE_CHECKING:
    from tinker import APIFuture, RestClient, ServiceClient, TrainingClient
    from tinker import SamplingClient as SamplingClient
    from tinker.types import (
        ExternalWeightsUrlsResponse,
        GetServerCapabilitiesResponse,
        TrainingRun,
        WeightsInfoResponse,
    )

logger = logging.getLogger(__name__)

Ending = Literal["success", "errored", "interrupted"]
_TELEMETRY = "TINKER_TELEMETRY"
_HEALTH = "/api/v1/healthz"
_MAX_HEALTH_BYTES = 65_536
_HEALTH_CHECK_S = 2.0
_CLOSE_S = 10.0
_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class ResultFuture(Protocol[_T_co]):
    """The future of a call: of the SDK, or of the standard library."""

    def result(self, timeout: float | None = None) -> _T_co: ...


class TinkerSDKClient:
    """The port `training_client`: one service, asked with one key. Making it sends nothing.

    A loss, however poor, is a result. Its methods raise `ConfigError` where there is no key or a path is no path of a
    checkpoint, `DataError` where the service refuses what was sent, and `TrainingError` where it fails or does not answer
    within the deadline, with `status` 404 where there is no such checkpoint.

    Without `api_key` and `base_url` they are those of `TINKER_API_KEY` and `TINKER_BASE_URL`, or else of the hosted service. The
    SDK sends errors with their stack traces to the service unless `TINKER_TELEMETRY` is `0`, which a client sets for the whole
    process where nothing else is set.
    """

    def __init__(
        self,
        api_key: str | SecretStr | None = None,
        base_url: str | None = None,
        *,
        deadline_s: float = 600.0,
    ) -> None:
        self._key = parse_key(api_key)
        self._base_url = parse_url(base_url)
        if not deadline_s > 0:
            raise ConfigError(f"deadline_s is {deadline_s:g}, but nothing is done in no time; give seconds above 0")
        self._deadline_s = deadline_s
        self._service: ServiceClient | None = None
        self._lock = threading.Lock()
        os.environ.setdefault(_TELEMETRY, "0")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(base_url={self._base_url!r}, is_available={self.is_available})"

    @property
    def is_available(self) -> bool:
        """Whether there is a key; nothing is asked of the service."""
        return self._key is not None

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
        """End the session, if there is one; a failure is only logged, for the service ends silent sessions itself."""
        with self._lock:
            service, self._service = self._service, None
        if service is None:
            return
        try:
            self.result(_run_in_thread(lambda: service.close(ending).result(_CLOSE_S)), "ending the session", _CLOSE_S)
        except GraftlineError as error:
            logger.warning("%s", error)

    def preflight(self) -> None:
        """Raise TrainingError unless a service that is well answers within two seconds; the key is not sent."""
        try:
            status, _ = _run_in_thread(lambda: _get(self._base_url + _HEALTH)).result(_HEALTH_CHECK_S)
        except TimeoutError:
            why = f"does not answer within {_HEALTH_CHECK_S:g} s"
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
            f"{self._base_url}: {why}; mend base_url or {BASE_URL_VARIABLE}, or start the server of this machine with `graftline"
            " tinker serve`"
        )

    def result(self, future: ResultFuture[_T], subject: str, deadline_s: float | None = None) -> _T:
        """Return the result of `future` within `deadline_s`; messages of errors begin with `subject`, such as `step 3`."""
        limit_s = self._deadline_s if deadline_s is None else deadline_s
        try:
            return future.result(limit_s)
        except GraftlineError:
            raise
        except Exception as error:
            # the request that the SDK's errors carry has the key in its headers
            raise translate_error(
                error, subject, self._base_url, self._key, lambda: self._explain_timeout(limit_s)
            ) from None

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
        """Return a client of a new adapter on `base_model`; ConfigError where nothing is to be trained."""
        if not (train_mlp or train_attn or train_unembed):
            raise ConfigError("train_mlp, train_attn and train_unembed are all false; one of them has to be trained")
        return self._call(
            f"creating an adapter on {base_model!r}",
            lambda: self._sessions().create_lora_training_client(
                self.served_name(base_model),
                rank,
                seed,
                train_mlp,
                train_attn,
                train_unembed,
                dict(user_metadata or {}) or None,
            ),
        )

    def from_state(
        self, path: str, with_optimizer: bool = True, user_metadata: Mapping[str, str] | None = None
    ) -> "TrainingClient":
        """Return a client of a new run that resumes from the checkpoint at `path`."""
        check_path(path)
        metadata = dict(user_metadata or {}) or None

        def load() -> "APIFuture[TrainingClient]":
            service = self._sessions()
            # a missing checkpoint gets status 404 here; loading it would be a refused call like any other
            self._rest().get_weights_info_by_tinker_path(path).result(self._deadline_s)
            if with_optimizer:
                return service.create_training_client_from_state_with_optimizer(path, user_metadata=metadata)
            return service.create_training_client_from_state(path, user_metadata=metadata)

        return self._call(f"loading {path}", load)

    def sampling_client(self, model_path: str | None = None, base_model: str | None = None) -> "SamplingClient":
        """Return a client that samples from the checkpoint at `model_path`, or from `base_model` itself."""
        if model_path is not None:
            check_path(model_path)
        elif base_model is None:
            raise ConfigError("neither model_path nor base_model says what to sample from; give one of them")
        return self._call(
            f"sampling from {model_path or base_model}",
            lambda: self._sessions().create_sampling_client(
                model_path=model_path, base_model=base_model and self.served_name(base_model)
            ),
        )

    def served_name(self, base_model: str) -> str:
        """Return what the service calls `base_model`."""
        return base_model

    def training_run(self, run_id: str) -> "TrainingRun":
        """Return what the service knows of a run."""
        return self._call(f"looking up run {run_id}", lambda: self._rest().get_training_run(run_id))

    def weights_info(self, path: str) -> "WeightsInfoResponse":
        """Return the model and the shape of the adapter in a checkpoint."""
        return self._call_on(path, "looking up", lambda: self._rest().get_weights_info_by_tinker_path(path))

    def external_urls(self, path: str) -> "ExternalWeightsUrlsResponse":
        """Return a signed address for every file of an export, valid for a while."""
        return self._call_on(path, "asking for the files of", lambda: self._rest().get_external_weights_urls(path))

    def delete_checkpoint(self, path: str) -> None:
        """Delete a checkpoint, for ever."""
        self._call_on(path, "deleting", lambda: self._rest().delete_checkpoint_from_tinker_path(path))

    def set_ttl(self, path: str, seconds: int | None) -> None:
        """Have a checkpoint deleted after `seconds` from now; None keeps it."""
        self._call_on(
            path,
            "setting the time to live of",
            lambda: self._rest().set_checkpoint_ttl_from_tinker_path(path, seconds),
        )

    def capabilities(self) -> "GetServerCapabilitiesResponse":
        """Return which models the service has."""
        return self._call("asking which models there are", lambda: self._rest().get_server_capabilities())

    def computed_with(self) -> dict[str, str]:
        """Return the `precision` and the `device` that the service says it computes with; a hosted one says neither."""
        try:
            health: Any = json.loads(_run_in_thread(lambda: _get(self._base_url + _HEALTH)).result(_HEALTH_CHECK_S)[1])
        except (OSError, HTTPException, ValueError):
            return {}
        values = health if isinstance(health, dict) else {}
        return {name: values[name] for name in ("precision", "device") if isinstance(values.get(name), str)}

    def _call_on(self, path: str, verb: str, submit: "Callable[[], APIFuture[_T]]") -> _T:
        check_path(path)
        return self._call(f"{verb} {path}", submit)

    def _call(self, subject: str, submit: "Callable[[], APIFuture[_T]]") -> _T:
        """Return the result of what `submit` sends, in time even where the SDK blocks before it hands out a future."""
        if self._key is None:
            raise ConfigError(f"{subject}: there is no API key; {KEY_ADVICE}")
        require_sdk()
        self.preflight()

        def send() -> _T:
            future = submit()
            try:
                return future.result(self._deadline_s)
            finally:
                # without this the SDK goes on trying; a future that is done does not mind
                future.future().cancel()

        return self.result(_run_in_thread(send), subject)

    def _sessions(self) -> "ServiceClient":
        from tinker import ServiceClient

        assert self._key is not None  # `_call` checks
        with self._lock:
            if self._service is None:
                self._service = ServiceClient(base_url=self._base_url, api_key=self._key.get_secret_value())
            return self._service

    def _rest(self) -> "RestClient":
        # `RestClient()` makes its connection under a lock of the process: one service that hangs would hold up all others
        return self._sessions()._rest_client()

    def _explain_timeout(self, limit_s: float) -> str:
        text = f"is not done after {limit_s:g} s"
        try:
            self.preflight()
        except TrainingError as error:
            return f"{text}, and {error}"
        return (
            f"{text}, though {self._base_url} is up; the SDK waits in silence for capacity, rate limits and billing: see"
            " the service's console, or give it a longer deadline"
        )


def _run_in_thread(function: Callable[[], _T]) -> "Future[_T]":
    """Return the future result of `function` in a thread that nothing waits for, not even the end of the process."""
    future: Future[_T] = Future()

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, name="tinker", daemon=True).start()
    return future


def _get(url: str) -> tuple[int, bytes]:
    """Return the status and the body of an answer; the body of an error is empty."""
    try:
        # proxies of services refuse the name that Python gives itself
        request = Request(url, headers={"User-Agent": "graftline"})
        with urlopen(request, timeout=_HEALTH_CHECK_S) as response:
            return int(response.status), bytes(response.read(_MAX_HEALTH_BYTES))
    except HTTPError as error:
        error.close()
        return error.code, b""
