"""How many real edits the induction teacher solves, how general its rules are, and how long it takes.

Measured in the jail (the `warm` sandbox, one process) on one core, on pairs with at most 20 changed lines.

* `fixtures`: the development fold, fixtures of codemods and linters;
* `commits`: commits of the half of the mirror's repositories that the inducer is not tuned to;
* `releases`: functions in two releases of a package;
* `synthetic`: tasks whose rule is known, and what the induced rules do in other files;
* `groups`: several pairs of one change, one list of rules, and what it does to the pairs it was not made on;
* `trajectories`: seconds to a thousand verified trajectories, on all cores.

Every solution is applied once more on disk by ast-grep's own command line; every general rule is tried on 80 files of
other repositories. Peers, in the same run on some of the same pairs: the inducer held to memorising (`literal`), to
patterns with their rewrites (`plain`), and literal search and replace learned with `difflib` (`text`). There is no
other program to be installed that makes rules of examples: Piranha, Comby, OpenRewrite and jscodeshift apply rules that
are written by hand, and what is published of Getafix, Refazer, Revisar and PyEvolve is figures.

    python -m benchmarks.induction [--quick] [--parts commits,groups] [--limit N] [--tuning] [--failures FILE]
"""

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TextIO

from benchmarks.arguments import some_of
from benchmarks.commands import CHECKOUT
from benchmarks.induction_groups import groups_of, shared, text_transfer, transfer
from benchmarks.induction_pairs import SOURCES, File, Half, Pair, Source, files_of, pairs_of, sampled
from benchmarks.induction_solving import (
    Way,
    by,
    examined,
    failure_row,
    figures_of,
    percent,
    shares_by,
    solved_each,
)
from benchmarks.induction_synthetic import FILES, Synthetic, compared, synthetic_tasks, text_baseline
from benchmarks.induction_text import learned
from benchmarks.induction_trajectories import collected, task_of_pair
from benchmarks.induction_unseen import UnseenFiles, without_corpus
from benchmarks.machine import machine
from graftline.astgrep.binding import LANGUAGES, Language
from graftline.codemod.equality import Level
from graftline.codemod.induce import Induction, InductionConfig, induce
from graftline.core.errors import DataError
from graftline.core.hashing import digest
from graftline.core.progress import Progress, progress_bars
from graftline.rollouts.task import task_of
from graftline.sandbox import Sandbox, WarmSandboxConfig, open_sandbox

DATA = CHECKOUT.parent / "shared" / "data"
PARTS = (*SOURCES, "synthetic", "groups", "trajectories")
_SPARE_TASKS = 1.4
"""Tasks per verified trajectory that is wanted; some are not solved."""

Figures = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    pairs: int | None
    """Of each source; None for all."""
    peers: int
    """Pairs of each source that the peers are given."""
    synthetic: int
    """Tasks for each language."""
    files: int
    """Of each language, that synthetic tasks are made of."""
    groups: int | None
    trajectories: int


FULL = Sizes(pairs=None, peers=250, synthetic=150, files=FILES, groups=None, trajectories=1000)
QUICK = Sizes(pairs=25, peers=8, synthetic=3, files=12, groups=5, trajectories=12)


