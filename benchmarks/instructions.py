"""How many of the shipped edits get an instruction made of their own rules, and how many of those can be done from it.

Every edit of the sample `release_pairs` is put into words, in full and lazily, and the reader of the templates makes the change from
these words and the text before. The reader knows the templates, so this says that an instruction is complete, not that a model
understands it. Nothing was tuned on other edits than these. Beside it, in the same run: the sentence that a row alone would give ("Change `X`
as P did from 1.0 to 2.0."), from which nobody can do the change.

    python -m benchmarks.instructions [--limit N]

With a fleet that is up, that is asked of a language model in place of the reader: it is shown an instruction and the text before, and
answers with the text after, several times at each of some edits drawn at random. An edit is `solved` where any answer is the target and
actions that induction makes of it lead there in the sandbox, which knows the target and so is an upper bound; `solved_by_majority` where
the text that most answers agree on is. Answers are kept in `--progress`, and a run that is begun again goes on with them.

    graftline model serve --fleet embedded
    python -m benchmarks.instructions --fleet embedded --progress FILE [--edits 100] [--attempts 4] [--rules]
"""

import argparse
import gzip
import json
import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from threading import Lock
from typing import Any, Literal, get_args

from pydantic import BaseModel

from benchmarks.commands import CHECKOUT
from benchmarks.machine import machine
from graftline.codemod.equality import normalize_whitespace
from graftline.codemod.instructions.describe import describe_edit, is_answerable
from graftline.core.jsonl import Journal
from graftline.core.secrets import open_secrets
from graftline.datasets.edit import Edit
from graftline.datasets.readers.release_pairs import ReleasePair, edit_of
from graftline.harbor.coverage import interval_of
from graftline.llm.base import Message
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.fleet import PoolSettings, load_fleet
from graftline.llm.pool import ActorPool
from graftline.llm.questions import seed_of
from graftline.rollouts.answer_grading import first_question, grade_answer
from graftline.rollouts.reward import RewardWeights
from graftline.rollouts.round_trip import EditModel, makes_target
from graftline.rollouts.round_trip_config import RoundTripConfig
from graftline.rollouts.task import task_of
from graftline.rollouts.task_instructions import ask_for_edit
from graftline.rollouts.teachers.openai import chat_request
from graftline.rollouts.teachers.prompt import Prompt, load_prompt
from graftline.sandbox.actions import MemorySandbox

SAMPLE = CHECKOUT / "data/samples/release_pairs.jsonl.gz"
MOST_LINES, MOST_CHARACTERS = 25, 1500
"""Of a text that a model is shown: it writes all of it again."""
_SEED = 28
_DEADLINE_S = 3600.0

Arm = Literal["rule_made", "sentence_of_origin", "rule_made_as_rules"]
"""What an edit is asked by, and how it is answered: with the text after, or with an ast-grep rule."""


class Answer(BaseModel):
    """One answer of a model."""

    arm: Arm
    id: str
    attempt: int
    text: str
    """The text after, or what of it an answer that is none says."""
    is_right: bool
    tokens: int


def read_edits() -> list[tuple[Edit, str]]:
    """Return the edits of the sample, each with the sentence that its row alone would give."""
    with gzip.open(SAMPLE, "rt", encoding="utf-8") as stream:
        pairs = [ReleasePair.model_validate_json(line) for line in stream]
    results = [(edit_of(pair, "release_pairs"), sentence_of_origin(pair)) for pair in pairs]
    return [(result, sentence) for result, sentence in results if isinstance(result, Edit)]


def sentence_of_origin(pair: ReleasePair) -> str:
    """Return all that a row says of what was done."""
    return f"Change `{pair.qual.lstrip('.')}` as {pair.pkg} did from {pair.old} to {pair.new}."


def measure_edit(edit: Edit, origin: str) -> dict[str, Any]:
    """Return what became of one edit: details in which it is asked for, characters, whether the sentence `origin` would do."""
    sandbox = MemorySandbox()
    started = time.process_time()
    wordings = describe_edit(edit.pre, edit.post, edit.language, edit.id, sandbox)
    return {
        "language": edit.language,
        "details": [wording.detail for wording in wordings],
        "characters": len(wordings[0].text) if wordings else 0,
        "milliseconds": 1000 * (time.process_time() - started),
        "origin_answers": is_answerable(origin, edit.pre, edit.post, edit.language, sandbox),
    }


