"""Attempts of the partitions that a run comes to later, put into the queue of workers while it waits for the first ones.

A worker that finds nothing to do in one partition then works on the next. Each stage still waits for its own attempts, and
collects them in the order of its tasks.
"""

import logging
from collections.abc import Callable, Sequence

from graftline.astgrep.binding import Language
from graftline.core.errors import GraftlineError
from graftline.datasets.division import Split
from graftline.rollouts.queue.base import Job, JobQueue

logger = logging.getLogger(__name__)

Place = tuple[Language, Split]


class JobFeed:
    """The jobs of `places`, in their order; those of one place are in memory at a time.

    Where prompts show examples, which are verified steps of the training split of the same language, the other splits of a
    language wait until that one is made: their prompts are what they are in a run of one partition after the other.
    """

    def __init__(
        self, places: Sequence[Place], jobs_of: Callable[[Language, Split], Sequence[Job]], has_examples: bool
    ) -> None:
        self._pending, self._jobs_of, self._has_examples = [*places], jobs_of, has_examples
        self._begun: list[Place] = []
        self._waiting: list[Job] = []

    def begin(self, place: Place) -> None:
        """Leave the jobs of `place` to its stage, which begins now; those that began before are made."""
        self._begun.append(place)
        if place in self._pending:
            self._pending.remove(place)

    def put(self, queue: JobQueue) -> None:
        """Put as many jobs as there are, and as there is room for.

        Raises:
            QueueError: the queue cannot be reached.
        """
        while True:
            if self._waiting:
                self._waiting = self._waiting[queue.put(self._waiting) :]
            if self._waiting:
                return  # the queue is full
            place = next(filter(self._is_ready, self._pending), None)
            if place is None:
                return
            self._pending.remove(place)
            try:
                self._waiting = [*self._jobs_of(*place)]
            except GraftlineError as error:  # its own stage ends with it
                logger.warning("%s/%s: its attempts wait for their stage: %s", *place, error)

    def _is_ready(self, place: Place) -> bool:
        language, split = place
        return not self._has_examples or split == "train" or (language, "train") in self._begun[:-1]
