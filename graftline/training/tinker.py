"""The Tinker service, or a server that speaks its wire, through the Tinker SDK: nothing waits for ever, errors say what to do.

By itself the SDK waits for minutes where nothing answers, for ever where a server dies, and tries again in silence what is
refused for a while. Here one look at the service comes first, everything has a deadline, and what the SDK raises becomes a
`TrainingError`, or a `DataError` where what was sent is at fault. Importing this module does not import the SDK, which takes
seconds; the server on this machine is `training/local`, what is trained on is made in `datums.py`.
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
from typing import TYPE_CHECKING, Self, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from pydantic import SecretStr

from graftline.core.errors import ConfigError, GraftlineError, TrainingError
from graftline.training.sdk import (
    BASE_URL_VARIABLE,
    KEY_ADVICE,
    check_path,
    checked_key,
    checked_url,
    require_sdk,
    told,
)
from graftline.training.service import Awaited, Ending

if TYPE_CHECKING:
    from tinker import APIFuture, Checkpoint, RestClient, SamplingClient, ServiceClient, TrainingClient
    from tinker.types import (
        ExternalWeightsUrlsResponse,
        GetServerCapabilitiesResponse,
        TrainingRun,
        TrainingRunsResponse,
        WeightsInfoResponse,
    )

logger = logging.getLogger(__name__)

_TELEMETRY = "TINKER_TELEMETRY"
_HEALTH = "/api/v1/healthz"
_COMPUTED_WITH = ("precision", "device")
_MOST_HEALTH_BYTES = 65_536
_LOOK_S = 2.0
_CLOSE_S = 10.0
_PAGE = 100
_T = TypeVar("_T")


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
        self._key = checked_key(api_key)
        self._base_url = checked_url(base_url)
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
            f"{self._base_url}: {why}; mend base_url or {BASE_URL_VARIABLE}, or start the server of this machine with `graftline"
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
            raise told(error, what, self._base_url, self._key, lambda: self._late(limit_s)) from None

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
        check_path(path)

        def load() -> "APIFuture[TrainingClient]":
            service = self._sessions()
            # one that is not there is told as that here; to load it would be a refused call like any other
            self._rest().get_weights_info_by_tinker_path(path).result(self._deadline_s)
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
            check_path(model_path)
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
        check_path(path)
        return self._asked(f"looking up {path}", lambda: self._rest().get_weights_info_by_tinker_path(path))

    def external_urls(self, path: str) -> "ExternalWeightsUrlsResponse":
        """Return an address for every file of an export, signed and good for a while."""
        check_path(path)
        return self._asked(f"asking for the files of {path}", lambda: self._rest().get_external_weights_urls(path))

    def delete_checkpoint(self, path: str) -> None:
        """Delete a checkpoint, for ever."""
        check_path(path)
        self._asked(f"deleting {path}", lambda: self._rest().delete_checkpoint_from_tinker_path(path))

    def set_ttl(self, path: str, seconds: int | None) -> None:
        """Have a checkpoint deleted after `seconds` from now; None keeps it."""
        check_path(path)
        self._asked(
            f"setting the time to live of {path}",
            lambda: self._rest().set_checkpoint_ttl_from_tinker_path(path, seconds),
        )

    def capabilities(self) -> "GetServerCapabilitiesResponse":
        """Return which models the service has."""
        return self._asked("asking which models there are", lambda: self._rest().get_server_capabilities())

    def computed_with(self) -> dict[str, str]:
        """Return the precision and the device that the service says it computes with; a hosted one says neither."""
        try:
            said = json.loads(_in_thread(lambda: _content_of(self._base_url + _HEALTH)).result(_LOOK_S))
        except (OSError, HTTPException, ValueError):
            return {}
        told = said if isinstance(said, dict) else {}
        return {name: told[name] for name in _COMPUTED_WITH if isinstance(told.get(name), str)}

    def _asked(self, what: str, submit: "Callable[[], APIFuture[_T]]") -> _T:
        """Return what `submit` asks for; also where the SDK blocks before it hands out a future."""
        if self._key is None:
            raise ConfigError(f"{what}: there is no API key; {KEY_ADVICE}")
        require_sdk()
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
    try:
        with urlopen(_request(url), timeout=_LOOK_S) as answer:
            status: int = answer.status
            return status
    except HTTPError as error:
        error.close()
        return error.code


def _content_of(url: str) -> bytes:
    with urlopen(_request(url), timeout=_LOOK_S) as answer:
        content: bytes = answer.read(_MOST_HEALTH_BYTES)
        return content


def _request(url: str) -> Request:
    # proxies of services refuse the name that Python gives itself
    return Request(url, headers={"User-Agent": "graftline"})


def _plain(user_metadata: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if user_metadata is None else dict(user_metadata)
