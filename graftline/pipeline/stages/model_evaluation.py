"""The stage `evaluation` for files of `configs/evaluations`: contestants attempt the same tasks, and are compared.

What counts of an evaluation that is stored is not made again; attempts of which nothing was known are, when the evaluation is
made once more. Not here: evaluations of deployments (`graftline.pipeline.stages.evaluation`), and what contestants are
(`graftline.evals.evaluation_file`).
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graftline.core.build import Built, Contents, Request
from graftline.core.errors import ConfigError, RecordError
from graftline.core.hashing import digest, sha256_file
from graftline.core.jsonl import read_lines, write_lines
from graftline.core.paths import Paths
from graftline.core.processes import default_workers
from graftline.core.record import ArtifactRecord, load_verified
from graftline.evals.attempt import Attempt
from graftline.evals.cases import Case
from graftline.evals.evaluation_file import EvaluationFile, load_evaluation
from graftline.evals.metrics import compare, summarize, summarize_by
from graftline.evals.report import browser_page, markdown_page
from graftline.evals.sources import PairsSource, load_cases, source_artifacts
from graftline.pipeline.lineage import Lineage
from graftline.pipeline.settings import rewriter, stage_code

if TYPE_CHECKING:
    from graftline.pipeline.solvers import Solvers

ATTEMPTS, CASES, SUMMARY, REPORT, BROWSER = (
    "attempts.jsonl",
    "cases.jsonl",
    "summary.json",
    "report.md",
    "attempts.html",
)


def load_model_evaluation(paths: Paths, name: str) -> EvaluationFile:
    """Return the file called `name`."""
    if name not in model_evaluation_names(paths):
        names = ", ".join(model_evaluation_names(paths)) or "none"
        raise ConfigError(f"{paths.relative(paths.evaluation_configs)}: holds no evaluation {name!r}; known: {names}")
    return load_evaluation(paths.evaluation_configs / f"{name}.yaml")


def contest(lineage: Lineage, name: str, shared: "Solvers | None" = None) -> Built:
    """Have the contestants of a file attempt its tasks, and compare them; what is not known is no zero.

    Servers that are started for them stay for the next evaluation where they are `shared`.
    """
    # loads what asks models, for whoever only wants to know the assets
    from graftline.pipeline.solvers import Solvers

    paths, file = lineage.paths, load_model_evaluation(lineage.paths, name)
    folder = paths.evaluation(name)
    lineage.pull(folder)
    with ExitStack() as stack:
        solvers = shared or Solvers(lineage, stack)
        inputs = {**_task_inputs(lineage, file), **solvers.inputs(file.contestants)}
        settings = {solver: solvers.settings(entry) for solver, entry in file.contestants.items()}
        config = {
            "tasks": [source.model_dump(mode="json") for source in file.tasks],
            "attempts": file.attempts,
            "contestants": settings,
            **rewriter(lineage.manifest),
        }
        request = Request("evaluation", name, stage_code("contest"), inputs, config)
        known_attempts, after = _read_known(folder, request)
        request = Request("evaluation", name, request.code_version, inputs, {**config, "after": after})

        def make(partial: Path) -> Contents:
            cases = _cases(lineage, file)
            attempts = list(_attempts(lineage, file, solvers, cases, known_attempts, partial, settings))
            contents = write_evaluation(partial, name, file, cases, attempts)
            return replace(contents, facts=solvers.facts(file.contestants))

        return lineage.build(folder, request, make)


def write_evaluation(
    folder: Path, name: str, file: EvaluationFile, cases: Sequence[Case], attempts: Sequence[Attempt]
) -> Contents:
    """Write an evaluation with its pages into `folder`, and return what there is to count."""
    write_lines(folder / ATTEMPTS, attempts)
    write_lines(folder / CASES, cases)
    (folder / SUMMARY).write_text(json.dumps(_summary(file, attempts), indent=2) + "\n", "utf-8")
    (folder / REPORT).write_text(markdown_page(name, file.description, attempts), "utf-8")
    (folder / BROWSER).write_text(browser_page(name, cases, attempts), "utf-8")
    infra = sum(attempt.is_infra for attempt in attempts)
    solved = Counter(attempt.contestant for attempt in attempts if attempt.is_verified)
    return Contents(
        {
            "rows": len(attempts),
            "tasks": len(cases),
            "valid": len(attempts) - infra,
            "infra": infra,
            **{f"solved.{solver}": solved[solver] for solver in sorted(file.contestants)},
        }
    )


def find_model_evaluation(lineage: Lineage, name: str) -> tuple[ArtifactRecord, Path] | None:
    """Return an evaluation that is stored, whole and as it was written; None where there is none."""
    folder = lineage.paths.evaluation(name)
    lineage.pull(folder)
    return (lineage.read_input(folder, "evaluation"), folder) if folder.exists() else None


def read_attempts(folder: Path) -> list[Attempt]:
    """Return the attempts of a stored evaluation."""
    return list(read_lines(folder / ATTEMPTS, Attempt))


def read_cases(folder: Path) -> list[Case]:
    """Return the cases of a stored evaluation."""
    return list(read_lines(folder / CASES, Case))


def _task_inputs(lineage: Lineage, file: EvaluationFile) -> dict[str, str]:
    inputs: dict[str, str] = {}
    for source in file.tasks:
        for key, folder in source_artifacts(source, lineage.paths, lineage.teacher_folders).items():
            inputs[key] = lineage.read_input(folder, key.partition(".")[0]).identity
        if isinstance(source, PairsSource):
            path = lineage.paths.root / source.path
            if not path.is_file():
                raise ConfigError(f"tasks.path: {source.path!r} is no file below {lineage.paths.root}; put it there")
            inputs[f"pairs.{source.path}"] = sha256_file(path)
    return inputs


def _cases(lineage: Lineage, file: EvaluationFile) -> list[Case]:
    cases: dict[str, Case] = {}
    for source in file.tasks:
        loaded = load_cases(
            source, lineage.paths, lineage.teacher_folders, lambda: lineage.ports.sandbox, lineage.advance
        )
        for case in loaded:
            cases.setdefault(case.id, case)
    return [*cases.values()]


def _attempts(
    lineage: Lineage,
    file: EvaluationFile,
    solvers: "Solvers",
    cases: Sequence[Case],
    known_attempts: Sequence[Attempt],
    journals: Path,
    settings: Mapping[str, Any],
) -> Iterator[Attempt]:
    from graftline.evals.evaluation import run_solver
    from graftline.evals.grading import grading_workers

    # a sandbox of this process is what tests ask for, and a process more would bring another one
    is_here = lineage.manifest.sandbox.kind == "memory"
    with grading_workers(0 if is_here else default_workers(), lineage.manifest.sandbox) as grading:
        for name, entry in file.contestants.items():
            with solvers.open(name, entry, file.attempts) as solver:
                made_by = digest(settings[name])
                yield from run_solver(
                    name, solver, cases, grading, file.attempts, journals, made_by, known_attempts, lineage.advance
                )


def _read_known(folder: Path, request: Request) -> tuple[list[Attempt], str]:
    """Return what counts of the evaluation that is stored, where it answers `request`, and what the next one comes after."""
    try:
        record = load_verified(folder, "evaluation")
    except RecordError:
        return [], ""
    without = record.model_copy(update={"config": {key: v for key, v in record.config.items() if key != "after"}})
    if request.difference(without):
        return [], ""
    valid = [attempt for attempt in read_attempts(folder) if not attempt.is_infra]
    return valid, str(record.config["after"] if len(valid) == record.counts["rows"] else record.identity)


def _summary(file: EvaluationFile, attempts: Sequence[Attempt]) -> dict[str, Any]:
    pairs = [(first, second) for second, first in combinations(file.contestants, 2)]
    return {
        "description": file.description,
        "attempts": file.attempts,
        "figures": [metrics.as_dict() for metrics in summarize(attempts)],
        "by_language": [metrics.as_dict() for metrics in summarize_by(attempts, lambda attempt: attempt.language)],
        "by_class": [metrics.as_dict() for metrics in summarize_by(attempts, lambda attempt: attempt.edit_class)],
        "comparisons": [compare(attempts, first, second).as_dict() for first, second in pairs],
    }


def read_model_evaluation_summary(folder: Path) -> dict[str, Any]:
    """Return what a stored evaluation comes to."""
    summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text("utf-8"))
    return summary


def model_evaluation_names(paths: Paths) -> list[str]:
    """Return the names of the files, in order."""
    return sorted(path.stem for path in paths.evaluation_configs.glob("*.yaml"))
