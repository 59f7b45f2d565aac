"""Rollouts of the refactoring environment that come in, and what has to be in the database of the service in the end.

Every seed and policy has one right reward, worked out beforehand in this process. Who asks repeats the same request, under
the same key, until it is answered, as the SDK does.
"""

import itertools
import random
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import func, select

from benchmarks.soak_parts.site import DEPLOYMENT, TASKS, Site
from graftline.core.errors import HarborError
from graftline.harbor.contract import RolloutRequest
from graftline.harbor.deployment_file import find_deployment
from graftline.harbor.environments.refactoring import RefactoringEnvironment
from graftline.harbor.messages import RolloutStatus
from graftline.harbor.service.database import Database
from graftline.harbor.service.tables import attempts, instances, rollouts
from graftline.harbor.uploader import HarborDeploymentUploader
from graftline.sandbox.actions.memory import MemorySandbox

KEY = "a-key-of-the-soak-alone"
_TEACHERS = ("induction", "memory", "nop")
_PAUSE_S, _ANSWER_S = 0.3, 120.0
_ASKED_AGAIN = 0.1
_REWARD_DIFFERS = 1e-9


@dataclass(frozen=True)
class Answer:
    """What came of one key, the first time that it was answered."""

    seed: int
    teacher: str
    reward: float | None
    at: float


def expected_rewards(tasks: list[Any]) -> dict[tuple[int, str], float | None]:
    """Return the right reward of every seed and teacher."""
    environment = RefactoringEnvironment(tasks, MemorySandbox())
    return {
        (seed, teacher): environment.run_rollout(RolloutRequest.model_validate(_request("known", seed, teacher)))
        .reward_info.outcome_reward
        for seed, teacher in itertools.product(range(len(tasks)), _TEACHERS)
    }  # fmt: skip


def upload(site: Site) -> str:
    """Return the id of the deployment once it is built, however often the service is killed meanwhile."""
    uploader = HarborDeploymentUploader(site.harbor_url, KEY)
    with tempfile.TemporaryDirectory() as staging:
        spec = find_deployment(DEPLOYMENT, site.root).spec(Path(staging))
        while True:
            try:
                made = uploader.create_deployment(spec)
                uploader.wait_for_build(made.id, 120.0, 0.2)
            except HarborError:
                time.sleep(_PAUSE_S)
            else:
                return made.id


class Rollouts:
    """Threads that ask for rollouts until they are told to stop; what was asked for is still waited for.

    Once `stop` returns nothing here changes any more, though a thread may still wait for an answer.
    """

    def __init__(self, site: Site, deployment: str, seed: int, threads: int = 2) -> None:
        self._site, self.deployment = site, deployment
        self._chance, self._numbers, self._guard = random.Random(seed), itertools.count(), threading.Lock()
        self._is_over, self._is_given_up = threading.Event(), threading.Event()
        self.answers: dict[str, Answer] = {}
        self.asked: dict[str, tuple[int, str]] = {}
        self.changed: list[str] = []
        """Keys that were answered in two ways."""
        self.refusals: Counter[int] = Counter()
        self.repeated = 0
        self._threads = [threading.Thread(target=self._run, name=f"rollouts-{n}", daemon=True) for n in range(threads)]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def halt(self) -> None:
        """Ask for no more."""
        self._is_over.set()

    def stop(self, within_s: float) -> None:
        """Ask for no more, and wait so long for the answers."""
        self._is_over.set()
        deadline = time.monotonic() + within_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._guard:
            self._is_given_up.set()

    def _run(self) -> None:
        with httpx.Client(base_url=self._site.harbor_url, headers={"X-API-Key": KEY}, timeout=_ANSWER_S) as client:
            while (following := self._next()) is not None:
                key, seed, teacher = following
                reward = self._answer(client, key, seed, teacher)
                if reward is not None:
                    self.note(key, Answer(seed, teacher, reward[0], time.monotonic()))

    def note(self, key: str, answer: Answer) -> None:
        """Keep the first answer to a key, and whether this one is another; nothing once `stop` has returned."""
        with self._guard:
            if self._is_given_up.is_set():
                return
            if self.answers.setdefault(key, answer).reward != answer.reward:
                self.changed.append(key)

    def _note_refusal(self, status: int | None) -> None:
        """Count an answer that is no reward; None where nobody answered."""
        with self._guard:
            if self._is_given_up.is_set():
                return
            if status is None:
                self.repeated += 1
            else:
                self.refusals[status] += 1

    def _next(self) -> tuple[str, int, str] | None:
        with self._guard:
            if self._is_over.is_set():
                return None
            if self.answers and self._chance.random() < _ASKED_AGAIN:
                key = self._chance.choice([*self.answers])
                return key, *self.asked[key]
            key = f"soak-{next(self._numbers)}"
            self.asked[key] = self._chance.randrange(TASKS), self._chance.choice(_TEACHERS)
            return key, *self.asked[key]

    def _answer(self, client: httpx.Client, key: str, seed: int, teacher: str) -> tuple[float | None] | None:
        """Return the reward of a rollout; None where nobody answered before it was given up."""
        at = f"/api/harbor/deployments/{self.deployment}/rollout"
        while not self._is_given_up.is_set():
            try:
                answer = client.post(at, json=_request(key, seed, teacher), headers={"Idempotency-Key": key})
            except httpx.TransportError:
                self._note_refusal(None)
            else:
                if answer.status_code == httpx.codes.OK:
                    return (answer.json()["reward_info"]["outcome_reward"],)
                self._note_refusal(answer.status_code)
            self._is_given_up.wait(_PAUSE_S)
        return None


