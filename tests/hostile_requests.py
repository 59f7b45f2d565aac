"""Requests that the Harbor service has to refuse: wrong types, wrong places, too much, too deep, replayed keys."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.harbor_parts import deployment

DEPLOYMENTS, ROLLOUTS, EVALUATIONS = "/api/harbor/deployments", "/api/harbor/rollouts", "/api/eval/jobs"
PROMPTS = "/api/prompt-learning/online/jobs"
_JSON = {"Content-Type": "application/json"}
_WRONG = (None, True, 1, -1, 1.5, 1e300, "text", "", "a\0b", [], [[]], {}, {"a": 1})


@dataclass(frozen=True)
class Hostile:
    """One request, as it is sent."""

    method: str
    path: str
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: dict(_JSON))


def hostile_requests(known: str) -> dict[str, Hostile]:
    """Return the requests by name; `known` is the id of a deployment that is there."""
    found: dict[str, Hostile] = {}

    def add(name: str, method: str, path: str, body: Any = None, raw: bytes | None = None) -> None:
        found[name] = Hostile(method, path, json.dumps(body).encode() if raw is None else raw)

    rollout, batch = f"{DEPLOYMENTS}/{known}/rollout", f"{DEPLOYMENTS}/{known}/instances/batch"
    places: dict[str, tuple[str, dict[str, Any], dict[str, tuple[Any, ...]]]] = {
        "deployment": (
            DEPLOYMENTS,
            deployment("hostile"),
            {
                "name": (None, 1, "", "a/b", "../a", "a\0b", "x" * 129, ["a"], "\ud800"),
                "context_tar_base64": (None, 1, "", "%%%", "AAAA", [], "Li4vLi4v"),
                "context_url": ("file:///etc/passwd", "http://127.0.0.1/", 1),
                "entrypoint": (None, 1, "", "a\0b", "x" * 4097),
                "entrypoint_mode": (None, 1, "shell", ""),
                "limits": (None, 1, [], {"timeout_s": 29}, {"timeout_s": 10**30}, {"cpu_cores": True}, {"gpus": 1}),
                "env_vars": (None, [], {"A": 1}, {"A-B": "1"}, {"": "1"}, {"A": "\0"}, {"1A": "1"}),
                "metadata": (None, [], "text"),
                "tasks": (None, {}, [1], [{"seed": -1, "task_id": "a"}], [{"seed": 0, "task_id": ""}]),
                "verifier": (1, [], {}, {"entrypoint": "a"}, {"entrypoint": "a", "context_tar_base64": "%%%"}),
                "surprise": (1,),
            },
        ),
        "rollout": (
            rollout,
            {"trace_correlation_id": "hostile"},
            {
                "trace_correlation_id": (None, 1, "", "a\0b", "x" * 256, []),
                "env": (None, 1, [], {"seed": -1}, {"seed": 2**31}, {"seed": "1"}, {"seed": True}, {"seed": 1.5}),
                "policy": (1, [], {"config": 1}),
                "safety": (1, {"max_time_s": 0}, {"max_time_s": 86_401}, {"max_time_s": []}),
                "context_overrides": (1, [1], [{"file_artifacts": [1]}], [{"env_vars": {"A": 1}}], [{}] * 65),
                "on_done": (1, "explode"),
            },
        ),
        "instances": (
            batch,
            {"count": 1},
            {
                "count": (0, -1, True, "1", 1.5, 100_001, 10**30),
                "start_seed": (-1, 2**31, "0", True),
                "seeds": ([], [-1], ["1"], [2**31], 1, [0]),
                "surprise": (1,),
            },
        ),
        "evaluation": (
            EVALUATIONS,
            {"deployment_id": known, "seeds": [0]},
            {
                "seeds": (None, [], [-1], ["0"], [0, 0], [0.5], 1),
                "deployment_id": (1, "", "none", "../a"),
                "max_concurrent": (0, -1, 1001, "a"),
                "timeout": (0, -1, 86_401, "a"),
                "budget": (1, {"max_usd": 0}, {"max_usd": -1}, {"max_rollouts": 0}, {"max_tokens": 2**60}, {"a": 1}),
                "min_coverage": (-0.1, 1.1, "a"),
                "surprise": (1,),
            },
        ),
        "prompts": (
            PROMPTS,
            {"config_body": {"prompt_learning": {}}},
            {"config_body": (None, 1, {}, []), "algorithm": ("x",)},
        ),
    }
    for where, (path, body, wrong) in places.items():
        for key, values in wrong.items():
            for number, value in enumerate(values):
                add(f"{where}: {key} {number}", "POST", path, {**body, key: value})
        for number, value in enumerate(_WRONG):
            if not isinstance(value, dict):
                add(f"{where}: body {number}", "POST", path, value)
        add(f"{where}: no json", "POST", path, raw=b"{")
        add(f"{where}: deep", "POST", path, raw=b"[" * 100_000)
        add(f"{where}: deep object", "POST", path, raw=b'{"a":' * 50_000)
        add(f"{where}: not utf-8", "POST", path, raw=b'{"name": "\xff"}')
        add(f"{where}: huge number", "POST", path, raw=b'{"count": ' + b"9" * 100_000 + b"}")
    for name, path in {
        "traversal": "/api/harbor/deployments/..%2f..%2fetc%2fpasswd",
        "zero byte": "/api/harbor/deployments/a%00b",
        "half a pair": "/api/harbor/rollouts/%ed%a0%80",
        "quote": "/api/harbor/rollouts/' OR 1=1 --",
        "cursor": f"{DEPLOYMENTS}?cursor=abc",
        "cursor of another kind": f"{DEPLOYMENTS}/{known}/instances?cursor=-1",
        "limit": f"{ROLLOUTS}?limit=100000",
        "limit of nothing": f"{ROLLOUTS}?limit=0",
        "status": f"{ROLLOUTS}?status=exploded",
        "offset": f"{DEPLOYMENTS}?offset=-1",
        "unknown": "/api/harbor/elsewhere",
        "job": f"{EVALUATIONS}/none/results",
        "events": f"{ROLLOUTS}/none/events",
    }.items():
        add(f"get: {name}", "GET", path, raw=b"")
    for method in ("PUT", "PATCH", "DELETE"):
        add(f"method {method}", method, DEPLOYMENTS, {})
    return found
