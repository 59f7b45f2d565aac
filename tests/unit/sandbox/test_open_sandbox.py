"""From configuration to a sandbox, and that none opens that is weaker than required."""

import os
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from graftline import sandbox
from graftline.core.errors import SandboxError
from graftline.sandbox import (
    Isolation,
    MemorySandboxConfig,
    ProcessSandboxConfig,
    SandboxConfig,
    WarmSandboxConfig,
    open_sandbox,
)
from graftline.sandbox.base import LEVELS, IsolationLevel, Limits, is_at_least


def test_levels_are_ordered_from_weakest_to_strongest() -> None:
    assert LEVELS == ("none", "compute", "confined", "namespaces", "full")
    stronger = [(achieved, required) for achieved in LEVELS for required in LEVELS if is_at_least(achieved, required)]
    assert stronger == [
        (achieved, required) for place, achieved in enumerate(LEVELS) for required in LEVELS[: place + 1]
    ]


def test_the_memory_sandbox_claims_no_isolation() -> None:
    assert open_sandbox(MemorySandboxConfig()).isolation == Isolation("none", "memory")


def test_the_process_sandbox_says_what_it_achieved() -> None:
    opened = open_sandbox(ProcessSandboxConfig())
    try:
        assert opened.isolation == Isolation("compute", "process", ("rlimits", "no_new_privs", "seccomp"))
    finally:
        opened.close()


def test_the_warm_sandbox_says_what_it_achieved() -> None:
    opened = open_sandbox(WarmSandboxConfig())
    own_user = ("own_user",) if os.getuid() == 0 else ()
    try:
        assert opened.isolation == Isolation("compute", "warm", ("rlimits", *own_user, "no_new_privs", "seccomp"))
    finally:
        opened.close()


@pytest.mark.parametrize("config", [ProcessSandboxConfig, WarmSandboxConfig])
@pytest.mark.parametrize("level", ["confined", "namespaces", "full"])
def test_a_level_that_cannot_be_reached_is_refused_and_its_lack_is_named(
    config: type[ProcessSandboxConfig | WarmSandboxConfig], level: IsolationLevel
) -> None:
    with pytest.raises(SandboxError) as caught:
        open_sandbox(config(required_level=level))
    message = str(caught.value)
    assert message.startswith(f"{config().kind} sandbox: reaches 'compute' with rlimits, ")
    assert message.endswith(
        f"no_new_privs, seccomp, but '{level}' is required; it needs Linux 3.17+ with seccomp on x86_64 or aarch64"
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


def test_the_wall_clock_has_a_wide_margin_over_the_cpu() -> None:
    limits = Limits()
    assert (limits.cpu_s, limits.wall_s) == (5, 30.0)


def test_every_public_name_is_loaded_on_first_use() -> None:
    assert [name for name in sandbox.__all__ if getattr(sandbox, name, None) is None] == []
    with pytest.raises(AttributeError, match=r"module 'graftline.sandbox' has no attribute 'judged'"):
        _ = sandbox.judged
