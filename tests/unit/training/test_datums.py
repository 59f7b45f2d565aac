"""Chats as datums: every token and weight against lists that are worked out by hand from the layout of the renderer."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import ConfigError, ModelError
from graftline.training.datums import (
    chat_fault,
    load_tokenizer,
    render_all,
)

pytest.importorskip("tinker", reason="pip install 'graftline[training]'")
pytest.importorskip("tinker_cookbook", reason="pip install 'graftline[training]'")

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Who finishes the letter?"},
    {"role": "assistant", "content": "A teacher."},
]
TALK = [*CHAT, {"role": "user", "content": "When?"}, {"role": "assistant", "content": "Before noon."}]

Piece = tuple[str, float]


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> Any:
    return load_tokenizer(tiny_model)


def ids(tokenizer: Any, text: str) -> list[int]:
    """The pieces of a text without special tokens in it, one after the other."""
    return [tokenizer.convert_tokens_to_ids(piece) for piece in tokenizer.tokenize(text)]


def plan(tokenizer: Any, *pieces: Piece) -> tuple[list[int], list[int], list[float]]:
    """Inputs, targets and weights of texts and single special tokens, each with its weight, in order."""
    special = tokenizer.get_added_vocab()
    tokens: list[int] = []
    weights: list[float] = []
    for text, weight in pieces:
        found = [special[text]] if text in special else ids(tokenizer, text)
        tokens += found
        weights += [weight] * len(found)
    return tokens[:-1], tokens[1:], weights[1:]


def render(chat: Any, tokenizer: Any, renderer: str = "role_colon", **options: Any) -> Any:
    [datum] = render_all([chat], tokenizer, renderer, **options).datums
    return datum


def held(datum: Any) -> tuple[list[int], list[int], list[float]]:
    inputs = datum.loss_fn_inputs
    assert set(inputs) == {"target_tokens", "weights"}
    return datum.model_input.to_ints(), list(inputs["target_tokens"].data), list(inputs["weights"].data)


def test_role_colon_trains_on_all_answers_of_a_chat_in_one_datum(tokenizer: Any) -> None:
    [datum] = render_all([TALK], tokenizer).datums
    assert held(datum) == plan(
        tokenizer,
        ("System:", 0),
        (" Be brief.\n\n", 0),
        ("User:", 0),
        (" Who finishes the letter?\n\n", 0),
        ("Assistant:", 0),
        (" A teacher.\n\n", 1),
        ("User:", 0),
        (" When?\n\n", 0),
        ("Assistant:", 0),
        (" Before noon.\n\n", 1),
        # the text at which sampling stops
        ("User:", 1),
    )


def test_the_last_answer_alone_can_be_trained_on(tokenizer: Any) -> None:
    datum = render(TALK, tokenizer, train_on="last_assistant_message")
    trained = [token for token, weight in zip(*held(datum)[1:], strict=True) if weight]
    assert trained == ids(tokenizer, " Before noon.\n\n") + ids(tokenizer, "User:")


def qwen3_turn(role: str, content: str) -> list[Piece]:
    return [("<|im_start|>", 0), (f"{role}\n", 0), (content, 0), ("<|im_end|>", 0), ("\n", 0)]


def qwen3_answer(content: str) -> list[Piece]:
    # a turn that did not think has an empty block, which the model has to write itself
    block: list[Piece] = [("<think>", 1), ("\n\n", 1), ("</think>", 1), (f"\n\n{content}", 1)]
    return [("<|im_start|>", 0), ("assistant\n", 0), *block, ("<|im_end|>", 1)]


def test_qwen3_trains_on_every_answer_as_it_would_be_given(tokenizer: Any) -> None:
    first, second = render_all([TALK], tokenizer, "qwen3").datums
    asked = [*qwen3_turn("system", "Be brief."), *qwen3_turn("user", "Who finishes the letter?")]
    assert held(first) == plan(tokenizer, *asked, *qwen3_answer("A teacher."))
    assert held(second) == plan(
        tokenizer,
        *asked,
        # as history: without a block, and without weight
        *qwen3_turn("assistant", "A teacher."),
        *qwen3_turn("user", "When?"),
        *qwen3_answer("Before noon."),
    )


def test_the_name_of_a_control_token_in_a_text_is_no_control_token_to_qwen3(tokenizer: Any) -> None:
    chat = [{"role": "user", "content": "<|im_end|>"}, {"role": "assistant", "content": "Yes."}]
    tokens = held(render(chat, tokenizer, "qwen3"))[0]
    assert tokens.count(tokenizer.get_added_vocab()["<|im_end|>"]) == 1


def test_an_unknown_renderer_is_refused_with_those_that_are_known(tokenizer: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"^renderer 'qwen9' is unknown; known: deepseek_v3, deepseekv3,.* role_colon$"
    ):
        render_all([], tokenizer, "qwen9")


@pytest.mark.parametrize(
    ("renderer", "lacking"),
    [
        # writes what it lacks letter by letter, without a word
        ("llama3", r"<\|begin_of_text\|>, <\|end_header_id\|>, <\|eot_id\|>, <\|start_header_id\|>"),
        ("gpt_oss_no_sysprompt", r"<\|channel\|>"),
        # refuses
        ("deepseek_v3", "begin.of.sentence"),
        # has a tokenizer of its own
        ("tml_v0", "TML tokenizer"),
    ],
)
def test_a_renderer_whose_tokens_the_tokenizer_lacks_is_refused(
    tokenizer: Any, tiny_model: Path, renderer: str, lacking: str
) -> None:
    with pytest.raises(
        ConfigError, match=rf"^renderer '{renderer}' does not suit tokenizer '{tiny_model}'.*{lacking}.*role_colon$"
    ):
        render(CHAT, tokenizer, renderer)


BAD_CHATS: Sequence[tuple[Any, str]] = [
    ([], "no list of messages"),
    ([{"role": "teacher", "content": "x"}], "message 1 has role 'teacher'; known: system, user, assistant"),
    ([*CHAT, {"content": "x"}], "message 4 has role None"),
    ([{"role": "user"}], "message 1 has content of NoneType; expected text"),
    ([{"role": "user", "content": [{"type": "image"}]}], "message 1 has content of list; expected text"),
    ([{"role": "user", "content": "\ud800"}], "half a surrogate pair"),
    ([*CHAT[:2], {**CHAT[2], "tool_calls": "x"}], "message 3 has 'tool_calls'"),
]


@pytest.mark.parametrize(("chat", "said"), BAD_CHATS)
def test_what_is_no_chat_is_refused_and_counted(tokenizer: Any, chat: Any, said: str) -> None:
    assert said in chat_fault(chat)
    assert render_all([chat, CHAT], tokenizer).dropped == Counter(bad_chat=1)


def test_a_chat_that_ends_with_a_question_has_no_last_answer(tokenizer: Any) -> None:
    rendered = render_all([TALK[:4]], tokenizer, train_on="last_assistant_message")
    assert rendered.dropped == Counter(no_target=1)
    assert render_all([TALK[:4]], tokenizer).dropped == Counter()


def test_an_example_that_is_too_long_is_dropped_with_its_length(tokenizer: Any) -> None:
    length = len(held(render(CHAT, tokenizer))[0]) + 1
    render(CHAT, tokenizer, max_tokens=length)
    assert render_all([CHAT], tokenizer, max_tokens=length - 1).too_long == (length,)


def test_thoughts_are_refused_by_a_renderer_that_tells_the_model_not_to_think(tokenizer: Any) -> None:
    chat = [*CHAT[:2], {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nA teacher."}]
    rendered = render_all([chat, CHAT], tokenizer, "qwen3_disable_thinking")
    assert (len(rendered.datums), rendered.dropped) == (1, Counter(refused=1))


def test_all_that_is_left_out_is_counted_and_all_else_is_added_up(tokenizer: Any) -> None:
    long = [*CHAT[:2], {"role": "assistant", "content": "a " * 100}]
    rendered = render_all([CHAT, long, CHAT[:2], [], TALK], tokenizer, max_tokens=100)
    inputs = [held(datum)[0] for datum in rendered.datums]
    assert rendered.dropped == Counter(too_long=1, no_target=1, bad_chat=1)
    assert rendered.tokens == len(inputs[0]) + len(inputs[1])
    answers = [" A teacher.\n\n", "User:", " A teacher.\n\n", " Before noon.\n\n", "User:"]
    assert rendered.trained_tokens == sum(len(ids(tokenizer, text)) for text in answers)


# tokenizers


def test_a_name_that_is_not_here_is_refused_without_asking_anybody() -> None:
    with pytest.raises(ModelError, match=r"^tokenizer 'no-such/model': is no folder, and not in the cache"):
        load_tokenizer("no-such/model")


@pytest.mark.parametrize(
    "files",
    [
        {},
        # of which transformers makes a tokenizer without tokens
        {"config.json": '{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}'},
        {"config.json": '{"model_type": "qwen3"}', "tokenizer.json": "{}"},
        {"config.json": '{"model_type": "qwen3"}', "tokenizer.json": "not JSON"},
    ],
)
def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    with pytest.raises(ModelError, match=rf"^{tmp_path}: holds no tokenizer.*name the folder of a"):
        load_tokenizer(tmp_path)
