"""From replies to graded attempts, in worker processes or in this one. The same answer to the same task is graded once."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

from graftline.agent.edits import digest_texts, replace_block
from graftline.agent.single_places import SinglePlace
from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language
from graftline.codemod.change_places import ShownPlace
from graftline.codemod.equality import Level, compare_texts, normalize_blank_lines, normalize_whitespace
from graftline.core.errors import DataError, SandboxError
from graftline.core.hashing import sha256_text
from graftline.core.processes import WorkerDied, Workers
from graftline.core.text_diff import unified_diff
from graftline.evals.attempt import Answered, Attempt, Attempted, Failed, Produced, Reply, Unaskable
from graftline.evals.cases import Case, HeldOutExample, repository_of
from graftline.rollouts.answer_grading import grade_answer, read_actions
from graftline.rollouts.fenced_code import read_code
from graftline.rollouts.repository_task import RepositoryTask, grade_texts, rewrite_all
from graftline.rollouts.reward import BAD_FORMAT, RewardWeights
from graftline.rollouts.trajectory import TrajectoryStep
from graftline.sandbox.actions import SandboxConfig, open_sandbox
from graftline.sandbox.base import Sandbox, Verdict, ensure_decided
from graftline.sandbox.jail.open import JailConfig

Grading = Callable[[str, Iterable[Reply]], Iterator[Attempt]]
"""Grades the replies of the solver of that name, in their order."""

_TRIES = 2
_MAX_DIFF = 20_000
"""Characters of what is stored of the change of a repository."""
_MOST_CACHED = 4096
"""Answers whose grade is kept, at most: those of one solver come task by task."""


class Grader:
    """Grades replies in `sandbox`, which belongs to the caller."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._cache: dict[tuple[str, str, str, str], dict[str, Any]] = {}

    def __call__(self, solver: str, replies: Iterable[Reply]) -> Iterator[Attempt]:
        return (self.attempt(solver, reply) for reply in replies)

    def attempt(self, solver: str, reply: Reply) -> Attempt:
        """Return a reply with its grade.

        A sandbox that fails is a machine that failed: an answer is paid for, and is graded once more before another is asked
        for.
        """
        grade: dict[str, Any] = {}
        for _ in range(_TRIES):
            try:
                grade = self._grade(reply)
                break
            except SandboxError as error:
                grade = {"reward": None, "cause": str(error)}
        case, cost = reply.question.case, reply.cost
        return Attempt(
            solver=solver,
            task_id=case.id,
            language=case.task.language,
            edit_class=case.edit_class,
            attempt=reply.question.attempt,
            tokens=cost.tokens,
            cost_usd=cost.cost_usd,
            latency_s=cost.latency_s,
            is_infra=grade["reward"] is None,
            **grade,
        )

    def _grade(self, reply: Reply) -> dict[str, Any]:
        case = reply.question.case
        match reply:
            case Failed(error=error):
                return {"reward": None, "cause": error}
            case Unaskable(cause=cause):
                return _grade_nothing(reply, cause)
            case Produced():
                return self._grade_produced(reply)
            case Answered(text=text) if case.is_of_places:
                return {**self._grade_rule(reply), "text": text.encode("utf-8", "replace").decode()}
            case Answered(text=text, answer_format=form) if case.place is not None and form.layout == "code":
                return {"text": text.encode("utf-8", "replace").decode(), **self._grade_lines(reply, case.place)}
            case Answered(text=text):
                # a model can answer half a surrogate pair, which cannot be stored
                return {"text": text.encode("utf-8", "replace").decode(), **self._grade_once(reply)}
            case Attempted(trajectory=trajectory):
                actions = [step.model_output.action for step in trajectory.path if step.model_output.action is not None]
                is_failure = bool(trajectory.failure) and not trajectory.is_verified
                return {
                    **_facts(case, trajectory.steps),
                    "actions": tuple(actions),
                    "reward": trajectory.reward.value,
                    "cause": trajectory.failure if is_failure else trajectory.reward.cause,
                    "level": trajectory.level,
                    "right_on_unseen": self._is_right_on_held_out(case, trajectory.level, actions),
                }

    def _grade_once(self, reply: Answered) -> dict[str, Any]:
        case = reply.question.case
        held_out = "" if case.unseen is None else case.unseen.model_dump_json()
        key = case.task.digest, held_out, reply.text, reply.answer_format.model_dump_json()
        if key in self._cache:
            return self._cache[key]
        graded = grade_answer(case.task, reply.text, reply.answer_format, self._sandbox, RewardWeights())
        level, facts = graded.level, _facts(case, graded.steps)
        actions = facts["actions"]
        after = facts["after"]
        if case.place is not None and after is not None and after != case.task.before and not level.is_verified:
            # lines that are no program of their own may be one in their file
            level = case.place.grade(replace_block(case.place.before, case.place.block, after))
        grade = {
            **facts,
            "reward": graded.reward.value,
            "cause": graded.reward.cause,
            "level": level,
            "right_on_unseen": self._is_right_on_held_out(case, level, actions),
        }
        if graded.reward.value is not None:
            if len(self._cache) >= _MOST_CACHED:
                self._cache.clear()
            self._cache[key] = grade
        return grade

    def _grade_rule(self, reply: Answered) -> dict[str, Any]:
        """Return what the rule of an answer is worth in a whole repository."""
        repository = repository_of(reply.question.case)
        actions = read_actions(reply.question.case.task, reply.text, reply.answer_format, self._sandbox)
        if actions is None:
            return _grade_nothing(reply, BAD_FORMAT)
        texts = rewrite_all(repository, actions, self._sandbox)
        if isinstance(texts, Verdict):
            return {"actions": tuple(actions), "reward": None, "cause": str(texts), "verdict": texts}
        return {**self._grade_texts(repository, texts), "actions": tuple(actions)}

    def _grade_lines(self, reply: Answered, place: SinglePlace) -> dict[str, Any]:
        """Return what an answer is worth that is the lines of a place as they are to be, whatever rules it makes."""
        code = read_code(reply.text, place.code)
        if code is None:
            return _grade_nothing(reply, BAD_FORMAT)
        text = replace_block(place.before, place.block, code)
        return self._grade_produced(Produced(reply.question, {place.block.path: text}))

    def _grade_produced(self, reply: Produced) -> dict[str, Any]:
        place, repository = reply.question.case.place, repository_of(reply.question.case)
        if place is None:
            return {**self._grade_texts(repository, reply.texts, reply.shown), "actions": reply.actions}
        text = place.keep(reply.texts.get(place.block.path, place.before))
        level = place.grade(text) if text != place.before else Level.NONE
        after = textwrap.dedent(place.cut(text))
        return {
            "actions": reply.actions,
            "after": after,
            "reward": float(level.is_verified),
            "cause": "verified" if level.is_verified else "no_progress",
            "level": level,
            "effect": _effect_of(place.code, after),
        }

    def _grade_texts(
        self, repository: RepositoryTask, texts: Mapping[str, str], shown: Sequence[ShownPlace] = ()
    ) -> dict[str, Any]:
        before = repository.change.texts(shown)
        changes = {path: text for path, text in sorted(texts.items()) if text != before[path]}
        grade = grade_texts(repository, {**before, **changes}, self._sandbox, shown)
        value = grade.reward.value
        level = Level.NONE if not value else Level.PARTIAL if value < 1 else Level.EXACT if grade.score else Level.TESTS
        diff = "".join(line for path, text in changes.items() for line in unified_diff(before[path], text, path, path))
        return {
            "text": diff[:_MAX_DIFF],
            "reward": value,
            "cause": grade.reward.cause,
            "level": level,
            "places": grade.score,
            "effect": digest_texts(changes) if changes else "",
        }

    def _is_right_on_held_out(
        self, case: Case, level: Level, actions: Sequence[PatternAction | RuleAction]
    ) -> bool | None:
        if case.unseen is None:
            return None
        return level.is_verified and solves(actions, case.unseen, case.task.language, self._sandbox)


