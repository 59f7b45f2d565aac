from typing import Any

from graftline.harbor.address import HarborDeploymentRef as HarborDeploymentRef
from graftline.harbor.build_spec import HarborBuildSpec as HarborBuildSpec
from graftline.harbor.client import HarborAPIError as HarborAPIError
from graftline.harbor.client import HarborClient as HarborClient
from graftline.harbor.client import HarborTimeoutError as HarborTimeoutError
from graftline.harbor.client import Patience as Patience
from graftline.harbor.contract import ContextOverride as ContextOverride
from graftline.harbor.contract import FailureCause as FailureCause
from graftline.harbor.contract import HarborLimits as HarborLimits
from graftline.harbor.contract import RolloutRequest as RolloutRequest
from graftline.harbor.contract import RolloutResponse as RolloutResponse
from graftline.harbor.contract import SuccessStatus as SuccessStatus
from graftline.harbor.contract import TaskInfo as TaskInfo
from graftline.harbor.contract import VerifierSettings as VerifierSettings
from graftline.harbor.execution import HarborExecutionBackend as HarborExecutionBackend
from graftline.harbor.instances import HarborInstanceProvider as HarborInstanceProvider
from graftline.harbor.instances import build_harbor_instances as build_harbor_instances
from graftline.harbor.instances import build_harbor_instances_async as build_harbor_instances_async
from graftline.harbor.instances import create_harbor_instances as create_harbor_instances
from graftline.harbor.instances import create_harbor_instances_async as create_harbor_instances_async
from graftline.harbor.instances import list_harbor_instances as list_harbor_instances
from graftline.harbor.instances import list_harbor_instances_async as list_harbor_instances_async
from graftline.harbor.localapi.app import create_local_api as create_local_api
from graftline.harbor.localapi.config import LocalAPIConfig as LocalAPIConfig
from graftline.harbor.localapi.served import serve_task_app as serve_task_app
from graftline.harbor.messages import HarborBuild as HarborBuild
from graftline.harbor.messages import HarborBuiltInstances as HarborBuiltInstances
from graftline.harbor.messages import HarborDeploymentStatus as HarborDeploymentStatus
from graftline.harbor.messages import HarborInstance as HarborInstance
from graftline.harbor.packager import HarborPackager as HarborPackager
from graftline.harbor.task_app_client import TaskAppClient as TaskAppClient
from graftline.harbor.task_app_client import create_task_app_client as create_task_app_client
from graftline.harbor.uploader import HarborDeploymentResult as HarborDeploymentResult
from graftline.harbor.uploader import HarborDeploymentUploader as HarborDeploymentUploader
from graftline.harbor.uploader import upload_harbor_deployment as upload_harbor_deployment
from graftline.harbor.uploader import upload_harbor_deployment_async as upload_harbor_deployment_async

def __getattr__(name: str) -> Any: ...  # evaluations and prompts stand on a floor above
