"""An evaluation: several contestants attempt the same tasks, and every attempt is graded in the sandbox.

Figures are made of the attempts (`evals.figures`), pages of the figures (`evals.page`, `evals.browser`). A reply that says
nothing, because a machine failed, is asked for once more; then the attempt is kept apart, and never counts as a 0. Where
nobody answers at all, the evaluation ends with that error.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeVar

from graftline.core.errors import BoundaryError
from graftline.core.hashing import digest
from graftline.core.paths import file_name
from graftline.evals.attempt import Attempt
from graftline.evals.cases import Case, Question, digest_of
from graftline.evals.contestants import Contestant
from graftline.evals.grading import Grading
from graftline.evals.journal import Journal

logger = logging.getLogger(__name__)

Advance = Callable[[int, int], None]
_T = TypeVar("_T", int, float)

_LOOKS = 2
_PATIENCE = 16
"""So many questions, the first ones, without a single answer: nobody is there."""


def evaluate(
    cases: Sequence[Case],
    contestants: Mapping[str, Contestant],
    grading: Grading,
    attempts: int = 1,
    journals: Path | None = None,
    advance: Advance = lambda done, total: None,
) -> list[Attempt]:
    """Return all attempts of `contestants` at `cases`, one contestant after the other.

    Args:
        cases: Of different tasks.
        contestants: By name; they belong to the caller.
        grading: A `Grader`, or what `grading_workers` gives.
        attempts: Of each contestant at each task; of one that always says the same, one.
        journals: A folder, where what is done is kept for whoever goes on after a kill.
        advance: Told how many attempts of a contestant are done, and of how many.

    Raises:
        BoundaryError: a contestant does not answer at all, or grading fails as a whole.
        ValueError: two cases are of the same task; or there are journals, and a contestant that has no digest.
    """
    return [
        attempt
        for name, contestant in contestants.items()
        for attempt in attempts_of(name, contestant, cases, grading, attempts, journals, advance=advance)
    ]


def attempts_of(
    name: str,
    contestant: Contestant,
    cases: Sequence[Case],
    grading: Grading,
    attempts: int = 1,
    journals: Path | None = None,
    made_by: str = "",
    known: Sequence[Attempt] = (),
    advance: Advance = lambda done, total: None,
) -> list[Attempt]:
    """Return the attempts of one contestant, in the order of `cases`; see `evaluate`.

    Args:
        name: Of the contestant.
        contestant: Belongs to the caller.
        cases: As of `evaluate`, and so are `grading`, `attempts`, `journals` and `advance`.
        grading: See there.
        attempts: See there.
        journals: See there.
        made_by: Tells how the contestant is set: what a journal holds of another one does not count. Its own `digest`
            where it is empty.
        known: Attempts that were made before, and are not made again where they count.
        advance: See `evaluate`.
    """
    ids = [case.id for case in cases]
    if len(set(ids)) < len(ids):
        raise ValueError(f"two cases are of the task {next(id for id in ids if ids.count(id) > 1)!r}")
    began = time.monotonic()
    times = range(1, (attempts if contestant.draws else 1) + 1)
    questions = [Question(case, number) for case in cases for number in times]
    with ExitStack() as stack:
        journal = None
        if journals is not None:
            told_by = digest([made_by or _told_by(name, contestant), name, digest_of(cases)])
            journal = stack.enter_context(Journal(journals / f".{file_name(name)}.journal.jsonl", told_by))
        before = [*known, *(journal.known if journal else ())]
        found = {(one.task_id, one.attempt): one for one in before if one.contestant == name and not one.is_infra}
        for _ in range(_LOOKS):
            left = [one for one in questions if _says_nothing(found.get((one.case.id, one.attempt)))]
            for made in _made(name, contestant, left, grading, is_answered=_is_any_known(found)):
                attempt = _with_earlier(made, found.get((made.task_id, made.attempt)))
                found[attempt.task_id, attempt.attempt] = attempt
                if journal:
                    journal.add(attempt)
                advance(len(found), len(questions))
    if found and not _is_any_known(found):
        raise _silent(name, [*found.values()])
    ended = [found[one.case.id, one.attempt] for one in questions]
    seconds, infra = time.monotonic() - began, sum(one.is_infra for one in ended)
    logger.info("%s: %d attempts, %d of them say nothing, in %.1f s", name, len(ended), infra, seconds)
    return ended


def _made(
    name: str, contestant: Contestant, left: Sequence[Question], grading: Grading, is_answered: bool
) -> Iterator[Attempt]:
    """Raises BoundaryError: none of the first attempts says anything, nor did any before."""
    silent: list[Attempt] = []
    with closing(contestant.replies(left)) as replies:
        for attempt in grading(name, replies):
            is_answered = is_answered or not attempt.is_infra
            if not is_answered:
                silent.append(attempt)
            if len(silent) >= _PATIENCE and not is_answered:
                raise _silent(name, silent)
            yield attempt


def _told_by(name: str, contestant: Contestant) -> str:
    if not contestant.digest:
        raise ValueError(
            f"contestant {name!r}: does not say which model it asks, so that a journal cannot tell its answers from those of"
            " another; name the model"
        )
    return contestant.digest


def _with_earlier(attempt: Attempt, earlier: Attempt | None) -> Attempt:
    """Return an attempt that was made once more with what the earlier try used, as far as that is known."""
    if earlier is None:
        return attempt
    usd = _together(attempt.cost_usd, earlier.cost_usd, attempt.is_infra)
    tokens = _together(attempt.tokens, earlier.tokens, attempt.is_infra)
    return attempt.model_copy(update={"cost_usd": usd, "tokens": tokens})


def _together(now: _T | None, before: _T | None, is_infra: bool) -> _T | None:
    if before is None:
        return now
    if now is None:
        # of an answer that does not say what it used, the sum is not known; where there is none, nothing was added
        return before if is_infra else None
    return now + before


def _says_nothing(attempt: Attempt | None) -> bool:
    return attempt is None or attempt.is_infra


def _is_any_known(found: Mapping[tuple[str, int], Attempt]) -> bool:
    return not all(map(_says_nothing, found.values()))


def _silent(name: str, attempts: Sequence[Attempt]) -> BoundaryError:
    return BoundaryError(
        f"contestant {name!r}: of {len(attempts)} attempts none says anything, the last because of"
        f" {attempts[-1].cause}; mend that and run again, what was made is kept"
    )
