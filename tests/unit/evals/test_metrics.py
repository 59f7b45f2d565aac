"""Metrics of evaluations: against numbers worked out by hand, and against brute force."""

import math
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graftline.evals.metrics import compare, ks_of, pass_at_k, summarize, summarize_by
from graftline.harbor.coverage import interval_of
from tests.eval_cases import attempt


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_all_choices_that_hold_a_right_one(given_: tuple[int, int, int]) -> None:
    n, right, k = given_
    choices = list(combinations(range(n), k))
    lucky = sum(any(one < right for one in choice) for choice in choices)

    assert math.isclose(pass_at_k(n, right, k), lucky / len(choices), abs_tol=1e-12)


@pytest.mark.parametrize("arguments", [(3, 1, 4), (3, 4, 1), (3, 1, 0), (0, 0, 1)])
def test_pass_at_k_of_more_than_there_are_is_refused(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="can be taken"):
        pass_at_k(*arguments)


def test_powers_of_two_are_shown_and_all_attempts() -> None:
    assert [ks_of(attempts) for attempts in (1, 2, 3, 4, 10)] == [
        [1],
        [1, 2],
        [1, 2, 3],
        [1, 2, 4],
        [1, 2, 4, 8, 10],
    ]


def test_the_figures_are_means_over_tasks_of_what_is_known() -> None:
    [found] = summarize(
        [
            attempt("m", "a", 1, True, tokens=10, cost_usd=0.5, latency_s=1.0, over_application=False),
            attempt("m", "a", 2, False, tokens=10, cost_usd=0.5, latency_s=2.0, over_application=True),
            attempt("m", "b", 1, True, level="ast", tokens=5, cost_usd=0.25, latency_s=3.0, right_on_unseen=True),
            attempt("m", "b", 2, is_infra=True),
            attempt("m", "c", 1, False, tokens=1, cost_usd=0.0, latency_s=4.0, right_on_unseen=False),
            attempt("m", "c", 2, False, tokens=1, cost_usd=0.0, latency_s=50.0),
        ]
    )

    # a: 1 of 2, b: 1 of 1, c: 0 of 2; of two, b has only one
    assert found.pass_at == {1: 0.5, 2: 0.5}
    assert (found.tasks, found.n, found.n_infra, round(found.coverage, 4)) == (3, 5, 1, 0.8333)
    assert (found.exact, found.over_application, found.right_on_unseen) == (1 / 5, 1 / 2, 1 / 2)
    assert (found.tokens, found.cost_usd, found.reward) == (27, 1.25, 2 / 5)
    assert (found.latency_median_s, found.latency_p95_s) == (3.0, 50.0)
    assert found.causes == {"no_progress": 3, "verified": 2}


def test_what_one_attempt_did_not_say_is_not_0_altogether() -> None:
    [found] = summarize([attempt("m", "a", cost_usd=1.0, tokens=3), attempt("m", "b")])

    assert (found.cost_usd, found.tokens, found.latency_median_s, found.right_on_unseen) == (None, None, None, None)


def test_nothing_is_known_of_a_solver_whose_machine_failed() -> None:
    [found] = summarize([attempt("m", "a", is_infra=True)])

    assert (found.n, found.n_infra, found.coverage) == (0, 1, 0.0)
    assert (found.pass_at, found.interval, found.exact, found.reward, found.cost_usd) == (
        {1: None},
        None,
        None,
        None,
        None,
    )


def test_figures_are_told_apart_by_group_and_solver() -> None:
    rows = [
        attempt("m", "a", edit_class="z", is_right=True),
        attempt("n", "a", edit_class="z"),
        attempt("m", "b", edit_class="y"),
    ]

    found = [(one.of, one.solver, one.pass_at[1]) for one in summarize_by(rows, lambda one: one.edit_class)]

    assert found == [("y", "m", 0.0), ("z", "m", 1.0), ("z", "n", 0.0)]


