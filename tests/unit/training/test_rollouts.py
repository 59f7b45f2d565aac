"""What is learned of drawn answers, by hand: advantages, datums, and which way a step goes."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest

from graftline.core.errors import TrainingError
from graftline.sandbox.actions.memory import MemorySandbox
from graftline.training.answers import Questions, SampledAnswer, policy_datum
from graftline.training.memory import memory_tokenizer
from graftline.training.recipes.base import Example, Training
from graftline.training.recipes.rollouts import (
    GroupRecipe,
    Rollouts,
    Scored,
    group_advantages,
    prompt_of,
)
from graftline.training.recipes.tasks import RlGrpo, RlGrpoConfig
from tests.unit.training.answering import LITERAL, MISSES, RIGHT, UNREADABLE, AnsweringTokenizer, write_tasks

pytest.importorskip("tinker", reason="pip install 'graftline[training]'")

# the token that ends an answer says nothing
SCORES = {RIGHT: 1.0, LITERAL: 0.25, MISSES: None, UNREADABLE: -1.0, "": -1.0}
CHAT = [{"role": "user", "content": "Rename `old`."}]


@pytest.mark.parametrize(
    ("rewards", "is_scaled", "advantages"),
    [
        # mean 0, deviation 1
        ([1.0, -1.0, 1.0, -1.0], True, [1.0, -1.0, 1.0, -1.0]),
        # mean 0.5, deviation 0.5
        ([1.0, 0.0], True, [1.0, -1.0]),
        ([1.0, 0.0], False, [0.5, -0.5]),
        # mean 0.25; squares of 0.5625 and three times 0.0625 have the mean 0.1875, whose root is 0.4330127
        ([1.0, 0.0, 0.0, 0.0], True, [1.7320508, -0.5773503, -0.5773503, -0.5773503]),
        # what is not known is not in the mean, which is 0, nor in the deviation, which is 1
        ([1.0, None, -1.0, None], True, [1.0, None, -1.0, None]),
        ([None, 0.8, 0.2], False, [None, 0.3, -0.3]),
        # no contrast
        ([1.0, 1.0, 1.0], True, None),
        ([-1.0, -1.0], False, None),
        ([0.1 + 0.2, 0.3], True, None),
        # one that is known has nothing to be compared with
        ([None, 1.0], True, None),
        ([None, None], True, None),
    ],
)
def test_advantages_are_those_within_the_group(
    rewards: list[float | None], is_scaled: bool, advantages: list[float | None] | None
) -> None:
    found = group_advantages(rewards, is_scaled)
    if advantages is None:
        assert found is None
    else:
        assert found is not None
        assert [one if one is None else pytest.approx(one) for one in advantages] == found


def test_a_datum_has_the_numbers_of_an_answer_where_its_tokens_are_predicted() -> None:
    datum = policy_datum([5, 6, 7], SampledAnswer([8, 9], [-0.5, -0.25], "xy"), [2.0, 3.0])
    inputs = {name: one.to_numpy().tolist() for name, one in datum.loss_fn_inputs.items()}
    # after 7 comes 8, after 8 comes 9; before that nothing is learned
    assert datum.model_input.to_ints() == [5, 6, 7, 8]
    assert inputs == {
        "target_tokens": [6, 7, 8, 9],
        "logprobs": [0.0, 0.0, -0.5, -0.25],
        "advantages": [0.0, 0.0, 2.0, 3.0],
    }


@pytest.mark.parametrize("renderer", ["qwen3", "qwen3_instruct", "role_colon"])
@pytest.mark.parametrize(
    ("said", "text"),
    [
        ('{"pattern": "a"}<|im_end|>', '{"pattern": "a"}'),
        # an answer that was cut off is what there is of it
        ('{"pattern": "a', '{"pattern": "a'),
        ("<think>why</think>ab<|im_end|>", "<think>why</think>ab"),
    ],
)
def test_the_text_of_an_answer_keeps_its_thoughts_apart(renderer: str, said: str, text: str) -> None:
    tokenizer = memory_tokenizer()
    assert Questions(renderer, tokenizer).text(tokenizer.encode(said)) == text


class Watched:
    """A trainer that keeps the datums that gradients are of."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self.sent: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer, name)

    def forward_backward(self, data: list[Any], loss_fn: Any) -> Any:
        self.sent += data
        return self._trainer.forward_backward(data, loss_fn)


