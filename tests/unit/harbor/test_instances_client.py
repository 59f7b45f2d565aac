import asyncio

import pytest

from graftline.core.errors import ConfigError, HarborError
from graftline.harbor.address import HarborDeploymentRef
from graftline.harbor.contract import TaskDescription, TaskInfo
from graftline.harbor.instances import (
    HarborInstance,
    HarborInstanceProvider,
    build_harbor_instances,
    create_harbor_instances,
    create_harbor_instances_async,
    list_harbor_instances,
)
from tests.harbor_server import HarborServer

BATCH = "POST /api/harbor/deployments/dep-1/instances/batch"
PAGES = "GET /api/harbor/deployments/dep-1/instances"


def test_instances_are_made_of_the_first_seeds_or_of_named_ones_and_come_by_seed(server: HarborServer) -> None:
    first = create_harbor_instances(deployment_id="dep-1", count=3, backend_url=server.url, api_key=server.key)
    assert first == [HarborInstance(id=f"ins-{n}", seed=n, status="pending", task_id=f"task-{n}") for n in range(3)]

    named = create_harbor_instances("dep-1", None, server.url, server.key, seeds=[7, 3])
    assert [instance.seed for instance in named] == [3, 7]
    assert [asked.body for asked in server.of(BATCH)] == [{"count": 3, "start_seed": 0}, {"seeds": [7, 3]}]


def test_pages_are_read_as_far_as_it_goes(server: HarborServer) -> None:
    create_harbor_instances("dep-1", 9, server.url, server.key)
    server.page = 2

    batch = asyncio.run(create_harbor_instances_async("dep-1", 3, server.url, server.key, start_seed=1))

    assert [instance.seed for instance in batch] == [1, 2, 3]
    # seeds 0 to 3; nothing that is wanted comes behind
    assert [asked.query.get("cursor") for asked in server.of(PAGES)] == [None, "1"]
    listed = list_harbor_instances("dep-1", None, server.url, server.key)
    assert [instance.seed for instance in listed] == list(range(9))
    assert list_harbor_instances("dep-1", "ready", server.url, server.key) == []


def test_instances_are_built_and_waited_for(server: HarborServer) -> None:
    ready = create_harbor_instances("dep-1", 2, server.url, server.key, wait_for_ready=True)
    assert [instance.status for instance in ready] == ["ready", "ready"]
    built = build_harbor_instances("dep-1", server.url, server.key)
    assert (built.total_instances, built.ready_count) == (2, 2)

    server.build_error = "no space"
    with pytest.raises(HarborError, match="2 of 2 instances failed, the first that of seed 0: no space"):
        create_harbor_instances("dep-1", 2, server.url, server.key, wait_for_ready=True)


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({}, "expected either count or seeds"),
        ({"count": 1, "seeds": [1]}, "expected either count or seeds"),
        ({"count": 0}, "0 seeds from 0 are no seeds; expected 1 or more, between 0 and 2147483647"),
        ({"count": 2, "start_seed": 2147483647}, "2 seeds from 2147483647 are no seeds"),
        ({"seeds": []}, "names no seed; expected at least one"),
        ({"seeds": [1, 2, 1]}, "names seed 1 twice; expected each once"),
        ({"seeds": [True]}, "True is no seed; expected a whole number from 0 to 2147483647"),
        ({"seeds": [-1]}, "-1 is no seed"),
    ],
)
def test_what_is_no_seed_is_refused_before_anything_is_sent(server: HarborServer, values: dict, fault: str) -> None:
    with pytest.raises(ConfigError, match=f"^instances: {fault}"):
        create_harbor_instances("dep-1", backend_url=server.url, api_key=server.key, **values)
    assert server.asked == []


# looked up by seed


@pytest.fixture
def provider(server: HarborServer, ref: HarborDeploymentRef) -> HarborInstanceProvider:
    """Of a deployment with three instances."""
    create_harbor_instances("dep-1", 3, server.url, server.key)
    server.asked.clear()
    return HarborInstanceProvider(ref)


def test_seeds_that_are_known_are_not_asked_for_again(server: HarborServer, provider: HarborInstanceProvider) -> None:
    async def notebook() -> tuple[dict[int, str], dict[int, str]]:
        return provider.instance_ids([0, 1]), await provider.instance_ids_async([1])

    assert asyncio.run(notebook()) == ({0: "ins-0", 1: "ins-1"}, {1: "ins-1"})
    assert len(server.of(PAGES)) == 1

    # one that is not is looked for, alone
    assert provider.instance_ids([0, 2]) == {0: "ins-0", 2: "ins-2"}
    assert len(server.of(PAGES)) == 2
    assert provider.task_info([1]) == [
        TaskInfo(
            task=TaskDescription(id="task-1", name="task-1"),
            dataset={"id": "dep-1"},
            task_metadata={"seed": 1, "instance_id": "ins-1", "status": "pending"},
        )
    ]


def test_seeds_without_an_instance_are_named_or_get_one(
    server: HarborServer, provider: HarborInstanceProvider, ref: HarborDeploymentRef
) -> None:
    with pytest.raises(HarborError, match=r"has no instance of seed 50, 51, 52, .*, 59 and 3 more; make them with"):
        provider.instance_ids([1, *range(50, 63)])
    assert 50 not in server.instances["dep-1"]

    assert HarborInstanceProvider(ref, create_missing=True).instance_ids([1, 50]) == {1: "ins-1", 50: "ins-50"}
    assert sorted(server.instances["dep-1"]) == [0, 1, 2, 50]
