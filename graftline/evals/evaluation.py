"""An evaluation: several solvers attempt the same tasks, and every attempt is graded in the sandbox.

A reply that says nothing, because a machine failed, is asked for once more; then the attempt is kept apart, and never counts as
a 0. Where nobody answers at all, the evaluation ends with that error. Not here: metrics (`evals.metrics`) and pages
(`evals.report`).
"""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeVar

from graftline.core.errors import BoundaryError
from graftline.core.hashing import digest
from graftline.core.jsonl import Journal
from graftline.core.paths import file_name
from graftline.evals.attempt import Attempt, Question
from graftline.evals.cases import Case, digest_of
from graftline.evals.grading import Grading
from graftline.evals.solvers import Solver

logger = logging.getLogger(__name__)

Advance = Callable[[int, int], None]
_T = TypeVar("_T", int, float)

_ROUNDS = 2
_MOST_SILENT = 16
"""So many questions, the first ones, without a single answer: nobody is there."""


def evaluate(
    cases: Sequence[Case],
    solvers: Mapping[str, Solver],
    grading: Grading,
    attempts: int = 1,
    journals: Path | None = None,
    advance: Advance = lambda done, total: None,
) -> list[Attempt]:
    """Return all attempts of `solvers` at `cases`, one solver after the other.

    Args:
        cases: Of different tasks.
        solvers: By name; they belong to the caller.
        grading: A `Grader`, or what `grading_workers` gives.
        attempts: Of each solver at each task; of one that always answers the same, one.
        journals: A folder, where attempts are kept for whoever goes on after a kill.
        advance: Called with how many attempts of a solver are done, and of how many.

    Raises:
        BoundaryError: a solver does not answer at all, or grading fails as a whole.
        ValueError: two cases are of the same task; or there are journals, and a solver that has no digest.
    """
    return [
        attempt
        for name, solver in solvers.items()
        for attempt in run_solver(name, solver, cases, grading, attempts, journals, advance=advance)
    ]


def run_solver(
    name: str,
    solver: Solver,
    cases: Sequence[Case],
    grading: Grading,
    attempts: int = 1,
    journals: Path | None = None,
    settings_digest: str = "",
    earlier: Sequence[Attempt] = (),
    advance: Advance = lambda done, total: None,
) -> list[Attempt]:
    """Return the attempts of one solver, in the order of `cases`; arguments and errors are those of `evaluate`.

    Args:
        settings_digest: How the solver is set: a journal of another one does not count. Its own `digest` where it is empty.
        earlier: Attempts of before; those that count are not made again.
    """
    ids = [case.id for case in cases]
    if len(set(ids)) < len(ids):
        raise ValueError(f"two cases are of the task {next(id for id in ids if ids.count(id) > 1)!r}")
    began = time.monotonic()
    numbers = range(1, (attempts if solver.draws else 1) + 1)
    questions = [Question(case, number) for case in cases for number in numbers]
    with ExitStack() as stack:
        journal = None
        if journals is not None:
            key = digest([settings_digest or _digest_of_solver(name, solver), name, digest_of(cases)])
            header = json.dumps({"made_by": key}).encode()
            journal = stack.enter_context(Journal(journals / f".{file_name(name)}.journal.jsonl", Attempt, header))
        stored = [*earlier, *(journal.rows if journal else ())]
        done = {(a.task_id, a.attempt): a for a in stored if a.solver == name and not a.is_infra}
        for _ in range(_ROUNDS):
            open_questions = [question for question in questions if not _counts(done.get(_key(question)))]
            for attempt in _ask(name, solver, open_questions, grading, any(map(_counts, done.values()))):
                key_of_attempt = attempt.task_id, attempt.attempt
                attempt = _add_cost(attempt, done.get(key_of_attempt))
                done[key_of_attempt] = attempt
                if journal and not attempt.is_infra:
                    journal.append(attempt)
                advance(len(done), len(questions))
    if done and not any(map(_counts, done.values())):
        raise _no_answer(name, [*done.values()])
    results = [done[_key(question)] for question in questions]
    seconds, infra = time.monotonic() - began, sum(attempt.is_infra for attempt in results)
    logger.info("%s: attempts %d, %d of them say nothing, in %.1f s", name, len(results), infra, seconds)
    return results


def _ask(
    name: str, solver: Solver, questions: Sequence[Question], grading: Grading, has_answers: bool
) -> Iterator[Attempt]:
    """Raises BoundaryError: none of the first attempts says anything, nor did any before."""
    silent: list[Attempt] = []
    with closing(solver.replies(questions)) as replies:
        for attempt in grading(name, replies):
            has_answers = has_answers or not attempt.is_infra
            if not has_answers:
                silent.append(attempt)
            if len(silent) >= _MOST_SILENT and not has_answers:
                raise _no_answer(name, silent)
            yield attempt


def _digest_of_solver(name: str, solver: Solver) -> str:
    if not solver.digest:
        raise ValueError(
            f"solver {name!r}: does not say which model it asks, so that a journal cannot tell its answers from those of"
            " another; name the model"
        )
    return solver.digest


def _add_cost(attempt: Attempt, earlier: Attempt | None) -> Attempt:
    """Return an attempt that was made once more with what the earlier try used, as far as that is known."""
    if earlier is None:
        return attempt
    usd = _add(attempt.cost_usd, earlier.cost_usd, attempt.is_infra)
    tokens = _add(attempt.tokens, earlier.tokens, attempt.is_infra)
    return attempt.model_copy(update={"cost_usd": usd, "tokens": tokens})


def _add(now: _T | None, before: _T | None, is_infra: bool) -> _T | None:
    if before is None:
        return now
    if now is None:
        # of an answer that does not say what it used, the sum is not known; where there is none, nothing was added
        return before if is_infra else None
    return now + before


def _key(question: Question) -> tuple[str, int]:
    return question.case.id, question.attempt


def _counts(attempt: Attempt | None) -> bool:
    return attempt is not None and not attempt.is_infra


def _no_answer(name: str, attempts: Sequence[Attempt]) -> BoundaryError:
    return BoundaryError(
        f"solver {name!r}: of {len(attempts)} attempts none says anything, the last because of"
        f" {attempts[-1].cause}; mend that and run again, what was made is kept"
    )
