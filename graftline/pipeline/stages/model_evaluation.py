"""The stage `evaluation` for files of `configs/evaluations`: solvers attempt the same tasks, and are compared.

What counts of an evaluation that is stored is not made again; attempts of which nothing was known are, when the evaluation is
made once more. Not here: evaluations of deployments (`graftline.pipeline.stages.evaluation`), and what solvers are
(`graftline.evals.evaluation_file`).
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from graftline.core.build import Built, Contents, Request
from graftline.core.errors import ConfigError, DataError, GraftlineError, RecordError
from graftline.core.hashing import digest, sha256_file
from graftline.core.jsonl import read_lines, write_lines
from graftline.core.paths import Paths
from graftline.core.processes import default_workers
from graftline.core.record import ArtifactRecord, load_verified
from graftline.evals.attempt import Attempt
from graftline.evals.cases import Case, leave_out_invalid
from graftline.evals.evaluation_file import EvaluationFile, load_evaluation
from graftline.evals.metrics import compare, summarize, summarize_by, summarize_changes, summarize_selections
from graftline.evals.report import browser_page, count_reasons, markdown_page
from graftline.evals.sources import BenchmarkSource, PairsSource, RepositoriesSource, load_cases, source_artifacts
from graftline.pipeline.lineage import Lineage, request_of
from graftline.pipeline.settings import config_names, find_config, rewriter, stage_code
from graftline.rollouts.task import describe_left_out

if TYPE_CHECKING:
    from graftline.pipeline.solvers import Solvers

ATTEMPTS, CASES, SUMMARY, REPORT, BROWSER = (
    "attempts.jsonl",
    "cases.jsonl",
    "summary.json",
    "report.md",
    "attempts.html",
)
LEFT_OUT = "left_out"
"""Key of the summary for the tasks that nobody attempts, with the reasons."""
ResultT = TypeVar("ResultT")


def model_evaluation_names(paths: Paths) -> list[str]:
    """Return the names of the files in `configs/evaluations`, in order."""
    return config_names(paths, "evaluations")


def load_model_evaluation(paths: Paths, name: str) -> EvaluationFile:
    """Return the file of `configs/evaluations` called `name`."""
    return load_evaluation(find_config(paths, "evaluations", name, "evaluation"))


def find_known(
    lineage: Lineage,
    folder: Path,
    request: Request,
    read_valid: Callable[[Path], list[ResultT]],
    is_whole: Callable[[], bool] = lambda: True,
) -> tuple[Request, list[ResultT]]:
    """Return `request` with the evaluation it comes after, and what counts of the stored one, where that answers it.

    An evaluation of which all is known comes after what it came after when it was made, and so is found unchanged; one of
    which something is not known is what the next one comes after. `is_whole` says whether more than its rows is known.
    """
    lineage.pull(folder)
    after, valid = "", list[ResultT]()
    try:
        record = load_verified(folder, "evaluation")
    except RecordError:
        record = None
    if record is not None:
        config = {key: value for key, value in record.config.items() if key != "after"}
        if not request.difference(record.model_copy(update={"config": config})):
            valid = read_valid(folder)
            is_known = len(valid) == record.counts["rows"] and is_whole()
            after = str(record.config["after"] if is_known else record.identity)
    return replace(request, config={**request.config, "after": after}), valid


def evaluate_models(lineage: Lineage, name: str, shared: "Solvers | None" = None) -> Built:
    """Have the solvers of a file attempt its tasks, and compare them; what is not known is no zero.

    Servers that are started for them stay for the next evaluation where they are `shared`.
    """
    # loads what asks models, for whoever only wants to know the assets
    from graftline.evals.evaluation import run_solver
    from graftline.evals.grading import grading_workers
    from graftline.pipeline.solvers import Solvers

    paths, file = lineage.paths, load_model_evaluation(lineage.paths, name)
    folder = paths.evaluation(name)
    with ExitStack() as stack:
        solvers = shared or Solvers(lineage, stack)
        settings = {solver: solvers.settings(entry) for solver, entry in file.solvers.items()}
        request = _request_of(lineage, name, file, solvers, settings)
        request, known_attempts = find_known(lineage, folder, request, _read_valid)

        def make(partial: Path) -> Contents:
            not_for_agents = Counter[str]()
            cases, left_out = _cases(lineage, file, not_for_agents)
            attempts: list[Attempt] = []
            # a sandbox of this process is what tests ask for, and a process more would bring another one
            workers = 0 if lineage.manifest.sandbox.kind == "memory" else default_workers()
            with grading_workers(workers, lineage.manifest.sandbox, lineage.ports.jail) as grading:
                for solver_name, entry in file.solvers.items():
                    with solvers.open(solver_name, entry, file.attempts) as solver:
                        attempts += run_solver(
                            solver_name, solver, cases, grading, file.attempts, partial, digest(settings[solver_name]),
                            known_attempts, lineage.advance,
                        )  # fmt: skip
            return replace(
                _write(partial, name, file, cases, left_out, not_for_agents, attempts),
                facts=solvers.facts(file.solvers),
            )

        return lineage.build(folder, request, make)


def _request_of(
    lineage: Lineage, name: str, file: EvaluationFile, solvers: "Solvers", settings: Mapping[str, Any]
) -> Request:
    config = {
        "tasks": [source.model_dump(mode="json") for source in file.tasks],
        "attempts": file.attempts,
        # as version 0.1.0 spelled it: an evaluation that was made then is the same one
        "contestants": settings,
        **rewriter(lineage.manifest),
        **({"tests": lineage.ports.jail.model_dump(mode="json")} if _has_tests(file) else {}),
    }
    inputs = {**_task_inputs(lineage, file), **solvers.inputs(file.solvers)}
    return request_of("evaluation", name, inputs, config, stage_code("contest"))


def describe_outdated(lineage: Lineage, name: str, record: ArtifactRecord) -> str:
    """Return what changed since the evaluation of `record` was made, in words; empty where nothing did.

    A run that fails leaves the evaluation that was there, which is of an earlier file, or of earlier tasks.
    """
    from graftline.pipeline.solvers import Solvers

    file = load_model_evaluation(lineage.paths, name)
    try:
        with ExitStack() as stack:
            solvers = Solvers(lineage, stack)
            settings = {solver: solvers.settings(entry) for solver, entry in file.solvers.items()}
            request = _request_of(lineage, name, file, solvers, settings)
    except GraftlineError as error:
        return f"what it needs now is not here ({error})"
    config = {key: value for key, value in record.config.items() if key != "after"}
    return request.difference(record.model_copy(update={"config": config}))


def _write(
    folder: Path,
    name: str,
    file: EvaluationFile,
    cases: Sequence[Case],
    left_out: Mapping[str, str],
    not_for_agents: Mapping[str, int],
    attempts: Sequence[Attempt],
) -> Contents:
    write_lines(folder / ATTEMPTS, attempts)
    write_lines(folder / CASES, cases)
    (folder / SUMMARY).write_text(
        json.dumps({**_summary(file, attempts), LEFT_OUT: left_out}, indent=2) + "\n", "utf-8"
    )
    page = markdown_page(name, file.description, attempts, left_out, note=describe_left_out(not_for_agents))
    (folder / REPORT).write_text(page, "utf-8")
    (folder / BROWSER).write_text(browser_page(name, cases, attempts), "utf-8")
    infra = sum(attempt.is_infra for attempt in attempts)
    solved = Counter(attempt.solver for attempt in attempts if attempt.is_verified)
    counts = {"rows": len(attempts), "tasks": len(cases), "valid": len(attempts) - infra, "infra": infra}
    counts |= {f"left_out.{reason}": count for reason, count in count_reasons(left_out).items()}
    counts |= not_for_agents
    return Contents({**counts, **{f"solved.{solver}": solved[solver] for solver in sorted(file.solvers)}})


def read_attempts(folder: Path) -> list[Attempt]:
    """Return the attempts of a stored evaluation."""
    return list(read_lines(folder / ATTEMPTS, Attempt))


def _read_valid(folder: Path) -> list[Attempt]:
    return [attempt for attempt in read_attempts(folder) if not attempt.is_infra]


def _task_inputs(lineage: Lineage, file: EvaluationFile) -> dict[str, str]:
    inputs: dict[str, str] = {}
    for source in file.tasks:
        if isinstance(source, BenchmarkSource):
            _check_is_fetched(lineage, source.dataset)
        for key, folder in source_artifacts(source, lineage.paths, lineage.teacher_folders).items():
            inputs[key] = lineage.read_input(folder, key.partition(".")[0]).identity
        if isinstance(source, PairsSource | RepositoriesSource) and source.path:
            path = lineage.paths.root / source.path
            if not path.is_file():
                raise ConfigError(f"tasks.path: {source.path!r} is no file below {lineage.paths.root}; put it there")
            inputs[f"{'pairs' if isinstance(source, PairsSource) else 'changes'}.{source.path}"] = sha256_file(path)
    return inputs


def _has_tests(file: EvaluationFile) -> bool:
    return any(isinstance(source, BenchmarkSource | RepositoriesSource) for source in file.tasks)


def _check_is_fetched(lineage: Lineage, name: str) -> None:
    if not lineage.dataset(name).is_evaluation:
        raise ConfigError(f"tasks.dataset: {name!r} is trained on; take one with the reader 'evaluation'")
    if lineage.find(lineage.paths.raw(name), "raw") is None:
        raise ConfigError(f"tasks.dataset: {name!r} is not here yet; `graftline data fetch {name}` brings it")


def _cases(lineage: Lineage, file: EvaluationFile, not_for_agents: Counter[str]) -> tuple[list[Case], dict[str, str]]:
    """Return the tasks of all sources, and by the ids of those whose tests are of no use on this machine, why.

    Tasks that are not for whoever is told what to do are counted in `not_for_agents`.
    """
    cases: dict[str, Case] = {}
    for source in file.tasks:
        loaded = load_cases(
            source,
            lineage.paths,
            lineage.teacher_folders,
            lambda: lineage.ports.sandbox,
            not_for_agents,
            lineage.advance,
        )
        for case in loaded:
            cases.setdefault(case.id, case)
    valid, left_out = leave_out_invalid([*cases.values()], lineage.ports.sandbox, lineage.advance)
    if not valid:
        reasons = ", ".join(f"{reason} {count}" for reason, count in count_reasons(left_out).items())
        raise DataError(f"tasks: none is valid by its tests on this machine ({reasons}); install what they import")
    return valid, left_out


def _summary(file: EvaluationFile, attempts: Sequence[Attempt]) -> dict[str, Any]:
    pairs = [(first, second) for second, first in combinations(file.solvers, 2)]
    return {
        "description": file.description,
        "attempts": file.attempts,
        "figures": [metrics.as_dict() for metrics in summarize(attempts)],
        "by_language": [metrics.as_dict() for metrics in summarize_by(attempts, lambda attempt: attempt.language)],
        "by_class": [metrics.as_dict() for metrics in summarize_by(attempts, lambda attempt: attempt.edit_class)],
        "changes": [metrics.as_dict() for metrics in summarize_changes(attempts)],
        "selections": [selection.as_dict() for selection in summarize_selections(attempts)],
        "comparisons": [compare(attempts, first, second).as_dict() for first, second in pairs],
    }
