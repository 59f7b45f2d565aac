"""Pairs solved one by one, each with its time, and the figures of many."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.induction_pairs import Pair
from benchmarks.induction_replay import Replay, replayed
from benchmarks.induction_unseen import PER_LANGUAGE, UnseenFiles
from graftline.codemod.equality import Level
from graftline.codemod.induce import Induction
from graftline.core.errors import SandboxError
from graftline.core.progress import Progress
from graftline.sandbox import Sandbox

Way = Callable[[Pair, Sandbox], Induction]
"""How a pair is solved."""
WARM_UP = 5


@dataclass(frozen=True, slots=True)
class Solved:
    """What became of one pair."""

    pair: Pair
    induction: Induction
    ms: float
    crash: str
    """What was raised instead of an answer; empty where nothing was."""
    touched: tuple[int, ...]
    """For each general rule of a solution, the places it changes in files of other repositories."""
    replay: Replay | None
    """None where there is no solution, or none was replayed."""

    @property
    def failure(self) -> str:
        """Its class; empty for a solution."""
        return self.crash.partition(":")[0] or self.induction.unsolved


def solved(pair: Pair, way: Way, sandbox: Sandbox) -> Solved:
    """Return what `way` makes of `pair`, which is asked once more where the sandbox fails.

    Raises:
        SandboxError: the sandbox failed twice; nothing is known about the pair.
    """
    try:
        return _solved(pair, way, sandbox)
    except SandboxError:
        return _solved(pair, way, sandbox)


def _solved(pair: Pair, way: Way, sandbox: Sandbox) -> Solved:
    started, crash = time.perf_counter(), ""
    try:
        induction = way(pair, sandbox)
    except SandboxError:
        raise
    except Exception as error:  # no input may make it fail, so that it did is a finding
        induction, crash = Induction((), pair.before, Level.NONE, ""), f"crash {type(error).__name__}: {error}"
    return Solved(pair, induction, (time.perf_counter() - started) * 1000, crash, (), None)


def solved_each(pairs: Sequence[Pair], way: Way, sandbox: Sandbox, progress: Progress, name: str) -> Iterator[Solved]:
    """Yield what becomes of every pair, after a few that warm up.

    Raises:
        SandboxError: the sandbox failed twice.
    """
    progress.start("induction", name)
    for pair in pairs[:WARM_UP]:
        solved(pair, way, sandbox)
    for number, pair in enumerate(pairs, 1):
        yield solved(pair, way, sandbox)
        progress.advance(number, len(pairs))
    progress.finish(f"{len(pairs)} pairs")


def examined(one: Solved, unseen: UnseenFiles | None, sandbox: Sandbox, folder: Path) -> Solved:
    """Return `one` with what its general rules do elsewhere, and whether ast-grep's command line comes to the same.

    Raises:
        SandboxError: the sandbox failed.
    """
    if not one.induction.is_verified or not one.induction.steps:
        return one
    pair = one.pair
    files = unseen.apart_from(pair.group, pair.language, PER_LANGUAGE) if unseen else []
    touched = tuple(
        unseen.touched(step.action, files, sandbox)
        for step in one.induction.steps
        if unseen and files and step.chosen.is_general
    )
    replay = replayed(pair.before, one.induction, pair.language, sandbox, folder)
    return Solved(pair, one.induction, one.ms, one.crash, touched, replay)


def figures_of(found: Sequence[Solved]) -> dict[str, Any]:
    """Return the figures of these pairs; shares are of all of them, but for `untouched_percent` and `replay`."""
    count = len(found)
    right = [one for one in found if one.induction.is_verified and not one.crash]
    levels = Counter(one.induction.level for one in right)
    steps = [len(one.induction.steps) for one in right]
    touched = [places for one in right for places in one.touched]
    return {
        "pairs": count,
        "solved_percent": percent(len(right), count),
        **{f"{level}_percent": percent(levels[level], count) for level in (Level.EXACT, Level.BLANKS, Level.TREE)},
        "some_general_percent": percent(
            sum(any(step.chosen.is_general for step in one.induction.steps) for one in right), count
        ),
        "all_general_percent": percent(sum(one.induction.is_all_general for one in right), count),
        "steps": {"mean": round(sum(steps) / len(steps), 2), "one_percent": percent(steps.count(1), len(steps))}
        if steps
        else None,
        "general_rules": len(touched),
        "untouched_percent": percent(touched.count(0), len(touched)),
        "touching_more_than_three_percent": percent(sum(places > 3 for places in touched), len(touched)),
        "ms": milliseconds([one.ms for one in found]),
        "failures": dict(sorted(Counter(one.failure for one in found if one.failure).items())),
        "replay": replay_figures([one.replay for one in right if one.replay is not None]),
    }


def replay_figures(replays: Sequence[Replay]) -> dict[str, Any]:
    """Return how many solutions were replayed, and in how many ast-grep's command line agrees."""
    return {
        "solutions": len(replays),
        "as_written_percent": percent(sum(one.is_same_as_written for one in replays), len(replays)),
        "at_the_end_percent": percent(sum(one.is_same_at_the_end for one in replays), len(replays)),
        "by_itself_percent": percent(sum(one.is_same_by_itself for one in replays), len(replays)),
    }


def by(found: Iterable[Solved], key: Callable[[Solved], str]) -> dict[str, dict[str, Any]]:
    """Return the figures of every group that `key` makes."""
    groups: dict[str, list[Solved]] = {}
    for one in found:
        groups.setdefault(key(one), []).append(one)
    return {name: figures_of(groups[name]) for name in sorted(groups)}


def shares_by(found: Iterable[Solved], key: Callable[[Solved], str]) -> dict[str, dict[str, Any]]:
    """Return the main shares of every group that `key` makes."""
    kept = ("pairs", "solved_percent", "exact_percent", "all_general_percent")
    return {name: {figure: figures[figure] for figure in kept} for name, figures in by(found, key).items()}


def percent(part: int, whole: int) -> float | None:
    """Return a share in percent; None of nothing."""
    return round(100 * part / whole, 1) if whole else None


def milliseconds(values: Sequence[float]) -> dict[str, float] | None:
    """Return the median, the 90th and the 99th percentile (nearest rank); None of nothing."""
    ordered = sorted(values)
    ranks = {"p50": 50, "p90": 90, "p99": 99}
    if not ordered:
        return None
    return {name: round(ordered[math.ceil(rank / 100 * len(ordered)) - 1], 1) for name, rank in ranks.items()}


def failure_row(one: Solved, has_texts: bool) -> dict[str, Any]:
    """Return what is to be looked at by eye of a pair that is not solved, or not exactly."""
    row = {
        "id": one.pair.id,
        "source": one.pair.source,
        "origin": one.pair.origin,
        "language": one.pair.language,
        "reason": one.crash or one.induction.unsolved or one.induction.level,
        "ms": round(one.ms, 1),
    }
    if has_texts:
        row["steps"] = [step.action.model_dump() for step in one.induction.steps]
        row |= {"before": one.pair.before, "wanted": one.pair.after, "result": one.induction.result}
    return row
