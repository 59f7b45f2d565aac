"""How many of twenty small tasks a served language model solves: alone, with feedback, and with examples as well.

* `one_step`: the first answer, greedy, with the examples of the prompt file alone;
* `feedback`: within three steps; to one that fails, it is told what sandbox and critic say, never what is wanted;
* `feedback_and_examples`: with verified steps that are like the task as well, made of the checkout's sample.

Of each, `general` counts the tasks whose rules also do right in code that nobody was shown. The server has to be running:

    graftline model serve --fleet embedded
    python -m benchmarks.teacher_quality [--fleet embedded | --url http://127.0.0.1:8001 --model NAME]
        [--prompt small] [--tasks rename_call,guard] [--steps 3] [--transcripts FILE] [--quick]
"""

import argparse
import gzip
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from benchmarks.arguments import some_of
from benchmarks.commands import CHECKOUT
from benchmarks.machine import machine
from benchmarks.teacher_tasks import QUALITY_TASKS, QualityTask
from graftline.astgrep.binding import Language
from graftline.codemod.equality import compare_texts
from graftline.core.secrets import open_secrets
from graftline.datasets.edit import Edit
from graftline.datasets.synthetic import synthesize
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.fleet import Actor, Fleet, load_fleet
from graftline.llm.pool import ActorPool
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.retrieval.hashed import HashedEmbedder
from graftline.rollouts.retrieval.memory import MemoryVectorStore
from graftline.rollouts.state.state import StateUpdate
from graftline.rollouts.teachers.examples import Examples, VerifiedStep
from graftline.rollouts.teachers.openai import OpenAITeacher
from graftline.rollouts.teachers.prompt import Prompt, Shot, load_prompt
from graftline.rollouts.teachers.wording import describe_action
from graftline.rollouts.trajectory import Trajectory
from graftline.sandbox.actions.memory import MemorySandbox
from graftline.sandbox.base import Verdict

SAMPLE = CHECKOUT / "data" / "samples" / "release_pairs.jsonl.gz"
STEPS = 3
_WAYS = ("feedback", "feedback_and_examples")
_SEED = 5
_PER_LANGUAGE = {"python": 150, "javascript": 100, "java": 100}
_SNIPPETS, _SNIPPET_CHARACTERS = 300, 2_000

Figures = dict[str, Any]


@dataclass(frozen=True)
class Attempted:
    """One attempt at one of the tasks."""

    of: QualityTask
    trajectory: Trajectory

    @property
    def is_general(self) -> bool:
        """Whether its actions make what is wanted of the other code."""
        text, sandbox = self.of.other_before, MemorySandbox()
        for step in self.trajectory.steps:
            action = step.model_output.action
            if not step.is_kept or action is None:
                continue
            [result] = sandbox.apply_many(text, self.of.language, [action])
            # what one step of several was for may be missing here
            text = result.after if result.verdict is Verdict.OK and result.after is not None else text
        return self.trajectory.is_verified and compare_texts(text, self.of.other_wanted, self.of.language).is_verified


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fleet", default="embedded", help="a fleet of configs/vllm_actors.yaml that is up")
    parser.add_argument("--url", help="a server that is no actor of a fleet")
    parser.add_argument("--model", default="", help="as the server at --url calls it")
    parser.add_argument("--slots", type=int, default=4, help="requests at a time to the server at --url")
    parser.add_argument("--prompt", default="small", help="a prompt of configs/teacher_prompts.yaml")
    parser.add_argument(
        "--tasks",
        type=some_of(task.name for task in QUALITY_TASKS),
        help="names, with commas between; all of them if not given",
    )
    parser.add_argument("--steps", type=int, default=STEPS, help="at most, in one attempt")
    parser.add_argument("--ways", type=some_of(_WAYS), default=",".join(_WAYS), help="which passes are made")
    parser.add_argument("--transcripts", type=Path, help="file for all trajectories")
    parser.add_argument("--quick", action="store_true", help="two tasks, one way: shows that it runs, not how well")
    arguments = parser.parse_args()
    fleet = (
        Fleet(
            engine="service",
            model=arguments.model,
            actors=(Actor(name="server", url=arguments.url, slots=arguments.slots),),
        )
        if arguments.url
        else load_fleet(CHECKOUT / "configs", arguments.fleet)
    )
    secrets = open_secrets(os.environ, CHECKOUT)
    key = secrets.require(fleet.api_key, f"fleet {arguments.fleet!r}") if fleet.api_key else None
    chosen = arguments.tasks or [task.name for task in QUALITY_TASKS]
    tasks = [task for task in QUALITY_TASKS if task.name in chosen][: 2 if arguments.quick else None]
    ways = ["feedback"] if arguments.quick else arguments.ways
    with BlockingChatModel(ActorPool(fleet, key)) as model:
        prompt = load_prompt(CHECKOUT / "configs", arguments.prompt)
        figures = quality(model, prompt, fleet, tasks, arguments.steps, ways, arguments.transcripts)
    figures = {"model": fleet.called, "prompt": arguments.prompt, **figures}
    print(json.dumps({"name": "teacher_quality", "figures": figures, "peers": {}, "machine": machine()}))


