"""The environment of whole repositories: whoever acts sees one place of a change, and its rules are applied to all files.

The reward is the F1 of the places that come out, and 0 where tests fail that the task has; both are stated in the result. The
policies are those of the refactoring environment: `induction` learns from that one place of the gold, `memory` is the gold itself.
For agents that edit the files themselves, `task_format.repository_tasks` makes Harbor tasks of the same changes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from graftline.harbor.contract import FailureCause, RewardInfo, RolloutRequest, RolloutResponse, SuccessStatus
from graftline.harbor.environments.manifest import SeedManifest
from graftline.harbor.environments.policy import ServedModel, policy_of
from graftline.harbor.environments.refactoring import RefactoringEnvironment, response_of
from graftline.rollouts.collect import RolloutConfig
from graftline.rollouts.repository_task import RepositoryGrade, RepositoryTask, grade_actions, grade_texts
from graftline.rollouts.trajectory import Trajectory
from graftline.sandbox.base import Sandbox


class RepositoryRefactoringEnvironment(RefactoringEnvironment):
    """Changes of repositories, and what acts on them; arguments and errors as of `RefactoringEnvironment`.

    DataError also if a change has no place that is small enough to be shown.
    """

    app_id = "repository_refactoring"
    name = "ast-grep refactoring of repositories"
    description = "Change a whole repository as an instruction asks, by ast-grep rewrites of which one place is shown."

    def __init__(
        self,
        tasks: Sequence[RepositoryTask],
        sandbox: Sandbox,
        *,
        manifest: SeedManifest | None = None,
        models: Mapping[str, ServedModel] | None = None,
        collecting: RolloutConfig | None = None,
    ) -> None:
        blocks = [task.block for task in tasks]
        super().__init__(blocks, sandbox, manifest=manifest, models=models, collecting=collecting)
        self._repositories = {task.id: task for task in tasks}

    def run_rollout(self, request: RolloutRequest, fastapi_request: Any = None) -> RolloutResponse:
        """As in the refactoring environment."""
        if policy_of(request.policy.config).teacher != "memory":
            return super().run_rollout(request, fastapi_request)
        task = self._repositories[self._task(request.seed).id]
        grade = grade_texts(task, {file.path: file.after for file in task.files}, self._sandbox)
        response = RolloutResponse(
            trace_correlation_id=request.trace_correlation_id, reward_info=RewardInfo(outcome_reward=None)
        )
        return _with_grade(response, task, grade)

    def respond(self, trajectory: Trajectory, trace_correlation_id: str) -> RolloutResponse:
        """Return an attempt as the answer to a rollout: what its actions are worth in the whole repository."""
        response = response_of(trajectory, trace_correlation_id)
        if trajectory.reward.value is None:
            return response  # the sandbox failed
        task = self._repositories[trajectory.task_id]
        actions = [rule for step in trajectory.steps if step.is_kept and (rule := step.model_output.action) is not None]
        return _with_grade(response, task, grade_actions(task, actions, self._sandbox))


def _with_grade(response: RolloutResponse, task: RepositoryTask, grade: RepositoryGrade) -> RolloutResponse:
    value = grade.reward.value
    details = {**response.reward_info.details, "task_id": task.id, "reward_cause": grade.reward.cause}
    details |= {"block_reward": response.reward_info.outcome_reward, **grade.parts}
    reward_info = RewardInfo(outcome_reward=value, outcome_objectives=dict(grade.parts), details=details)
    is_unknown = value is None
    return RolloutResponse.model_validate(
        {
            **response.model_dump(),
            "reward_info": reward_info,
            "success_status": SuccessStatus.RUNTIME_ERROR if is_unknown else SuccessStatus.SUCCESS,
            "failure_cause": FailureCause.VERIFIER_FAILED if is_unknown else None,
            "status_detail": grade.reward.cause,
        }
    )
