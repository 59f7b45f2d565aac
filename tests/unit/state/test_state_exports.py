"""What `graftline.rollouts.state` offers to other programs."""

import graftline.rollouts.state


def test_the_public_names_are_these() -> None:
    assert graftline.rollouts.state.__all__ == [
        "AttemptLog",
        "AttemptStatus",
        "Change",
        "Entry",
        "State",
        "StateLimits",
        "StateStore",
        "StateUpdate",
        "merge",
        "render",
        "state_update_of",
        "summarize_history",
    ]


def test_every_public_name_is_there() -> None:
    assert [name for name in graftline.rollouts.state.__all__ if not hasattr(graftline.rollouts.state, name)] == []
