"""The stage `optimized_prompt`: the prompt of one file of `configs/prompts`, made better by what its answers were worth.

Rollouts are attempts in our own environment: the model of the port `chat_model`, the sandbox, our grading. What comes out is a
prompt like those of `configs/teacher_prompts.yaml`, called `optimized/<name>`. An optimization that was interrupted goes on
with what it has paid for.
"""

import re
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graftline.core.build import Built, Contents, Request
from graftline.core.clock import Clock, utc_now
from graftline.core.config import load_yaml, to_yaml
from graftline.core.errors import HarborError
from graftline.core.hashing import digest
from graftline.core.markdown import table
from graftline.core.paths import Paths
from graftline.core.progress import Progress
from graftline.core.record import ArtifactRecord, load_verified
from graftline.harbor.environments.manifest import SeedManifest, load_tasks
from graftline.harbor.environments.policy import ServedModel
from graftline.llm.fleet import load_fleet
from graftline.llm.open import ActorsConfig
from graftline.pipeline.attempt_settings import rewriter
from graftline.pipeline.lineage import Lineage, open_lineage
from graftline.pipeline.manifests import load_manifest
from graftline.pipeline.prompt_files import PromptFile, asked_for, divided, prompt_file
from graftline.pipeline.settings import stage_code
from graftline.prompts.comparison import mean
from graftline.prompts.journal import FileJournal
from graftline.prompts.outcome import Outcome
from graftline.prompts.stop_file import ask_to_stop, stopped_by
from graftline.rollouts.collect import RolloutConfig
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.prompt import Prompt, Prompts, PromptSettings, Shot, load_prompt

PROMPTS_FILE = "teacher_prompts.yaml"
PROMPT, OUTCOME, PAGE, BEST = "prompt.yaml", "outcome.json", "front.md", "best.md"
JOURNAL = ".journal.jsonl"
_MEMORY_CONTEXT_TOKENS = 32_768
_MOST_ROWS = 30


def optimized_prompt(lineage: Lineage, name: str) -> Built:
    """Make the prompt of one file of configs/prompts better, by reflection on what its answers were worth."""
    file = prompt_file(lineage.paths, name)
    prompt = load_prompt(lineage.paths.configs, file.prompt)
    tasks, record = _tasks(lineage, file)
    train, validation = divided(tasks, file.train, file.validation)
    manifest = SeedManifest.of([*train, *validation])
    config = {
        "asked": asked_for(file),
        "prompt": prompt.digest(),
        "model": lineage.ports.chat_model.name,
        "tasks": digest([task.digest for task in (*train, *validation)]),
        **rewriter(lineage.manifest),
    }
    inputs = {} if record is None else {"tasks": record.identity}
    request = Request("optimized_prompt", name, stage_code("optimized_prompt"), inputs, config)

    def make(partial: Path) -> Contents:
        outcome = _optimized(lineage, name, file, prompt, manifest, train, validation, partial)
        known = load_yaml(lineage.paths.configs / PROMPTS_FILE, Prompts)
        settings = known.prompts[file.prompt]
        return written(partial, name, settings, known.shots if settings.has_shots else (), outcome)

    return lineage.build(lineage.paths.prompt(name), request, make)


def stop_optimized_prompt(lineage_folder: Path) -> int:
    """Have whoever makes the artifact in a folder end soon, and return how many do; what is paid stays paid."""
    partials = sorted(lineage_folder.parent.glob(f".{lineage_folder.name}.partial-*"))
    for partial in partials:
        ask_to_stop(partial)
    return len(partials)


def read_outcome(folder: Path) -> Outcome:
    """Return what the optimization of an artifact came to."""
    return Outcome.model_validate_json((folder / OUTCOME).read_bytes())


def front_rows(outcome: Outcome) -> list[dict[str, Any]]:
    """Return a row for every prompt, the best first."""
    front = set(outcome.front)
    rows = []
    for one in outcome.prompts:
        score, judged = mean(one.scores), mean(one.validation)
        rows.append(
            {
                "prompt": one.number,
                "from": ", ".join(map(str, one.parents)) or "-",
                "by": one.how,
                "score": None if score is None else round(score, 4),
                "seeds": len(one.scores),
                "validation": None if judged is None else round(judged, 4),
                "front": "yes" if one.number in front else "",
                "best": "yes" if one.number == outcome.best else "",
            }
        )
    # what is not known is no 0: it stands below all that is
    return sorted(
        rows, key=lambda row: (row["best"] != "yes", row["score"] is None, -(row["score"] or 0), row["prompt"])
    )


def page(name: str, outcome: Outcome) -> str:
    """Return what came of an optimization, as Markdown."""
    found, best = outcome.gain, outcome.best_prompt
    lines = [f"# Prompt `optimized/{name}`", "", f"{outcome.rollouts} rollouts, ended by: {outcome.ending}.", ""]
    if found is not None:
        change, interval, seeds = found
        within = f" (95 %: {interval[0]:+.4f} to {interval[1]:+.4f})" if interval is not None else ""
        where = (
            "which had no part in the choice" if outcome.is_held_out else "chosen on these, so expect less of others"
        )
        lines += [
            f"Against the prompt it was begun with: {change:+.4f}{within}, on {seeds} tasks of both, {where}.",
            "",
        ]
    if outcome.not_judged:
        lines += [f"It was not judged on the tasks that are kept for that: {outcome.not_judged}.", ""]
    lines += [table(front_rows(outcome)[:_MOST_ROWS]), "Proposals: "]
    lines[-1] += ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.proposals.items())) + "."
    if best is not None:
        lines += ["", *_texts(best.texts)]
    return "\n".join(lines) + "\n"


