"""Reading trajectories in ATIF: of any agent, and of ours with actions, states and rewards (`exports/atif.py` writes them).

Nothing is lost: `document` is what was read. Of a foreign trajectory the parts that only ours have are None.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from graftline.astgrep.action import ACTION, Action
from graftline.core.errors import DataError
from graftline.rollouts.exports.atif_schema import AtifDocument, Content, Step, check_atif
from graftline.rollouts.reward import Reward
from graftline.rollouts.state.state import State, StateUpdate

_OWN_AGENT = "graftline/"
_OWN_TOOL = "apply_astgrep"


class _Read(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class ReadStep(_Read):
    """One turn."""

    number: int
    """From 1; the first is what the user or the system said."""
    source: str
    message: str
    """Text; of pictures and sounds, where they are."""
    think: str = ""
    answer: str = ""
    """What the environment said to it."""
    is_copied: bool = False
    """Whether it was copied from another trajectory, and is not to be learnt from."""
    action: Action | None = None
    state_before: State | None = None
    state_update: StateUpdate | None = None
    is_kept: bool | None = None
    reward: Reward | None = None


class ReadTrajectory(_Read):
    """A trajectory as it was read."""

    document: AtifDocument
    is_own: bool
    """Whether it was exported from one of ours."""
    agent: str
    model: str | None
    instruction: str
    steps: tuple[ReadStep, ...]
    reward: Reward | None = None
    task_id: str | None = None
    ending: str | None = None


def read_atif(document: Any, source: str = "ATIF") -> ReadTrajectory:
    """Return a trajectory of any version from ATIF-v1.0 to v1.8.

    Args:
        document: Text, bytes, or the value of JSON that they stand for.
        source: Stands before every fault.

    Raises:
        DataError: it is none, or says that it is ours and is not.
    """
    found = check_atif(document, source)
    is_own = found.agent.name.startswith(_OWN_AGENT)
    extra = found.extra or {}
    try:
        return ReadTrajectory(
            document=found,
            is_own=is_own,
            agent=found.agent.name.removeprefix(_OWN_AGENT) if is_own else found.agent.name,
            model=found.agent.model_name,
            instruction=next((_text(step.message) for step in found.steps if step.source == "user"), ""),
            steps=tuple(_step(step, is_own) for step in found.steps),
            reward=_reward(extra) if is_own else None,
            task_id=extra["task_id"] if is_own else None,
            ending=extra["ending"] if is_own else None,
        )
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise DataError(f"{source}: {where}: {fault['msg']}; it is not as graftline exports trajectories") from None
    except (KeyError, TypeError) as error:
        raise DataError(f"{source}: extra has no {error}; it is not as graftline exports trajectories") from None


def _step(step: Step, is_own: bool) -> ReadStep:
    results = step.observation.results if step.observation else ()
    extra = (step.extra or {}) if is_own else {}
    read: dict[str, Any] = {
        "number": step.step_id,
        "source": step.source,
        "message": _text(step.message),
        # of ours that asked no model, the format has no place for it but there
        "think": step.reasoning_content or extra.get("think", ""),
        "answer": "\n".join(_text(result.content) for result in results if result.content is not None),
        "is_copied": bool(step.is_copied_context),
    }
    if not is_own or step.source != "agent":
        return ReadStep.model_validate(read)
    calls = [call for call in step.tool_calls or () if call.function_name == _OWN_TOOL]
    own = {key: extra[key] for key in ("state_before", "state_update", "is_kept")}
    action = ACTION.validate_python(calls[0].arguments) if calls else None
    return ReadStep.model_validate({**read, **own, "action": action, "reward": _reward(extra)})


def _reward(extra: dict[str, Any]) -> Reward:
    return Reward(value=extra["reward"], cause=extra["reward_cause"])


def _text(content: Content) -> str:
    if isinstance(content, str):
        return content
    parts = (part.text if part.source is None else f"[{part.type}: {part.source.path}]" for part in content)
    return "\n".join(part or "" for part in parts)
