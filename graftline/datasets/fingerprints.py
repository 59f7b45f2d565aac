"""What texts are compared by: keys of equal ones, MinHash signatures of similar ones.

Texts are folded before: blanks go, and upper case becomes lower. A shingle is a run of so many bytes of a folded
text, known by its polynomial hash. MinHash: Broder, On the resemblance and containment of documents, 1997.
"""

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rensa import RMinHash
from xxhash import xxh3_64_intdigest

Hashes = npt.NDArray[np.uint64]

SHINGLE_BYTES = 16
PERMUTATIONS = 64
_SEED = 42
_TEXTS_AT_ONCE = 32  # few enough that their hashes stay in the processor's cache
_BLANKS = b" \t\n\r\x0b\x0c"
_BASE = 0x9E3779B97F4A7C15


def strip_whitespace(text: str) -> bytes:
    """Return `text` without blanks."""
    return text.encode().translate(None, _BLANKS)


def key(*parts: bytes) -> int:
    """Return 64 bits that are the same for the same parts, which hold no zero byte.

    Of a million edits, two share a key by chance in one case of 10⁷.
    """
    return xxh3_64_intdigest(b"\0".join(parts))


def group_key(name: str) -> int:
    """Return the key of a repository or package, which is the same whatever the case of its letters."""
    return key(name.lower().encode())


def commit_key(commit: str) -> int:
    """Return the key of a commit."""
    return key(b"commit", commit.encode())


def shingles(folded: Sequence[bytes], width: int) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """Return the hashes of the shingles of all texts in one row, and where each text begins in it, the end added.

    A text has one shingle per byte: those at its end run into zeros, which no text may hold. `width` is a power of two.
    """
    padding = bytes(width - 1)
    content = np.frombuffer(padding.join((*folded, b"")), np.uint8)
    hashes, factor, span = np.append(content, np.zeros(width - 1, np.uint8)).astype(np.uint64), _BASE, 1
    while span < width:
        # the hash of a run is that of its first half, shifted, plus that of its second
        hashes = hashes[:-span] * np.uint64(factor) + hashes[span:]
        factor, span = factor * factor % 2**64, span * 2
    starts = np.zeros(len(folded) + 1, np.int64)
    np.cumsum([len(text) for text in folded], out=starts[1:])
    return hashes[: len(content)][content != 0], starts


def signatures(folded: Sequence[bytes]) -> list[bytes]:
    """Return `PERMUTATIONS` numbers of 32 bits per text; two texts agree in about the share of shingles both hold."""
    digests: list[bytes] = []
    for at in range(0, len(folded), _TEXTS_AT_ONCE):
        hashes, starts = shingles(folded[at : at + _TEXTS_AT_ONCE], SHINGLE_BYTES)
        matrix: Any = RMinHash.digest_matrix_from_flat_token_hashes(
            hashes, starts.astype(np.uint64), PERMUTATIONS, _SEED
        )
        digests += [array("I", row).tobytes() for row in matrix.to_rows()]
    return digests
