"""What `benchmarks.migrations` compares, and one run of it: edits shown, files that come out, hunks counted."""

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from benchmarks.commands import CHECKOUT
from benchmarks.migration_measure import Commit, counts_of
from benchmarks.peers import release_0_1_0
from benchmarks.peers.templates import make_templates, rewrite_text
from graftline.agent.model import AgentModel, Limits, open_model
from graftline.agent.questions import answer_with_model, list_examples
from graftline.astgrep.action import Action, rule_of
from graftline.astgrep.binding import Language, is_safe
from graftline.astgrep.expand import BeyondBindingError, InvalidActionError, Source, replacements
from graftline.codemod.change_places import ShownPlace
from graftline.codemod.learn import learn_rules
from graftline.codemod.migration.generalize import Ask, Question
from graftline.codemod.migration.units import Demonstration
from graftline.codemod.source_files import SourceFile, rewrite_files
from graftline.core.errors import BoundaryError, DataError
from graftline.core.hashing import sha256_text
from graftline.core.secrets import open_secrets
from graftline.evals.change_solvers import follow_shown
from graftline.sandbox.base import Isolation, Match, Sandbox, SandboxResult, Verdict, replace_matches
from graftline.sandbox.runner import language_of

SECONDS = 60
"""Of a processor, for one run; one that takes longer changes nothing."""
MAX_QUESTIONS = 5
_PEER_FILES = {"template": ("templates.py",), "release-0.1.0": ("release_0_1_0.py",)}
_NONE = Isolation("none", "memory")
_TOKENS = re.compile(r"\w+|\W")

Produced = Mapping[str, str]
Task = tuple[Commit, Mapping[str, str], Sequence[int], int, Path]
"""A commit, arms with the digests of their code, numbers of demonstrations, seeds, and the folder of the cache."""


class ParsedSandbox(Sandbox):
    """Answers from this process, and keeps what it parsed: every arm applies many rules to the same files."""

    def __init__(self) -> None:
        self._parsed: dict[tuple[str, Language], Source] = {}
        self._results: dict[tuple[str, Language, str], SandboxResult] = {}

    @property
    def isolation(self) -> Isolation:
        return _NONE

    def apply_many(self, source: str, language: Language, actions: Sequence[Action]) -> list[SandboxResult]:
        if not is_safe(source):
            return [SandboxResult(Verdict.ACTION_ERROR, None, _NONE, error="not parsed") for _ in actions]
        parsed = self._parsed.get((source, language)) or Source.parse(source, language)
        if len(self._parsed) < 4_000:
            self._parsed[source, language] = parsed
        keys = [(source, language, action.model_dump_json()) for action in actions]
        if len(self._results) > 400_000:
            self._results.clear()
        for key, action in zip(keys, actions, strict=True):
            if key not in self._results:
                self._results[key] = self._apply(parsed, action)
        return [self._results[key] for key in keys]

    def close(self) -> None:
        self._parsed.clear()
        self._results.clear()

    def _apply(self, parsed: Source, action: Action) -> SandboxResult:
        try:
            matches = [Match(*span) for span in replacements(parsed, rule_of(action))]
        except InvalidActionError as error:
            return SandboxResult(Verdict.ACTION_ERROR, None, _NONE, error=str(error))
        except BeyondBindingError:
            return SandboxResult(Verdict.NEEDS_CLI, None, _NONE, error="needs the command line")
        return replace_matches(parsed.text, matches, _NONE)


def run_learn(commit: Commit, shown: Sequence[ShownPlace], sandbox: Sandbox) -> Produced:
    """Return the texts that the rules of `graftline learn` change."""
    pairs = []
    for place in shown:
        language = language_of(place.path)
        assert language is not None
        sides = (place.hunk.before, place.hunk.after)
        pairs.append(tuple(SourceFile(Path(place.path), language, side) for side in sides))
    try:
        rules = learn_rules([(before, after) for before, after in pairs], [], sandbox).rules
    except DataError:  # examples in several languages
        return {}
    sources = [
        SourceFile(Path(path), language, text)
        for path, text in commit.texts(()).items()
        if (language := language_of(path)) is not None and is_safe(text)
    ]
    produced = rewrite_files(sources, rules, sandbox)
    return {rewritten.file.path.as_posix(): rewritten.text for rewritten in produced if not rewritten.fault}


def run_sed(commit: Commit, shown: Sequence[ShownPlace], sandbox: Sandbox) -> Produced:
    """Return the texts in which the replaced tokens are replaced everywhere."""
    texts = commit.texts(())
    for old, new in dict.fromkeys(pair for place in shown for pair in replaced_tokens(place)):
        pattern = re.compile(rf"(?<!\w){re.escape(old)}(?!\w)")
        for path, text in texts.items():
            if old in text:
                texts[path] = pattern.sub(lambda match, new=new: new, text)  # type: ignore[misc]
    return texts


def run_template(commit: Commit, shown: Sequence[ShownPlace], sandbox: Sandbox) -> Produced:
    """Return the texts in which templates with holes, made of the demonstrations, are rewritten everywhere."""
    texts = commit.texts(())
    made = (template for place in shown for template in make_templates(place.hunk.before, place.hunk.after))
    for template in dict.fromkeys(made):
        words = [part for part in template.match if isinstance(part, str)]
        for path, text in texts.items():
            if all(word in text for word in words if not word.isspace()):
                texts[path] = rewrite_text(template, text)
    return texts


