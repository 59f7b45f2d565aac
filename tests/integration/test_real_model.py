"""A real model: SmolLM2-135M behind the embedded server, kept as `graftline model serve` keeps it.

Quality is no claim of these tests. They need the weights, which `graftline model fetch smollm2-135m` brings.
"""

import http.client
import json
import os
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from graftline.core.errors import ModelError
from graftline.core.paths import Paths
from graftline.core.secrets import EnvironmentSecrets, Secrets
from graftline.llm.fleet import Actor, Fleet
from graftline.llm.servers.processes import ActorStatus, down, fleet_status, up
from graftline.llm.servers.supervisor import read_state, state_path
from graftline.llm.weights.catalog import model_file
from tests.conftest import CHECKOUT
from tests.kept_fleet import comes, free_port
from tests.processes import running

pytestmark = pytest.mark.long
KEY = "key-of-the-test"
SECRETS = Secrets([EnvironmentSecrets({"TESTED_KEY": KEY})])
QUESTION = [{"role": "user", "content": "Name three colors of the rainbow, and say where each is seen."}]


class Served:
    """The server, and what it answered on `/health` while it was started."""

    def __init__(self, root: Path, weights: Path) -> None:
        pytest.importorskip("xllamacpp", reason="pip install xllamacpp")
        self.paths, self.port = Paths(root), free_port()
        actor = Actor(name="real", url=f"http://127.0.0.1:{self.port}", slots=2)
        self.fleet = Fleet(
            engine="embedded", model="smol", context_tokens=512, api_key="TESTED_KEY", shutdown_s=60, actors=(actor,)
        )
        self.seen = []
        with ThreadPoolExecutor(1) as pool:
            started = pool.submit(up, self.paths, "real", self.fleet, str(weights), os.environ, SECRETS, 120.0)
            while not started.done():
                self.seen.append(self.get("/health")[0])
                time.sleep(0.02)
            started.result()

    def get(self, path: str, body: Mapping[str, Any] | None = None, key: str = KEY) -> tuple[int, Any]:
        """Return the status, 0 where nobody answers, and the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
            connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except ConnectionError:
            return 0, None
        finally:
            connection.close()

    def ask(self, **settings: Any) -> tuple[str, str, int]:
        """Return the text, why it ended, and how many tokens it has."""
        status, answer = self.get(
            "/v1/chat/completions",
            {"model": "smol", "messages": QUESTION, "temperature": 0, "max_tokens": 24, **settings},
        )
        assert status == 200, answer
        (choice,) = answer["choices"]
        return choice["message"]["content"], choice["finish_reason"], answer["usage"]["completion_tokens"]

    def status(self) -> ActorStatus:
        return fleet_status(self.paths, "real", self.fleet, SECRETS.get("TESTED_KEY"))[0]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    try:
        weights = model_file("smollm2-135m", Paths(CHECKOUT), os.environ)
    except ModelError as error:
        pytest.skip(str(error))
    server = Served(tmp_path_factory.mktemp("real"), weights)
    yield server
    down(server.paths, "real")


def test_health_is_200_only_when_the_weights_are_loaded(served: Served) -> None:
    assert set(served.seen) - {0, 503} <= {200}
    assert served.get("/health") == (200, {"status": "ok"})


def test_an_answer_ends_where_it_is_cut(served: Served) -> None:
    _, reason, tokens = served.ask(max_tokens=8)
    assert (reason, tokens) == ("length", 8)


def test_an_answer_ends_before_a_stop_string(served: Served) -> None:
    whole, _, _ = served.ask()
    stop = whole.split()[3]
    text, reason, _ = served.ask(stop=[stop])
    assert (text, reason) == (whole[: whole.index(stop)], "stop")


def test_an_answer_follows_its_schema(served: Served) -> None:
    schema = {
        "type": "object",
        "properties": {
            "action": {"enum": ["rewrite", "stop"]},
            "count": {"type": "integer", "minimum": 0, "maximum": 9},
        },
        "required": ["action", "count"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "step", "strict": True, "schema": schema}}
    found = json.loads(served.ask(response_format=wanted, max_tokens=64)[0])
    assert (sorted(found), found["action"] in ("rewrite", "stop"), type(found["count"])) == (
        ["action", "count"],
        True,
        int,
    )


def test_more_than_fit_at_a_time_wait(served: Served) -> None:
    with ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda _: served.ask(max_tokens=4), range(5)))
    assert [tokens for _, _, tokens in answers] == [4] * 5


def test_the_key_is_asked_for(served: Served) -> None:
    status, answer = served.get("/v1/chat/completions", {"messages": QUESTION}, key="another")
    assert (status, answer["error"]["type"]) == (401, "authentication_error")


def test_what_it_did_is_counted(served: Served) -> None:
    before = served.status().load
    tokens = served.ask(max_tokens=5)[2]
    after = served.status().load
    assert before
    assert after
    assert (after.completion_tokens - before.completion_tokens, after.running, after.waiting) == (tokens, 0, 0)


def test_down_lets_answers_finish_and_leaves_nothing(served: Served) -> None:
    state = read_state(state_path(served.paths, "real", "real"))
    assert state
    supervisor = psutil.Process(state.keeper)
    family = [supervisor, *supervisor.children(recursive=True)]
    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(served.ask, max_tokens=20) for _ in range(3)]  # one more than there are slots
        assert comes(lambda: (load := served.status().load) is not None and load.running + load.waiting == 3)
        assert down(served.paths, "real") == {"real": "stopped"}
        assert [answer.result()[2] for answer in answers] == [20, 20, 20]
    assert (running(family), served.get("/health")) == ([], (0, None))
