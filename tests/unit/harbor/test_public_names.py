import subprocess
import sys
from pathlib import Path

import graftline.harbor

NAMES = """
    ContextOverride EvalBudget EvalJob EvalJobConfig EvalResult EvalStatus FailureCause HarborAPIError
    HarborBuild HarborBuildSpec HarborBuiltInstances HarborClient HarborDeploymentRef HarborDeploymentResult
    HarborDeploymentStatus HarborDeploymentUploader HarborExecutionBackend HarborInstance
    HarborInstanceProvider HarborLimits HarborPackager HarborTimeoutError LocalAPIConfig Patience
    PromptLearningConfig PromptLearningJob PromptLearningResult RolloutRequest RolloutResponse SuccessStatus
    TaskAppClient TaskInfo VerifierSettings build_harbor_instances build_harbor_instances_async
    create_harbor_instances create_harbor_instances_async create_local_api create_task_app_client
    list_harbor_instances list_harbor_instances_async serve_task_app upload_harbor_deployment
    upload_harbor_deployment_async
"""


def test_the_names_for_users_are_these() -> None:
    assert graftline.harbor.__all__ == NAMES.split()
    missing = [name for name in graftline.harbor.__all__ if getattr(graftline.harbor, name, None) is None]
    assert missing == []
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


def test_the_stub_for_type_checkers_has_every_name_of_its_floor() -> None:
    stub = Path(graftline.harbor.__file__).with_suffix(".pyi").read_text("utf-8")
    names = {name for name in graftline.harbor.__all__ if f" as {name}\n" not in stub}

    assert names == {name for name in graftline.harbor.__all__ if name.startswith(("Eval", "PromptLearning"))}
