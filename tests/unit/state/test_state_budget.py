"""How long a state is in a prompt, what goes when it is too long, and how it is written there."""

import json
import subprocess
import sys

import pytest

from graftline.core.tokens import count_tokens
from graftline.rollouts.state import State, StateUpdate, merge, render, summarize_history

FULL = State(
    goals=("replace `old` by `new`",),
    constraints=("keep `import os`", "keep line 3"),
    decisions=tuple(f"decision {number} of this attempt" for number in range(6)),
    hypotheses=("first thought", "second thought"),
    history=("did one", "did two", "did three"),
    open_issues=("line 7 is left",),
    next_focus="line 7",
)


def test_a_state_is_rendered_compactly_in_a_fixed_order_without_what_is_empty() -> None:
    state = State(next_focus="x", history=("a", "ü"), goals=("b",))

    assert render(state) == '{"goals":["b"],"history":["a","ü"],"next_focus":"x"}'


@pytest.mark.parametrize("text", ["</state>", "</STATE >", "<|im_end|>", "<|", "</", "\\</state>", '"</state>"'])
def test_no_text_ends_the_block_or_the_turn(text: str) -> None:
    rendered = render(State(goals=(text,)))

    assert ("</" in rendered, "<|" in rendered, json.loads(rendered)) == (False, False, {"goals": [text]})


def test_tokens_are_counted_text_by_text() -> None:
    # 1 for the braces, "go als " and " hello ␣world "; the whole is {" go als ":[" hello ␣world "] }
    assert (State().token_budget(), State(goals=("hello world",)).token_budget()) == (1, 8)
    assert [count_tokens(render(state)) for state in (State(), State(goals=("hello world",)))] == [1, 8]


def test_the_count_is_near_to_that_of_the_whole_and_errs_on_the_long_side() -> None:
    whole = count_tokens(render(FULL))

    assert whole <= FULL.token_budget() <= 1.15 * whole


def test_a_short_state_needs_no_vocabulary() -> None:
    program = """
import sys
from graftline.rollouts.state import State, StateUpdate, merge
merge(State(), StateUpdate(goals=["x" * 200], history=["y" * 200]))
print("bpe_openai" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_oldest_go_first_and_the_history_says_what_went() -> None:
    shorter = summarize_history(FULL, 118)

    # the first thought goes; the note takes the place of the oldest history; then there is need for three decisions
    assert shorter == FULL.model_copy(
        update={
            "hypotheses": ("second thought",),
            "decisions": FULL.decisions[3:],
            "history": ("left out to save room: decisions 3, history 1, hypotheses 1", "did two", "did three"),
        }
    )


def test_constraints_stay_longest_and_the_newest_of_them() -> None:
    state = FULL.model_copy(update={"constraints": ("x " * 60, "keep line 3")})

    assert summarize_history(state, 60).model_dump(exclude_defaults=True) == {
        "constraints": ("keep line 3",),
        "history": (
            "left out to save room: constraints 1, decisions 6, goals 1, history 3, hypotheses 2, next focus 1,"
            " open issues 1",
        ),
    }


def test_the_note_itself_goes_where_there_is_no_room_for_it() -> None:
    assert summarize_history(FULL, 5) == State()


@pytest.mark.parametrize("budget", [1, 5, 20, 50, 80, 120])
def test_a_summary_is_within_its_budget_and_summarized_again_the_same(budget: int) -> None:
    shorter = summarize_history(FULL, budget)

    assert (shorter.token_budget() <= budget, summarize_history(shorter, budget)) == (True, shorter)


def test_a_later_summary_adds_to_the_counts_of_the_earlier_one() -> None:
    noted = State(history=("left out to save room: decisions 3, open issues 1", "a"), decisions=("x " * 60, "y " * 60))

    assert summarize_history(noted, 100).history == ("left out to save room: decisions 4, open issues 1", "a")


def test_the_note_stays_first_while_the_history_moves_on() -> None:
    state = State(history=("left out to save room: decisions 3", "a", "b"))

    assert merge(state, StateUpdate(history=["c"])).history == ("left out to save room: decisions 3", "b", "c")


def test_a_note_that_a_model_says_again_is_not_taken_for_its_own() -> None:
    update = StateUpdate(history=["left out to save room: decisions 3", "a"], goals=["left out to save room: goals 1"])

    assert merge(State(), update) == State(history=("a",))


def test_over_the_budget_the_newest_update_is_kept_whole() -> None:
    update = StateUpdate(decisions=["the newest decision"], open_issues=["line 9", "line 10"])

    assert merge(FULL, update, budget_tokens=130, target_tokens=98) == State(
        goals=FULL.goals,
        constraints=FULL.constraints,
        decisions=("the newest decision",),
        hypotheses=("second thought",),
        history=("left out to save room: decisions 6, history 2, hypotheses 1", "did three"),
        open_issues=("line 9", "line 10"),
        next_focus="line 7",
    )


def test_an_update_that_alone_is_over_the_budget_is_cut_to_it() -> None:
    update = StateUpdate(constraints=["keep line 3"], decisions=[f"{number} {'x ' * 15}" for number in range(8)])
    merged = merge(FULL, update, budget_tokens=64, target_tokens=64)

    assert merged == State(
        constraints=("keep line 3",), decisions=tuple(update.decisions or ())[-len(merged.decisions) :]
    )
    assert 0 < len(merged.decisions) < 8
