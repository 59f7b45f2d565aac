"""What is stored of attempts that are under way: their steps, by which another worker resumes them, and how they end.

A step is JSON here; what it means is `graftline.rollouts`'. An attempt is known by an identity, the digest of all that
it depends on: task, teacher, settings, code and number. One of another identity never resumes from its steps.

Two workers may have the same attempt, where one was taken for dead. The one that began last has the claim; the steps of
the other are refused, so that what is stored is always the way of one worker.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from graftline.core.errors import BoundaryError
from graftline.rollouts.state.store import StateStore, check_key

Phase = Literal["running", "interrupted", "failed", "verified"]
"""`running`: a worker has it, or was killed; `interrupted`: a worker gave it up, and the next one resumes it."""


@dataclass(frozen=True, slots=True)
class AttemptStatus:
    """How far an attempt came."""

    key: str
    """Of its state: `<task>#<attempt>`."""
    teacher: str
    phase: Phase
    steps: int
    reason: str
    """Why it failed or was interrupted; empty otherwise."""
    written_at: str
    """ISO 8601, UTC."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to go on with an attempt, until another worker begins it."""

    identity: str
    number: int


class AttemptLog:
    """The steps of attempts, in the file of `states`."""

    def __init__(self, states: StateStore) -> None:
        self._states = states

    def begin(self, identity: str, key: str, teacher: str) -> tuple[Claim, list[str]]:
        """Claim an attempt; return the steps that it took before, oldest first.

        Steps of the same teacher under the same `key`, but of another identity, are deleted: nobody can resume them.
        """
        with self._states.writing() as connection:
            connection.execute(
                "DELETE FROM steps WHERE identity IN"
                " (SELECT identity FROM attempts WHERE key = ? AND teacher = ? AND identity <> ?)",
                (check_key(key), teacher, identity),
            )
            rows = connection.execute("SELECT number, step FROM steps WHERE identity = ? ORDER BY number", (identity,))
            steps = [step for place, (number, step) in enumerate(rows.fetchall(), 1) if number == place]
            connection.execute("DELETE FROM steps WHERE identity = ? AND number > ?", (identity, len(steps)))
            [(number,)] = connection.execute(
                "INSERT INTO attempts (identity, key, teacher, claim, steps, phase, reason, written_at)"
                " VALUES (?, ?, ?, 1, ?, 'running', '', ?) ON CONFLICT (identity) DO UPDATE SET claim = claim + 1,"
                " steps = excluded.steps, phase = 'running', reason = '', written_at = excluded.written_at"
                " RETURNING claim",
                (identity, key, teacher, len(steps), self._states.now()),
            ).fetchall()
        return Claim(identity, number), steps

    def add(self, claim: Claim, number: int, step: str) -> None:
        """Store the step with this `number`, from 1.

        Raises:
            BoundaryError: another worker has the attempt by now.
        """
        with self._states.writing() as connection:
            written = connection.execute(
                "UPDATE attempts SET steps = ?, written_at = ? WHERE identity = ? AND claim = ?",
                (number, self._states.now(), claim.identity, claim.number),
            )
            if not written.rowcount:
                raise BoundaryError("the attempt was taken over by another worker, which goes on with it")
            connection.execute(
                "INSERT INTO steps (identity, number, step) VALUES (?, ?, ?)", (claim.identity, number, step)
            )

    def interrupt(self, claim: Claim, reason: str) -> None:
        """Note why an attempt does not go on for now; does nothing where another worker has it."""
        with self._states.writing() as connection:
            connection.execute(
                "UPDATE attempts SET phase = 'interrupted', reason = ?, written_at = ? WHERE identity = ? AND claim = ?",
                (reason, self._states.now(), claim.identity, claim.number),
            )

    def discard(self, claim: Claim) -> None:
        """Delete the steps of an attempt, which then begins anew; does nothing where another worker has it."""
        self.end(claim, "running", 0)

    def end(self, claim: Claim, phase: Phase, steps: int, reason: str = "") -> None:
        """Note how an attempt ended whose trajectory is stored, and delete its steps, which are in that.

        Does nothing where another worker has the attempt.
        """
        with self._states.writing() as connection:
            written = connection.execute(
                "UPDATE attempts SET phase = ?, steps = ?, reason = ?, written_at = ? WHERE identity = ? AND claim = ?",
                (phase, steps, reason, self._states.now(), claim.identity, claim.number),
            )
            if written.rowcount:
                connection.execute("DELETE FROM steps WHERE identity = ?", (claim.identity,))

    def statuses(self, key: str | None = None) -> Sequence[AttemptStatus]:
        """Return how far attempts came, all or those under `key`: by key, the one that was written last first."""
        if key is not None:
            check_key(key)
        with self._states.reading() as connection:
            rows = connection.execute(
                "SELECT key, teacher, phase, steps, reason, written_at FROM attempts WHERE ?1 IS NULL OR key = ?1"
                " ORDER BY key, written_at DESC, rowid DESC",
                (key,),
            ).fetchall()
        return [AttemptStatus(*row) for row in rows]
