"""An agent whose provider refused it, told from one that did its work."""

import pytest

from graftline.harbor.in_box.agents import find_refusal

SUMMARY = "I made the handler answer 401 Unauthorized without a token.\nAll tests pass."


@pytest.mark.parametrize(
    "output",
    [
        "401 Unauthorized",
        "stream error: unexpected status 401 Unauthorized: Incorrect API key provided",
        "Invalid API key · Please run /login",
        'API Error: 403 {"type":"error","error":{"type":"authentication_error"}}',
        "Error: Your credit balance is too low to access the API",
        "ERROR: insufficient_quota",
        "thinking\nError: missing API key\nbye",
    ],
)
@pytest.mark.parametrize("status", [0, 1])
def test_an_agent_without_a_key_has_done_nothing(output: str, status: int) -> None:
    assert find_refusal(output, status, has_changed=False) in output.splitlines()
    assert find_refusal(output, status, has_changed=False)


def test_an_agent_that_was_refused_midway_is_not_graded() -> None:
    assert find_refusal("wrote a.py\nERROR: unexpected status 401 Unauthorized", 0, has_changed=True)


@pytest.mark.parametrize(
    ("output", "status", "has_changed"),
    [
        ("done", 0, False),
        (SUMMARY, 0, True),
        ("401 Unauthorized\n" + "line\n" * 9, 0, True),
        ("429 Too Many Requests in the log that was asked for", 0, False),
        ("no such file", 3, False),
    ],
)
def test_an_agent_that_worked_is_graded_whatever_its_task_is_about(output: str, status: int, has_changed: bool) -> None:
    assert find_refusal(output, status, has_changed) == ""
