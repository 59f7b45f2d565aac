"""Harbor: environments as versioned deployments with an instance per seed, run locally and by a service alike.

A name is loaded when it is first asked for, so that importing this loads no client, web framework or executor. Evaluations
and prompt optimizations stand on a floor above, and are reached by name alone.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graftline.harbor.answers import HarborBuild, HarborBuiltInstances, HarborDeploymentStatus, HarborInstance
    from graftline.harbor.build_spec import HarborBuildSpec
    from graftline.harbor.client import HarborAPIError, HarborClient, HarborTimeoutError, Patience
    from graftline.harbor.contract import (
        ContextOverride,
        FailureCause,
        RolloutRequest,
        RolloutResponse,
        SuccessStatus,
        TaskInfo,
    )
    from graftline.harbor.deployment_ref import HarborDeploymentRef
    from graftline.harbor.execution import HarborExecutionBackend
    from graftline.harbor.instances import (
        build_harbor_instances,
        build_harbor_instances_async,
        create_harbor_instances,
        create_harbor_instances_async,
        list_harbor_instances,
        list_harbor_instances_async,
    )
    from graftline.harbor.limits import HarborLimits, VerifierSettings
    from graftline.harbor.localapi.app import create_local_api
    from graftline.harbor.localapi.config import LocalAPIConfig
    from graftline.harbor.localapi.served import serve_task_app
    from graftline.harbor.packager import HarborPackager
    from graftline.harbor.provider import HarborInstanceProvider
    from graftline.harbor.task_app_client import TaskAppClient, create_task_app_client
    from graftline.harbor.uploader import (
        HarborDeploymentResult,
        HarborDeploymentUploader,
        upload_harbor_deployment,
        upload_harbor_deployment_async,
    )

__all__ = [
    "ContextOverride",
    "EvalBudget",
    "EvalJob",
    "EvalJobConfig",
    "EvalResult",
    "EvalStatus",
    "FailureCause",
    "HarborAPIError",
    "HarborBuild",
    "HarborBuildSpec",
    "HarborBuiltInstances",
    "HarborClient",
    "HarborDeploymentRef",
    "HarborDeploymentResult",
    "HarborDeploymentStatus",
    "HarborDeploymentUploader",
    "HarborExecutionBackend",
    "HarborInstance",
    "HarborInstanceProvider",
    "HarborLimits",
    "HarborPackager",
    "HarborTimeoutError",
    "LocalAPIConfig",
    "Patience",
    "PromptLearningConfig",
    "PromptLearningJob",
    "PromptLearningResult",
    "RolloutRequest",
    "RolloutResponse",
    "SuccessStatus",
    "TaskAppClient",
    "TaskInfo",
    "VerifierSettings",
    "build_harbor_instances",
    "build_harbor_instances_async",
    "create_harbor_instances",
    "create_harbor_instances_async",
    "create_local_api",
    "create_task_app_client",
    "list_harbor_instances",
    "list_harbor_instances_async",
    "serve_task_app",
    "upload_harbor_deployment",
    "upload_harbor_deployment_async",
]

_MODULES = {
    "ContextOverride": "graftline.harbor.contract",
    "EvalBudget": "graftline.evals.job",
    "EvalJob": "graftline.evals.job",
    "EvalJobConfig": "graftline.evals.job",
    "EvalResult": "graftline.evals.results",
    "EvalStatus": "graftline.evals.results",
    "FailureCause": "graftline.harbor.contract",
    "HarborAPIError": "graftline.harbor.client",
    "HarborBuild": "graftline.harbor.answers",
    "HarborBuildSpec": "graftline.harbor.build_spec",
    "HarborBuiltInstances": "graftline.harbor.answers",
    "HarborClient": "graftline.harbor.client",
    "HarborDeploymentRef": "graftline.harbor.deployment_ref",
    "HarborDeploymentResult": "graftline.harbor.uploader",
    "HarborDeploymentStatus": "graftline.harbor.answers",
    "HarborDeploymentUploader": "graftline.harbor.uploader",
    "HarborExecutionBackend": "graftline.harbor.execution",
    "HarborInstance": "graftline.harbor.answers",
    "HarborInstanceProvider": "graftline.harbor.provider",
    "HarborLimits": "graftline.harbor.limits",
    "HarborPackager": "graftline.harbor.packager",
    "HarborTimeoutError": "graftline.harbor.client",
    "LocalAPIConfig": "graftline.harbor.localapi.config",
    "Patience": "graftline.harbor.client",
    "PromptLearningConfig": "graftline.prompts.settings",
    "PromptLearningJob": "graftline.prompts.prompt_learning",
    "PromptLearningResult": "graftline.prompts.prompt_learning",
    "RolloutRequest": "graftline.harbor.contract",
    "RolloutResponse": "graftline.harbor.contract",
    "SuccessStatus": "graftline.harbor.contract",
    "TaskAppClient": "graftline.harbor.task_app_client",
    "TaskInfo": "graftline.harbor.contract",
    "VerifierSettings": "graftline.harbor.limits",
    "build_harbor_instances": "graftline.harbor.instances",
    "build_harbor_instances_async": "graftline.harbor.instances",
    "create_harbor_instances": "graftline.harbor.instances",
    "create_harbor_instances_async": "graftline.harbor.instances",
    "create_local_api": "graftline.harbor.localapi.app",
    "create_task_app_client": "graftline.harbor.task_app_client",
    "list_harbor_instances": "graftline.harbor.instances",
    "list_harbor_instances_async": "graftline.harbor.instances",
    "serve_task_app": "graftline.harbor.localapi.served",
    "upload_harbor_deployment": "graftline.harbor.uploader",
    "upload_harbor_deployment_async": "graftline.harbor.uploader",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
