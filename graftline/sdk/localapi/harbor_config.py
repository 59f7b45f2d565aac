"""Names under which other programs import this."""

from graftline.harbor.deployment_ref import HarborDeploymentRef

__all__ = ["HarborDeploymentRef"]
