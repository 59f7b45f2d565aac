"""The table of rewards: 0.0 is a wrong action, None is nothing known."""

import pytest
from pydantic import ValidationError

from graftline.codemod.equality import Level
from graftline.rollouts.reward import Reward, RewardWeights, reward, rl_reward
from graftline.sandbox import Verdict

WEIGHTS = RewardWeights()


@pytest.mark.parametrize(
    ("verdict", "level", "progress", "is_all_general", "value", "cause"),
    [
        (Verdict.OK, Level.EXACT, 1.0, True, 1.0, "verified"),
        (Verdict.OK, Level.BLANKS, 1.0, True, 1.0, "verified"),
        (Verdict.OK, Level.TREE, 1.0, True, 1.0, "verified"),
        (Verdict.OK, Level.TESTS, 1.0, True, 1.0, "verified"),
        (Verdict.OK, Level.EXACT, 1.0, False, 0.8, "verified_literal"),
        # 0.6 times the progress, to six places
        (Verdict.OK, Level.PARTIAL, 0.5, True, 0.3, "partial"),
        (Verdict.OK, Level.PARTIAL, 0.5, False, 0.3, "partial"),
        (Verdict.OK, Level.PARTIAL, 0.333333, True, 0.2, "partial"),
        (Verdict.OK, Level.PARTIAL, 0.999999, True, 0.599999, "partial"),
        (Verdict.OK, Level.NONE, 0.0, True, 0.0, "no_progress"),
        # a verdict counts before everything that came earlier
        (Verdict.NO_MATCH, Level.PARTIAL, 0.5, True, 0.0, "no_match"),
        (Verdict.ACTION_ERROR, Level.PARTIAL, 0.5, True, 0.0, "action_error"),
        (Verdict.CPU_TIMEOUT, Level.NONE, 0.0, True, 0.0, "cpu_timeout"),
        (Verdict.OUT_OF_MEMORY, Level.NONE, 0.0, True, 0.0, "out_of_memory"),
        (Verdict.OUTPUT_FLOOD, Level.NONE, 0.0, True, 0.0, "output_flood"),
        (Verdict.CRASH, Level.NONE, 0.0, True, 0.0, "crash"),
        (Verdict.WALL_TIMEOUT, Level.PARTIAL, 0.5, True, None, "wall_timeout"),
        (Verdict.WALL_TIMEOUT, Level.NONE, 0.0, False, None, "wall_timeout"),
    ],
)
def test_an_outcome_has_one_reward(
    verdict: Verdict, level: Level, progress: float, is_all_general: bool, value: float | None, cause: str
) -> None:
    assert reward(verdict, level, progress, is_all_general, WEIGHTS) == Reward(value=value, cause=cause)


@pytest.mark.parametrize(
    ("level", "is_all_general", "is_broad", "expected"),
    [
        (Level.EXACT, True, True, Reward(value=0.6, cause="verified_broad")),
        (Level.EXACT, False, True, Reward(value=0.8, cause="verified_literal")),
        (Level.PARTIAL, True, True, Reward(value=0.3, cause="partial")),
    ],
)
def test_only_what_is_verified_and_general_can_be_too_broad(
    level: Level, is_all_general: bool, is_broad: bool, expected: Reward
) -> None:
    assert reward(Verdict.OK, level, 0.5, is_all_general, WEIGHTS, is_broad=is_broad) == expected


@pytest.mark.parametrize(("unwanted", "value"), [(0.0, 0.3), (0.25, 0.225), (1.0, 0.0)])
def test_a_partial_reward_is_less_by_the_share_of_unwanted_matches(unwanted: float, value: float) -> None:
    found = reward(Verdict.OK, Level.PARTIAL, 0.5, True, WEIGHTS, wrong_share=unwanted)
    assert found == Reward(value=value, cause="partial")


@pytest.mark.parametrize("value", [None, 0.0, 0.6, 1.0])
def test_reinforcement_learning_takes_the_reward_of_what_could_be_read_and_punishes_the_rest(
    value: float | None,
) -> None:
    assert (rl_reward(True, Reward(value=value, cause="c")), rl_reward(False, Reward(value=0.0, cause="c"))) == (
        value,
        -1,
    )


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_reward_outside_its_range_is_refused(value: float) -> None:
    with pytest.raises(ValidationError):
        Reward(value=value, cause="c")


@pytest.mark.parametrize(
    "given",
    [
        {"verified_general": 1.1},
        {"verified_literal": -0.1},
        {"progress": 2},
        {"verified_broad": 2},
        {"most_over_out": -1},
        {"bonus": 0.1},
    ],
)
def test_weights_outside_their_range_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        RewardWeights(**given)
