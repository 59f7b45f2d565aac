import asyncio
import base64
import io
import tarfile
from pathlib import Path

import pytest

from graftline.core.errors import HarborError
from graftline.harbor.address import HarborDeploymentRef
from graftline.harbor.build_spec import HarborBuildSpec
from graftline.harbor.client import HarborTimeoutError, RetryPolicy
from graftline.harbor.uploader import (
    HarborDeploymentResult,
    HarborDeploymentUploader,
    upload_harbor_deployment,
)
from tests.harbor_server import Fault, HarborServer

CREATE = "POST /api/harbor/deployments"
BRISK = RetryPolicy(timeout_s=20.0, first_pause_s=0.001, longest_pause_s=0.002)


@pytest.fixture
def server(running_server: HarborServer) -> HarborServer:
    running_server.renew()
    return running_server


@pytest.fixture
def uploader(server: HarborServer) -> HarborDeploymentUploader:
    return HarborDeploymentUploader(server.url, server.key, patience=BRISK)


@pytest.fixture
def spec(tmp_path: Path) -> HarborBuildSpec:
    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM scratch\n", "utf-8")
    (folder / "run_rollout.py").write_text("print()\n", "utf-8")
    limits = {"timeout_s": 600, "cpu_cores": 4}
    return HarborBuildSpec(name="tests", dockerfile_path=folder / "Dockerfile", context_dir=folder, limits=limits)


def test_an_upload_sends_the_packed_context_and_settings(server: HarborServer, spec: HarborBuildSpec) -> None:
    found = upload_harbor_deployment(spec=spec, backend_url=server.url, api_key=server.key)

    assert found == HarborDeploymentResult(
        id="dep-1",
        name="tests",
        status="ready",
        build_id="bld-dep-1",
        snapshot_id="snap-1",
        backend_url=server.url,
        api_key=server.key,
    )
    body = server.of(CREATE)[0].body
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(body["context_tar_base64"]))) as archive:
        assert [name for name in archive.getnames() if name != "."] == ["Dockerfile", "run_rollout.py"]
    assert (body["name"], body["dockerfile"], body["limits"]["timeout_s"], body["auto_build"]) == (
        "tests",
        "FROM scratch\n",
        600,
        True,
    )


def test_an_upload_whose_answer_was_lost_makes_one_deployment(
    server: HarborServer, uploader: HarborDeploymentUploader, spec: HarborBuildSpec
) -> None:
    server.fail(CREATE, Fault(torn=True, is_carried_out=True))

    assert uploader.create_deployment(spec).id == "dep-1"
    keys = {asked.headers["idempotency-key"] for asked in server.of(CREATE)}
    assert (len(server.of(CREATE)), len(keys), len(server.deployments)) == (2, 1, 1)


def test_an_upload_can_wait_for_its_build_inside_a_running_loop(server: HarborServer, spec: HarborBuildSpec) -> None:
    server.looks = 1

    async def notebook() -> HarborDeploymentResult:
        return upload_harbor_deployment(spec, server.key, server.url, wait_for_ready=True)

    found = asyncio.run(notebook())

    assert (found.status, found.snapshot_id) == ("ready", "snap-1")


def test_a_build_is_waited_for_and_looked_at(
    server: HarborServer, uploader: HarborDeploymentUploader, spec: HarborBuildSpec
) -> None:
    server.looks = 4
    created = uploader.create_deployment(spec)
    assert (created.status, created.to_ref()) == ("building", HarborDeploymentRef("dep-1", server.url, server.key))
    assert server.key not in repr(created)
    with pytest.raises(HarborTimeoutError, match="is 'building' still after 0 s; wait longer, its build goes on"):
        uploader.wait_for_build("dep-1", timeout_s=0)

    ready = uploader.wait_for_build("tests", poll_interval_s=0.01)

    assert (ready.id, ready.status, ready.build_id) == ("dep-1", "ready", "bld-dep-1")
    status = uploader.get_deployment_status("tests")
    assert (status.id, status.status, [build.build_id for build in status.builds]) == ("dep-1", "ready", ["bld-dep-1"])
    again = uploader.trigger_build("dep-1", force=True)
    assert (again.build_id, again.status, server.asked[-1].body) == ("bld-dep-1-2", "pending", {"force": True})


def test_deployments_are_listed_newest_first(
    server: HarborServer, uploader: HarborDeploymentUploader, spec: HarborBuildSpec
) -> None:
    uploader.create_deployment(spec)
    uploader.create_deployment(spec.model_copy(update={"description": "another"}), auto_build=False)

    # each creation has a key of its own
    assert len({asked.headers["idempotency-key"] for asked in server.of(CREATE)}) == 2
    assert [(each.id, each.version) for each in uploader.list_deployments()] == [("dep-2", 2), ("dep-1", 1)]
    assert [each.id for each in uploader.list_deployments(limit=1, offset=1)] == ["dep-1"]
    assert uploader.list_deployments(status="failed") == []


def test_a_build_that_fails_says_why_with_the_end_of_its_log(
    server: HarborServer, uploader: HarborDeploymentUploader, spec: HarborBuildSpec
) -> None:
    uploader.create_deployment(spec)
    server.build_error = "step 2 ended with 1"

    with pytest.raises(HarborError) as caught:
        uploader.wait_for_build("dep-1")

    assert str(caught.value) == (
        "deployment 'dep-1': its build failed: step 2 ended with 1; mend the context and upload it again\nstep 1\nstep 2"
    )


def test_a_build_that_nobody_asked_for_is_not_waited_for(
    uploader: HarborDeploymentUploader, spec: HarborBuildSpec
) -> None:
    uploader.create_deployment(spec, auto_build=False)

    with pytest.raises(HarborError, match="deployment 'dep-1': nobody asked for its build; call trigger_build"):
        uploader.wait_for_build("dep-1")


def test_something_else_than_a_service_is_told_apart(
    server: HarborServer, uploader: HarborDeploymentUploader, spec: HarborBuildSpec
) -> None:
    server.fail(CREATE, Fault(status=200, content=b'{"hello": "world"}'))

    with pytest.raises(HarborError) as caught:
        uploader.create_deployment(spec)

    assert str(caught.value) == (
        "creation of deployment 'tests': the answer is not that of a Harbor service (id: field required); "
        "check backend_url"
    )
