"""The threads that carry out prompt optimizations, each as one job at a time.

What is optimized, and how, is for an `Optimizer` to know, which stands on a floor above and is handed in. All that it is told is a
row before it goes on, so that a process that is killed leaves a job that the next one finds where it stood.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlalchemy import Row

from graftline.core.errors import GraftlineError
from graftline.harbor.leases import new_owner
from graftline.harbor.service import prompt_queue
from graftline.harbor.service.database import Database
from graftline.harbor.service.inner_task_app import InnerTaskApp
from graftline.harbor.service.job_schemas import JobStatus
from graftline.harbor.service.lookups import Parts
from graftline.harbor.service.rounds import make_rounds
from graftline.harbor.task_app_client import TaskAppClient

logger = logging.getLogger(__name__)

_LOOKS_EVERY_S = 0.5
_ENDS_WITHIN_S = 20.0
Tell = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Optimized:
    """What an optimization came to."""

    result: Mapping[str, Any] = field(default_factory=dict)
    """`best_score`, `mean_reward`, `best_prompt`, and the `outcome` as a whole."""
    error: str = ""
    """What it could not go on with."""
    remark: str = ""
    """What has to be said of one that came to its end."""


class DatabaseJournal:
    """The journal of one job, in rows."""

    def __init__(self, database: Database, job_id: str) -> None:
        self._database, self._job_id = database, job_id

    def lines(self) -> list[dict[str, Any]]:
        with self._database.reading() as connection:
            return prompt_queue.lines(connection, self._job_id, "journal")

    def append(self, line: Mapping[str, Any]) -> None:
        with self._database.writing() as connection:
            prompt_queue.append(connection, self._job_id, "journal", line)


class Optimizer(Protocol):
    """Carries out optimizations."""

    def deployment(self, config: Mapping[str, Any]) -> str:
        """Return the deployment that a configuration is about, by its id or name.

        Raises:
            ConfigError: the configuration is not whole, or asks for what a service does not do.
        """

    def run(
        self,
        config: Mapping[str, Any],
        task_app: TaskAppClient,
        journal: DatabaseJournal,
        job_id: str,
        stop: threading.Event,
        tell: Tell,
    ) -> Optimized:
        """Return what one came to; with `stop` set it ends soon.

        Raises:
            GraftlineError: it cannot be carried out.
        """


class PromptWorkers:
    """The threads of one service process."""

    def __init__(self, parts: Parts, optimizer: Optimizer) -> None:
        self._parts, self._optimizer, self._settings = parts, optimizer, parts.settings
        self.owner = new_owner()
        self._is_stopping, self._there_is_work = threading.Event(), threading.Event()
        self._running: dict[str, threading.Event] = {}
        self._threads: list[threading.Thread] = []

    @property
    def optimizer(self) -> Optimizer:
        """What carries them out."""
        return self._optimizer

    def start(self) -> None:
        """Begin to look for jobs."""
        names = [(f"prompts-{number}", self._look) for number in range(self._settings.optimizations_at_once)]
        for name, loop in [*names, ("prompt-leases", self._keep_leases)]:
            thread = threading.Thread(target=self._guarded, args=(loop,), name=f"harbor-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def wake(self) -> None:
        """Say that there is something to do."""
        self._there_is_work.set()

    def cancel(self, job_id: str) -> None:
        """Have a job end soon, if it runs here."""
        if (stop := self._running.get(job_id)) is not None:
            stop.set()

    def stop(self) -> None:
        """End everything; what runs is left to whoever comes next. A second call does nothing."""
        if self._is_stopping.is_set():
            return
        self._is_stopping.set()
        self._there_is_work.set()
        for stop in [*self._running.values()]:
            stop.set()
        for thread in self._threads:
            thread.join(_ENDS_WITHIN_S)

    def _guarded(self, loop: Callable[[], None]) -> None:
        make_rounds(loop, self._is_stopping, _LOOKS_EVERY_S, "a worker of optimizations")

    def _look(self) -> None:
        with self._parts.database.writing() as connection:
            job = prompt_queue.claim(connection, self.owner, self._settings.lease_s)
        if job is None:
            self._there_is_work.wait(_LOOKS_EVERY_S)
            self._there_is_work.clear()
            return
        stop = self._running[job.id] = threading.Event()
        if self._is_stopping.is_set():
            stop.set()
        try:
            self._run(job, stop)
        finally:
            del self._running[job.id]
            with self._parts.database.writing() as connection:
                prompt_queue.give_back(connection, job.id, self.owner)

    def _run(self, job: Row[Any], stop: threading.Event) -> None:
        told, database = self._teller(job.id), self._parts.database
        config = job.config["prompt_learning"]
        try:
            task_app = InnerTaskApp(self._parts, self._optimizer.deployment(config), lambda: self._is_cancelled(job.id))
            found = self._optimizer.run(config, task_app, DatabaseJournal(database, job.id), job.id, stop, told)
        except GraftlineError as error:
            found = Optimized(error=str(error))
        except Exception as error:
            logger.exception("optimization %s broke", job.id)
            found = Optimized(
                error=f"the optimization broke ({type(error).__name__}); the log of the service says where"
            )
        if self._is_stopping.is_set():
            return
        status = JobStatus.FAILED if found.error else JobStatus.COMPLETED
        with database.writing() as connection:
            is_told = prompt_queue.settle(
                connection, job.id, self.owner, status, found.error or found.remark or None, found.result
            )
            if is_told:
                told_as = {"status": status, "error": found.error or None}
                kind = "failed" if found.error else "succeeded"
                prompt_queue.append(connection, job.id, "event", {"kind": kind, "data": told_as})

    def _teller(self, job_id: str) -> Tell:
        """Return what keeps events; those that an earlier worker told of already are not told again."""
        with self._parts.database.reading() as connection:
            known = prompt_queue.lines(connection, job_id, "event")
        told = [event for event in known if event["kind"] not in _LAST]

        def tell(kind: str, data: Mapping[str, Any]) -> None:
            with self._parts.database.writing() as connection:
                if kind == "progress":
                    done, total = data["num_completed"], data["num_total"]
                    prompt_queue.note_progress(connection, job_id, self.owner, done, total)
                elif told and told[0] == {"kind": kind, "data": dict(data)}:
                    told.pop(0)
                else:
                    told.clear()
                    prompt_queue.append(connection, job_id, "event", {"kind": kind, "data": dict(data)})

        return tell

    def _is_cancelled(self, job_id: str) -> bool:
        return self._running[job_id].is_set() and not self._is_stopping.is_set()

    def _keep_leases(self) -> None:
        self._is_stopping.wait(min(1.0, self._settings.lease_s / 3))
        with self._parts.database.writing() as connection:
            running = prompt_queue.renew(connection, self.owner, self._settings.lease_s)
        for job_id in set(self._running) - running:
            # it was cancelled, by whichever process was asked to
            self.cancel(job_id)


_LAST = ("succeeded", "failed", "cancelled")
