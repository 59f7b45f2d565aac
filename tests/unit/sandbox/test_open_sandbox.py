"""From configuration to a sandbox, and that none opens that is weaker than required."""

import os
from contextlib import closing
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from graftline import sandbox
from graftline.core.errors import SandboxError
from graftline.sandbox import (
    MemorySandboxConfig,
    ProcessSandboxConfig,
    SandboxConfig,
    WarmSandboxConfig,
    open_sandbox,
)
from graftline.sandbox.base import LEVELS, IsolationLevel, is_at_least


def test_levels_are_ordered_from_weakest_to_strongest() -> None:
    assert LEVELS == ("none", "compute", "confined", "namespaces", "full")
    stronger = [(achieved, required) for achieved in LEVELS for required in LEVELS if is_at_least(achieved, required)]
    assert stronger == [
        (achieved, required) for place, achieved in enumerate(LEVELS) for required in LEVELS[: place + 1]
    ]


OWN_USER = ("own_user",) if os.getuid() == 0 else ()


@pytest.mark.parametrize(
    ("config", "levels", "features"),
    [
        (MemorySandboxConfig(), {"none"}, set()),
        (WarmSandboxConfig(), {"compute"}, {"rlimits", *OWN_USER, "no_new_privs", "seccomp"}),
        (ProcessSandboxConfig(), {"compute", "confined"}, {"rlimits", "no_new_privs", "seccomp"}),
    ],
)
def test_a_sandbox_says_what_it_achieved(
    config: SandboxConfig, levels: set[IsolationLevel], features: set[str]
) -> None:
    with closing(open_sandbox(config)) as opened:
        isolation = opened.isolation
    assert (isolation.implementation, isolation.level in levels) == (config.kind, True)
    # with Landlock and control groups, `process` has more
    assert features <= {*isolation.features}


@pytest.mark.parametrize("config", [ProcessSandboxConfig, WarmSandboxConfig])
@pytest.mark.parametrize("level", ["namespaces", "full"])
def test_a_level_that_no_machine_can_give_is_refused(
    config: type[ProcessSandboxConfig | WarmSandboxConfig], level: IsolationLevel
) -> None:
    with pytest.raises(SandboxError) as caught:
        open_sandbox(config(required_level=level))
    highest = {"warm": "compute", "process": "confined"}[config().kind]
    assert str(caught.value) == (
        f"{config().kind} sandbox: reaches '{highest}' at most, on any machine; say required_level '{highest}';"
        f" '{level}' is required"
    )


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"kind": "docker"}, ()),
        ({}, ()),
        ({"kind": "process", "required_level": "strong"}, ("process", "required_level")),
        ({"kind": "process", "limits": {"cpu_s": 0}}, ("process", "limits", "cpu_s")),
        ({"kind": "process", "limits": {"cpu_s": "5"}}, ("process", "limits", "cpu_s")),
        ({"kind": "process", "limits": {"wall_s": 0}}, ("process", "limits", "wall_s")),
        ({"kind": "process", "limits": {"memory_mb": 255}}, ("process", "limits", "memory_mb")),
        ({"kind": "process", "limits": {"output_mb": 0}}, ("process", "limits", "output_mb")),
        ({"kind": "process", "limits": {"swap_mb": 1}}, ("process", "limits", "swap_mb")),
        ({"kind": "memory", "limits": {}}, ("memory", "limits")),
    ],
)
def test_a_wrong_configuration_is_refused_where_it_is_wrong(settings: dict[str, Any], place: tuple[str, ...]) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(SandboxConfig)
    with pytest.raises(ValidationError) as caught:
        adapter.validate_python(settings)
    assert [fault["loc"] for fault in caught.value.errors()] == [place]


def test_every_public_name_is_loaded_on_first_use() -> None:
    assert [name for name in sandbox.__all__ if getattr(sandbox, name, None) is None] == []
    with pytest.raises(AttributeError, match=r"module 'graftline.sandbox' has no attribute 'judged'"):
        _ = sandbox.judged
