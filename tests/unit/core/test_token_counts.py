"""How many tokens a text has, by an estimate and by real vocabularies."""

import gzip
import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from graftline.core.tokens import TokenizerName, token_counter


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("äöüß", 1)])
def test_four_characters_are_estimated_as_one_token(text: str, tokens: int) -> None:
    assert token_counter("characters/4")(text) == tokens


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base"])
@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("hello world", 2),
        # of the documentation of tiktoken: t, ik, token, ` is`, ` great`, `!`
        ("tiktoken is great!", 6),
        ("import numpy as np", 4),
    ],
)
def test_a_vocabulary_counts_as_its_makers_do(name: TokenizerName, text: str, tokens: int) -> None:
    assert token_counter(name)(text) == tokens


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base"])
def test_the_names_of_special_tokens_are_text(name: TokenizerName) -> None:
    assert token_counter(name)("<|endoftext|>") > 1


@pytest.mark.parametrize("name", ["o200k_base", "cl100k_base"])
def test_a_long_text_is_counted_in_pieces_that_miss_by_a_token_each(name: TokenizerName) -> None:
    count, line = token_counter(name), "value = compute(first, second)\n"
    # 31 characters: 2,000 lines are four pieces, so that up to three tokens are cut in two
    whole = 2000 * count(line)
    assert whole <= count(line * 2000) <= whole + 3


def test_a_long_text_takes_no_more_than_its_length_in_time() -> None:
    # one run of a letter, which takes the square of its length if it is counted as a whole
    assert token_counter("o200k_base")("a" * 400_000) <= 400_000


def test_the_estimate_of_code_errs_on_the_long_side(checkout: Path) -> None:
    with gzip.open(checkout / "data" / "samples" / "release_pairs.jsonl.gz") as sample:
        texts = [json.loads(line)["pre"] for line in islice(sample, 300)]
    estimate, real = (sum(map(token_counter(name), texts)) for name in ("characters/4", "o200k_base"))
    assert real < estimate < 1.5 * real


def test_a_vocabulary_that_is_not_installed_says_what_to_install() -> None:
    program = """
import sys
sys.modules["bpe_openai"] = None
from graftline.core.tokens import count_tokens, token_counter
from graftline.core.errors import ConfigError
assert token_counter("characters/4")("abcde") == 2
assert [count_tokens(text) for text in ("", "abcd", "abcde", "\u00e4\u00f6")] == [0, 2, 3, 2]
try:
    token_counter("o200k_base")
except ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (
        done.stdout
        == "tokenizer 'o200k_base' needs bpe-openai; .venv/bin/pip install -c constraints.txt -e '.[tokens]'\n"
    )
