"""The stage `optimized_prompt`: the prompt of one file of `configs/prompts`, made better by what its answers were
worth.

Rollouts are attempts in our own environment: the model of the port `chat_model`, the sandbox, our grading. What comes
out is a prompt like those of `configs/teacher_prompts.yaml`, called `optimized/<name>`. An optimization that was
interrupted goes on with what it has paid for.
"""

import json
import re
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from graftline.core.build import Built, Contents
from graftline.core.config import Config, load_yaml
from graftline.core.errors import ConfigError, DataError, HarborError
from graftline.core.hashing import digest, sha256_text
from graftline.core.markdown import table
from graftline.core.paths import Paths
from graftline.core.record import load_verified
from graftline.harbor.environments.manifest import SeedManifest, load_tasks
from graftline.harbor.environments.policy import Part, ServedModel
from graftline.pipeline.lineage import Lineage, request_of
from graftline.pipeline.settings import config_names, find_config, rewriter
from graftline.pipeline.stages.harbor_deployment import find_tasks
from graftline.prompts.candidates import mean
from graftline.prompts.journal import FileJournal, request_stop, watch_stop_file
from graftline.prompts.outcome import Outcome
from graftline.prompts.settings import PromptLearningConfig
from graftline.rollouts.collect import RolloutConfig
from graftline.rollouts.task import Instructions, Task, describe_left_out, select_for_agents
from graftline.rollouts.teachers.prompt import (
    PROMPT_FILE,
    PROMPTS_FILE,
    Prompt,
    Prompts,
    PromptSettings,
    Shot,
    load_prompt,
    pack_prompt,
)

OUTCOME, PAGE, BEST = "outcome.json", "front.md", "best.md"
JOURNAL = ".journal.jsonl"
_MOST_ROWS = 30


