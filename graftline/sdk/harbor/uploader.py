"""Names under which other programs import this."""

from graftline.harbor.client import HarborAPIError
from graftline.harbor.uploader import (
    HarborDeploymentResult,
    HarborDeploymentUploader,
    upload_harbor_deployment,
    upload_harbor_deployment_async,
)

__all__ = [
    "HarborAPIError",
    "HarborDeploymentResult",
    "HarborDeploymentUploader",
    "upload_harbor_deployment",
    "upload_harbor_deployment_async",
]