def solves(
    actions: Sequence[PatternAction | RuleAction], example: HeldOutExample, language: Language, sandbox: Sandbox
) -> bool:
    """Return whether `actions`, one after the other, make the text after of `example` from the one before.

    Raises:
        SandboxError: the sandbox failed, or ran into the wall clock.
    """
    text = example.pre
    for action in actions:
        [result] = sandbox.apply_many(text, language, [action])
        if ensure_decided(result).verdict is not Verdict.OK:
            return False
        text = normalize_blank_lines(text, result)
    try:
        return compare_texts(text, example.post, language).is_verified
    except DataError:  # the actions made a text that cannot be read
        return False


@contextmanager
def grading_workers(count: int, sandbox: SandboxConfig, tests: JailConfig | None = None) -> Iterator[Grading]:
    """Start `count` processes, each with a sandbox of its own, and stop them at the end; with 0, grade in this one.

    The tests of tasks run in jails of `tests` (see `open_sandbox`).

    Raises:
        SandboxError: a worker cannot open its sandbox, or dies.
    """
    if not count:
        with closing(open_sandbox(sandbox, tests)) as opened:
            yield Grader(opened)
        return
    with Workers(count, partial(_open_grader, sandbox, tests)) as workers:

        def grade(solver: str, replies: Iterable[Reply]) -> Iterator[Attempt]:
            try:
                yield from workers.map((solver, reply) for reply in replies)
            except WorkerDied as error:
                raise SandboxError("a worker process died; what was graded is kept, start again to go on") from error

        yield grade


def _open_grader(sandbox: SandboxConfig, tests: JailConfig | None) -> Callable[[tuple[str, Reply]], Attempt]:
    grader = Grader(open_sandbox(sandbox, tests))
    return lambda item: grader.attempt(*item)


def _grade_nothing(reply: Unaskable | Answered, cause: str) -> dict[str, Any]:
    """Return what it is worth to have changed nothing."""
    case = reply.question.case
    repository = case.repository if case.is_of_places else None
    # a change that tests alone judge has no places, whoever attempts it
    own = {"places": repository.change.score({})} if repository is not None and repository.files else {}
    return {"reward": 0.0, "cause": cause, "right_on_unseen": None if case.unseen is None else False, **own}


def _effect_of(before: str, after: str | None) -> str:
    """Return what tells apart what an attempt at one text does, white space left aside; empty where it does nothing."""
    text = normalize_whitespace(after) if after is not None else ""
    return "" if after is None or text == normalize_whitespace(before) else sha256_text(text)


def _facts(case: Case, steps: Sequence[TrajectoryStep]) -> dict[str, Any]:
    """Return what the steps of an attempt say together: an over-application anywhere is one of the attempt."""
    changes = [step.false_positives for step in steps if step.false_positives is not None]
    outcome = steps[-1].sandbox_result if steps else None
    after = outcome.after if outcome else None
    return {
        "actions": tuple(step.model_output.action for step in steps if step.model_output.action is not None),
        "after": after,
        "effect": _effect_of(case.task.before, after),
        "verdict": outcome.verdict if outcome else None,
        "over_application": any(changes) if changes else None,
    }