class Room:
    """A model of the memory service, and questions to it."""

    def __init__(self, root: Path, service: Any, **changes: Any) -> None:
        write_tasks(root)
        values = {"model": "m", "dataset": "data/tasks.jsonl", "group_size": 32, "answer_tokens": 1, **changes}
        self.config = RlGrpoConfig(**values)
        self.tokenizer = AnsweringTokenizer(memory_tokenizer())
        self.rollouts = Rollouts(self.config, self.tokenizer)
        self.service = service
        self.trainer = Watched(self.service.create_training_client("m", 8, 0))
        data = self.rollouts.load(root, [(CHAT, None), (CHAT, None)], [])
        self.training = Training("one", self.service, self.trainer, data, {})

    def recipe(self, score: Callable[[str], Scored]) -> GroupRecipe:
        class Scripted(RlGrpo):
            _rollouts = self.rollouts

            def score(self, example: Example, answer: SampledAnswer) -> Scored:
                return score(answer.text)

        return Scripted(self.config, MemorySandbox)

    def learn(self, scores: dict[str, float | None]) -> Any:
        recipe = self.recipe(lambda text: Scored(scores[text], "scripted"))
        return recipe.gradients(self.training, 0, [0, 1])

    def said(self, datum: Any) -> str:
        return self.rollouts.questions.text(datum.loss_fn_inputs["target_tokens"].data[-1:])


def test_what_is_known_is_learned_from_and_nothing_else(tmp_path: Path, memory_service: Any) -> None:
    room = Room(tmp_path, memory_service)
    gradients = room.learn(SCORES)
    drawn = room.rollouts.sample_step(room.training, 0, [0, 1])
    groups = [[SCORES[answer.text] for answer in group] for group in drawn]
    assert all(None in group and 1.0 in group for group in groups)
    known = [[value for value in group if value is not None] for group in groups]
    wanted = [
        (answer.tokens[0], answer.logprobs[0], (SCORES[answer.text] - fmean(values)) / pstdev(values))
        for answers, values in zip(drawn, known, strict=True)
        for answer in answers
        if SCORES[answer.text] is not None
    ]
    inputs = [datum.loss_fn_inputs for datum in room.trainer.sent]
    found = [(one["target_tokens"].data[-1], one["logprobs"].data[-1], one["advantages"].data[-1]) for one in inputs]
    assert found == [(token, pytest.approx(logprob), pytest.approx(advantage)) for token, logprob, advantage in wanted]
    assert MISSES not in {room.said(datum) for datum in room.trainer.sent}
    prompt = prompt_of(room.training.data.train[0])
    assert {(*one["advantages"].data[:-1], *one["logprobs"].data[:-1]) for one in inputs} == {
        (0.0,) * 2 * (len(prompt) - 1)
    }
    answers = 2 * 32
    assert gradients.metrics == {
        "reward": pytest.approx(fmean(value for group in known for value in group)),
        "groups_with_contrast": 1.0,
        "answers.scripted": answers,
        "answer_tokens": answers,
    }
    assert (gradients.tokens, gradients.trained_tokens) == (answers * (len(prompt) + 1), len(wanted))


def test_a_step_makes_the_rewarded_answer_more_probable(tmp_path: Path, memory_service: Any) -> None:
    from tinker import types

    room = Room(tmp_path, memory_service, loss="importance_sampling")
    room.service.result(room.learn({**SCORES, MISSES: 0.0}).future, "gradients")
    room.trainer.optim_step(types.AdamParams(learning_rate=0.01)).result()
    outputs = room.trainer.forward(room.trainer.sent, "importance_sampling").result().loss_fn_outputs
    rises = defaultdict(list)
    for datum, output in zip(room.trainer.sent, outputs, strict=True):
        before = datum.loss_fn_inputs["logprobs"].data[-1]
        rises[room.said(datum)].append(output["logprobs"].data[-1] - before)
    assert fmean(rises[RIGHT]) > 0 > fmean(rises[UNREADABLE])


def test_answers_are_drawn_from_the_model_as_it_is_and_nothing_stays(tmp_path: Path, memory_service: Any) -> None:
    room = Room(tmp_path, memory_service)
    assert len(room.rollouts.most_probable(room.training, room.training.data.train, "answers")) == 2
    path = f"tinker://{room.trainer.model_id}/sampler_weights/look-000000"
    with pytest.raises(TrainingError) as error:
        room.service.weights_info(path)
    assert error.value.status == 404


def test_an_answer_is_graded_once_in_its_group(tmp_path: Path, memory_service: Any) -> None:
    room = Room(tmp_path, memory_service)
    asked: list[str] = []

    def score(text: str) -> Scored:
        asked.append(text)
        return Scored(SCORES[text], "scripted")

    room.recipe(score).gradients(room.training, 0, [0, 1])
    drawn = room.rollouts.sample_step(
        Training("one", room.service, room.service.create_training_client("m", 8, 0), room.training.data, {}), 0, [0, 1]
    )
    assert asked == [text for group in drawn for text in dict.fromkeys(answer.text for answer in group)]
