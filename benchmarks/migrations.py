"""How much of a real mechanical commit comes out of one or three edits of it, and what else is changed.

The measure is `graftline.codemod.change_places`, its means those of `graftline.evals.place_metrics`; 3 seeds a commit,
then the mean over commits. `recall_at_p90` is recall, counted as 0 where precision is below 0.9 or nothing is changed;
`solved` the share of commits with both of at least 0.9; `false_per_1000` changes in a thousand untouched files.
`per_run` has the first two of single runs.

* `generalize`: demonstrations, repository and subject, without answers; `generalize-asks` with at most five yes/no
  answers, which the commit gives: yes, if the change shown is a part of what it does there; `generalize-model`, asked
  for by name, with the answers of a language model that has the subject (a fleet that is up, with `--workers 1`);
* `learn`: the rules of `graftline learn` for the demonstrations, applied everywhere;
* `sed`, a peer: the tokens that the demonstrations replace, everywhere at word boundaries;
* `template`, a peer: templates with holes as comby has them, made of the demonstrations (`benchmarks.peers.templates`);
* `release-0.1.0`, a peer if it is named in `--arms`: the commands of version 0.1.0, from its wheel in data/benchmarks.

Commits of the repositories `HELD_OUT` are reported as means alone: nothing was tuned on them. Results are kept in
`--cache` by commit, arm and the code of the arm, so that a run goes on where it was ended.

    python -m benchmarks.migrations [--arms learn,sed] [--shown 1,3] [--half tuning] [--limit N] [--workers N]
"""

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.arguments import numbers, some_of
from benchmarks.commands import CHECKOUT
from benchmarks.machine import machine
from benchmarks.migration_arms import ARMS, code_of, make_worker
from benchmarks.migration_measure import read_commits, score_of
from graftline.core.hashing import sha256_text
from graftline.core.processes import Workers, default_workers
from graftline.evals.place_metrics import summarize_places

DATA = CHECKOUT.parent / "shared" / "data"
CACHE = CHECKOUT / "data" / "benchmarks" / "migrations"
PEERS = ("learn", "sed", "template", "release-0.1.0")
BY_NAME = ("generalize-model", "release-0.1.0")
"""Arms that need what is not everywhere."""
HELD_OUT = ("eslint/eslint", "PicnicSupermarket/error-prone-support")


def summarize(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of one arm and number of demonstrations."""
    commits = defaultdict(list)
    for row in rows:
        commits[row["commit"]].append(score_of(row))
    metrics = summarize_places(commits).as_dict()
    return {
        "commits": metrics.pop("tasks"),
        "per_run": metrics.pop("of_attempts"),
        **metrics,
        "seconds_median": statistics.median(row["seconds"] for row in rows),
        "seconds_max": max(row["seconds"] for row in rows),
        "failures": sum(bool(row["cause"]) for row in rows),
    }


def count_losses(rows: Sequence[Mapping[str, Any]], arm: str) -> int:
    """Return in how many runs three demonstrations recall less of the commit than one."""
    shares = {(r["commit"], r["seed"], r["shown"]): r["hit"] / r["gold"] for r in rows if r["arm"] == arm and r["gold"]}
    pairs = [
        (value, shares[commit, seed, 1])
        for (commit, seed, k), value in shares.items()
        if k == 3 and (commit, seed, 1) in shares
    ]
    return sum(more < less - 0.02 for more, less in pairs)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.migrations", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--arms", type=some_of(ARMS), default=",".join(arm for arm in ARMS if arm not in BY_NAME))
    parser.add_argument("--shown", type=numbers, default="1,3", help="numbers of demonstrations")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--half", choices=("both", "tuning", "held-out"), default="both")
    parser.add_argument("--limit", type=int, help="commits at most, a fair sample")
    parser.add_argument("--workers", type=int, default=default_workers())
    parser.add_argument("--runs", action="store_true", help="print a line for every run of the half that is tuned on")
    options = parser.parse_args(arguments)
    arms, shown = options.arms, options.shown
    commits = sorted(read_commits(options.data), key=lambda commit: sha256_text(commit.id))
    halves = {"tuning": [c for c in commits if c.repository not in HELD_OUT]}
    halves["held-out"] = [c for c in commits if c.repository in HELD_OUT]
    figures: dict[str, Any] = {}
    peers: dict[str, Any] = {}
    codes = {arm: code_of(arm) for arm in arms}  # as it is now, whatever is edited meanwhile
    for half, members in halves.items():
        if options.half not in ("both", half):
            continue
        tasks = [(commit, codes, shown, options.seeds, options.cache) for commit in members[: options.limit]]
        with Workers(options.workers if len(tasks) > 1 else 0, make_worker, ahead=1) as workers:
            rows = [row for commit_rows in workers.map(tasks) for row in commit_rows]
        if options.runs and half == "tuning":
            for row in rows:
                print(json.dumps(row))
        for arm in arms:
            own = [row for row in rows if row["arm"] == arm]
            (peers if arm in PEERS else figures).setdefault(half, {})[arm] = {
                **{str(number): summarize([row for row in own if row["shown"] == number]) for number in shown},
                "more_recall_less": count_losses(rows, arm),
            }
    print(json.dumps({"name": "migrations", "figures": figures, "peers": peers, "machine": machine()}))


if __name__ == "__main__":
    main()