@dataclass
class Bench:
    """What all parts share."""

    data: Path
    sizes: Sizes
    folder: Path
    """For files that ast-grep's command line rewrites."""
    progress: Progress
    failures: TextIO | None
    half: Half = "judged"
    """Of the repositories of commits."""
    unseen: UnseenFiles = field(init=False)

    def __post_init__(self) -> None:
        """Read the files that rules are tried on, none of which the inducer knows."""
        try:
            files = files_of(self.data)
        except DataError:  # the parts that cannot do without say so
            files = []
        self.unseen = UnseenFiles(without_corpus(files))

    @cached_property
    def tasks(self) -> tuple[list[Synthetic], float]:
        """Tasks whose rule is known, and the seconds it took to make them; without a mirror there are none."""
        with one_core(), closing(open_sandbox(WarmSandboxConfig())) as sandbox:
            return synthetic_tasks(self.files(), self.sizes.synthetic, sandbox, self.progress)

    def files(self) -> dict[Language, list[File]]:
        """Return some of those files, by language."""
        of_language = {
            language: [file for file in self.unseen.files if file.language == language] for language in LANGUAGES
        }
        return {language: files[: self.sizes.files] for language, files in of_language.items()}


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few pairs: shows that it runs, not how well")
    parser.add_argument("--parts", type=some_of(PARTS), default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--limit", type=int, help="pairs of each source, groups, and trajectories, at most")
    parser.add_argument("--failures", type=Path, help="file for the pairs that are not solved, or not exactly")
    parser.add_argument("--tuning", action="store_true", help="commits of the half that may be looked at instead")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the pairs and the mirror")
    arguments = parser.parse_args()
    sizes = limited(QUICK if arguments.quick else FULL, arguments.limit)
    with (
        progress_bars() as progress,
        tempfile.TemporaryDirectory(prefix="graftline-bench-") as folder,
        opened(arguments.failures) as failures,
    ):
        half: Half = "tuning" if arguments.tuning else "judged"
        figures, peers = measure(Bench(arguments.data, sizes, Path(folder), progress, failures, half), arguments.parts)
    print(json.dumps({"name": "induction", "figures": figures, "peers": peers, "machine": machine()}))


def limited(sizes: Sizes, limit: int | None) -> Sizes:
    """Return `sizes` with at most `limit` pairs of a source, groups, tasks of a language and trajectories."""
    if limit is None:
        return sizes
    return replace(
        sizes,
        pairs=min(limit, sizes.pairs or limit),
        peers=min(limit, sizes.peers),
        synthetic=min(limit, sizes.synthetic),
        groups=min(limit, sizes.groups or limit),
        trajectories=min(limit, sizes.trajectories),
    )


@contextmanager
def opened(path: Path | None) -> Iterator[TextIO | None]:
    """Open `path` for writing, if there is one."""
    if path is None:
        yield None
        return
    with path.open("w", encoding="utf-8") as stream:
        yield stream


def measure(bench: Bench, parts: Sequence[str]) -> tuple[Figures, Figures]:
    """Return the figures of the claims, and those of the peers, by part; of a part without data, what is missing."""
    measured: dict[str, Callable[[], tuple[Figures, Figures]]] = {
        **{source: (lambda source=source: one_source(bench, source)) for source in SOURCES},  # type: ignore[misc]
        "synthetic": lambda: synthetic(bench),
        "groups": lambda: groups(bench),
        "trajectories": lambda: trajectories(bench),
    }
    figures, peers = Figures(), Figures()
    for part in parts:
        try:
            figures[part], peers[part] = measured[part]()
        except DataError as error:
            figures[part], peers[part] = {"missing": str(error)}, {}
    return figures, {part: found for part, found in peers.items() if found}


def one_source(bench: Bench, source: Source) -> tuple[Figures, Figures]:
    """Return what the inducer makes of the pairs of one source, and what the peers make of some of them.

    Raises:
        DataError: there are no such pairs.
    """
    pairs = sampled(pairs_of(bench.data, source, bench.half), bench.sizes.pairs)
    with one_core(), closing(open_sandbox(WarmSandboxConfig())) as sandbox:
        found = [
            examined(one, bench.unseen, sandbox, bench.folder)
            for one in solved_each(pairs, induced, sandbox, bench.progress, source)
        ]
        if bench.failures is not None:
            for one in found:
                if one.induction.level is not Level.EXACT:
                    # what may not be tuned to is not to be looked at either
                    is_shown = source != "commits" or bench.half == "tuning"
                    bench.failures.write(json.dumps(failure_row(one, is_shown)) + "\n")
            bench.failures.flush()
        some = pairs[: bench.sizes.peers]
        peers = {
            "graftline": figures_of(found[: len(some)]),
            **{
                name: figures_of(
                    [
                        examined(one, bench.unseen, sandbox, bench.folder)
                        for one in solved_each(some, way, sandbox, bench.progress, f"{source}, {name}")
                    ]
                )
                for name, way in ABLATIONS.items()
            },
            "text": text_figures(some),
        }
    figures = figures_of(found) | {"by_language": by(found, lambda one: one.pair.language)}
    if source == "fixtures":
        figures["by_origin"] = shares_by(found, lambda one: one.pair.origin)
    return figures, peers


def text_figures(pairs: Sequence[Pair]) -> Figures:
    """Return what literal search and replace makes of `pairs`; it leaves nothing free, so none of it is general."""
    right = sum(learned(pair.before, pair.after) is not None for pair in pairs)
    return {
        "pairs": len(pairs),
        "solved_percent": percent(right, len(pairs)),
        "exact_percent": percent(right, len(pairs)),
    }


def synthetic(bench: Bench) -> tuple[Figures, Figures]:
    """Return what is made of tasks whose rule is known.

    Raises:
        DataError: there are no files to make them of.
    """
    files_of(bench.data)
    files = bench.files()
    tasks, seconds = bench.tasks
    with closing(open_sandbox(WarmSandboxConfig())) as sandbox:
        figures = compared(tasks, induced, files, sandbox, bench.progress)
        peers = {name: compared(tasks, way, files, sandbox, bench.progress)["all"] for name, way in ABLATIONS.items()}
        peers["text"] = text_baseline(tasks, files, sandbox)
    made = {"tasks_made_per_hour_and_core": round(len(tasks) / seconds * 3600), "files_per_language": bench.sizes.files}
    return made | figures, peers


def groups(bench: Bench) -> tuple[Figures, Figures]:
    """Return what is made of several pairs of one change.

    Raises:
        DataError: there are no fixtures.
    """
    found = groups_of(pairs_of(bench.data, "fixtures"))[: bench.sizes.groups]
    with closing(open_sandbox(WarmSandboxConfig())) as sandbox:
        figures = shared(found, sandbox, bench.progress)
        figures["transfer"] = transfer(found, sandbox, bench.progress)
    return figures, {"text": {"transfer": {"learned_on_1": text_transfer(found)}}}


def trajectories(bench: Bench) -> tuple[Figures, Figures]:
    """Return how long verified trajectories take, half of them on synthetic tasks where there is a mirror.

    Raises:
        DataError: there are no pairs of releases.
    """
    wanted = bench.sizes.trajectories
    of_releases = [task_of_pair(pair) for pair in sampled(pairs_of(bench.data, "releases"), int(wanted * _SPARE_TASKS))]
    made, _ = bench.tasks
    of_languages = sorted((task_of(task.edit) for task in made), key=lambda task: digest(task.id))
    tasks = of_languages[: wanted // 2] + of_releases
    return collected(tasks, wanted, len(os.sched_getaffinity(0)), bench.progress), {}


def induced(pair: Pair, sandbox: Sandbox) -> Induction:
    """Solve `pair` with all that the inducer has."""
    return induce(pair.before, pair.after, pair.language, sandbox)


def held_to(forms: Literal["plain", "literal"]) -> Way:
    """Return how pairs are solved with rules of some forms only."""
    inducing = InductionConfig(forms=forms)
    return lambda pair, sandbox: induce(pair.before, pair.after, pair.language, sandbox, inducing)


ABLATIONS: Mapping[str, Way] = {"literal": held_to("literal"), "plain": held_to("plain")}


@contextmanager
def one_core() -> Iterator[None]:
    """Keep this process, and those it starts meanwhile, on one core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


if __name__ == "__main__":
    main()
