"""Keys and signatures of texts: shingles against a slow reference, MinHash against the share it stands for."""

import math
import random
from itertools import pairwise

import numpy as np
import pytest

from graftline.datasets.fingerprints import PERMUTATIONS, SHINGLE_BYTES, key, shingles, signatures, strip_whitespace

BASE = 0x9E3779B97F4A7C15


def slow_shingles(text: bytes, width: int) -> list[int]:
    """Return the hash of every run of `width` bytes, those at the end filled up with zeros: a polynomial by Horner."""
    result = []
    for start in range(len(text)):
        number = 0
        for byte in text[start : start + width].ljust(width, b"\0"):
            number = (number * BASE + byte) % 2**64
        result.append(number)
    return result


@pytest.mark.parametrize("width", [1, 2, 4, 16, 32])
def test_shingles_are_those_of_a_slow_reference(width: int) -> None:
    rng = random.Random(width)
    texts = [bytes(rng.choices(range(1, 256), k=length)) for length in (0, 1, width - 1, width, width + 1, 0, 300, 5)]
    hashes, starts = shingles(texts, width)
    of_texts = [hashes[start:end].tolist() for start, end in pairwise(starts)]
    assert of_texts == [slow_shingles(text, width) for text in texts]
    assert (hashes.dtype, starts.tolist()[-1]) == (np.uint64, sum(map(len, texts)))


def words(rng: random.Random, count: int) -> bytes:
    return bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz(),.=_", k=count))


def agreement(first: bytes, second: bytes) -> float:
    """Return the share of numbers in which two signatures agree."""
    left, right = (np.frombuffer(signature, np.uint32) for signature in (first, second))
    return float((left == right).mean())


def similarity(first: bytes, second: bytes) -> float:
    """Return Jaccard's similarity of the runs of 16 bytes."""
    left, right = (
        {text.ljust(len(text) + SHINGLE_BYTES - 1, b"\0")[at : at + SHINGLE_BYTES] for at in range(len(text))}
        for text in (first, second)
    )
    return len(left & right) / len(left | right)


@pytest.mark.parametrize("common", [0, 200, 600, 1000, 1500, 1900, 1990])
def test_signatures_agree_in_the_share_that_texts_have_in_common(common: int) -> None:
    # 40 pairs of 64 numbers each estimate the share, so that the mean errs by about its deviation over √2560
    rng = random.Random(common)
    agreements, shares = [], []
    for _ in range(40):
        shared = words(rng, common)
        first, second = shared + words(rng, 2000 - common), shared + words(rng, 2000 - common)
        [left, right] = signatures([first, second])
        agreements.append(agreement(left, right))
        shares.append(similarity(first, second))
    share = sum(shares) / 40
    error = math.sqrt(share * (1 - share) / (40 * PERMUTATIONS))
    assert abs(sum(agreements) / 40 - share) <= 3 * error


def test_equal_texts_have_equal_signatures_wherever_they_stand() -> None:
    rng = random.Random(0)
    texts = [words(rng, length) for length in (1, 15, 16, 17, 500)]
    together = signatures([b"first", *texts, *texts])
    assert together[1:6] == together[6:] == [signatures([text])[0] for text in texts]
    assert {len(signature) for signature in together} == {4 * PERMUTATIONS}


def test_a_text_of_nothing_has_a_signature_like_any_other() -> None:
    [nothing, something] = signatures([b"", b"a"])
    assert (len(nothing), agreement(nothing, something)) == (4 * PERMUTATIONS, 0)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("", b""),
        (" \t\n\r\x0b\x0c", b""),
        ("if a:\n\treturn  'b c'\r\n", b"ifa:return'bc'"),
        ("A é\u00a0\u2028", "Aé\u00a0\u2028".encode()),
    ],
)
def test_squeezing_takes_out_the_blanks_of_ascii_alone(text: str, result: bytes) -> None:
    assert strip_whitespace(text) == result


def test_a_key_is_that_of_its_parts_and_where_they_end() -> None:
    parts = [(b"ab",), (b"a", b"b"), (b"", b"ab"), (b"ab", b""), (b"b", b"a"), (b"a", b"b", b"")]
    keys = [key(*part) for part in parts]
    assert len(set(keys)) == len(parts)
    assert [key(*part) for part in parts] == keys
    assert all(0 <= number < 2**64 for number in keys)


def test_keys_are_the_same_on_every_machine() -> None:
    # XXH3, 64 bits, of nothing and of "abc", as its specification has them
    assert (key(b""), key(b"abc")) == (0x2D06800538D394C2, 0x78AF5F94892F3950)
