import asyncio

import pytest

from graftline.core.errors import HarborError
from graftline.harbor.address import HarborDeploymentRef
from graftline.harbor.contract import TaskDescription, TaskInfo
from graftline.harbor.instances import HarborInstanceProvider, create_harbor_instances
from tests.harbor_server import HarborServer

PAGES = "GET /api/harbor/deployments/dep-1/instances"


@pytest.fixture
def server(server: HarborServer) -> HarborServer:
    create_harbor_instances("dep-1", 3, server.url, server.key)
    server.asked.clear()
    return server


def test_seeds_that_are_known_are_not_asked_for_again(server: HarborServer, ref: HarborDeploymentRef) -> None:
    provider = HarborInstanceProvider(ref)
    provider.instance_ids([0, 1])
    provider.instance_ids([1])
    assert len(server.of(PAGES)) == 1

    # one that is not is looked for, alone
    assert provider.instance_ids([0, 2]) == {0: "ins-0", 2: "ins-2"}
    assert len(server.of(PAGES)) == 2


def test_the_task_of_a_seed_is_what_the_deployment_calls_it(ref: HarborDeploymentRef) -> None:
    assert HarborInstanceProvider(ref).task_info([1]) == [
        TaskInfo(
            task=TaskDescription(id="task-1", name="task-1"),
            dataset={"id": "dep-1"},
            task_metadata={"seed": 1, "instance_id": "ins-1", "status": "pending"},
        )
    ]


def test_it_works_inside_a_running_loop(ref: HarborDeploymentRef) -> None:
    provider = HarborInstanceProvider(ref)

    async def notebook() -> tuple[dict[int, str], dict[int, str]]:
        return provider.instance_ids([0]), await provider.instance_ids_async([1])

    assert asyncio.run(notebook()) == ({0: "ins-0"}, {1: "ins-1"})


def test_seeds_without_an_instance_are_named(server: HarborServer, ref: HarborDeploymentRef) -> None:
    with pytest.raises(HarborError) as caught:
        HarborInstanceProvider(ref).instance_ids([1, *range(50, 63)])

    assert str(caught.value) == (
        "deployment 'dep-1': has no instance of seed 50, 51, 52, 53, 54, 55, 56, 57, 58, 59 and 3 more; "
        "make them with create_harbor_instances, or pass create_missing=True"
    )
    assert 50 not in server.instances["dep-1"]


def test_seeds_without_an_instance_get_one_where_that_is_wanted(server: HarborServer, ref: HarborDeploymentRef) -> None:
    assert HarborInstanceProvider(ref, create_missing=True).instance_ids([1, 50]) == {1: "ins-1", 50: "ins-50"}
    assert sorted(server.instances["dep-1"]) == [0, 1, 2, 50]
