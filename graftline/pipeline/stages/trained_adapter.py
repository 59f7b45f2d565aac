"""The stage `trained_adapter`: the adapter of every recipe of the lineage, and what it solves that the bare model does not.

What trains is the port `training_client`. A run that was interrupted goes on from its last checkpoint; one that is done is
not repeated, whatever else has to be made again, unless it is of the memory service, whose weights end with its process.
"""

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from graftline.core.build import Built, Contents
from graftline.core.jsonl import read_lines
from graftline.core.markdown import plain_table
from graftline.core.paths import Paths
from graftline.core.record import RECORD_NAME, ArtifactRecord
from graftline.pipeline.lineage import Lineage, request_of
from graftline.pipeline.manifests import Manifest
from graftline.pipeline.recipe_models import (
    fetch_served_weights,
    find_served_weights,
    model_digest,
    model_name,
    resolve_checkpoints,
    store_of,
)
from graftline.pipeline.stages.sft_dataset import source_of, write_rows
from graftline.pipeline.teacher_terms import describe_teacher, fleets_of_teachers
from graftline.rollouts.answer_grading import GradedAnswer
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.prompt import PROMPT_FILE, Prompt, pack_prompt
from graftline.training.adapter import check_adapter, download_adapter
from graftline.training.answers import Questions, check_known, overview, rows, solve
from graftline.training.card import CARD, card
from graftline.training.datums import Tokenizer
from graftline.training.open import tokenizer_of
from graftline.training.recipes.open import load_recipe, recipes_named
from graftline.training.runs import Runs, StepMetrics, TrainingRun, read_steps
from graftline.training.settings import TASKS, TinkerTrainingConfig, deciding
from graftline.training.tinker import TinkerSDKClient
from graftline.training.train import MEMORY_OUTPUT, OUTPUT, run_id_of, train_on_tinker

EVALUATION, SOLVED, STEPS = "evaluation.json", "solved.jsonl", "steps.jsonl"
_LOOK_EVERY_S = 1.0


def trained_adapter(lineage: Lineage, name: str) -> Built:
    """Train the adapter of one recipe, or go on training it, and have it solve held-out tasks, as the bare model does."""
    config = load_recipe(lineage.paths, name)
    source, prompt = source_of(lineage, config, name)
    folder = lineage.paths.training_set(name)
    dataset = lineage.read_input(folder, "sft_dataset")
    inputs = {"sft_dataset": dataset}
    port = lineage.manifest.training_client
    for recipe in recipes_named(config).values():
        lineage.pull(lineage.paths.adapter(recipe))
    if config.follows:
        inputs["trained_adapter"] = lineage.read_input(lineage.paths.adapter(config.follows), "trained_adapter")
    runs, store = Runs(lineage.paths.root / output_of(lineage.manifest)), store_of(port, lineage.paths.root)
    config = resolve_checkpoints(config, lineage.paths, runs, has_checkpoints=port.kind != "memory", store=store)
    settings = {
        "recipe": deciding(config),
        "model": model_digest(model_name(port, config), lineage.paths),
        "backend": port.kind,
        "prompt": prompt.digest(),
        "run_id": run_id_of(config, lineage.paths.root),
    }
    request = request_of("trained_adapter", name, inputs, settings)

    def make(partial: Path) -> Contents:
        tasks = list(read_lines(folder / TASKS, Task))
        with _open_training(lineage, config) as service:
            tokenizer = tokenizer_of(service, port, config, lineage.paths, os.environ)
            run = _train(lineage, config, service, tokenizer, partial)
            questions = Questions(config.renderer, tokenizer)
            before, after = _answers(lineage, config, service, run, questions, prompt, tasks)
        scores = overview(tasks, before, after)
        write_rows(partial / SOLVED, rows(tasks, before, after))
        (partial / EVALUATION).write_text(json.dumps(scores, indent=2) + "\n", "utf-8")
        weights = find_served_weights(port, config, lineage.paths)
        model_card = card(
            run, read_steps(partial / STEPS), weights, name, _licenses(dataset), plain_table(scores), source.prompt,
            _teachers(dataset, lineage.paths),
        )  # fmt: skip
        (partial / CARD).write_text(model_card, "utf-8")
        # whoever asks the adapter asks as it was trained to be asked
        (partial / PROMPT_FILE).write_text(pack_prompt(source.prompt, prompt.settings, prompt.shots), "utf-8")
        return Contents(_counts(run, scores), facts=run.computed_with)

    return lineage.build(lineage.paths.adapter(name), request, make)


