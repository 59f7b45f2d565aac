"""The metrics of a process, named as Prometheus wants them (https://prometheus.io/docs/practices/naming/).

Whoever works calls methods with plain values; nothing here knows actors, queues or sandboxes. Counts begin with the
process. Not here: how metrics are pushed (`graftline.core.otlp`).
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingTCPServer
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric

from graftline.core.errors import ConfigError
from graftline.core.record import write_atomically

logger = logging.getLogger(__name__)

Family = Metric
"""The samples of one name, with its kind and what it is."""

_ANSWER_S = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)
_ACTION_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_JOB_S = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
_TEXT = "text/plain; charset=utf-8"


class Metrics:
    """The metrics of one process; every method may be called from any thread."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._lock = Lock()
        self._totals: dict[tuple[Counter, tuple[str, ...]], int] = {}
        self._attempts: dict[str, tuple[int, int]] = {}
        counter = partial(Counter, namespace="graftline", registry=self._registry)
        gauge = partial(Gauge, namespace="graftline", registry=self._registry)
        histogram = partial(Histogram, namespace="graftline", registry=self._registry)
        ProcessCollector(registry=self._registry)

        self._latency = histogram(
            "actor_latency_seconds", "From a question to its answer, all tries together", ["actor"], buckets=_ANSWER_S
        )
        self._retries = counter("actor_retries", "Tries after the first one, of questions that were answered")
        self._unanswered = counter("actor_unanswered", "Questions that no actor answered before their deadline")
        self._prompt = counter("actor_prompt_tokens", "Tokens that were read, cached ones included", ["actor"])
        self._cached = counter("actor_cached_tokens", "Of the prompt tokens, those that were read before", ["actor"])
        self._completion = counter("actor_completion_tokens", "Tokens that were written", ["actor"])
        self._cost = counter("actor_cost_usd", "What the tokens cost, in US dollars", ["actor"])
        self._faults = counter("actor_faults", "Tries that failed", ["actor", "fault"])
        self._ejections = counter("actor_ejections", "How often the actor was taken out of service", ["actor"])
        self._up = gauge("actor_up", "1 while the actor is in service, 0 while it is ejected", ["actor"])
        self._in_flight = gauge("actor_in_flight", "Questions that the actor works on", ["actor"])
        self._slots = gauge("actor_slots", "Questions that the actor is given at a time at most", ["actor"])
        self._unsent = gauge("actor_waiting", "Questions for which no actor has room")

        self._actions = counter("sandbox_actions", "Actions that the sandbox was given")
        self._sandbox_failures = counter("sandbox_failures", "Actions that did not end well", ["verdict"])
        self._sandbox = histogram("sandbox_latency_seconds", "From an action to its verdict", buckets=_ACTION_S)

        self._steps = counter("steps", "Turns of a teacher on a task", ["teacher"])
        self._unreadable = counter("format_failures", "Answers that are no step, for their form", ["teacher"])
        self._trajectories = counter("trajectories", "Attempts that ended", ["teacher", "verified"])
        self._ratio = gauge("verified_ratio", "Of the attempts that ended, the share that is verified", ["teacher"])

        self._depth = gauge("queue_depth", "Jobs of the queue, by what became of them", ["state"])
        self._taken = counter("jobs_taken", "Jobs that were begun")
        self._ended = counter("jobs_ended", "Jobs that ended, by how", ["outcome"])
        self._job = histogram("job_duration_seconds", "From the begin of a job to its end", buckets=_JOB_S)
        self._draining = gauge("draining", "1 while the process finishes what is in flight and takes nothing else")
        self._lost = counter("telemetry_lost", "Log lines and pushes of figures that did not get out", ["sink"])

    def count_answer(
        self,
        actor: str,
        latency_s: float,
        tries: int,
        prompt_tokens: int,
        completion_tokens: int,
        cached_tokens: int = 0,
        cost_usd: float | None = None,
    ) -> None:
        """Count an answer of `actor`; `tries` are all there were for it, at other actors too."""
        self._latency.labels(actor).observe(latency_s)
        self._retries.inc(tries - 1)
        self._prompt.labels(actor).inc(prompt_tokens)
        self._cached.labels(actor).inc(cached_tokens)
        self._completion.labels(actor).inc(completion_tokens)
        self._cost.labels(actor).inc(cost_usd or 0.0)

    def count_unanswered(self) -> None:
        """Count a question that no actor answered."""
        self._unanswered.inc()

    def set_actor_state(
        self, actor: str, is_up: bool, in_flight: int, slots: int, faults: Mapping[str, int], ejections: int
    ) -> None:
        """Say how `actor` is; `faults`, by kind, and `ejections` are all there were so far."""
        self._up.labels(actor).set(is_up)
        self._in_flight.labels(actor).set(in_flight)
        self._slots.labels(actor).set(slots)
        with self._lock:
            for fault, total in faults.items():
                self._raise(self._faults, total, actor, fault)
            self._raise(self._ejections, ejections, actor)

    def set_waiting(self, count: int) -> None:
        """Say for how many questions no actor has room."""
        self._unsent.set(count)

    def count_action(self, verdict: str, seconds: float) -> None:
        """Count an action with its verdict; every one but `ok` is a failure."""
        self._actions.inc()
        self._sandbox.observe(seconds)
        if verdict != "ok":
            self._sandbox_failures.labels(verdict).inc()

    def count_step(self, teacher: str, is_readable: bool) -> None:
        """Count a turn of `teacher`."""
        self._steps.labels(teacher).inc()
        self._unreadable.labels(teacher).inc(not is_readable)

    def count_trajectory(self, teacher: str, is_verified: bool) -> None:
        """Count an attempt of `teacher` that ended."""
        self._trajectories.labels(teacher, str(is_verified).lower()).inc()
        with self._lock:
            verified, ended = self._attempts.get(teacher, (0, 0))
            verified, ended = self._attempts[teacher] = verified + is_verified, ended + 1
            self._ratio.labels(teacher).set(verified / ended)

    def set_queue_depth(self, waiting: int, in_flight: int, dead: int) -> None:
        """Say how many jobs the queue has."""
        for state, count in (("waiting", waiting), ("in_flight", in_flight), ("dead", dead)):
            self._depth.labels(state).set(count)

    def count_job_start(self) -> None:
        """Count a job that begins."""
        self._taken.inc()

    def count_job_end(self, outcome: str, seconds: float) -> None:
        """Count a job that ended."""
        self._ended.labels(outcome).inc()
        self._job.observe(seconds)

    def set_draining(self, is_draining: bool) -> None:
        """Say whether the process is about to end."""
        self._draining.set(is_draining)

    def count_lost(self, sink: str, count: int) -> None:
        """Count what did not reach `sink`: lines of logs, or pushes of figures."""
        self._lost.labels(sink).inc(count)

    def families(self) -> Iterable[Family]:
        """Return all metrics as they are, grouped by name."""
        return self._registry.collect()

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics in a text form that the HTTP header `accept` allows, and its media type."""
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type

    def write_snapshot(self, path: Path) -> None:
        """Write all metrics to `path`, whole or not at all: for node_exporter's textfile collector, if it ends in .prom."""
        write_atomically(path, self.text()[0].decode())

    def _raise(self, counter: Counter, total: int, *labels: str) -> None:
        before = self._totals.get((counter, labels), 0)
        # fewer than before were counted by a pool that was opened anew
        counter.labels(*labels).inc(total - before if total >= before else total)
        self._totals[counter, labels] = total