def written(partial: Path, name: str, begun_with: PromptSettings, shots: Sequence[Shot], outcome: Outcome) -> Contents:
    """Write what an optimization came to, and return what there is to count.

    Raises:
        HarborError: it came to nothing.
    """
    best = outcome.best_prompt
    if best is None or outcome.error or outcome.is_cancelled:
        raise HarborError(
            f"prompt {name!r}: {outcome.error or 'the optimization was ended before it was done'}; run again, it goes on"
        )
    settings = begun_with.model_copy(update=best.texts)
    shown = [shot.model_dump(mode="json", exclude_defaults=True) for shot in shots]
    tree = {"shots": shown, "prompts": {name: settings.model_dump(mode="json")}}
    (partial / PROMPT).write_text(to_yaml(tree), "utf-8")
    (partial / OUTCOME).write_text(outcome.model_dump_json(indent=1) + "\n", "utf-8")
    (partial / PAGE).write_text(page(name, outcome), "utf-8")
    (partial / BEST).write_text("\n".join(_texts(best.texts)) + "\n", "utf-8")
    return Contents(
        {
            "rows": len(outcome.prompts),
            "front": len(outcome.front),
            "rollouts": outcome.rollouts,
            "tokens": outcome.tokens,
        }
    )


def _optimized(
    lineage: Lineage,
    name: str,
    file: PromptFile,
    prompt: Prompt,
    manifest: SeedManifest,
    train: Sequence[Task],
    validation: Sequence[Task],
    partial: Path,
) -> Outcome:
    # loads the client of task apps, for whoever only wants to know the assets
    from graftline.harbor.environments.refactoring import refactoring_app_config
    from graftline.harbor.task_app_client import create_task_app_client
    from graftline.prompts.open_proposer import open_proposer
    from graftline.prompts.optimize import optimize

    seeds = {entry.task_id: entry.seed for entry in manifest.entries}
    learning = file.learning(
        prompt, sorted(seeds[one.id] for one in train), sorted(seeds[one.id] for one in validation)
    )
    ports = lineage.ports
    app = refactoring_app_config(
        [*train, *validation],
        ports.sandbox,
        manifest=manifest,
        models={"policy": ServedModel(ports.chat_model, prompt, _context_tokens(lineage))},
        collecting=RolloutConfig(max_steps=file.max_steps),
    )
    journal = FileJournal(partial / JOURNAL)

    def tell(kind: str, data: Mapping[str, Any]) -> None:
        if kind == "progress":
            lineage.advance(data["num_completed"], data["num_total"])

    with (
        open_proposer(learning.gepa, ports.secrets, ports.chat_model) as proposer,
        stopped_by(partial, threading.Event()) as stop,
    ):
        run_id = f"prompt-{name}-{partial.name[-12:]}"
        return optimize(learning, create_task_app_client(app), proposer, journal, run_id, stop, tell)


def _tasks(lineage: Lineage, file: PromptFile) -> tuple[list[Task], ArtifactRecord | None]:
    path, made = lineage.paths.root / file.tasks, lineage.paths.data / "tasks"
    record = lineage.verified(path.parent, "tasks") if path.is_relative_to(made) else None
    return load_tasks(path), record


def _context_tokens(lineage: Lineage) -> int:
    config = lineage.manifest.chat_model
    if isinstance(config, ActorsConfig):
        return load_fleet(lineage.paths.configs, config.fleet).context_tokens
    return _MEMORY_CONTEXT_TOKENS


def _texts(texts: Mapping[str, str]) -> list[str]:
    lines = []
    for part, text in texts.items():
        # longer than any in the prompt, none of which may end the block
        fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
        lines += [f"## {part}", "", f"{fence}text", text.rstrip("\n"), fence, ""]
    return lines


def kept_outcome(paths: Paths, name: str) -> tuple[ArtifactRecord, Outcome]:
    """Return the record of an optimized prompt, and what it came to.

    Raises:
        ConfigError: there is no such file.
        RecordError: it was not made yet.
    """
    prompt_file(paths, name)
    folder = paths.prompt(name)
    return load_verified(folder, "optimized_prompt"), read_outcome(folder)


def make_optimized_prompt(
    paths: Paths, manifest: str, overrides: Mapping[str, Any], name: str, progress: Progress, clock: Clock = utc_now
) -> tuple[Built, Outcome]:
    """Bring the artifact of one file up to date with the ports of a manifest, without Dagster, and return it.

    Raises:
        GraftlineError: it cannot be made; what is paid stays paid.
    """
    prompt_file(paths, name)
    run = f"{clock():%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
    with open_lineage(paths, load_manifest(paths, manifest, overrides), run, clock) as lineage:
        lineage.advance = progress.advance
        progress.start("optimized_prompt", name)
        built = optimized_prompt(lineage, name)
        progress.finish(built.reason)
        return built, read_outcome(built.folder)