def run_release(commit: Commit, shown: Sequence[ShownPlace], sandbox: Sandbox) -> Produced:
    """Return the texts that version 0.1.0 changes."""
    edits = [(Path(place.path).suffix, place.hunk.before, place.hunk.after) for place in shown]
    return release_0_1_0.follow(edits, commit.texts(()))


def replaced_tokens(place: ShownPlace) -> Iterator[tuple[str, str]]:
    """Yield what a person would give to `sed`: replaced runs of tokens; what is put in goes with the word before it."""
    old, new = _TOKENS.findall(place.hunk.before), _TOKENS.findall(place.hunk.after)
    for tag, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal" or not "".join([*old[i:j], *new[k:m]]).strip():
            continue
        first = i
        while first > 0 and not re.search(r"\w", "".join(old[first:j])):
            first -= 1
        yield "".join(old[first:j]), "".join(old[first:i]) + "".join(new[k:m])


@cache
def served_model() -> AgentModel:
    """Return the model of the fleet that `GRAFTLINE_FLEET` names, else `embedded`; what it answers is kept."""
    answers = CHECKOUT / "data" / "agent" / "answers"
    fleet = os.environ.get("GRAFTLINE_FLEET", "embedded")
    limits = Limits(tokens=10**12, seconds=10**9)
    return open_model(fleet, CHECKOUT / "configs", open_secrets(os.environ, CHECKOUT), answers, limits)


def run_generalize(
    commit: Commit, shown: Sequence[ShownPlace], sandbox: Sandbox, by: Literal["nobody", "commit", "model"]
) -> Produced:
    """Return the texts that the rules of `generalize` change, where questions are answered so."""

    def answer(question: Question) -> bool:
        # the text of the question: rules taken before it may have changed the file
        return commit.agrees(question.path, question.start, question.end, question.replacement, question.text)

    ask: Ask | None = answer if by == "commit" else None
    if by == "model":
        demonstrations = [Demonstration(place.path, before_of(commit, place), place.text) for place in shown]
        ask = answer_with_model(commit.subject, served_model(), list_examples(demonstrations))
    return follow_shown(commit, commit.subject, shown, sandbox, ask=ask, max_questions=MAX_QUESTIONS)


def before_of(commit: Commit, place: ShownPlace) -> str:
    """Return the text before of the file of a place."""
    return next(file.before for file in commit.files if file.path == place.path)


ARMS: Mapping[str, Callable[[Commit, Sequence[ShownPlace], Sandbox], Produced]] = {
    "generalize": partial(run_generalize, by="nobody"),
    "generalize-asks": partial(run_generalize, by="commit"),
    "generalize-model": partial(run_generalize, by="model"),
    "learn": run_learn,
    "sed": run_sed,
    "template": run_template,
    "release-0.1.0": run_release,
}


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in this thread when that much of the processor's time is over."""

    def stop(*_: object) -> None:
        raise TimeoutError

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


def code_of(arm: str) -> str:
    """Return a digest of the code that decides what an arm does."""
    folder = CHECKOUT / "graftline" / "codemod"
    paths = [*folder.glob("*.py"), *(folder / "migration").glob("*.py")] if arm.startswith("generalize") else []
    paths += [*(CHECKOUT / "graftline" / "agent").glob("*.py")] if arm == "generalize-model" else []
    paths += [*folder.glob("*.py")] if arm == "learn" else []
    peers = CHECKOUT / "benchmarks" / "peers"
    paths += [peers / name for name in _PEER_FILES.get(arm, ())]
    return sha256_text("".join(path.read_text("utf-8") for path in sorted(set(paths))))[:16]


def measure_commit(task: Task) -> list[dict[str, Any]]:
    """Return a row for each arm, number of demonstrations and seed, and keep it in the cache."""
    commit, arms, numbers, seeds, cache = task
    rows: list[dict[str, Any]] = []
    sandbox = ParsedSandbox()
    for arm, code in arms.items():
        path = cache / arm / code / f"{commit.id}.json"
        results: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
        for number in numbers:
            for seed in range(seeds):
                key = f"{number}:{seed}"
                if key not in results:
                    results[key] = measure_run(commit, arm, commit.show(seed, number), sandbox)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(json.dumps(results))
                rows.append({**results[key], "commit": commit.id, "repository": commit.repository, "arm": arm})
                rows[-1] |= {"shown": number, "seed": seed}
    return rows


def measure_run(commit: Commit, arm: str, shown: Sequence[ShownPlace], sandbox: Sandbox) -> dict[str, Any]:
    """Return the counts of one run."""
    began, cause = time.process_time(), ""
    produced: Produced = {}
    if shown:
        try:
            with time_limit(SECONDS):
                produced = ARMS[arm](commit, shown, sandbox)
        except TimeoutError:
            cause = "time"
        except BoundaryError:  # nothing is known of the run
            raise
        except Exception as error:  # a defect of one run must not end the others; it is counted and shown
            cause = f"{type(error).__name__}: {error}"[:200]
    seconds = round(time.process_time() - began, 2)
    counts = commit.score(produced if not cause else commit.texts(shown), shown)
    return {**counts_of(counts), "seconds": seconds, "cause": cause}


def make_worker() -> Callable[[Task], list[dict[str, Any]]]:
    """Return what a worker process does with a task."""
    return measure_commit
