"""An import path of the founding API."""

from graftline.harbor.deployment_ref import HarborDeploymentRef

__all__ = ["HarborDeploymentRef"]
