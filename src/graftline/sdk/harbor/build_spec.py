"""An import path of the founding API."""

from graftline.harbor.build_spec import HarborBuildSpec
from graftline.harbor.deployment_ref import HarborDeploymentRef
from graftline.harbor.limits import HarborLimits
from graftline.harbor.uploader import HarborDeploymentResult

__all__ = ["HarborBuildSpec", "HarborDeploymentRef", "HarborDeploymentResult", "HarborLimits"]
