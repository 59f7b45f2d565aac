"""A deployment, as whoever runs rollouts on it names it: which one, of which service, with which key."""

import re
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import quote, unquote

from graftline.harbor.address import backend_url_of

DEPLOYMENTS = "/api/harbor/deployments"
_URL = re.compile(rf"(?P<backend>.+){DEPLOYMENTS}/(?P<deployment>[^/?#]+)/?")


def deployment_path(deployment_id: str) -> str:
    """Return the path of a deployment, named by its id or its name."""
    return f"{DEPLOYMENTS}/{quote(deployment_id, safe='')}"


@dataclass(frozen=True, slots=True)
class HarborDeploymentRef:
    """Names a deployment; what is None is read from the environment when it is needed."""

    deployment_id: str
    """Its id, or its name: that is the newest version."""
    backend_url: str | None = None
    api_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.deployment_id.strip("./ "):
            raise ValueError(f"deployment_id: {self.deployment_id!r} names no deployment")

    @classmethod
    def of_url(cls, url: str, api_key: str | None = None) -> Self | None:
        """Return what `…/api/harbor/deployments/<id>` names; None for the URL of another task app."""
        found = _URL.fullmatch(url)
        return cls(unquote(found["deployment"]), found["backend"], api_key) if found else None

    @property
    def task_app_url(self) -> str:
        """The deployment as a task app."""
        return backend_url_of(self.backend_url) + deployment_path(self.deployment_id)

    @property
    def rollout_url(self) -> str:
        """Where rollouts are asked for."""
        return f"{self.task_app_url}/rollout"

    @property
    def status_url(self) -> str:
        """Where it says what it waits for."""
        return f"{self.task_app_url}/status"