def quality(
    model: BlockingChatModel,
    prompt: Prompt,
    fleet: Fleet,
    tasks: Sequence[QualityTask] = QUALITY_TASKS,
    steps: int = STEPS,
    ways: Sequence[str] = _WAYS,
    transcripts: Path | None = None,
) -> Figures:
    """Return the figures of `model` with `prompt`."""
    slots = sum(actor.slots for actor in fleet.actors)
    figures: Figures = {"tasks": len(tasks)}
    for way in ways:
        examples = _examples() if "examples" in way else None
        teacher = OpenAITeacher(model, prompt, fleet.context_tokens, examples)
        attempts, seconds = _attempts(teacher, tasks, steps, slots, way)
        if examples is None:
            figures["one_step"] = _figures([attempt for attempt in attempts if len(attempt.trajectory.steps) == 1])
        figures[way] = {**_figures(attempts), **_effort(attempts), "seconds": seconds}
        if transcripts is not None:
            with transcripts.open("a", encoding="utf-8") as stream:
                stream.writelines(attempt.trajectory.model_dump_json() + "\n" for attempt in attempts)
    return figures


def _attempts(
    teacher: OpenAITeacher, tasks: Sequence[QualityTask], steps: int, slots: int, way: str
) -> tuple[list[Attempted], float]:
    began = time.perf_counter()

    def attempt(task: QualityTask) -> Attempted:
        done = Attempted(
            task, collect(task.task, teacher, MemorySandbox(), RolloutConfig(max_steps=steps, max_failed=steps))
        )
        took = len(done.trajectory.steps)
        outcome = "solved" if done.trajectory.is_verified else done.trajectory.failure
        print(
            f"{time.perf_counter() - began:6.0f} s  {way}: {task.name}: {outcome} in {took}",
            file=sys.stderr,
            flush=True,
        )
        return done

    with ThreadPoolExecutor(slots) as threads:
        return list(threads.map(attempt, tasks)), round(time.perf_counter() - began, 1)


def _figures(attempts: Sequence[Attempted]) -> Figures:
    solved = [attempt for attempt in attempts if attempt.trajectory.is_verified]
    return {
        "verified": len(solved),
        "general": sum(attempt.is_general for attempt in solved),
        "names": [attempt.of.name for attempt in solved],
    }


def _effort(attempts: Sequence[Attempted]) -> Figures:
    steps = [step for attempt in attempts for step in attempt.trajectory.steps]
    asked = [step.model_output.generation for step in steps if step.model_output.generation is not None]
    return {
        "steps": len(steps),
        "readable": sum(step.format_ok for step in steps),
        "strict": sum(bool(step.format_strict) for step in steps),
        "prompt_tokens": sum(one.prompt_tokens for one in asked),
        "completion_tokens": sum(one.completion_tokens for one in asked),
    }


def _examples() -> Examples:
    examples = Examples(HashedEmbedder(), MemoryVectorStore())
    examples.rebuild("sample", _verified_steps())
    return examples


def _verified_steps() -> Iterator[VerifiedStep]:
    """Yield synthetic edits of the sample as steps; each was applied and compared when it was made."""
    with gzip.open(SAMPLE, "rt", encoding="utf-8") as stream:
        rows = [row for row in map(json.loads, stream) if len(row["pre"]) < _SNIPPET_CHARACTERS]
    for language in get_args(Language):
        snippets = [_snippet(row) for row in rows if row["language"] == language][:_SNIPPETS]
        count = _PER_LANGUAGE.get(language, 0)
        for edit in synthesize(snippets, language, count, _SEED, MemorySandbox(), split="train") if count else ():
            if edit.gold_action is None or edit.gold_next:
                continue
            update = StateUpdate(history=[f"rewrote {describe_action(edit.gold_action)}"[:200]], next_focus="done")
            shot = Shot(
                language=edit.language,
                instruction=edit.instruction,
                code=edit.pre,
                think="",
                action=edit.gold_action,
                state_update=update,
            )
            yield VerifiedStep(
                id=f"{edit.id}#1", task_id=edit.id, group=edit.group, split="train", shot=shot, after=edit.post
            )


def _snippet(row: Figures) -> Edit:
    return Edit(
        instruction="-",
        pre=row["pre"],
        post=row["post"],
        language=row["language"],
        id=row["id"],
        dataset="release_pairs",
        license=row["license"],
        group=row["pkg"],
        commit=row["id"],
        origin=row["path"],
    )


if __name__ == "__main__":
    main()
