"""What is stored of one step: the sandbox's answer, the measures, the reward."""

from collections.abc import Sequence
from difflib import unified_diff

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.codemod.equality import Level
from graftline.codemod.generality import is_general
from graftline.codemod.grade import Grade, grade, measured, over_out, parse_ok
from graftline.codemod.similarity import srl
from graftline.codemod.tidy import tidied
from graftline.core.errors import DataError
from graftline.rollouts.reward import BAD_FORMAT, Reward, RewardWeights, reward
from graftline.rollouts.state.state import State, StateUpdate
from graftline.rollouts.step import ModelOutput, Prompt, SandboxOutcome, TrajectoryStep
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import Proposal, Unreadable
from graftline.sandbox.base import Sandbox, SandboxResult

_MAX_DIFF_CHARACTERS = 20_000


def graded_step(
    task: Task,
    text: str,
    state: State,
    proposal: Proposal,
    earlier: Sequence[TrajectoryStep],
    sandbox: Sandbox,
    weights: RewardWeights,
) -> TrajectoryStep:
    """Return the step of `proposal`, applied to `text`, after the `earlier` ones; whether it is kept is not said yet.

    Raises:
        SandboxError: the sandbox failed.
    """
    action = proposal.action
    [result] = sandbox.apply_many(text, task.language, [action])
    graded = _graded(task, tidied(text, result))
    measures = measured(action, text, result, task.wanted, task.language, sandbox, own=task.before)
    general = is_general(action)
    way = [step for step in earlier if step.is_kept]
    spread = [measures.over_out, *(step.over_out for step in way)]
    return TrajectoryStep(
        task_id=task.id,
        step=len(earlier) + 1,
        prompt=Prompt(instruction=task.instruction, text=text),
        state_before=state,
        model_output=ModelOutput(
            think=proposal.think,
            action=action,
            state_update=proposal.state_update,
            attempts=proposal.attempts,
            alternatives=proposal.alternatives,
            generation=proposal.generation,
        ),
        sandbox_result=_outcome(text, result),
        is_kept=False,
        parse_ok=parse_ok(result.verdict),
        format_ok=True,
        format_strict=proposal.is_strict,
        level=graded.level,
        progress=graded.progress,
        over_in=measures.over_in,
        over_out=measures.over_out,
        idempotent=measures.idempotent,
        neg_fail=measures.neg_fail,
        general=general,
        mdl=measures.mdl,
        support=measures.support,
        support_pairs=None if measures.support is None else int(measures.support > 0),
        srl=srl(action, _golds(task)),
        reward=reward(
            result.verdict,
            graded.level,
            graded.progress,
            general and all(step.general for step in way),
            weights,
            is_broad=graded.is_verified and _is_broad(task, spread, sandbox, weights),
            unwanted=(measures.over_in or 0) / max(1, len(result.matches)),
        ),
    )


def unreadable_step(
    task: Task, text: str, state: State, answer: Unreadable, earlier: Sequence[TrajectoryStep]
) -> TrajectoryStep:
    """Return the step of an answer that holds none: the text stays as it is, and the answer is worth nothing."""
    graded = _graded(task, text)
    return TrajectoryStep(
        task_id=task.id,
        step=len(earlier) + 1,
        prompt=Prompt(instruction=task.instruction, text=text),
        state_before=state,
        model_output=ModelOutput(think="", action=None, state_update=StateUpdate(), generation=answer.generation),
        sandbox_result=None,
        feedback=answer.reason,
        is_kept=False,
        parse_ok=None,
        format_ok=False,
        format_strict=False,
        level=graded.level,
        progress=graded.progress,
        over_in=None,
        over_out=None,
        idempotent=None,
        neg_fail=None,
        general=False,
        mdl=None,
        support=None,
        support_pairs=None,
        srl=None,
        reward=Reward(value=0.0, cause=BAD_FORMAT),
    )


def answer_of(step: TrajectoryStep) -> Proposal | Unreadable:
    """Return the answer that `step` was made from."""
    output = step.model_output
    if output.action is None:
        assert output.generation is not None  # only an answer of a language model has no action
        return Unreadable(step.feedback, output.generation)
    return Proposal(
        think=output.think,
        action=output.action,
        state_update=output.state_update,
        attempts=output.attempts,
        alternatives=output.alternatives,
        generation=output.generation,
        is_strict=step.format_strict,
    )


def _graded(task: Task, text: str) -> Grade:
    try:
        return grade(task.before, text, task.wanted, task.language)
    except DataError:  # the action made a text too long or too deep to be read
        return Grade(Level.NONE, 0.0)


def _is_broad(task: Task, spread: Sequence[float | None], sandbox: Sandbox, weights: RewardWeights) -> bool:
    """Return whether an action changes foreign code more often than the weights allow."""
    # what is not known is held against nobody
    most = max((each for each in spread if each is not None), default=0.0)
    if most <= weights.most_over_out:
        return False
    # an idiom that is to be replaced wherever it stands is no fault of who replaces it so
    allowed = [over_out(gold, task.language, sandbox, task.before) for gold in _golds(task)]
    known = [each for each in allowed if each is not None]
    return len(known) == len(allowed) and most - max(known, default=0.0) > weights.most_over_out


def _golds(task: Task) -> list[PatternAction | RuleAction]:
    return [] if task.gold_action is None else [task.gold_action, *task.gold_next]


def _outcome(text: str, result: SandboxResult) -> SandboxOutcome:
    after = None if result.after is None else tidied(text, result)
    lines = () if after is None else unified_diff(text.splitlines(), after.splitlines(), n=0, lineterm="")
    return SandboxOutcome(
        verdict=result.verdict,
        matches=len(result.matches),
        after=after,
        diff="\n".join(lines)[:_MAX_DIFF_CHARACTERS],
        error=result.error,
        isolation=f"{result.isolation.level}/{result.isolation.implementation}",
    )