def judged(load: Rollouts, url: str, expected: dict[tuple[int, str], float | None]) -> tuple[dict[str, Any], list[str]]:
    """Return figures of the rollouts, and everything about them that is not as it has to be."""
    with Database(url) as database, database.reading() as connection:
        rows = {row.key: row for row in connection.execute(select(rollouts)).all()}
        count = connection.execute(select(func.count()).select_from(rollouts)).scalar_one()
        made = connection.execute(select(attempts)).all()
        known = connection.execute(select(instances.c.seed).where(instances.c.deployment_id == load.deployment)).all()
    rewarded = Counter(one.rollout_id for one in made if one.reward is not None)
    faults = [f"rollout {key}: was accepted and is gone" for key in load.answers if key not in rows]
    faults += [f"rollout {key}: was asked for and never answered" for key in load.asked if key not in load.answers]
    faults += [f"rollout {key}: was answered in two ways" for key in load.changed]
    faults += [f"rollout {key}: nobody asked for it" for key in rows if key not in load.asked]
    if count != len(rows) or len(known) != len({row.seed for row in known}):
        faults.append("the database has a rollout or an instance twice")
    for key, row in rows.items():
        faults += [f"rollout {key}: {fault}" for fault in _faults_of(row, rewarded[row.id], expected)]
    faults += [
        f"attempt {one.number} at {one.rollout_id}: has a reward and a cause of failure"
        for one in made
        if one.reward is not None and one.failure_cause is not None
    ]
    ends = Counter(str(row.status) for row in rows.values())
    figures = {
        "accepted": len(rows),
        "ended": dict(ends),
        "right_reward": sum(
            row.reward is not None and _is_right(row.reward, expected[row.seed, _teacher(row)]) for row in rows.values()
        ),
        "rewarded_twice": sum(number > 1 for number in rewarded.values()),
        "attempts_lost_with_their_process": sum(one.reward is None for one in made),
        "requests_repeated": load.repeated,
        "refusals": {str(status): number for status, number in load.refusals.items()},
    }
    return figures, faults


def _faults_of(row: Any, rewarded: int, expected: dict[tuple[int, str], float | None]) -> list[str]:
    if row.status in (RolloutStatus.QUEUED, RolloutStatus.RUNNING):
        return [f"is {row.status} after everything had ended"]
    right = expected[row.seed, _teacher(row)]
    faults = []
    if row.reward is None and (row.failure_cause is None or rewarded):
        faults.append("has no reward and no cause, or an attempt that has one")
    if row.reward is not None and rewarded != 1:
        faults.append(f"{rewarded} of its attempts have a reward")
    if row.reward is not None and not _is_right(row.reward, right):
        faults.append(f"has the reward {row.reward}, and {right} is right")
    return faults


def _is_right(reward: float, right: float | None) -> bool:
    return right is not None and abs(reward - right) < _REWARD_DIFFERS


def _teacher(row: Any) -> str:
    return str(row.request["policy"]["config"]["teacher"])


def _request(key: str, seed: int, teacher: str) -> dict[str, Any]:
    return {
        "trace_correlation_id": key,
        "env": {"seed": seed},
        "policy": {"config": {"teacher": teacher}},
    }
