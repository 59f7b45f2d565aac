"""From matches to the text they make: which of overlapping ones are taken, and which results say nothing."""

import pytest

from graftline.core.errors import SandboxError
from graftline.sandbox.base import Isolation, Match, SandboxResult, Verdict, ensure_decided, replace_matches

HERE = Isolation("none", "test")


def test_without_matches_there_is_no_text() -> None:
    assert replace_matches("abc", [], HERE) == SandboxResult(Verdict.NO_MATCH, None, HERE)


@pytest.mark.parametrize(
    ("matches", "after", "replaced"),
    [
        # in the order of the text, whatever order they come in
        ([(2, 3, "C"), (0, 1, "A")], "AbC", [(0, 1, "A"), (2, 3, "C")]),
        # of nested ones the outer
        ([(1, 2, "B"), (0, 3, "x")], "x", [(0, 3, "x")]),
        # of those with one start the longer
        ([(0, 1, "A"), (0, 2, "x")], "xc", [(0, 2, "x")]),
        # of those that overlap the earlier
        ([(1, 3, "y"), (0, 2, "x")], "xc", [(0, 2, "x")]),
        # those that only touch are both taken
        ([(0, 1, "A"), (1, 2, "B")], "ABc", [(0, 1, "A"), (1, 2, "B")]),
        # of two of the same place the first that was found
        ([(0, 1, "A"), (0, 1, "B")], "Abc", [(0, 1, "A")]),
        # one without width is an insertion, once per place
        ([(1, 1, "x"), (1, 1, "y")], "axbc", [(1, 1, "x")]),
        ([(3, 3, "x")], "abcx", [(3, 3, "x")]),
        # and none at the start of what is taken already
        ([(0, 0, "y"), (0, 1, "x")], "xbc", [(0, 1, "x")]),
    ],
)
def test_outermost_matches_make_the_text(
    matches: list[tuple[int, int, str]], after: str, replaced: list[tuple[int, int, str]]
) -> None:
    result = replace_matches("abc", [Match(*match) for match in matches], HERE)
    assert result == SandboxResult(Verdict.OK, after, HERE, tuple(Match(*match) for match in replaced))


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict is not Verdict.WALL_TIMEOUT])
def test_a_result_that_says_something_is_handed_on(verdict: Verdict) -> None:
    result = SandboxResult(verdict, None, HERE)
    assert ensure_decided(result) is result


def test_a_result_of_a_busy_machine_is_an_error_of_the_machine() -> None:
    with pytest.raises(SandboxError) as caught:
        ensure_decided(SandboxResult(Verdict.WALL_TIMEOUT, None, HERE))
    assert str(caught.value) == (
        "an action ran into the wall clock before its CPU limit; free the machine and start again"
    )