def measure_reader(edits: Sequence[tuple[Edit, str]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a reader of our own sentences does with instructions made of rules, and with the sentences of the rows."""
    rows = [measure_edit(edit, sentence) for edit, sentence in edits]
    described = [row for row in rows if row["details"]]
    of_language, languages = Counter(row["language"] for row in described), Counter(row["language"] for row in rows)
    figures = {
        "edits": len(rows),
        "described": round(len(described) / len(rows), 4),
        "described_lazily": round(sum("lazy" in row["details"] for row in rows) / len(rows), 4),
        "by_language": {name: round(of_language[name] / count, 4) for name, count in sorted(languages.items())},
        "characters_median": statistics.median(row["characters"] for row in described),
        "cpu_ms_per_edit": round(statistics.mean(row["milliseconds"] for row in rows), 1),
    }
    return figures, {
        "sentence_of_origin": {"answered": round(sum(row["origin_answers"] for row in rows) / len(rows), 4)}
    }


def draw_pairs(edits: Sequence[tuple[Edit, str]], count: int) -> Iterator[tuple[Edit, Edit]]:
    """Yield `count` short edits drawn at random, with the sentence of their rows and with the instruction that tasks give them."""
    short = [(edit, sentence) for edit, sentence in edits if _is_short(edit.pre) and _is_short(edit.post)]
    random.Random(_SEED).shuffle(short)
    sandbox = MemorySandbox()
    for edit, sentence in short:
        worded = ask_for_edit(edit, sandbox)
        if worded.answerable:
            yield edit.model_copy(update={"instruction": sentence}), worded
            count -= 1
        if not count:
            return


class Contest:
    """Asks one model for edits by the instructions of several arms."""

    def __init__(self, model: BlockingChatModel, editor: EditModel, prompt: Prompt) -> None:
        self._model, self._editor, self._prompt = model, editor, prompt

    def answer(self, arm: Arm, edit: Edit, attempt: int) -> Answer:
        """Return one answer."""
        sandbox = MemorySandbox()
        if arm == "rule_made_as_rules":
            task = task_of(edit)
            messages = tuple(Message.model_validate(dict(message)) for message in first_question(task, self._prompt))
            seed = seed_of(_SEED, edit.id, attempt)
            request = chat_request(self._prompt.settings, messages, self._editor.config.temperature, seed)
            reply = self._model.generate(request)
            graded = grade_answer(task, reply.text, self._prompt.settings.answer, sandbox, RewardWeights())
            after = graded.step.sandbox_result.after if graded.step and graded.step.sandbox_result else None
            tokens = reply.usage.prompt + reply.usage.completion
            return Answer(
                arm=arm, id=edit.id, attempt=attempt, text=after or "", is_right=graded.is_verified, tokens=tokens
            )
        edited = self._editor.edit(edit.instruction, edit.pre, edit.language, edit.id, attempt)
        is_right = edited.text is not None and makes_target(edited.text, edit.pre, edit.post, edit.language, sandbox)
        return Answer(
            arm=arm, id=edit.id, attempt=attempt, text=edited.text or "", is_right=is_right, tokens=edited.tokens
        )


def measure_model(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a served model does with both instructions of the same edits, and the figures of each arm."""
    config = RoundTripConfig(attempts=options.attempts, deadline_s=_DEADLINE_S)
    fleet = load_fleet(CHECKOUT / "configs", options.fleet)
    secrets = open_secrets(os.environ, CHECKOUT)
    key = secrets.require(fleet.api_key, f"fleet {options.fleet!r}") if fleet.api_key else None
    slots = sum(actor.slots for actor in fleet.actors)
    arms = get_args(Arm) if options.rules else get_args(Arm)[:2]
    with (
        BlockingChatModel(ActorPool(fleet, key, PoolSettings(stall_s=_DEADLINE_S, patience_s=_DEADLINE_S))) as model,
        ThreadPoolExecutor(slots) as threads,
        Journal(options.progress, Answer, f"{fleet.called} {options.attempts}".encode()) as journal,
    ):
        contest = Contest(
            model, EditModel(model, fleet.context_tokens, config), load_prompt(CHECKOUT / "configs", "small")
        )
        answers = {(answer.arm, answer.id, answer.attempt): answer for answer in journal.rows}

        def attempt(pair: tuple[Edit, Edit]) -> Iterator[Answer]:
            """Yield what is missing of one edit, one answer after the other: a server has read the question by then."""
            for arm, number in product(arms, range(1, options.attempts + 1)):
                edit = pair[arm != "sentence_of_origin"]
                if (arm, edit.id, number) not in answers:
                    yield contest.answer(arm, edit, number)

        def keep(pair: tuple[Edit, Edit]) -> None:
            for answer in attempt(pair):
                with lock:
                    journal.append(answer)
                    answers[answer.arm, answer.id, answer.attempt] = answer
                    print(f"{len(answers)}: {answer.arm} {answer.id} {answer.is_right}", file=sys.stderr, flush=True)

        lock = Lock()
        for _ in threads.map(keep, draw_pairs(read_edits(), options.edits)):
            pass
    return summarize_answers([*answers.values()], options.attempts, fleet.called)


def summarize_answers(answers: Sequence[Answer], attempts: int, model: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of the first arm, and those of the others, over the edits that all of them have answers to."""
    by_arm: dict[Arm, dict[str, list[Answer]]] = {arm: {} for arm in get_args(Arm)}
    for answer in answers:
        by_arm[answer.arm].setdefault(answer.id, []).append(answer)
    whole = {
        arm: {id: group for id, group in groups.items() if len(group) == attempts} for arm, groups in by_arm.items()
    }
    ids = sorted(set.intersection(*(set(groups) for groups in whole.values() if groups)))
    figures = {arm: _figures([groups[id] for id in ids]) for arm, groups in whole.items() if groups}
    first, *others = figures
    for arm in others:
        figures[arm]["paired_difference"] = {
            name: _difference([judge(whole[first][id]) for id in ids], [judge(whole[arm][id]) for id in ids])
            for name, judge in _JUDGES.items()
        }
    settings = {"model": model, "edits": len(ids), "attempts": attempts}
    return {**settings, **figures.pop(first)}, figures


def _solves_any(answers: Sequence[Answer]) -> bool:
    return any(answer.is_right for answer in answers)


def _solves_by_majority(answers: Sequence[Answer]) -> bool:
    """Return whether the text that most answers agree on is right; of several, that which was answered first."""
    ordered = sorted(answers, key=lambda answer: answer.attempt)
    texts = [normalize_whitespace(answer.text) for answer in ordered]
    counted = Counter(text for text in texts if text)
    return bool(counted) and ordered[texts.index(counted.most_common(1)[0][0])].is_right


_JUDGES = {"solved": _solves_any, "solved_by_majority": _solves_by_majority}


def _figures(groups: Sequence[Sequence[Answer]]) -> dict[str, Any]:
    answers = [answer for group in groups for answer in group]
    return {
        **{name: round(statistics.mean(map(judge, groups)), 4) for name, judge in _JUDGES.items()},
        "answers_right": round(statistics.mean(answer.is_right for answer in answers), 4),
        "tokens_per_edit": round(sum(answer.tokens for answer in answers) / len(groups)),
    }


def _difference(first: Sequence[bool], other: Sequence[bool]) -> dict[str, Any]:
    """Return by how much the first arm is better, with the 95 % interval of a paired bootstrap over edits."""
    differences = [float(a) - float(b) for a, b in zip(first, other, strict=True)]
    interval = interval_of(differences)
    return {
        "difference": round(statistics.mean(differences), 4),
        "interval": interval and [round(end, 4) for end in interval],
        "first_alone": differences.count(1.0),
        "other_alone": differences.count(-1.0),
    }


def _is_short(text: str) -> bool:
    return len(text.splitlines()) <= MOST_LINES and len(text) <= MOST_CHARACTERS


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.instructions",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--limit", type=int, help="edits at most that the reader is asked for")
    parser.add_argument(
        "--fleet", help="a fleet of configs/vllm_actors.yaml that is up: its model is asked, not the reader"
    )
    parser.add_argument("--edits", type=int, default=100, help="that the model is asked for")
    parser.add_argument("--attempts", type=int, default=4, help="of the model at each of them")
    parser.add_argument("--rules", action="store_true", help="ask the model for ast-grep rules as well")
    parser.add_argument("--progress", type=Path, help="file for the answers of the model, to go on with")
    options = parser.parse_args(arguments)
    if options.fleet and not options.progress:
        parser.error("--fleet takes hours: name a file for the answers in --progress")
    figures, peers = measure_model(options) if options.fleet else measure_reader(read_edits()[: options.limit])
    name = "instructions_by_model" if options.fleet else "instructions"
    print(json.dumps({"name": name, "figures": figures, "peers": peers, "machine": machine()}))


if __name__ == "__main__":
    main()
