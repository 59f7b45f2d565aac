"""The threads of a service process, which build and run what the database says.

Whatever is accepted is in the database before it is answered. A process that is killed leaves rows that look as if they ran;
the next one, or another that is alive, has them wait again (`queue.lost_rows`).
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import Row, Table

from graftline.core.errors import GraftlineError
from graftline.harbor.contract import FailureCause, SuccessStatus
from graftline.harbor.executors.base import Execution
from graftline.harbor.leases import new_owner
from graftline.harbor.messages import RolloutStatus
from graftline.harbor.service import queue
from graftline.harbor.service.attempts import AttemptRunner
from graftline.harbor.service.builds import claim_build, make_snapshot
from graftline.harbor.service.prompt_jobs import Optimizer, claim_prompt_job, run_prompt_job
from graftline.harbor.service.state import Service
from graftline.harbor.service.tables import jobs, rollouts

logger = logging.getLogger(__name__)

_LOOKS_EVERY_S = 0.5
"""For work of other processes, and for what waited for its time; work of this process is seen at once."""
_ENDS_WITHIN_S = 10.0
_OPTIMIZATIONS_END_WITHIN_S = 20.0


class Workers:
    """The threads of one service process: they take builds, rollouts and optimizations, and give back what did not end."""

    def __init__(self, service: Service, optimizer: Optimizer | None = None) -> None:
        self._service, self._optimizer = service, optimizer
        self.owner = new_owner()
        self._runner = AttemptRunner(service, self.owner)
        self._stopping = threading.Event()
        # a row that names this process and is not among what runs was lost on the way to being written
        self._claiming = threading.Lock()
        self._optimizing: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._pool = ThreadPoolExecutor(service.settings.rollouts_at_once, "rollout")

    def start(self) -> None:
        """Take back what dead processes left, then work."""
        try:
            self._take_back()
        except GraftlineError as error:
            logger.warning("%s", error)  # the thread that keeps the leases does it as soon as the database is back
        settings = self._service.settings
        loops = [("rollouts", self._run_rollouts), ("leases", self._keep_leases)]
        loops += [(f"builds-{number}", self._run_build) for number in range(settings.builds_at_once)]
        if self._optimizer is not None:
            loops += [(f"prompts-{number}", self._run_prompt_job) for number in range(settings.optimizations_at_once)]
        for name, loop in loops:
            thread = threading.Thread(target=self._repeat, args=(loop,), name=f"harbor-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """End everything: what runs is given back, to be run by the next process. A second call does nothing."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._service.work.set()
        self._service.end_soon([*self._optimizing])
        self._pool.shutdown(wait=True, cancel_futures=True)
        seconds = _OPTIMIZATIONS_END_WITHIN_S if self._optimizing else _ENDS_WITHIN_S
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        try:
            self._service.running.clear()
            self._take_back()
        except GraftlineError as error:
            logger.warning("%s", error)  # the next process sees that this one is gone

    def _repeat(self, loop: Callable[[], None]) -> None:
        """Call `loop` until the service ends, whatever becomes of one call; a database that is away is waited for."""
        while not self._stopping.is_set():
            try:
                loop()
            except GraftlineError as error:
                logger.warning("%s", error)
                self._stopping.wait(_LOOKS_EVERY_S)
            except Exception:
                logger.exception("a worker of the service broke; it goes on")
                self._stopping.wait(_LOOKS_EVERY_S)

    def _claim(self, claim: Callable[[], Iterable[Row[Any] | None]]) -> list[tuple[Row[Any], threading.Event]]:
        """Return what `claim` takes, each with the event that ends it soon."""
        with self._claiming:
            claims = [(row, threading.Event()) for row in claim() if row is not None]
            self._service.running.update((row.id, event) for row, event in claims)
        return claims

    def _let_go(self, row_id: str, event: threading.Event) -> None:
        with self._claiming:
            # a rollout that was put back may run here again already
            if self._service.running.get(row_id) is event:
                del self._service.running[row_id]
        self._service.work.set()

    def _wait_for_work(self) -> None:
        self._service.work.wait(_LOOKS_EVERY_S)
        self._service.work.clear()

    def _run_rollouts(self) -> None:
        claims = self._claim(self._claim_rollouts)
        for rollout, cancelled in claims:
            self._pool.submit(self._run_rollout, rollout, cancelled)
        if not claims:
            self._wait_for_work()

    def _claim_rollouts(self) -> list[Row[Any]]:
        service, settings = self._service, self._service.settings
        free = settings.rollouts_at_once - sum(row_id.startswith("rol_") for row_id in service.running)
        if not free:
            return []
        with service.database.writing() as connection:
            claim = queue.claim_rollouts(
                connection, self.owner, settings.lease_s, service.executor.name, free, settings.rollouts_of_one,
                settings.longest_backoff_s,
            )  # fmt: skip
        for job_id, reason in claim.used_up.items():
            # apart, for the claim holds jobs, and to stop one takes its rollouts first; the next claim gets what remains
            with service.database.writing() as connection:
                queue.stop_beginning(connection, job_id, f"its budget is used up: {reason}")
        return claim.rollouts

    def _run_rollout(self, rollout: Row[Any], cancelled: threading.Event) -> None:
        try:
            if self._runner.run(rollout, cancelled, self._stopping.is_set):
                self._service.listeners.notify(rollout.id)
        except GraftlineError as error:
            logger.warning("rollout %s: %s", rollout.id, error)  # it is taken back, and run again
        except Exception:
            logger.exception("rollout %s: what came of it was not written; it is run again", rollout.id)
        finally:
            self._let_go(rollout.id, cancelled)

    def _run_build(self) -> None:
        claims = self._claim(lambda: [claim_build(self._service, self.owner)])
        for build, event in claims:
            try:
                for rollout_id in make_snapshot(self._service, build, self.owner):
                    self._service.listeners.notify(rollout_id)
            finally:
                self._let_go(build.id, event)
        if not claims:
            self._stopping.wait(_LOOKS_EVERY_S / 5)

    def _run_prompt_job(self) -> None:
        assert self._optimizer is not None
        claims = self._claim(lambda: [claim_prompt_job(self._service, self.owner)])
        for job, stop in claims:
            self._optimizing.add(job.id)
            if self._stopping.is_set():
                stop.set()
            try:
                run_prompt_job(self._service, self._optimizer, job, self.owner, stop, self._stopping.is_set)
            finally:
                with self._service.database.writing() as connection:
                    queue.release(connection, jobs, job.id, self.owner)
                self._optimizing.discard(job.id)
                self._let_go(job.id, stop)
        if not claims:
            self._wait_for_work()

    def _keep_leases(self) -> None:
        self._stopping.wait(min(1.0, self._service.settings.lease_s / 3))
        with self._service.database.writing() as connection:
            self._service.end_soon(queue.renew(connection, self.owner, self._service.settings.lease_s))
            open_ids = queue.open_evaluations(connection)
        for job_id in open_ids:  # whose last rollouts ended without a worker
            with self._service.database.writing() as connection:
                queue.end_if_done(connection, job_id)
        self._take_back()

    def _take_back(self) -> None:
        """Have wait again what workers had that are dead, or have said nothing for too long."""
        with self._claiming, self._service.database.reading() as connection:
            lost = queue.lost_rows(connection, self.owner, self._service.running)
        for table, row in lost:
            self._take_back_row(table, row)
        if lost:
            logger.warning("took back %d rollouts, builds and optimizations of workers that are gone", len(lost))
            self._service.work.set()

    def _take_back_row(self, table: Table, row: Row[Any]) -> None:
        error = "the worker that ran it is gone"
        with self._service.database.writing() as connection:
            if table is not rollouts:
                queue.requeue(connection, table, row)
                return
            execution = Execution(SuccessStatus.FAILURE, None, FailureCause.HARBOR_FAILED, error)
            queue.end_attempt(connection, row.id, row.attempts, execution)
            if not row.is_cancelled and row.attempts < self._service.settings.attempts:
                queue.requeue(connection, table, row)
                return
            values = {
                "status": RolloutStatus.CANCELLED if row.is_cancelled else RolloutStatus.FAILED,
                "failure_cause": FailureCause.CANCELLED if row.is_cancelled else FailureCause.HARBOR_FAILED,
                "success_status": SuccessStatus.FAILURE,
                "error": error,
                "finished_at": time.time(),
            }
            queue.requeue(connection, table, row, **values)
            if row.job_id is not None:
                queue.end_if_done(connection, row.job_id)
