"""Names under which other programs import this."""

from graftline.harbor.build_spec import HarborBuildSpec
from graftline.harbor.deployment_ref import HarborDeploymentRef
from graftline.harbor.limits import HarborLimits
from graftline.harbor.uploader import HarborDeploymentResult

__all__ = ["HarborBuildSpec", "HarborDeploymentRef", "HarborDeploymentResult", "HarborLimits"]
