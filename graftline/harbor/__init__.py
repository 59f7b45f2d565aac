"""Harbor: environments as versioned deployments with an instance per seed, run locally and by a service alike.

A name is loaded when it is first asked for, so that importing this loads no client, web framework or executor.
Evaluations and prompt optimizations stand on a floor above, and are reached by name alone. `__init__.pyi` has the names
for type checkers.
"""

from importlib import import_module
from typing import Any

_NAMES = {
    "graftline.evals.budget": "EvalBudget",
    "graftline.evals.job": "EvalJob EvalJobConfig",
    "graftline.evals.results": "EvalResult EvalStatus",
    "graftline.harbor.address": "HarborDeploymentRef",
    "graftline.harbor.messages": "HarborBuild HarborBuiltInstances HarborDeploymentStatus HarborInstance",
    "graftline.harbor.build_spec": "HarborBuildSpec",
    "graftline.harbor.client": "HarborAPIError HarborClient HarborTimeoutError Patience",
    "graftline.harbor.contract": "ContextOverride FailureCause HarborLimits RolloutRequest RolloutResponse SuccessStatus TaskInfo VerifierSettings",
    "graftline.harbor.execution": "HarborExecutionBackend",
    "graftline.harbor.instances": "HarborInstanceProvider build_harbor_instances build_harbor_instances_async create_harbor_instances create_harbor_instances_async list_harbor_instances list_harbor_instances_async",
    "graftline.harbor.localapi.app": "create_local_api",
    "graftline.harbor.localapi.config": "LocalAPIConfig",
    "graftline.harbor.localapi.served": "serve_task_app",
    "graftline.harbor.packager": "HarborPackager",
    "graftline.harbor.task_app_client": "TaskAppClient create_task_app_client",
    "graftline.harbor.uploader": "HarborDeploymentResult HarborDeploymentUploader upload_harbor_deployment upload_harbor_deployment_async",
    "graftline.prompts.outcome": "PromptLearningResult",
    "graftline.prompts.prompt_learning": "PromptLearningJob",
    "graftline.prompts.settings": "PromptLearningConfig",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