def test_solvers_are_compared_at_the_tasks_of_which_both_have_attempts_that_count() -> None:
    rows = [
        *(attempt("m", task, is_right=True) for task in "abc"),
        attempt("m", "d", is_infra=True),
        attempt("n", "a", is_right=True),
        attempt("n", "b"),
        attempt("n", "d"),
    ]

    found = compare(rows, "m", "n")

    # at a and b of the four tasks; the differences are 0 and 1, so that a mean of two is 0, 0.5 or 1
    assert (found.tasks, found.coverage, found.of_first, found.of_second) == (2, 0.5, 1.0, 0.5)
    assert (found.difference, found.interval) == (0.5, (0.0, 1.0))


def test_a_solver_that_is_better_at_every_task_by_as_much_is_so_for_sure() -> None:
    rows = [attempt(name, str(task), is_right=name == "m") for name in "mn" for task in range(5)]

    assert compare(rows, "m", "n").interval == (1.0, 1.0)
    assert compare(rows, "n", "m").interval == (-1.0, -1.0)
    assert compare(rows, "m", "m").interval == (0.0, 0.0)


def test_a_paired_difference_is_surer_than_the_means_of_which_it_is() -> None:
    # both solve half, the first one task more of every ten
    def solves(name: str, task: int) -> bool:
        return task % 2 == 0 or (name == "m" and task % 10 == 1)

    rows = [attempt(name, str(task), is_right=solves(name, task)) for name in "mn" for task in range(100)]
    low, high = compare(rows, "m", "n").interval or (0.0, 0.0)
    # 10 of 100 differ by 1: deviation 0.3, error 0.03
    assert (round(low, 2), round(high, 2)) == (0.05, 0.16)


def test_attempts_at_one_task_are_one_observation() -> None:
    rows = [attempt("m", "a", number, number > 1) for number in range(1, 5)]
    rows += [attempt("n", "a", number, False) for number in range(1, 5)]

    found = compare(rows, "m", "n")

    assert (found.tasks, found.difference, found.interval) == (1, 0.75, None)


def test_a_measure_that_cannot_be_told_of_a_task_leaves_it_out() -> None:
    rows = [
        attempt("m", "a", over_application=True),
        attempt("n", "a", over_application=False),
        attempt("m", "b", over_application=None),
        attempt("n", "b", over_application=True),
    ]

    found = compare(rows, "m", "n", "over_application")

    assert (found.tasks, found.difference) == (1, 1.0)


def test_comparing_with_nobody_says_who_there_is() -> None:
    with pytest.raises(ValueError, match="solver 'x' made no attempt; known: m"):
        compare([attempt("m", "a")], "m", "x")


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=2, max_size=60), st.randoms())
def test_an_interval_holds_the_mean_and_does_not_depend_on_the_order(values: list[float], chance: Any) -> None:
    low, high = interval_of(values) or (math.nan, math.nan)
    shuffled = chance.sample(values, len(values))

    assert low - 1e-12 <= sum(values) / len(values) <= high + 1e-12
    assert interval_of(shuffled) == (low, high)


@pytest.mark.parametrize(
    ("values", "interval"),
    [
        ([0.3], None),
        ([0.25, 0.25], (0.25, 0.25)),
        # of two, a mean of resamples is 0, 0.5 or 1, with shares 1/4, 1/2 and 1/4
        ([0.0, 1.0], (0.0, 1.0)),
        # 10 of 40: of a binomial of 40 and 1/4, 2.5 % lie below 5 (P(X <= 4) = 0.016), and 2.5 % above 16 (P(X <= 15) = 0.974)
        ([float(number % 4 == 0) for number in range(40)], (5 / 40, 16 / 40)),
        # 0 to 1 in 1001 steps, as of the normal distribution: deviation sqrt((1001 ** 2 - 1) / 12) / 1000, over sqrt(1001)
        ([number / 1000 for number in range(1001)], (0.5 - 0.0179, 0.5 + 0.0179)),
    ],
)
def test_the_interval_is_that_of_the_mean(values: list[float], interval: tuple[float, float] | None) -> None:
    found = interval_of(values)
    assert found == (interval and pytest.approx(interval, abs=5e-5))
