"""A proxy before a model, with the session of one attempt, for tests."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from graftline.harbor.contract import SuccessStatus
from graftline.harbor.executors.base import Execution
from graftline.harbor.model_proxy.calls import ModelCall, call_lines, read_calls
from graftline.harbor.model_proxy.proxy import ModelProxy, ModelProxyConfig, serve_model_proxy
from graftline.harbor.model_proxy.sessions import ProxySession
from graftline.llm.fleet import Actor, Fleet, Price
from tests.harbor_parts import WITHIN_S
from tests.streaming_model import StreamingModel

KEY = "sk-of-the-server-alone"
ASKED = [{"role": "user", "content": "Say hello"}]
PRICE = Price(prompt_usd=1_000_000, completion_usd=10_000_000)
"""A dollar for a token asked, ten for one answered."""
RIGHT = Execution(SuccessStatus.SUCCESS, 1.0)
WRONG = Execution(SuccessStatus.SUCCESS, 0.0)


@dataclass
class Proxied:
    """A proxy before a model, and a client that has the key of one attempt."""

    proxy: ModelProxy
    model: StreamingModel
    session: ProxySession
    client: httpx.Client
    folder: Path

    def post(self, path: str = "/v1/chat/completions", **body: Any) -> httpx.Response:
        return self.client.post(path, json={"model": "m", "messages": ASKED, **body})

    def calls(self) -> list[ModelCall]:
        return calls_in(self.proxy.sessions.path(self.session.rollout_id, self.session.attempt))

    def judge(self, execution: Execution = WRONG) -> Execution:
        self.proxy.sessions.close(self.session)
        return self.session.judge(execution)


def calls_in(path: Path) -> list[ModelCall]:
    return [*read_calls(map(json.loads, call_lines(path)), str(path))]


Open = Callable[..., Proxied]


@contextmanager
def proxies(folder: Path) -> Iterator[Open]:
    """Yield what opens proxies; settings of one, `engine`, the budget of the job, and the model may be named."""
    with ExitStack() as stack:

        def open_proxy(
            model: StreamingModel | None = None,
            engine: Any = "vllm",
            budget: dict[str, Any] | None = None,
            more_urls: tuple[str, ...] = (),
            **settings: Any,
        ) -> Proxied:
            served = stack.enter_context(model or StreamingModel())
            urls = [*more_urls, served.url]
            actors = tuple(Actor(name=f"a{number}", url=url) for number, url in enumerate(urls))
            fleet = Fleet(engine=engine, model="m", price=PRICE, actors=actors)
            config = ModelProxyConfig(fleet="f", **settings)
            proxy = stack.enter_context(serve_model_proxy(config, fleet, SecretStr(KEY), folder))
            session = proxy.sessions.open("rol_1", 1, "job_1", budget or {})
            headers = {"Authorization": f"Bearer {session.key}"}
            client = httpx.Client(base_url=proxy.url, headers=headers, timeout=WITHIN_S, verify=False)
            return Proxied(proxy, served, session, stack.enter_context(client), folder)

        yield open_proxy
