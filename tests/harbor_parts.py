"""A Harbor service in this process, over a real database and the executor `memory`; and contexts to send to it."""

import base64
import gzip
import io
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
from pydantic import SecretStr

from graftline.harbor.contract import SuccessStatus
from graftline.harbor.executors.base import Execution, MemoryExecutor, RolloutSpec
from graftline.harbor.localapi.served import serve_task_app
from graftline.harbor.model_proxy.proxy import ModelProxy
from graftline.harbor.service.app import create_service
from graftline.harbor.service.database import Database
from graftline.harbor.service.prompt_jobs import Optimizer
from graftline.harbor.service.state import ServiceSettings

KEY = "a-key-of-the-tests-alone"
WITHIN_S = 240.0
Outcomes = Callable[[RolloutSpec], Execution]


def archive(files: Mapping[str, str], mode: int = 0o644) -> bytes:
    """Return a tar.gz of files by path, the same for the same files."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data := text.encode()), mode
            tar.addfile(member, io.BytesIO(data))
    return gzip.compress(plain.getvalue(), mtime=0)


def encoded(files: Mapping[str, str]) -> str:
    """Return `archive` as requests hold it."""
    return base64.b64encode(archive(files)).decode()


def deployment(name: str = "demo", text: str = "print(1)\n", **more: Any) -> dict[str, Any]:
    """Return a request for a deployment of one file."""
    return {"name": name, "context_tar_base64": encoded({"run_rollout.py": text}), **more}


def half(box: RolloutSpec) -> Execution:
    """Reward everything by a half."""
    return Execution(SuccessStatus.SUCCESS, 0.5, cost_usd=0.25, tokens=10)


class Gate:
    """Keeps boxes until it is opened; counts how many are in it."""

    def __init__(self) -> None:
        self.is_open, self.order = threading.Event(), list[str]()

    def __call__(self, box: RolloutSpec) -> Execution:
        self.order.append(box.rollout_id)
        assert self.is_open.wait(WITHIN_S)
        return half(box)


@contextmanager
def service(
    url: str,
    outcomes: Outcomes = half,
    optimizer: Optimizer | None = None,
    proxy: ModelProxy | None = None,
    **settings: Any,
) -> Iterator[httpx.Client]:
    """Yield a client of a service over the database `url`."""
    with Database(url) as database:
        settings_ = ServiceSettings(**settings)
        secrets = {"OPENAI_API_KEY": "sk-that-no-box-may-see"} if proxy else {}
        app = create_service(database, MemoryExecutor(outcomes), [SecretStr(KEY)], settings_, secrets, optimizer, proxy)
        with (
            serve_task_app(app) as base,
            httpx.Client(
                base_url=base, headers={"Authorization": f"Bearer {KEY}"}, timeout=WITHIN_S, verify=False
            ) as client,
        ):
            yield client


def until(client: httpx.Client, path: str, holds: Callable[[Any], bool]) -> Any:
    """Return what is at `path` once it holds."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        found = client.get(path).json()
        if holds(found):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


def wait_for(holds: Callable[[], bool]) -> None:
    """Return once something holds."""
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def deployed(client: httpx.Client, **more: Any) -> str:
    """Return the id of a deployment that is ready."""
    answer = client.post("/api/harbor/deployments", json=deployment(**more))
    assert answer.status_code == 200, answer.text
    found = str(answer.json()["id"])
    until(client, f"/api/harbor/deployments/{found}", lambda view: view["status"] == "ready")
    return found
