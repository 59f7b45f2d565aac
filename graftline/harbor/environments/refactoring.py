"""The refactoring environment: one task for each seed, a teacher or a served model that acts, the sandbox, our own grading.

A rollout is an attempt as `rollouts.collect` makes it, and its reward that of the trajectory. What the sandbox or the
model's server could not answer has no reward; a text that is nearer to the wanted one has a part of it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import SecretStr

from graftline.codemod.equality import Level
from graftline.core.errors import ConfigError
from graftline.core.hashing import digest
from graftline.datasets.instruction_source import FIELDS
from graftline.harbor.contract import (
    Artifact,
    FailureCause,
    RewardInfo,
    RolloutRequest,
    RolloutResponse,
    SuccessStatus,
    TaskDescription,
    TaskInfo,
)
from graftline.harbor.environments.manifest import SeedManifest, by_id
from graftline.harbor.environments.policy import (
    NopTeacher,
    Policy,
    PromptFault,
    ServedModel,
    policy_of,
    prompt_with,
    texts_of,
)
from graftline.harbor.localapi.config import LocalAPIConfig
from graftline.harbor.refusal import RequestError
from graftline.rollouts.collect import RolloutConfig, collect
from graftline.rollouts.exports.atif import atif
from graftline.rollouts.task import Task
from graftline.rollouts.teachers.base import Teacher
from graftline.rollouts.teachers.induction import InductionTeacher, MemoryTeacher
from graftline.rollouts.teachers.openai import OpenAITeacher
from graftline.rollouts.trajectory import Trajectory
from graftline.sandbox.base import Sandbox, SharedSandbox, Verdict

APP_ID = "refactoring"
NAME = "ast-grep refactoring"
DESCRIPTION = "Change a piece of code as an instruction asks, by ast-grep rewrites that leave everything else alone."


class RefactoringEnvironment:
    """Tasks, and what acts on them; safe to use from several threads. Sandbox and models belong to the caller.

    Args:
        tasks: What seeds may stand for.
        sandbox: Where actions are applied; threads take turns at it.
        manifest: Which seed stands for which of the tasks; made of all of them where there is none.
        models: Served language models, by the names that a policy calls them by.
        collecting: How attempts are made; a policy may ask for fewer steps, not for more.

    Raises:
        DataError: two tasks have the same id, or one is not what it was when it got its seed.
        ConfigError: no seed stands for a task.
    """

    app_id, name, description = APP_ID, NAME, DESCRIPTION

    def __init__(
        self,
        tasks: Sequence[Task],
        sandbox: Sandbox,
        *,
        manifest: SeedManifest | None = None,
        models: Mapping[str, ServedModel] | None = None,
        collecting: RolloutConfig | None = None,
    ) -> None:
        self.manifest = manifest or SeedManifest.of(tasks)
        self.tasks = self.manifest.task_of(by_id(tasks))
        """By seed."""
        if not self.tasks:
            raise ConfigError(
                "refactoring environment: no seed stands for a task; give it tasks that the manifest names"
            )
        self._sandbox, self._models = SharedSandbox(sandbox), dict(models or {})
        self._collecting = collecting or RolloutConfig()

    def provide_taskset_description(self) -> dict[str, Any]:
        """Return what all tasks have in common."""
        return {
            "id": self.app_id,
            "name": self.name,
            "description": self.description,
            "version": self.manifest.version,
            "num_tasks": len(self.tasks),
            "seeds": {"first": min(self.tasks), "last": max(self.tasks)},
            "languages": dict(sorted(Counter(task.language for task in self.tasks.values()).items())),
            "datasets": dict(sorted(Counter(task.dataset for task in self.tasks.values()).items())),
            "models": sorted(self._models),
        }

    def provide_task_instances(self, seeds: Sequence[int]) -> list[TaskInfo]:
        """Return the task of every seed, without what counts as done.

        Raises:
            RequestError: a seed stands for none.
        """
        return [self._info(seed, self._task(seed)) for seed in seeds]

    def run_rollout(self, request: RolloutRequest, fastapi_request: Any = None) -> RolloutResponse:
        """Return how one attempt ended.

        Raises:
            RequestError: seed or policy name what there is not.
            BoundaryError: sandbox or model cannot answer; nothing is known of the attempt.
        """
        task, policy = self._task_of(request), policy_of(request.policy.config)
        if policy.teacher == "memory" and task.gold_action is None:
            return not_applied(request, f"task {task.id}: an edit of a real repository has no gold actions to take")
        collecting = self._collecting.model_copy(
            update={"max_steps": min(policy.max_steps or self._collecting.max_steps, self._collecting.max_steps)}
        )
        try:
            teacher, prompt_digest = self._teacher(policy, request)
        except PromptFault as fault:
            return not_applied(request, str(fault))
        settings = policy.model_dump(mode="json", exclude={"prompt", "attempt"})
        made_by = digest([settings, prompt_digest, collecting.model_dump(mode="json")])
        trajectory = collect(task, teacher, self._sandbox, collecting, policy.attempt, made_by)
        response = self.respond(trajectory, request.trace_correlation_id)
        response.metadata = {
            "teacher": teacher.name,
            "policy": policy.model_dump(mode="json", exclude={"prompt"}, exclude_none=True),
            "prompt_digest": prompt_digest,
            "manifest_version": self.manifest.version,
            "task_digest": task.digest,
        }
        return response

    def respond(self, trajectory: Trajectory, trace_correlation_id: str) -> RolloutResponse:
        """Return an attempt as the answer to a rollout."""
        return response_of(trajectory, trace_correlation_id)

    def task_app(self, api_key: SecretStr | None = None) -> LocalAPIConfig:
        """Return the environment as a task app."""
        described = TaskDescription(
            id=self.app_id, name=self.name, description=self.description, version=self.manifest.version
        )
        return LocalAPIConfig(
            app_id=self.app_id,
            name=self.name,
            description=self.description,
            provide_taskset_description=self.provide_taskset_description,
            provide_task_instances=self.provide_task_instances,
            rollout=self.run_rollout,
            base_task_info=TaskInfo(task=described, limits={"max_turns": self._collecting.max_steps}),
            api_key=api_key,
        )

    def _task_of(self, request: RolloutRequest) -> Task:
        """Return the task of a request; RequestError if its seed stands for none, or for another one than it names."""
        task = self._task(request.seed)
        if request.env.config.get("task_id") not in (None, task.id):
            raise RequestError(
                "other_task", f"seed {request.seed}: stands for task {task.id!r}, and another was asked for"
            )
        return task

    def _task(self, seed: int) -> Task:
        task = self.tasks.get(seed)
        if task is None:
            first, last = min(self.tasks), max(self.tasks)
            raise RequestError("unknown_seed", f"seed {seed} stands for no task; there are {first} to {last}")
        return task

    def _teacher(self, policy: Policy, request: RolloutRequest) -> tuple[Teacher, str]:
        """Return who acts, and the digest of its prompt; empty where there is none."""
        texts = {**policy.texts, **texts_of(request.context_overrides)}
        match policy.teacher or ("openai" if policy.model else "induction"):
            case "openai":
                served = self._model(policy)
                prompt = prompt_with(served.prompt, texts, policy)
                if prompt.settings.answer.layout == "code":
                    raise PromptFault("prompt: is answered with code, and these steps are actions; serve another one")
                answer_tokens = prompt.settings.sampling.max_tokens
                if answer_tokens >= served.context_tokens:
                    raise RequestError(
                        "no_room",
                        f"policy.config.max_tokens: {answer_tokens} leave no room for a prompt in a context of"
                        f" {served.context_tokens}; ask for fewer",
                    )
                teacher = OpenAITeacher(served.model, prompt, served.context_tokens, served.examples, served.adapter)
                return teacher, prompt.digest()
            case _ if texts:
                raise PromptFault("prompt: only teacher 'openai' reads one; name it, or leave the prompt out")
            case "agent":
                raise RequestError(
                    "unknown_policy",
                    "policy.config.teacher: 'agent' changes whole repositories, and these tasks are single texts",
                )
            case "memory":
                return MemoryTeacher(), ""
            case "nop":
                return NopTeacher(), ""
            case _:
                return InductionTeacher(self._sandbox), ""

    def _model(self, policy: Policy) -> ServedModel:
        if policy.model is None and len(self._models) == 1:
            return next(iter(self._models.values()))
        served = self._models.get(policy.model or "")
        if served is None:
            names = ", ".join(sorted(self._models)) or "none was opened"
            raise RequestError("unknown_model", f"policy.config.model: {policy.model!r} is unknown; known: {names}")
        return served

    def _info(self, seed: int, task: Task) -> TaskInfo:
        return TaskInfo(
            task=TaskDescription(id=task.id, name=task.id, description=task.instruction, version=self.manifest.version),
            dataset={"id": task.dataset, "name": task.dataset},
            limits={"max_turns": self._collecting.max_steps},
            task_metadata={
                "seed": seed,
                "language": task.language,
                "text": task.before,
                "license": task.license,
                "group": task.group,
                "origin": task.origin,
                "tags": [*task.tags],
                **{name: getattr(task, name) for name in FIELDS},
                "task_digest": task.digest,
            },
        )


def response_of(trajectory: Trajectory, trace_correlation_id: str) -> RolloutResponse:
    """Return an attempt as the answer to a rollout."""
    value, cause = trajectory.reward.value, _cause(trajectory)
    is_exact, is_verified = trajectory.level is Level.EXACT, trajectory.is_verified
    objectives = {"reward": value, "exact": float(is_exact), "verified": float(is_verified)}
    detail = f"{trajectory.ending}: {trajectory.failure}" if trajectory.failure else trajectory.ending
    return RolloutResponse(
        trace_correlation_id=trace_correlation_id,
        reward_info=RewardInfo(
            outcome_reward=value,
            outcome_objectives={} if value is None else objectives,
            details=_details(trajectory),
        ),
        success_status=SuccessStatus.SUCCESS if cause is None else SuccessStatus.RUNTIME_ERROR,
        status_detail=detail,
        failure_cause=cause,
        trace=atif(trajectory),
        artifact=_artifacts(trajectory),
        execution_metadata=_usage(trajectory),
    )


def _details(trajectory: Trajectory) -> dict[str, Any]:
    steps, path = trajectory.steps, trajectory.path
    over_in = [step.false_positives for step in path if step.false_positives is not None]
    over_out = [step.background_matches for step in path if step.background_matches is not None]
    return {
        "task_id": trajectory.task_id,
        "reward_cause": trajectory.reward.cause,
        "exact": trajectory.level is Level.EXACT,
        "verified": trajectory.is_verified,
        "level": str(trajectory.level),
        "steps": len(steps),
        "ending": trajectory.ending,
        "failure": trajectory.failure,
        "progress": steps[-1].progress if steps else 0.0,
        "all_general": trajectory.all_general,
        # None where no step can tell
        "over_in": sum(over_in) if over_in else None,
        "over_out": max(over_out) if over_out else None,
        "format_ok": trajectory.format_ok,
        "feedback": next((step.feedback for step in reversed(steps) if step.feedback), ""),
    }


def _cause(trajectory: Trajectory) -> FailureCause | None:
    """Return whose failure it is that nothing is known of an attempt; None where something is."""
    if trajectory.reward.value is not None:
        return None
    # another try in the same sandbox would end alike
    is_lacking = trajectory.reward.cause == Verdict.NEEDS_CLI
    return FailureCause.VERIFIER_FAILED if is_lacking else FailureCause.SANDBOX_FAILED


def _artifacts(trajectory: Trajectory) -> list[Artifact]:
    texts = [step.sandbox_result.after for step in trajectory.steps if step.is_kept and step.sandbox_result]
    return [Artifact(content=text, metadata={"name": "text_after"}) for text in texts[-1:] if text is not None]


def _usage(trajectory: Trajectory) -> dict[str, Any]:
    """Return tokens and cost; what nobody said of one answer is not said of all."""
    generations = [step.model_output.generation for step in trajectory.steps if step.model_output.generation]
    costs = [generation.cost_usd for generation in generations if generation.cost_usd is not None]
    usage: dict[str, Any] = {
        "total_tokens": sum(generation.prompt_tokens + generation.completion_tokens for generation in generations)
    }
    return usage | ({"cost_usd": sum(costs)} if len(costs) == len(generations) else {})


def not_applied(request: RolloutRequest, detail: str) -> RolloutResponse:
    """Return the answer to a rollout that cannot be made as it is asked for."""
    # the fault of whoever asked: another try would end alike
    return RolloutResponse.without_reward(
        request.trace_correlation_id, SuccessStatus.APPLY_FAILED, detail, FailureCause.UNCLASSIFIED
    )
