"""The environment of whole repositories: whoever acts sees one place of a change, and its rules are applied to all files.

The reward is the F1 of the places that come out, and 0 where tests fail that the task has; both are stated in the result. The
policies are those of the refactoring environment: `induction` learns from that one place of the gold, `memory` is the gold itself;
and `agent`, which is shown no place, and finds its own (`graftline.agent`).
For agents that edit the files themselves, `task_format.repository_tasks` makes Harbor tasks of the same changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from graftline.astgrep.action import ACTION
from graftline.core.errors import DataError
from graftline.core.hashing import digest
from graftline.harbor.contract import FailureCause, RewardInfo, RolloutRequest, RolloutResponse, SuccessStatus
from graftline.harbor.environments.manifest import SeedManifest
from graftline.harbor.environments.policy import Policy, ServedModel, policy_of
from graftline.harbor.environments.refactoring import RefactoringEnvironment, not_applied, response_of
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
        policy, task = policy_of(request.policy.config), self._repositories[self._task_of(request).id]
        if policy.teacher == "agent":
            return self._run_agent(request, policy, task)
        if policy.teacher != "memory":
            return super().run_rollout(request, fastapi_request)
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

    def _run_agent(self, request: RolloutRequest, policy: Policy, task: RepositoryTask) -> RolloutResponse:
        """Return how `graftline refactor` ends at the files of a task; it is not told which places count."""
        # whoever runs other policies does not load the agent
        from graftline.agent.model import AgentModel, take_edit_prompt
        from graftline.agent.proposal import Settings
        from graftline.agent.record import describe_run
        from graftline.agent.texts import propose_change, texts_of

        if policy.texts or request.context_overrides:
            return not_applied(request, "prompt: only teacher 'openai' reads one; name it, or leave the prompt out")
        served = self._model(policy) if policy.model or self._models else None
        model = None
        if served is not None:
            draw = policy.attempt - 1
            prompt = take_edit_prompt(served.prompt)
            model = AgentModel(served.model, served.context_tokens, adapter=served.adapter, draw=draw, prompt=prompt)
        settings = Settings() if policy.max_steps is None else Settings(places=policy.max_steps)
        try:
            proposal = propose_change(task.change, task.instruction, (), model, self._sandbox, settings)
        except DataError as error:
            return not_applied(request, str(error))
        grade = grade_texts(task, texts_of(proposal), self._sandbox)
        made_by = digest([policy.model_dump(mode="json", exclude={"attempt"}), asdict(settings)])
        trajectory = describe_run(task.block, proposal, grade.reward, self._sandbox, made_by, policy.attempt)
        response = _with_grade(response_of(trajectory, request.trace_correlation_id), task, grade)
        response.metadata = {
            "teacher": "agent",
            "policy": policy.model_dump(mode="json", exclude={"prompt"}, exclude_none=True),
            "manifest_version": self.manifest.version,
            "task_digest": task.digest,
            "outcome": proposal.outcome,
            "rules": [ACTION.dump_python(rule.action, mode="json") for rule in proposal.rules],
        }
        if model is not None:
            response.metadata |= {"total_tokens": model.spent.tokens, "questions": model.spent.questions}
        return response


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
