"""The threads of a service process, which build and run what the database says.

Whatever is accepted is in the database before it is answered. A process that is killed leaves builds and rollouts that
look as if they ran; the next one, or another that is alive, takes them back (`harbor.owners`).
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sqlalchemy import Connection, Row, update

from graftline.core.errors import GraftlineError
from graftline.harbor.contract import FailureCause, SuccessStatus
from graftline.harbor.executors.base import Execution, Executor
from graftline.harbor.leases import is_dead, new_owner
from graftline.harbor.service import jobs as stored_jobs
from graftline.harbor.service import rollout_queue
from graftline.harbor.service.build_workers import BuildWorker
from graftline.harbor.service.database import Database
from graftline.harbor.service.rollout_workers import RolloutWorker
from graftline.harbor.service.rounds import make_rounds
from graftline.harbor.service.schemas import BuildStatus, RolloutStatus
from graftline.harbor.service.settings import ServiceSettings
from graftline.harbor.service.tables import builds

logger = logging.getLogger(__name__)

_LOOKS_EVERY_S = 0.5
"""For work of other processes, and for what waited for its time; work of this process is seen at once."""
_ENDS_WITHIN_S = 10.0

Ended = Callable[[str], None]


class Workers:
    """The threads of one service process: they take builds and rollouts from the database, and give back what was left."""

    def __init__(
        self,
        database: Database,
        executor: Executor,
        settings: ServiceSettings,
        secrets: Mapping[str, str] | None = None,
        ended: Ended = lambda rollout_id: None,
    ) -> None:
        """Make them; `ended` is called, from one of them, with the id of every rollout that has ended."""
        self._database, self._executor, self._settings, self._ended = database, executor, settings, ended
        self.owner = new_owner()
        self._rollouts = RolloutWorker(database, executor, settings, self.owner, secrets or {})
        self._builds = BuildWorker(database, executor, settings, self.owner)
        self._there_is_work, self._is_stopping = threading.Event(), threading.Event()
        # what this process holds; a row that names it and is not here was lost on the way to being written
        self._held: set[str] = set()
        self._holding = threading.Lock()
        self._cancelled: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._pool = ThreadPoolExecutor(settings.rollouts_at_once, "rollout")

    def start(self) -> None:
        """Take back what dead processes left, then work."""
        try:
            self._take_back()
        except GraftlineError as error:
            logger.warning("%s", error)  # whoever keeps the leases does it as soon as the database is back
        loops = [("rollouts", self._run_rollouts), ("leases", self._keep_leases)]
        loops += [(f"builds-{number}", self._make_builds) for number in range(self._settings.builds_at_once)]
        for name, loop in loops:
            thread = threading.Thread(target=self._guarded, args=(loop,), name=f"harbor-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def wake(self) -> None:
        """Say that there is something to do."""
        self._there_is_work.set()

    def cancel(self, rollout_ids: Sequence[str]) -> None:
        """Have rollouts ended at once, if they run here."""
        self._cancelled.update(rollout_ids)

    def stop(self) -> None:
        """End everything: what runs is given back, to be run by whoever comes next. A second call does nothing."""
        if self._is_stopping.is_set():
            return
        self._is_stopping.set()
        self._there_is_work.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        deadline = time.monotonic() + _ENDS_WITHIN_S
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        try:
            self._held.clear()
            self._take_back()
        except GraftlineError as error:
            logger.warning("%s", error)  # whoever comes next sees that this process is gone

    def _guarded(self, loop: Callable[[], None]) -> None:
        make_rounds(loop, self._is_stopping, _LOOKS_EVERY_S, "a worker of the service")

    def _run_rollouts(self) -> None:
        with self._holding:
            free = self._settings.rollouts_at_once - len(self._held)
            claimed = self._claim(free) if free else []
            self._held.update(rollout.id for rollout in claimed)
        if not claimed:
            self._there_is_work.wait(_LOOKS_EVERY_S)
            self._there_is_work.clear()
        for rollout in claimed:
            self._pool.submit(self._run, rollout)

    def _claim(self, most: int) -> list[Row[Any]]:
        settings = self._settings
        with self._database.writing() as connection:
            claimed = rollout_queue.claim(
                connection, self.owner, settings.lease_s, self._executor.name, most, settings.rollouts_of_one,
                settings.longest_backoff_s,
            )  # fmt: skip
        for job_id, reason in claimed.used_up.items():
            # apart, for the claim holds jobs, and to stop one takes its rollouts first; the next claim finds what is left
            with self._database.writing() as connection:
                stored_jobs.stop_beginning(connection, job_id, f"its budget is used up: {reason}")
        return claimed.rollouts

    def _run(self, rollout: Row[Any]) -> None:
        try:
            is_over = self._rollouts.run(rollout, lambda: rollout.id in self._cancelled, self._is_stopping.is_set)
            if is_over:
                self._cancelled.discard(rollout.id)
                self._ended(rollout.id)
        except GraftlineError as error:
            logger.warning("rollout %s: %s", rollout.id, error)  # it is taken back, and run again
        except Exception:
            logger.exception("rollout %s: what came of it was not written; it is run again", rollout.id)
        finally:
            with self._holding:
                self._held.discard(rollout.id)
            self._there_is_work.set()

    def _make_builds(self) -> None:
        build_id = self._builds.take()
        if build_id is None:
            self._is_stopping.wait(_LOOKS_EVERY_S / 5)
            return
        for rollout_id in self._builds.make(build_id):
            self._ended(rollout_id)
        self._there_is_work.set()

    def _keep_leases(self) -> None:
        self._is_stopping.wait(min(1.0, self._settings.lease_s / 3))
        with self._database.writing() as connection:
            rollout_queue.renew(connection, self.owner, self._settings.lease_s)
            self._cancelled |= rollout_queue.cancelled_of(connection, self.owner)
            open_ids = stored_jobs.open_ids(connection)
        for job_id in open_ids:  # whose last rollouts ended without a worker
            with self._database.writing() as connection:
                stored_jobs.end_if_done(connection, job_id)
        self._take_back()

    def _take_back(self) -> None:
        """Queue again what workers had that are dead, or have said nothing for too long."""
        now = time.time()
        with self._holding, self._database.reading() as connection:
            lost = [row for row in rollout_queue.held(connection) if self._is_lost(row, now, row.id in self._held)]
            is_building = not self._is_stopping.is_set()
            lost_builds = [row for row in _builds_under_way(connection) if self._is_lost(row, now, is_building)]
        if not lost and not lost_builds:
            return
        for row in lost:
            self._take_back_rollout(row)
        with self._database.writing() as connection:
            for row in lost_builds:
                connection.execute(
                    update(builds)
                    .where(builds.c.id == row.id, builds.c.lease_owner == row.lease_owner)
                    .values(status=BuildStatus.PENDING, lease_owner=None, lease_until=None)
                )
        logger.warning("took back %d rollouts and %d builds of workers that are gone", len(lost), len(lost_builds))
        self._there_is_work.set()

    def _take_back_rollout(self, row: Row[Any]) -> None:
        error = "the worker that ran it is gone"
        execution = Execution(SuccessStatus.FAILURE, None, FailureCause.HARBOR_FAILED, error)
        with self._database.writing() as connection:
            rollout_queue.end_attempt(connection, row.id, row.attempts, execution)
            if row.is_cancelled or row.attempts >= self._settings.attempts:
                cause = FailureCause.CANCELLED if row.is_cancelled else FailureCause.HARBOR_FAILED
                values = {
                    "status": RolloutStatus.CANCELLED if row.is_cancelled else RolloutStatus.FAILED,
                    "success_status": SuccessStatus.FAILURE,
                    "failure_cause": cause,
                    "error": error,
                }
                rollout_queue.settle(connection, row.id, row.lease_owner, values)
                if row.job_id is not None:
                    stored_jobs.end_if_done(connection, row.job_id)
            else:
                rollout_queue.put_back(connection, row.id, row.lease_owner, 0.0)

    def _is_lost(self, row: Row[Any], now: float, is_held: bool) -> bool:
        if row.lease_owner == self.owner:
            return not is_held
        return row.lease_owner is None or row.lease_until < now or is_dead(row.lease_owner)


def _builds_under_way(connection: Connection) -> list[Row[Any]]:
    return list(connection.execute(builds.select().where(builds.c.status == BuildStatus.BUILDING)))
