import asyncio

import pytest

from graftline.core.errors import ConfigError, HarborError
from graftline.harbor.instances import (
    HarborInstance,
    build_harbor_instances,
    create_harbor_instances,
    create_harbor_instances_async,
    list_harbor_instances,
)
from tests.harbor_server import HarborServer

BATCH = "POST /api/harbor/deployments/dep-1/instances/batch"
PAGES = "GET /api/harbor/deployments/dep-1/instances"


def test_instances_of_the_first_seeds_are_made(server: HarborServer) -> None:
    found = create_harbor_instances(deployment_id="dep-1", count=3, backend_url=server.url, api_key=server.key)

    assert found == [HarborInstance(id=f"ins-{n}", seed=n, status="pending", task_id=f"task-{n}") for n in range(3)]
    assert server.of(BATCH)[0].body == {"count": 3, "start_seed": 0}


def test_instances_of_named_seeds_come_by_seed(server: HarborServer) -> None:
    found = create_harbor_instances("dep-1", None, server.url, server.key, seeds=[7, 3])

    assert [instance.seed for instance in found] == [3, 7]
    assert server.of(BATCH)[0].body == {"seeds": [7, 3]}


def test_a_large_batch_is_read_page_by_page_as_far_as_it_goes(server: HarborServer) -> None:
    create_harbor_instances("dep-1", 9, server.url, server.key)
    server.page = 2

    found = asyncio.run(create_harbor_instances_async("dep-1", 3, server.url, server.key, start_seed=1))

    assert [instance.seed for instance in found] == [1, 2, 3]
    # seeds 0 to 3; nothing that is wanted comes behind
    assert [asked.query.get("cursor") for asked in server.of(PAGES)] == [None, "1"]


def test_all_pages_are_listed(server: HarborServer) -> None:
    create_harbor_instances("dep-1", 5, server.url, server.key)
    server.page = 2

    assert [one.seed for one in list_harbor_instances("dep-1", None, server.url, server.key)] == [0, 1, 2, 3, 4]
    assert list_harbor_instances("dep-1", "ready", server.url, server.key) == []


def test_instances_can_be_waited_for(server: HarborServer) -> None:
    found = create_harbor_instances("dep-1", 2, server.url, server.key, wait_for_ready=True)

    assert [instance.status for instance in found] == ["ready", "ready"]


def test_an_instance_that_fails_while_it_is_waited_for_is_an_error(server: HarborServer) -> None:
    server.build_error = "no space"

    with pytest.raises(HarborError) as caught:
        create_harbor_instances("dep-1", 2, server.url, server.key, wait_for_ready=True)

    assert str(caught.value) == "deployment 'dep-1': 2 of 2 instances failed, the first that of seed 0: no space"


def test_instances_can_be_built(server: HarborServer) -> None:
    create_harbor_instances("dep-1", 2, server.url, server.key)

    found = build_harbor_instances("dep-1", server.url, server.key)

    assert (found.total_instances, found.ready_count) == (2, 2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "instances: expected either count or seeds"),
        ({"count": 1, "seeds": [1]}, "instances: expected either count or seeds"),
        ({"count": 0}, "instances: 0 seeds from 0 are no seeds; expected 1 or more, between 0 and 2147483647"),
        (
            {"count": 2, "start_seed": 2147483647},
            "instances: 2 seeds from 2147483647 are no seeds; expected 1 or more, between 0 and 2147483647",
        ),
        ({"seeds": []}, "instances: names no seed; expected at least one"),
        ({"seeds": [1, 2, 1]}, "instances: names seed 1 twice; expected each once"),
        ({"seeds": [True]}, "instances: True is no seed; expected a whole number from 0 to 2147483647"),
        ({"seeds": [-1]}, "instances: -1 is no seed; expected a whole number from 0 to 2147483647"),
    ],
)
def test_what_is_no_seed_is_refused_before_anything_is_sent(server: HarborServer, given: dict, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        create_harbor_instances("dep-1", backend_url=server.url, api_key=server.key, **given)

    assert (str(caught.value), server.asked) == (said, [])
