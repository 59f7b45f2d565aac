"""How many of the shipped edits get an instruction made of their own rules, and how many of those can be done from it.

Every edit of the sample `release_pairs` is put into words, in full and lazily, and the reader of the templates makes
the change from these words and the text before. The reader knows the templates, so this says that an instruction is
complete, not that a model understands it. Nothing was tuned on other edits than these. Beside it, in the same run: the
sentence that a row alone would give ("Change `X` as P did from 1.0 to 2.0."), from which nobody can do the change.

    python -m benchmarks.instructions [--limit N]

With a fleet that is up, that is asked of a language model in place of the reader: it is shown an instruction and the
text before, and answers with the text after, several times at each of some edits drawn at random. An edit is `solved`
where any answer is the target and actions that induction makes of it lead there in the sandbox, which knows the target
and so is an upper bound; `solved_by_majority` where the text that most answers agree on is. Answers are kept in
`--progress`, and a run that is begun again goes on with them.

    graftline model serve --fleet embedded
    python -m benchmarks.instructions --fleet embedded --progress FILE [--edits 100] [--attempts 4]
"""

import argparse
import gzip
import json
import os
import random
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice, product
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
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.fleet import PoolSettings, load_fleet
from graftline.llm.pool import ActorPool
from graftline.rollouts.round_trip import EditModel, is_reachable_target
from graftline.rollouts.round_trip_config import RoundTripConfig
from graftline.rollouts.task_instructions import ask_for_edit
from graftline.sandbox.actions import MemorySandbox

SAMPLE = CHECKOUT / "data/samples/release_pairs.jsonl.gz"
MOST_LINES, MOST_CHARACTERS = 25, 1500
"""Of a text that a model is shown: it writes all of it again."""
_SEED = 28
_DEADLINE_S = 3600.0

Arm = Literal["rule_made", "sentence_of_origin"]
"""What an edit is asked for by."""
ARMS: tuple[Arm, ...] = get_args(Arm)


class Answer(BaseModel):
    """One answer of a model."""

    arm: Arm
    id: str
    attempt: int
    text: str
    """The text after; empty where the answer holds none."""
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
    """Return what became of one edit: details in which it is asked for, characters, whether the sentence `origin` would
    do.
    """
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
    """Return what a reader of our own sentences does with instructions made of rules, and with the sentences of the
    rows.
    """
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


def draw_pairs(edits: Sequence[tuple[Edit, str]]) -> Iterator[tuple[Edit, Edit]]:
    """Yield short edits in random order, each with the instruction that tasks give it and with the sentence of its row."""
    short = [(edit, sentence) for edit, sentence in edits if _is_short(edit.pre) and _is_short(edit.post)]
    random.Random(_SEED).shuffle(short)
    sandbox = MemorySandbox()
    for edit, sentence in short:
        worded = ask_for_edit(edit, sandbox)
        if worded.answerable:
            yield worded, edit.model_copy(update={"instruction": sentence})


def measure_served(options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the model of a fleet does."""
    fleet = load_fleet(CHECKOUT / "configs", options.fleet)
    secrets = open_secrets(os.environ, CHECKOUT)
    key = secrets.require(fleet.api_key, f"fleet {options.fleet!r}") if fleet.api_key else None
    # a machine that does other things as well may say nothing for long
    pool = ActorPool(fleet, key, PoolSettings(stall_s=_DEADLINE_S, patience_s=_DEADLINE_S))
    config = RoundTripConfig(attempts=options.attempts, deadline_s=_DEADLINE_S)
    with BlockingChatModel(pool) as model:
        edits = EditModel(model, fleet.prompt_and_answer_tokens, config)
        slots = sum(actor.slots for actor in fleet.actors)
        return measure_model(islice(draw_pairs(read_edits()), options.edits), edits, slots, options.progress)


def answer_edit(arm: Arm, edit: Edit, attempt: int, model: EditModel) -> Answer:
    """Return one answer of `model` to the instruction of `edit`."""
    answer = model.edit(edit.instruction, edit.pre, edit.language, edit.id, attempt)
    text = answer.text or ""
    is_right = bool(text) and is_reachable_target(text, edit.pre, edit.post, edit.language, MemorySandbox())
    return Answer(arm=arm, id=edit.id, attempt=attempt, text=text, is_right=is_right, tokens=answer.tokens)


def measure_model(
    pairs: Iterable[tuple[Edit, Edit]], model: EditModel, at_once: int, progress: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what `model` does with instructions made of rules, and with the sentences of the rows, for the same edits."""
    attempts = model.config.attempts
    with (
        ThreadPoolExecutor(at_once) as threads,
        Journal(progress, Answer, f"{model.name} {attempts} {model.digest}".encode()) as journal,
    ):
        answers = {(answer.arm, answer.id, answer.attempt): answer for answer in journal.rows}
        lock = Lock()

        def answer_pair(pair: tuple[Edit, Edit]) -> None:
            # one after the other: the server has read the code by then
            for (arm, edit), attempt in product(zip(ARMS, pair, strict=True), range(1, attempts + 1)):
                if (arm, edit.id, attempt) in answers:
                    continue
                answer = answer_edit(arm, edit, attempt, model)
                with lock:
                    journal.append(answer)
                    answers[arm, edit.id, attempt] = answer
                    print(f"{len(answers)}: {arm} {edit.id} {answer.is_right}", file=sys.stderr, flush=True)

        for _ in threads.map(answer_pair, pairs):
            pass
    return summarize_answers([*answers.values()], attempts, model.name)


def summarize_answers(answers: Sequence[Answer], attempts: int, model: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of instructions made of rules, and those of sentences, over the edits that have all answers to
    both.
    """
    groups: dict[Arm, dict[str, list[Answer]]] = {arm: defaultdict(list) for arm in ARMS}
    for answer in answers:
        groups[answer.arm][answer.id].append(answer)
    first, peer = groups.values()
    ids = sorted(id for id in first if len(first[id]) == len(peer.get(id, ())) == attempts)
    if not ids:
        raise SystemExit("no edit has all its answers: begin again with the same --progress")
    differences = {
        name: _difference([judge(first[id]) for id in ids], [judge(peer[id]) for id in ids])
        for name, judge in _JUDGES.items()
    }
    settings = {"model": model, "edits": len(ids), "attempts": attempts}
    figures = {**settings, **_figures([first[id] for id in ids]), "less_sentence_of_origin": differences}
    return figures, {"sentence_of_origin": _figures([peer[id] for id in ids])}


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
    parser.add_argument("--progress", type=Path, help="file for the answers of the model, to go on with")
    options = parser.parse_args(arguments)
    if options.fleet and not options.progress:
        parser.error("--fleet takes hours: name a file for the answers in --progress")
    if options.edits < 1 or options.attempts < 1:
        parser.error("--edits and --attempts: expected 1 or more")
    measure = (
        partial(measure_served, options) if options.fleet else partial(measure_reader, read_edits()[: options.limit])
    )
    figures, peers = measure()
    name = "instructions_by_model" if options.fleet else "instructions"
    print(json.dumps({"name": name, "figures": figures, "peers": peers, "machine": machine()}))


if __name__ == "__main__":
    main()