class PromptFile(Config):
    """The whole file."""

    prompt: str = Field(default="small", pattern=r"^[a-z0-9_-]+$")
    """The prompt that is begun with, of `configs/teacher_prompts.yaml`."""
    parts: tuple[Part, ...] = Field(default=("system",), min_length=1)
    """What of it may be changed."""
    tasks: str = Field(min_length=1)
    """The `tasks.jsonl` of an artifact, or of a sample, relative to the root."""
    instructions: Instructions = "answerable"
    """Which of them: those that can be done from their instruction, or all that have one."""
    train: int = Field(default=40, ge=2, le=10_000)
    """Tasks that prompts are changed and compared on."""
    validation: int = Field(default=20, ge=0, le=10_000)
    """Tasks of packages and repositories held out, that the best prompts are judged on."""
    max_steps: int = Field(default=1, ge=1, le=64)
    """Of one attempt."""
    most_tokens: int | None = Field(default=None, ge=32)
    """Of one answer; what the prompt says where it is not given."""
    gepa: dict[str, Any] = Field(default={})
    """The table `[prompt_learning.gepa]` of an optimization, but for its seeds."""

    @field_validator("gepa")
    @classmethod
    def _is_a_table(cls, gepa: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "evaluation" in gepa and set(gepa["evaluation"]) - {"validation_top_k"}:
            raise ValueError(
                "evaluation names seeds; `train` and `validation` of the file say how many tasks there are"
            )
        try:
            PromptLearningConfig.from_mapping({"gepa": gepa})
        except ConfigError as error:
            raise ValueError(str(error).removeprefix("prompt optimization: prompt_learning.")) from None
        return gepa

    def learning(self, prompt: Prompt, train: Sequence[int], validation: Sequence[int]) -> PromptLearningConfig:
        """Return the optimization of `prompt` on these seeds."""
        texts = {part: getattr(prompt.settings, part) for part in self.parts}
        if empty := [part for part, text in texts.items() if not text.strip()]:
            raise ConfigError(f"prompt {self.prompt!r}: {empty[0]} is empty, so there is nothing to make better")
        messages = [{"role": part, "pattern": text, "order": order} for order, (part, text) in enumerate(texts.items())]
        evaluation = {**self.gepa.get("evaluation", {}), "train_seeds": [*train], "validation_seeds": [*validation]}
        sampling = {} if self.most_tokens is None else {"max_tokens": self.most_tokens}
        return PromptLearningConfig.from_mapping(
            {
                "initial_prompt": {"id": self.prompt, "messages": messages},
                "policy": {"config": {"teacher": "openai", "max_steps": self.max_steps, **sampling}},
                "gepa": {**self.gepa, "evaluation": evaluation},
            }
        )


def optimized_prompt(lineage: Lineage, name: str) -> Built:
    """Make the prompt of one file of configs/prompts better, by reflection on what its answers were worth."""
    file = prompt_file(lineage.paths, name)
    prompt = load_prompt(lineage.paths.configs, file.prompt)
    inputs, left_out = find_tasks(lineage, file.tasks), Counter[str]()
    tasks = select_for_agents(load_tasks(lineage.paths.root / file.tasks), file.instructions, left_out)
    train, validation = split_tasks(tasks, file.train, file.validation, describe_left_out(left_out))
    config = {
        "asked": deciding_settings(file),
        "prompt": prompt.digest(),
        "model": lineage.ports.chat_model.name,
        "tasks": digest([task.digest for task in (*train, *validation)]),
        **rewriter(lineage.manifest),
    }
    request = request_of("optimized_prompt", name, inputs, config)

    def make(partial: Path) -> Contents:
        outcome = _optimize(lineage, name, file, prompt, train, validation, partial)
        prompts = load_yaml(lineage.paths.configs / PROMPTS_FILE, Prompts)
        settings = prompts.prompts[file.prompt]
        contents = write_outcome(partial, name, settings, prompts.shots if settings.has_shots else (), outcome)
        return replace(contents, counts={**contents.counts, **left_out})

    return lineage.build(lineage.paths.prompt(name), request, make)


def stop_optimized_prompt(lineage_folder: Path) -> int:
    """Have whoever makes the artifact in a folder end soon, and return how many do; what is paid stays paid."""
    partials = sorted(lineage_folder.parent.glob(f".{lineage_folder.name}.partial-*"))
    for partial in partials:
        request_stop(partial)
    return len(partials)


def read_outcome(folder: Path) -> Outcome:
    """Return what the optimization of an artifact came to."""
    return Outcome.model_validate_json((folder / OUTCOME).read_bytes())


def front_rows(outcome: Outcome) -> list[dict[str, Any]]:
    """Return a row for every prompt, the best first."""
    front = set(outcome.front)
    rows = []
    for candidate in outcome.prompts:
        score, judged = mean(candidate.scores), mean(candidate.validation)
        rows.append(
            {
                "prompt": candidate.number,
                "from": ", ".join(map(str, candidate.parents)) or "-",
                "by": candidate.how,
                "score": None if score is None else round(score, 4),
                "seeds": len(candidate.scores),
                "validation": None if judged is None else round(judged, 4),
                "front": "yes" if candidate.number in front else "",
                "best": "yes" if candidate.number == outcome.best else "",
            }
        )
    # what is not known is no 0: it stands below all that is
    return sorted(
        rows, key=lambda row: (row["best"] != "yes", row["score"] is None, -(row["score"] or 0), row["prompt"])
    )


def page(name: str, outcome: Outcome) -> str:
    """Return what came of an optimization, as Markdown."""
    gain, best = outcome.gain, outcome.best_prompt
    lines = [f"# Prompt `optimized/{name}`", "", f"{outcome.rollouts} rollouts, ended by: {outcome.ending}.", ""]
    if gain is not None:
        change, interval, seeds = gain
        within = f" (95 %: {interval[0]:+.4f} to {interval[1]:+.4f})" if interval is not None else ""
        caveat = (
            "which had no part in the choice" if outcome.is_held_out else "chosen on these, so expect less of others"
        )
        lines += [
            f"Against the prompt it was begun with: {change:+.4f}{within}, on {seeds} tasks of both, {caveat}.",
            "",
        ]
    if outcome.not_judged:
        lines += [f"It was not judged on the tasks that are kept for that: {outcome.not_judged}.", ""]
    lines += [table(front_rows(outcome)[:_MOST_ROWS]), "Proposals: "]
    lines[-1] += ", ".join(f"{count} {kind}" for kind, count in sorted(outcome.proposals.items())) + "."
    if best is not None:
        lines += ["", *_texts(best.texts)]
    return "\n".join(lines) + "\n"


def write_outcome(
    partial: Path, name: str, begun_with: PromptSettings, shots: Sequence[Shot], outcome: Outcome
) -> Contents:
    """Write what an optimization came to, and return what there is to count."""
    best = outcome.best_prompt
    if best is None or outcome.error or outcome.is_cancelled:
        raise HarborError(
            f"prompt {name!r}: {outcome.error or 'the optimization was ended before it was done'}; run again, it goes on"
        )
    settings = begun_with.model_copy(update=best.texts)
    (partial / PROMPT_FILE).write_text(pack_prompt(name, settings, shots), "utf-8")
    (partial / OUTCOME).write_text(outcome.model_dump_json(indent=1) + "\n", "utf-8")
    (partial / PAGE).write_text(page(name, outcome), "utf-8")
    (partial / BEST).write_text("\n".join(_texts(best.texts)) + "\n", "utf-8")
    counts = {"rows": len(outcome.prompts), "front": len(outcome.front), "rollouts": outcome.rollouts}
    return Contents({**counts, "tokens": outcome.tokens})


def _optimize(
    lineage: Lineage,
    name: str,
    file: PromptFile,
    prompt: Prompt,
    train: Sequence[Task],
    validation: Sequence[Task],
    partial: Path,
) -> Outcome:
    # loads the client of task apps, for whoever only wants to know the assets
    from graftline.harbor.environments.refactoring import RefactoringEnvironment
    from graftline.harbor.task_app_client import create_task_app_client
    from graftline.prompts.optimize import optimize
    from graftline.prompts.proposers import open_proposer

    manifest, ports = SeedManifest.of([*train, *validation]), lineage.ports
    seeds = {entry.task_id: entry.seed for entry in manifest.entries}
    learning = file.learning(prompt, *(sorted(seeds[task.id] for task in tasks) for tasks in (train, validation)))
    environment = RefactoringEnvironment(
        [*train, *validation],
        ports.sandbox,
        manifest=manifest,
        models={"policy": ServedModel(ports.chat_model, prompt, ports.context_tokens)},
        collecting=RolloutConfig(max_steps=file.max_steps),
    )
    journal = FileJournal(partial / JOURNAL)

    def tell(kind: str, data: Mapping[str, Any]) -> None:
        if kind == "progress":
            lineage.advance(data["num_completed"], data["num_total"])

    with (
        open_proposer(learning.gepa, ports.secrets, ports.chat_model) as proposer,
        watch_stop_file(partial, threading.Event()) as stop,
    ):
        run_id = f"prompt-{name}-{partial.name[-12:]}"
        return optimize(learning, create_task_app_client(environment.task_app()), proposer, journal, run_id, stop, tell)


def _texts(texts: Mapping[str, str]) -> list[str]:
    lines = []
    for part, text in texts.items():
        # longer than any in the prompt, none of which may end the block
        fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
        lines += [f"## {part}", "", f"{fence}text", text.rstrip("\n"), fence, ""]
    return lines


def load_outcome(paths: Paths, name: str) -> Outcome:
    """Return what the optimization of one file of `configs/prompts` came to, which has to be stored whole."""
    prompt_file(paths, name)
    load_verified(paths.prompt(name), "optimized_prompt")
    return read_outcome(paths.prompt(name))


def prompt_names(paths: Paths) -> list[str]:
    """Return the names of the files in `configs/prompts`, without their ending."""
    return config_names(paths, "prompts")


def prompt_file(paths: Paths, name: str) -> PromptFile:
    """Return what one file of `configs/prompts` holds."""
    return load_yaml(find_config(paths, "prompts", name, "prompt"), PromptFile)


def split_tasks(
    tasks: Sequence[Task], n_train: int, n_validation: int, note: str = ""
) -> tuple[list[Task], list[Task]]:
    """Return tasks to change prompts on, and tasks of packages and repositories held out to judge them on; the same for
    the same tasks.

    `note` is what is said beside the number of tasks where they are too few.
    """
    by_group: dict[str, list[Task]] = {}
    for task in sorted(tasks, key=lambda task: sha256_text(task.id)):
        by_group.setdefault(task.group, []).append(task)
    groups = sorted(by_group, key=sha256_text)
    validation: list[Task] = []
    while groups and len(validation) < n_validation:
        validation += by_group[groups.pop()]
    train = sorted((task for group in groups for task in by_group[group]), key=lambda task: sha256_text(task.id))
    if len(train) < n_train or len(validation) < n_validation:
        raise DataError(
            f"{len(tasks)} tasks{f' ({note})' if note else ''} of {len(by_group)} packages and repositories are {len(train)} to change prompts on"
            f" and {len(validation)} of those held out to judge them on; {n_train} and {n_validation} are asked for, so ask"
            " for fewer"
        )
    return train[:n_train], validation[:n_validation]


def deciding_settings(file: PromptFile) -> dict[str, Any]:
    """Return what of a file decides what is found, as JSON has it."""
    tree: dict[str, Any] = json.loads(file.model_dump_json())
    # how many are asked for at the same time changes nothing but the time it takes
    tree["gepa"].get("rollout", {}).pop("max_concurrent", None)
    tree["gepa"].pop("max_concurrent_rollouts", None)
    # the digest of the tasks says it
    tree.pop("instructions")
    return tree
