"""A server on loopback that speaks the protocol of a Harbor service, with faults on demand.

    with HarborServer() as server:
        client = HarborClient(server.url, server.key)
        server.fail("POST /api/harbor/deployments", Fault(status=429, retry_after="1"), Fault(torn=True))
        assert [asked.path for asked in server.asked] == [...]

Every fault is used up by one request. It keeps what it is told, as a service does, and says nothing of its own: how many
looks a build, a rollout or a job takes, and what comes of a seed, is what the test sets.
"""

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Self

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from graftline.harbor.localapi.served import serve_task_app

Json = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one answer; what is not set goes right."""

    status: int = 0
    retry_after: str = ""
    content: bytes = b""
    """In place of a problem in JSON."""
    headers: Mapping[str, str] = field(default_factory=dict)
    silent_s: float = 0.0
    torn: bool = False
    """The connection is cut without an answer."""
    is_carried_out: bool = False
    """Before that, what was asked for is done."""


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


def reward(value: float | None, cause: str | None = None, **more: Any) -> Json:
    """Return what comes of a seed."""
    is_valid = value is not None and cause is None
    return {"reward": value, "failure_cause": cause, "reward_valid": is_valid, **more}


class HarborServer:
    """The server; `url` is where it is."""

    def __init__(self, key: str = "key-of-the-tests") -> None:
        self.key = key
        self.renew()

    def renew(self) -> None:
        """Be as if just started."""
        self.asked: list[Asked] = []
        self.faults: dict[str, deque[Fault]] = defaultdict(deque)
        self.deployments: dict[str, Json] = {}
        self.instances: dict[str, dict[int, Json]] = defaultdict(dict)
        self.rollouts: dict[str, Json] = {}
        self.jobs: dict[str, Json] = {}
        self.page = 1000
        self.looks = 0
        """How often a deployment, a rollout or a job is looked at before it has ended."""
        self.build_error = ""
        self.outcome: Callable[[int], Json] = lambda seed: reward(1.0)
        self.job_fields: Json = {}
        """Laid over what a job says when it has ended."""
        self.events: list[str] = []
        """Of a job, as they are sent; an empty one breaks the connection off."""
        self._looks: dict[str, int] = defaultdict(int)

    def fail(self, what: str, *faults: Fault) -> None:
        """Let the next requests of `what`, a method and a path, go wrong."""
        self.faults[what].extend(faults)

    def of(self, what: str) -> list[Asked]:
        """Return the requests of `what`, a method and a path."""
        return [asked for asked in self.asked if f"{asked.method} {asked.path}" == what]

    def __enter__(self) -> Self:
        at = "/api/harbor/deployments"
        routes = [
            Route(at, self._create, methods=["POST"]),
            Route(at, self._list),
            Route(f"{at}/{{id}}", self._deployment),
            Route(f"{at}/{{id}}/status", self._status),
            Route(f"{at}/{{id}}/build", self._build, methods=["POST"]),
            Route(f"{at}/{{id}}/instances", self._instances),
            Route(f"{at}/{{id}}/instances/batch", self._batch, methods=["POST"]),
            Route(f"{at}/{{id}}/instances/build-all", self._build_all, methods=["POST"]),
            Route("/api/harbor/rollouts", self._rollout, methods=["POST"]),
            Route("/api/harbor/rollouts/{id}", self._rollout_view),
            Route("/api/harbor/rollouts/{id}/cancel", self._cancel_rollout, methods=["POST"]),
        ]
        for kind in ("/api/eval/jobs", "/api/prompt-learning/online/jobs"):
            routes += [
                Route(kind, self._job, methods=["POST"]),
                Route(f"{kind}/{{id}}", self._job_view),
                Route(f"{kind}/{{id}}/results", self._job_results),
                Route(f"{kind}/{{id}}/cancel", self._cancel_job, methods=["POST"]),
                Route(f"{kind}/{{id}}/events/stream", self._job_events),
            ]
        self._app = Starlette(routes=routes, exception_handlers={404: _missing})
        self._serving = serve_task_app(self)
        self.url = self._serving.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._serving.__exit__(None, None, None)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        content = b""
        while (message := await receive())["type"] == "http.request":
            content += message["body"]
            if not message.get("more_body"):
                break
        request = Request(scope)
        self.asked.append(
            Asked(
                request.method,
                request.url.path,
                dict(request.query_params),
                dict(request.headers),
                json.loads(content) if content else None,
            )
        )
        faults = self.faults.get(f"{request.method} {request.url.path}")
        fault = faults.popleft() if faults else Fault()
        await asyncio.sleep(fault.silent_s)

        unread = deque([{"type": "http.request", "body": content}])

        async def again() -> Json:
            return unread.popleft() if unread else await receive()

        async def nowhere(_: Any) -> None:
            return

        if fault.torn:
            if fault.is_carried_out:
                await self._app(scope, again, nowhere)
            receive.__self__.transport.abort()
            return
        await self._response(request, fault)(scope, again, send)

    def _response(self, request: Request, fault: Fault) -> Any:
        headers = {**fault.headers, **({"retry-after": fault.retry_after} if fault.retry_after else {})}
        if fault.status:
            if fault.content:
                return Response(fault.content, fault.status, headers)
            return _problem(fault.status, "scripted", "as the test has it", headers=headers)
        sent = request.headers.get("authorization", "")
        if sent != f"Bearer {self.key}":
            # it echoes, as some servers do
            return _problem(401, "unauthorized", f"{sent!r} is not a key")
        return self._app

    async def _create(self, request: Request) -> Response:
        body = await request.json()
        name = body["name"]
        versions = [one for one in self.deployments.values() if one["name"] == name]
        found = next((one for one in versions if one["body"] == body), None)
        if found is None:
            number = len(self.deployments) + 1
            found = self.deployments[f"dep-{number}"] = {
                "id": f"dep-{number}",
                "name": name,
                "version": len(versions) + 1,
                "body": body,
                "a_key_of_later": 1,
            }
        return JSONResponse(self._shown(found))

    async def _list(self, request: Request) -> Response:
        shown = [self._shown(one) for one in reversed(self.deployments.values())]
        status = request.query_params.get("status")
        chosen = [one for one in shown if status in (None, one["status"])]
        start, limit = int(request.query_params.get("offset", 0)), int(request.query_params["limit"])
        return JSONResponse({"deployments": chosen[start : start + limit], "total": len(chosen), "next_cursor": None})

    async def _deployment(self, request: Request) -> Response:
        return JSONResponse(self._shown(self._find(request)))

    async def _status(self, request: Request) -> Response:
        found = self._find(request)
        self._looks[found["id"]] += 1
        shown = self._shown(found)
        error = {"error_message": self.build_error or None, "log_tail": "step 1\nstep 2\n" if self.build_error else ""}
        if not found["body"].get("auto_build", True):
            return JSONResponse({**shown, "status": "pending", "builds": []})
        builds = [{"id": shown["build_id"], "build_id": shown["build_id"], "status": shown["status"], **error}]
        return JSONResponse({**shown, "builds": builds})

    async def _build(self, request: Request) -> Response:
        found = self._find(request)
        return JSONResponse({"id": f"bld-{found['id']}-2", "build_id": f"bld-{found['id']}-2", "status": "pending"})

    async def _instances(self, request: Request) -> Response:
        found = self._find(request)
        after, status = int(request.query_params.get("cursor", -1)), request.query_params.get("status")
        everyone = sorted(self.instances[found["id"]].items())
        rest = [one for seed, one in everyone if seed > after and status in (None, one["status"])]
        most = min(int(request.query_params["limit"]), self.page)
        cursor = str(rest[most - 1]["seed"]) if len(rest) > most else None
        return JSONResponse({"instances": rest[:most], "total": len(everyone), "next_cursor": cursor})

    async def _batch(self, request: Request) -> Response:
        found, body = self._find(request), await request.json()
        start = body.get("start_seed", 0)
        seeds = body["seeds"] if "seeds" in body else range(start, start + body["count"])
        kept = self.instances[found["id"]]
        for seed in seeds:
            kept.setdefault(
                seed, {"id": f"ins-{seed}", "seed": seed, "status": "pending", "task_id": f"task-{seed}", "more": 1}
            )
        shown = [kept[seed] for seed in seeds] if len(seeds) <= self.page else []
        return JSONResponse({"total": len(kept), "created": len(seeds), "instances": shown})

    async def _build_all(self, request: Request) -> Response:
        found = self._find(request)
        kept = self.instances[found["id"]]
        for seed in kept:
            kept[seed] = {**kept[seed], **({"status": "failed", "error": self.build_error} if self.build_error else {})}
            if not self.build_error:
                kept[seed]["status"] = "ready"
        return JSONResponse({"total_instances": len(kept), "ready_count": 0 if self.build_error else len(kept)})

    async def _rollout(self, request: Request) -> Response:
        body = await request.json()
        key = request.headers.get("idempotency-key") or body["trace_correlation_id"]
        if key not in self.rollouts:
            if body["deployment_id"] not in self.deployments:
                return _problem(404, "not_found", f"deployment {body['deployment_id']!r}: there is none")
            self.rollouts[key] = {"id": f"rol-{len(self.rollouts) + 1}", "body": body, "status": "queued"}
        return JSONResponse(self._rollout_shown(self.rollouts[key]), 202)

    async def _rollout_view(self, request: Request) -> Response:
        found = self._rollout_of(request)
        self._looks[found["id"]] += 1
        return JSONResponse(self._rollout_shown(found))

    async def _cancel_rollout(self, request: Request) -> Response:
        found = self._rollout_of(request)
        found["status"] = "cancelled"
        return JSONResponse(self._rollout_shown(found))

    async def _job(self, request: Request) -> Response:
        body, key = await request.json(), request.headers["idempotency-key"]
        if key not in self.jobs:
            self.jobs[key] = {"id": f"job-{len(self.jobs) + 1}", "body": body, "status": "running"}
        return JSONResponse(self._job_shown(self.jobs[key]))

    async def _job_view(self, request: Request) -> Response:
        found = self._job_of(request)
        self._looks[found["id"]] += 1
        return JSONResponse(self._job_shown(found))

    async def _job_results(self, request: Request) -> Response:
        found = self._job_of(request)
        seeds = found["body"]["seeds"] if self._has_ended(found) else []
        results = [{"seed": seed, "status": "completed", "more": 1, **self.outcome(seed)} for seed in reversed(seeds)]
        return JSONResponse({**self._job_shown(found), "results": results})

    async def _cancel_job(self, request: Request) -> Response:
        found = self._job_of(request)
        found["status"] = "cancelled"
        return JSONResponse(self._job_shown(found))

    async def _job_events(self, request: Request) -> Response:
        self._job_of(request)
        start = int(request.headers.get("last-event-id", 0))

        async def sent() -> Any:
            for number, event in enumerate(self.events[start:], start + 1):
                if not event:
                    self.events[number - 1] = "event: message\ndata: after the break"
                    return
                yield f"id: {number}\n{event}\n\n"

        return StreamingResponse(sent(), media_type="text/event-stream")

    def _find(self, request: Request) -> Json:
        asked = request.path_params["id"]
        named = [one for one in self.deployments.values() if asked in (one["id"], one["name"])]
        if not named:
            raise HTTPException(404)
        return named[-1]

    def _rollout_of(self, request: Request) -> Json:
        return next(one for one in self.rollouts.values() if one["id"] == request.path_params["id"])

    def _job_of(self, request: Request) -> Json:
        return next(one for one in self.jobs.values() if one["id"] == request.path_params["id"])

    def _has_ended(self, found: Json) -> bool:
        return self._looks[found["id"]] >= self.looks or found.get("status") == "cancelled"

    def _shown(self, found: Json) -> Json:
        is_ready = self._looks[found["id"]] >= self.looks
        status = ("failed" if self.build_error else "ready") if is_ready else "building"
        return {
            **{name: found[name] for name in ("id", "name", "version", "a_key_of_later")},
            "status": status,
            "build_id": f"bld-{found['id']}",
            "snapshot_id": "snap-1" if status == "ready" else None,
            "error": self.build_error or None,
        }

    def _rollout_shown(self, found: Json) -> Json:
        body = found["body"]
        shown = {"rollout_id": found["id"], "deployment_id": body["deployment_id"], "more": 1}
        if found["status"] == "cancelled":
            return {**shown, "status": "cancelled", "error": "it was cancelled"}
        if not self._has_ended(found):
            return {**shown, "status": "running" if self._looks[found["id"]] else "queued"}
        outcome = self.outcome(body["env"]["seed"])
        response = {
            "trace_correlation_id": body["trace_correlation_id"],
            "reward_info": {"outcome_reward": outcome["reward"]},
            "failure_cause": outcome["failure_cause"],
            "success_status": "success" if outcome["failure_cause"] is None else "runtime_error",
            "of_later": True,
        }
        return {
            **shown,
            "status": "completed",
            "instance_id": f"ins-{body['env']['seed']}",
            "attempts": [{"number": 1}],
            "response": response,
            **outcome,
        }

    def _job_shown(self, found: Json) -> Json:
        shown = {"job_id": found["id"], "status": "running", "num_total": len(found["body"].get("seeds", []))}
        if found["status"] == "cancelled":
            return {**shown, "status": "cancelled"}
        if not self._has_ended(found):
            return shown
        return {**shown, "status": "completed", "num_completed": shown["num_total"], **self.job_fields}


def _problem(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": {"code": code, "message": message, "details": {"of": code}}}, status, headers)


def _missing(request: Request, _: Exception) -> Response:
    return _problem(404, "not_found", f"{request.path_params['id']!r}: there is none")
