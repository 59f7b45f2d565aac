"""What every proposer keeps to, and what each does in its own way."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import ConfigError
from graftline.core.secrets import open_secrets
from graftline.llm.base import ChatRequest
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.memory import MemoryChatModel, script_answers
from graftline.prompts.proposers import (
    EXAMPLES,
    MISTAKES,
    ChangeRequest,
    ModelProposer,
    OfflineProposer,
    Proposer,
    Reflection,
    open_proposer,
)
from graftline.prompts.settings import GepaTable, ProposerTable

TEXT = "Rewrite the code.\n"
WRONG = [
    Reflection(seed, 0.2, {"feedback": f"The pattern `x{seed}` matches nothing.", "output": "{}"}) for seed in (1, 2)
]
OTHER = Reflection(3, 0.1, {"feedback": "The answer is no JSON."})
RIGHT = Reflection(4, 1.0, {"inputs": {"instruction": "Rename a.", "text": "a = 1"}, "output": '{"pattern": "a"}'})
WISH = ChangeRequest("system", TEXT, [*WRONG, OTHER, RIGHT])


@pytest.fixture(params=["offline", "model"])
def proposer(request: pytest.FixtureRequest) -> Iterator[Proposer]:
    if request.param == "offline":
        yield OfflineProposer()
        return
    with BlockingChatModel(MemoryChatModel(script_answers(("```\nRewrite all of the code.\n```",)))) as model:
        yield ModelProposer(model, GepaTable())


def test_a_proposal_is_another_text_says_how_and_is_the_same_for_the_same_wish(proposer: Proposer) -> None:
    proposer.check()
    made = proposer.propose(WISH)
    assert made.text != TEXT
    assert made.how
    assert made == proposer.propose(WISH)


def test_a_proposer_without_anything_to_go_by_still_answers(proposer: Proposer) -> None:
    assert proposer.propose(ChangeRequest("system", TEXT, [])).text


def test_offline_the_most_common_mistake_is_said_first_and_an_example_shown() -> None:
    made = OfflineProposer().propose(WISH).text
    assert made == f"{TEXT}\n\n{MISTAKES}\n- The pattern `x1` matches nothing.\n- The answer is no JSON."
    texts = {
        OfflineProposer().propose(ChangeRequest("system", TEXT, WISH.reflections, number=number)).text
        for number in range(6)
    }
    shown = f'{TEXT}\n\n{EXAMPLES}\n\nAsked: Rename a.\na = 1\nAnswer: {{"pattern": "a"}}'
    assert shown in texts


def test_offline_what_was_added_is_taken_away_again_and_never_grows_without_end() -> None:
    text, proposer = TEXT, OfflineProposer()
    for number in range(60):
        more = Reflection(number + 10, 0.0, {"feedback": f"{'abcdefgh'[number % 8]} is wrong."})
        text = proposer.propose(ChangeRequest("system", text, [more, RIGHT], number=number)).text
        assert text.startswith(TEXT)
        assert text.count("\n- ") <= 4
        assert text.count("Asked:") <= 4


def test_offline_what_would_be_filled_in_is_never_added() -> None:
    named = Reflection(1, 0.0, {"feedback": "There is no $code here."})
    assert OfflineProposer().propose(ChangeRequest("system", TEXT, [named])).text == TEXT


class Kept:
    """Keeps what a model was asked."""

    def __init__(self, answer: str) -> None:
        self.model = MemoryChatModel(script_answers((answer,)))

    @property
    def requests(self) -> list[ChatRequest]:
        return list(self.model.requests)


def test_a_model_reads_the_worst_first_and_is_told_what_has_to_stay() -> None:
    kept = Kept("Here it is:\n```\nBetter: $code.\n```")
    with BlockingChatModel(kept.model) as model:
        gepa = GepaTable(proposer_effort="LOW_CONTEXT", proposer_output_tokens="RAPID")
        made = ModelProposer(model, gepa).propose(ChangeRequest("user", TEXT, WISH.reflections, ["$code"], 3))

    assert (made.text, made.how) == ("Better: $code.\n", "reflection")
    [asked] = kept.requests
    question = asked.messages[0].content
    assert asked.max_tokens == 1024
    assert TEXT.strip() in question
    assert "The answer is no JSON." in question
    assert "Rename a." not in question
    assert question.endswith("has to hold each of these, as they are: $code.")


def test_a_metaprompt_without_its_places_is_refused() -> None:
    with (
        BlockingChatModel(MemoryChatModel(script_answers(("x",)))) as model,
        pytest.raises(ConfigError, match="lacks <side_info>"),
    ):
        ModelProposer(model, GepaTable(metaprompt="Better than <curr_param>."))


def test_a_configuration_opens_the_proposer_it_names(tmp_path: Path) -> None:
    secrets = open_secrets({"KEY": "a-secret-of-the-test"}, tmp_path)

    def name(gepa: GepaTable, model: Any = None) -> str:
        with open_proposer(gepa, secrets, model) as found:
            return found.name

    table = ProposerTable(base_url="http://127.0.0.1:1/v1", model="m", api_key="KEY")
    with BlockingChatModel(MemoryChatModel(script_answers(("x",)))) as model:
        assert name(GepaTable(proposer_type="offline"), model) == "offline"
        assert name(GepaTable(), model) == f"gepa/{model.name}"
    assert name(GepaTable()) == "offline"
    assert name(GepaTable(proposer=table)) == "gepa/m"
    with pytest.raises(ConfigError, match="'gepa' asks a language model, and there is none"):
        name(GepaTable(proposer_type="gepa"))
    with pytest.raises(ConfigError, match="MISSING"):
        name(GepaTable(proposer=table.model_copy(update={"api_key": "MISSING"})))
