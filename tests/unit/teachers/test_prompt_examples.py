"""Examples for a prompt: which are found, how they are shown, and which never are."""

from collections.abc import Sequence

import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.core.errors import DataError
from graftline.rollouts.retrieval.hashed import HashedEmbedder
from graftline.rollouts.retrieval.memory import MemoryVectorStore
from graftline.rollouts.state.state import StateUpdate
from graftline.rollouts.teachers.answer import AnswerFormat
from graftline.rollouts.teachers.examples import Examples, VerifiedStep
from graftline.rollouts.teachers.prompt import FewShots, Shot
from tests.tasks import make_task

PLAIN, ANY = AnswerFormat(), AnswerFormat(forms=("pattern", "rule"), max_characters=1000)
TASK = make_task("x = fetch(1)\n", "x = load(1)\n", instruction="Rename the function `fetch` to `load`.", group="own")
RENAME = Shot(
    language="python",
    instruction="Rename the function `get` to `take`.",
    code="y = get(2)\n",
    think="I looked at line 1 for a long time.",
    action=PatternAction(pattern="get($$$A)", rewrite="take($$$A)"),
    state_update=StateUpdate(goals=["rename"], history=["read it", "renamed it"], next_focus="done"),
)
AFTER = "y = take(2)\n"
SWAP = RENAME.model_copy(
    update={"instruction": "Swap two arguments.", "action": PatternAction(pattern="f($A, $B)", rewrite="f($B, $A)")}
)


def step(number: int, shot: Shot = RENAME, group: str = "other", split: str = "train") -> VerifiedStep:
    return VerifiedStep(id=f"o:{number}#1", task_id=f"o:{number}", group=group, split=split, shot=shot, after=AFTER)


def stored(steps: Sequence[VerifiedStep], identity: str = "made") -> Examples:
    examples = Examples(HashedEmbedder(), MemoryVectorStore())
    examples.rebuild(identity, steps)
    return examples


def ids(
    examples: Examples, count: int = 4, answer_format: AnswerFormat = PLAIN, most_distance: float = 1.0
) -> list[str]:
    few_shots = FewShots(count=count, most_distance=most_distance)
    return [found.id for found in examples.like(TASK, TASK.before, few_shots, answer_format)]


def test_what_is_most_like_the_task_comes_last() -> None:
    examples = stored([step(1), step(2, SWAP)])
    assert (ids(examples), ids(examples, count=1), ids(examples, most_distance=0.6)) == (
        ["o:2#1", "o:1#1"],
        ["o:1#1"],
        ["o:1#1"],
    )


def test_an_example_is_shown_briefly() -> None:
    [found] = stored([step(1)]).like(TASK, TASK.before, FewShots(), PLAIN)
    assert found.shot == RENAME.model_copy(
        update={
            "think": "`y = get(2)` becomes `y = take(2)`. $$$A stands for what varies.",
            "state_update": StateUpdate(history=["renamed it"], next_focus="done"),
        }
    )


def test_nothing_of_the_same_task_group_or_language_is_shown() -> None:
    own = VerifiedStep(id="d:1#1", task_id="d:1", group="renamed since", split="train", shot=RENAME, after=AFTER)
    java = RENAME.model_copy(update={"language": "java"})
    same_text = RENAME.model_copy(update={"code": TASK.before})
    examples = stored([own, step(2, group="own"), step(3, java), step(4, same_text), step(5, SWAP)])
    assert ids(examples) == ["o:5#1"]


@pytest.mark.parametrize("split", ["dev", "test", ""])
def test_what_is_not_of_the_training_split_is_refused_as_a_whole(split: str) -> None:
    examples = stored([step(1)])
    with pytest.raises(DataError, match=f"step 'o:2#1' is of split '{split}'; only those of 'train' may be shown"):
        examples.rebuild("later", [step(3), step(2, split=split)])
    assert ids(examples) == ["o:1#1"]


def test_a_second_step_with_the_same_action_is_not_shown() -> None:
    assert ids(stored([step(1), step(2), step(3, SWAP)])) == ["o:3#1", "o:1#1"]


def test_what_may_not_be_answered_is_not_shown() -> None:
    rule = RENAME.model_copy(update={"action": RuleAction(rule={"kind": "identifier"}, fix="x")})
    long = RENAME.model_copy(update={"action": PatternAction(pattern="get($A)", rewrite="x" * 500)})
    examples = stored([step(1, rule), step(2, long), step(3)])
    assert (ids(examples), ids(examples, answer_format=ANY)) == (["o:3#1"], ["o:3#1", "o:2#1", "o:1#1"])


def test_code_that_is_long_is_not_shown() -> None:
    assert ids(stored([step(1, RENAME.model_copy(update={"code": "get(1)\n" * 200}))])) == []


def test_the_store_is_made_again_only_when_it_comes_of_something_else() -> None:
    examples = stored([step(1)], "first")
    done = [examples.rebuild(identity, [step(2)]) for identity in ("first", "second", "second")]
    assert (done, ids(examples)) == ([False, True, False], ["o:2#1"])


def test_another_embedder_makes_the_store_again() -> None:
    store = MemoryVectorStore()
    done = [Examples(HashedEmbedder(size), store).rebuild("made", [step(1)]) for size in (64, 64, 128)]
    assert done == [True, False, True]


def test_an_empty_store_shows_nothing() -> None:
    assert ids(Examples(HashedEmbedder(), MemoryVectorStore())) == []