def output_of(manifest: Manifest) -> Path:
    """Return where records of runs are, below the root."""
    return MEMORY_OUTPUT if manifest.training_client.kind == "memory" else OUTPUT


@contextmanager
def _open_training(lineage: Lineage, config: TinkerTrainingConfig) -> Iterator[TinkerSDKClient]:
    """Give what trains `config`, as soon as nobody else trains it."""
    paths, port = lineage.paths, lineage.manifest.training_client
    runs = Runs(paths.root / output_of(lineage.manifest))
    run_id = run_id_of(config, paths.root)
    _wait_for_others(lineage, runs, run_id)
    fetch_served_weights(port, config, paths)
    run = runs.find(run_id)
    if port.kind == "memory" and run is not None and run.is_over:
        runs.write(run.model_copy(update={"status": "interrupted", "sampler_path": "", "export_path": ""}))
    with lineage.ports.open_training(config.model, config.deadline_s) as service:
        yield service


def _train(
    lineage: Lineage, config: TinkerTrainingConfig, service: TinkerSDKClient, tokenizer: Tokenizer, partial: Path
) -> TrainingRun:
    """Bring the run to its end; its adapter and its steps are in the folder `partial` then."""

    def on_step(metrics: StepMetrics, total: int) -> None:
        lineage.advance(metrics.step + 1, total)

    runs = Runs(lineage.paths.root / output_of(lineage.manifest))
    result = train_on_tinker(
        config,
        output_dir=runs.folder,
        root=lineage.paths.root,
        tokenizer=tokenizer,
        service=service,
        sandbox=lambda: lineage.ports.sandbox,
        on_step=on_step,
    )
    weights = find_served_weights(lineage.manifest.training_client, config, lineage.paths)
    for path in download_adapter(runs, result.run, service, weights).iterdir():
        if path.name not in (RECORD_NAME, CARD):
            shutil.copyfile(path, partial / path.name)
    check_adapter(partial)
    shutil.copyfile(runs.steps_path(result.run_id), partial / STEPS)
    return result.run


def _answers(
    lineage: Lineage,
    config: TinkerTrainingConfig,
    service: TinkerSDKClient,
    run: TrainingRun,
    questions: Questions,
    prompt: Prompt,
    tasks: Sequence[Task],
) -> tuple[list[GradedAnswer], list[GradedAnswer]]:
    """Return what the bare model makes of each task, and what the adapter does."""
    if not tasks:
        return [], []
    sandbox, answers = lineage.ports.sandbox, []
    for which, sampler in (
        ("the bare model", service.sampling_client(base_model=config.model)),
        ("the adapter", service.sampling_client(model_path=run.sampler_path)),
    ):
        graded = solve(service, sampler, tasks, prompt, questions, sandbox, config.answer_tokens, lineage.advance)
        check_known(graded, which)
        answers.append(graded)
    return answers[0], answers[1]


def _wait_for_others(lineage: Lineage, runs: Runs, run_id: str) -> None:
    """Wait while another process trains the run: what it pays for is not paid for twice."""
    while runs.is_trained(run_id):
        run = runs.find(run_id)
        if run is not None:
            lineage.advance(len(runs.steps(run_id)), run.total_steps)
        time.sleep(_LOOK_EVERY_S)


def _counts(run: TrainingRun, scores: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    whole = scores[-1]
    return {
        # of the answers that are kept
        "rows": whole["tasks"],
        "steps": run.next_step,
        "examples": run.examples,
        "trained_tokens": run.trained_tokens,
        "tokens": run.tokens,
        "tasks": whole["tasks"],
        "solved_before": whole["solved before"],
        "solved_after": whole["solved after"],
        "unknown": whole["unknown"],
    }


def _licenses(dataset: ArtifactRecord) -> Mapping[str, int]:
    return {key.partition(".")[2]: count for key, count in dataset.counts.items() if key.startswith("license.")}


def _teachers(dataset: ArtifactRecord, paths: Paths) -> list[dict[str, Any]]:
    """Return whose answers the rows hold, how many of each, and on what terms those are."""
    fleets = fleets_of_teachers(paths.configs)
    counts = {key.partition(".")[2]: count for key, count in dataset.counts.items() if key.startswith("teacher.")}
    return [{"teacher": name, "rows": count, "terms": describe_teacher(name, fleets)} for name, count in counts.items()]
