"""The stage `tasks`: the edits, real and synthetic, that can be checked."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from graftline.astgrep.binding import LANGUAGES, Language
from graftline.core.build import UNFINISHED, Built, Contents
from graftline.core.jsonl import read_lines, write_lines
from graftline.core.processes import Workers, default_workers
from graftline.datasets.edit import Edit, Label
from graftline.datasets.splits import Split
from graftline.datasets.synthetic import synthesize
from graftline.pipeline.instruction_counts import count_key
from graftline.pipeline.instruction_trials import trial_settings, try_instructions
from graftline.pipeline.lineage import Lineage, request_of
from graftline.pipeline.settings import rewriter
from graftline.rollouts.task import WORDS_ALONE, OpenTask, open_task_of, validate_tasks
from graftline.rollouts.task_instructions import ask_for_edit
from graftline.sandbox.actions import SandboxConfig, open_sandbox

_SOURCES = {"splits": "processed", "synthetic_rules": "synthetic"}
"""Folders by stage."""


def tasks(lineage: Lineage, language: Language, split: Split) -> Built:
    """Keep the edits, real and synthetic, that make sound tasks."""
    folders = {stage: lineage.paths.partition(below, language, split) for stage, below in _SOURCES.items()}
    inputs = {stage: lineage.read_input(folder, stage) for stage, folder in folders.items()}
    config = {**rewriter(lineage.manifest), **trial_settings(lineage)}
    request = request_of("tasks", f"{language}/{split}", inputs, config)

    def make(folder: Path) -> Contents:
        stored = [edit for source in folders.values() for edit in read_lines(source / "edits.jsonl", Edit)]
        ask_for_edits = lineage.once("ask_for_edits", lambda: _ask_for_edits(lineage))
        edits = (edit for edit, _ in zip(ask_for_edits(stored), lineage.track(stored), strict=True))
        soundness = validate_tasks(edits, lineage.ports.sandbox)
        valid, unanswered = try_instructions(lineage, language, split, soundness.tasks)
        write_lines(folder / "tasks.jsonl", valid)
        invalid = {f"invalid.{reason}": count for reason, count in sorted(soundness.invalid.items())}
        instructions = Counter(count_key(task.dataset, task.instruction_source, task.answerable) for task in valid)
        comment_only = sum(WORDS_ALONE in task.tags for task in valid)
        counted = {**dict(sorted(instructions.items())), **({"comment_only": comment_only} if comment_only else {})}
        facts = {UNFINISHED: f"instructions that nobody answered about: {unanswered}"} if unanswered else {}
        return Contents({"rows": len(valid), **counted, **invalid}, facts=facts)

    return lineage.build(lineage.paths.partition("tasks", language, split), request, make)


def _ask_for_edits(lineage: Lineage) -> Callable[[Iterable[Edit]], Iterator[Edit]]:
    """Return what gives edits their instructions, in processes that live as long as the lineage is open."""
    workers = lineage.settings.trajectories.workers or default_workers()
    if workers == 1:
        return partial(map, partial(ask_for_edit, sandbox=lineage.ports.sandbox))
    opened = Workers[Edit, Edit](workers, partial(_open_worker, lineage.manifest.sandbox))
    return lineage.open_until_end.enter_context(opened).map


def _open_worker(config: SandboxConfig) -> Callable[[Edit], Edit]:
    return partial(ask_for_edit, sandbox=open_sandbox(config))


def label_tasks(lineage: Lineage) -> Built:
    """Make tasks without gold of the labels of all datasets."""
    folders = {name: lineage.paths.normalized(name) for name in lineage.catalog.sources}
    inputs = {}
    for name, folder in folders.items():
        record = lineage.read_input(folder, "normalized")
        if "labels.jsonl" in record.files:
            inputs[f"normalized/{name}"] = lineage.read_part(folder, record, "labels.jsonl")
    config = {"languages": list(lineage.catalog.languages), "precedence": list(inputs)}
    request = request_of("label_tasks", "all", inputs, config)

    def make(target: Path) -> Contents:
        tasks: dict[str, OpenTask] = {}
        labels = 0
        for name in inputs:
            for label in read_lines(folders[name.partition("/")[2]] / "labels.jsonl", Label):
                labels += 1
                if label.language in lineage.catalog.languages:
                    tasks.setdefault(label.id, open_task_of(label))
        for language in LANGUAGES:
            of_language = [task for task in tasks.values() if task.language == language]
            if of_language:
                write_lines(target / f"{language}.jsonl", of_language)
        return Contents({"rows_in": labels, "rows": len(tasks)})

    return lineage.build(lineage.paths.label_tasks, request, make)


def synthetic_rules(lineage: Lineage, language: Language, split: Split) -> Built:
    """Make synthetic edits, each with its gold action, on the snippets of one language and split."""
    sources = {
        code: lineage.paths.partition("processed", code, split) for code in lineage.catalog.snippets_of(language)
    }
    synthesis = lineage.catalog.synthesis
    inputs = {
        "splits" if code == language else f"splits.{code}": lineage.read_input(source, "splits")
        for code, source in sources.items()
    }
    config = {"synthesis": synthesis.model_dump(mode="json"), **rewriter(lineage.manifest)}
    request = request_of("synthetic_rules", f"{language}/{split}", inputs, config)

    def make(folder: Path) -> Contents:
        edits = [edit for source in sources.values() for edit in read_lines(source / "edits.jsonl", Edit)]
        edits_made: list[Edit] = []
        synthesized = synthesize(
            edits, language, synthesis.per_partition, synthesis.seed, lineage.ports.sandbox, split,
            synthesis.per_snippet,
        )  # fmt: skip
        for edit in synthesized:
            edits_made.append(edit)
            lineage.advance(len(edits_made), synthesis.per_partition)
        edits_made.sort(key=lambda edit: edit.id)
        write_lines(folder / "edits.jsonl", edits_made)
        families = Counter(tag for edit in edits_made for tag in edit.tags if tag.startswith("template:"))
        return Contents({"rows": len(edits_made), **{f"rows.{tag}": count for tag, count in sorted(families.items())}})

    return lineage.build(lineage.paths.partition("synthetic", language, split), request, make)
