"""Uploads of deployments: a build spec is packaged, sent, built, and waited for.

A context and settings that the service has already are the deployment that is there; the same name with something else is
its next version. Every `…_async` method has a twin without it, which works inside a running event loop too.
"""

import asyncio
import time
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pydantic import Field

from graftline.core.errors import HarborError
from graftline.harbor.address import DEPLOYMENTS, HarborDeploymentRef, deployment_path
from graftline.harbor.client import HarborClient, HarborTimeoutError, RetryPolicy
from graftline.harbor.event_loop import blocking
from graftline.harbor.messages import Deployment, DeploymentPage, HarborBuild, HarborDeploymentStatus, read

if TYPE_CHECKING:
    from graftline.harbor.build_spec import HarborBuildSpec

_FIRST_POLL_S = 0.1
_GROWTH = 1.5


class HarborDeploymentResult(Deployment):
    """One version of a deployment, and the service that has it."""

    backend_url: str | None = None
    api_key: str | None = Field(default=None, repr=False, exclude=True)

    def to_ref(self) -> HarborDeploymentRef:
        """Return what rollouts name it by."""
        return HarborDeploymentRef(self.id, self.backend_url, self.api_key)


class HarborDeploymentUploader:
    """Makes deployments of build specs, and looks after them."""

    def __init__(
        self,
        backend_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 300.0,
        allow_http: bool = False,
        patience: RetryPolicy | None = None,
    ) -> None:
        """Take the URL and the key as given, else from the environment.

        Args:
            backend_url: Else `GRAFTLINE_HARBOR_URL`, or `SYNTH_BACKEND_URL`.
            api_key: Else `GRAFTLINE_HARBOR_KEY`, or `SYNTH_API_KEY`.
            timeout: Seconds of one call, with all that is tried again within it.
            allow_http: Whether the key may go to another machine unencrypted.
            patience: All bounds of a call, in place of `timeout`.

        Raises:
            ValueError: there is no key.
            ConfigError: there is no URL, or one that a key must not go to.
        """
        self.client = HarborClient(backend_url, api_key, patience or RetryPolicy(timeout_s=timeout), allow_http)
        self._ref_url, self._ref_key = self.client.url, api_key

    async def create_deployment_async(self, spec: "HarborBuildSpec", auto_build: bool = True) -> HarborDeploymentResult:
        """Upload `spec`; `auto_build` says whether its build is queued at once."""
        body = await asyncio.to_thread(request_of, spec)
        content = await self.client.request_async(
            "POST", DEPLOYMENTS, {**body, "auto_build": auto_build}, idempotency_key=uuid4().hex
        )
        return self._result(read(Deployment, content, f"creation of deployment {spec.name!r}"))

    async def get_deployment_async(self, deployment_id: str) -> HarborDeploymentResult:
        """Return a deployment, by id or name."""
        content = await self.client.request_async("GET", deployment_path(deployment_id))
        return self._result(read(Deployment, content, f"deployment {deployment_id!r}"))

    async def get_deployment_status_async(self, deployment_id: str) -> HarborDeploymentStatus:
        """Return what a deployment waits for, with its builds."""
        content = await self.client.request_async("GET", f"{deployment_path(deployment_id)}/status")
        return read(HarborDeploymentStatus, content, f"status of deployment {deployment_id!r}")

    async def wait_for_build_async(
        self, deployment_id: str, timeout_s: float = 600.0, poll_interval_s: float = 5.0
    ) -> HarborDeploymentResult:
        """Return the deployment once it is ready; asked for often at first, then every `poll_interval_s`.

        Raises:
            HarborError: its build failed, and the message holds the end of its log; or nobody asked for one.
            HarborTimeoutError: it is not ready in time; the build goes on.
        """
        deadline, pause_s = time.monotonic() + timeout_s, min(_FIRST_POLL_S, poll_interval_s)
        async with self.client.session():
            while True:
                status = await self.get_deployment_status_async(deployment_id)
                if status.status == "ready":
                    return await self.get_deployment_async(deployment_id)
                if status.status == "failed":
                    raise HarborError(f"deployment {deployment_id!r}: {_why_failed(status)}")
                if status.status == "pending" and not status.builds:
                    raise HarborError(f"deployment {deployment_id!r}: nobody asked for its build; call trigger_build")
                if time.monotonic() + pause_s > deadline:
                    raise HarborTimeoutError(
                        f"deployment {deployment_id!r}: is {status.status!r} still after {timeout_s:g} s; "
                        "wait longer, its build goes on"
                    )
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * _GROWTH, poll_interval_s)

    async def trigger_build_async(self, deployment_id: str, force: bool = False) -> HarborBuild:
        """Queue a build; `force` builds what is built already."""
        path = f"{deployment_path(deployment_id)}/build"
        content = await self.client.request_async("POST", path, {"force": force}, idempotency_key=uuid4().hex)
        return read(HarborBuild, content, f"build of deployment {deployment_id!r}")

    async def list_deployments_async(
        self, status: str | None = None, limit: int = 50, offset: int = 0
    ) -> list[HarborDeploymentResult]:
        """Return deployments, the newest first."""
        query = {"status": status, "limit": limit, "offset": offset}
        content = await self.client.request_async("GET", DEPLOYMENTS, query=query)
        page = read(DeploymentPage, content, "list of deployments")
        return [self._result(deployment) for deployment in page.deployments]

    create_deployment = blocking(create_deployment_async)
    get_deployment = blocking(get_deployment_async)
    get_deployment_status = blocking(get_deployment_status_async)
    wait_for_build = blocking(wait_for_build_async)
    trigger_build = blocking(trigger_build_async)
    list_deployments = blocking(list_deployments_async)

    def _result(self, deployment: Deployment) -> HarborDeploymentResult:
        return HarborDeploymentResult(**dict(deployment), backend_url=self._ref_url, api_key=self._ref_key)


async def upload_harbor_deployment_async(
    spec: "HarborBuildSpec",
    api_key: str | None = None,
    backend_url: str | None = None,
    auto_build: bool = True,
    wait_for_ready: bool = False,
    build_timeout_s: float = 600.0,
) -> HarborDeploymentResult:
    """Upload `spec`, and wait for its build where that is asked for."""
    uploader = HarborDeploymentUploader(backend_url, api_key)
    async with uploader.client.session():
        deployment = await uploader.create_deployment_async(spec, auto_build)
        if wait_for_ready and deployment.status != "ready":
            return await uploader.wait_for_build_async(deployment.id, build_timeout_s)
    return deployment


upload_harbor_deployment = blocking(upload_harbor_deployment_async)


def request_of(spec: "HarborBuildSpec") -> dict[str, Any]:
    """Return the body that creates the deployment of `spec`, its contexts packaged."""
    from graftline.harbor.packager import HarborPackager

    packager = HarborPackager(spec)
    verifier = packager.package_verifier()
    return spec.to_api_request(packager.package(), verifier.base64 if verifier else None)


def _why_failed(status: HarborDeploymentStatus) -> str:
    build = next((build for build in status.builds if build.status == "failed"), None)
    reason = status.error or (build.error_message if build else None) or "the service does not say why"
    log = f"\n{build.log_tail.rstrip()}" if build and build.log_tail.strip() else ""
    return f"its build failed: {reason}; mend the context and upload it again{log}"
