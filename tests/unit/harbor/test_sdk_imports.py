import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import graftline.harbor

OF_OTHER_PROGRAMS = [
    ("graftline.sdk.harbor.build_spec", ["HarborBuildSpec"]),
    ("graftline.sdk.harbor.packager", ["HarborPackager"]),
    ("graftline.sdk.harbor.uploader", ["upload_harbor_deployment", "HarborDeploymentUploader"]),
    ("graftline.sdk.harbor.instances", ["create_harbor_instances"]),
    ("graftline.sdk.localapi", ["LocalAPIConfig", "create_local_api"]),
    ("graftline.sdk.localapi.harbor_adapter", ["HarborExecutionBackend", "HarborInstanceProvider"]),
    ("graftline.sdk.localapi.harbor_provider", ["HarborInstanceProvider"]),
    ("graftline.sdk.localapi.harbor_config", ["HarborDeploymentRef"]),
    ("graftline.sdk.eval.job", ["EvalJob", "EvalJobConfig"]),
    ("graftline.sdk.optimization.internal.configs.prompt_learning", ["PromptLearningConfig"]),
    ("graftline.sdk.optimization.internal.task_app", ["create_task_app_client"]),
    ("graftline.sdk.api.train.prompt_learning", ["PromptLearningJob"]),
]
"""The import lines that other programs have."""


@pytest.mark.parametrize(("module", "names"), OF_OTHER_PROGRAMS)
def test_every_import_line_of_other_programs_works(module: str, names: list[str]) -> None:
    found = import_module(module)

    assert [name for name in names if getattr(found, name) is not getattr(graftline.harbor, name)] == []


def test_import_paths_define_nothing_of_their_own() -> None:
    folder = Path(import_module("graftline.sdk").__file__ or "").parent
    texts = {path.name: path.read_text("utf-8") for path in folder.rglob("*.py")}

    assert [name for name, text in texts.items() if "def " in text or "class " in text] == []


def test_the_names_for_users_are_these() -> None:
    assert graftline.harbor.__all__ == [
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


def test_every_name_is_there() -> None:
    assert [name for name in graftline.harbor.__all__ if getattr(graftline.harbor, name, None) is None] == []
    assert not hasattr(graftline.harbor, "HarborNothing")


def test_importing_loads_no_vendor_library() -> None:
    program = """
import sys
import graftline.harbor
vendors = {"httpx", "fastapi", "starlette", "sqlalchemy", "docker", "daytona", "pathspec", "uvicorn", "tenacity", "rich"}
assert not vendors & set(sys.modules), vendors & set(sys.modules)
assert "pydantic" not in sys.modules
from graftline.harbor import HarborDeploymentRef, LocalAPIConfig
assert not vendors & set(sys.modules), vendors & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=240)