@contextmanager
def serve_metrics(metrics: Metrics, host: str, port: int, fault: Callable[[], str]) -> Iterator[str]:
    """Serve until the block ends; yields the address, with the port that was found where 0 asked for a free one.

    Args:
        fault: says what is wrong with the process, nothing while it works; with it `/healthz` answers 503. It is called
            in threads of the server. A process that finishes its work before it ends is well.

    Raises:
        ConfigError: the port is in use, or the host is none of this machine.
    """
    try:
        server = _Server((host, port), metrics, fault)
    except OSError as error:
        raise ConfigError(
            f"metrics: {host}:{port} cannot be listened on ({error.strerror}); choose another port, or 0 for a free one"
        ) from None
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="metrics", daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int], metrics: Metrics, fault: Callable[[], str]) -> None:
        self.metrics, self.fault = metrics, fault
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("metrics: no answer to %s", client_address, exc_info=True)  # who asked went away, as a rule


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10  # of a client that says nothing

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(200, *self.server.metrics.text(self.headers.get("Accept", "")))
            case "/healthz":
                fault = self.server.fault()
                self._answer(503 if fault else 200, f"{fault or 'ok'}\n".encode(), _TEXT)
            case _:
                self._answer(404, b"only /metrics and /healthz are here\n", _TEXT)

    def _answer(self, status: int, body: bytes, media_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of every scrape."""
