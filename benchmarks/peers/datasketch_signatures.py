"""MinHash signatures with `datasketch`, one text after the other, over the shingles that graftline takes.

    .venv-peers/bin/python benchmarks/peers/datasketch_signatures.py TEXTS REPETITIONS

TEXTS holds one folded text per line. A text has a shingle of 16 bytes at each of its bytes; those at the end run into
zeros. Prints one line of JSON: the seconds of every repetition, with the hash function that `datasketch` comes with, and
with xxHash in its place. Permutations are made once and shared, which its documentation advises.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from datasketch import MinHash
from xxhash import xxh32_intdigest

SHINGLE_BYTES = 16
PERMUTATIONS = 64


def main() -> None:
    """Take the time, and print one line of JSON."""
    texts = Path(sys.argv[1]).read_bytes().split(b"\n")[:-1]
    signatures(texts[:50], None)  # a warm-up
    hashes: dict[str, Callable[[bytes], int] | None] = {"sha1": None, "xxhash": xxh32_intdigest}
    found = {name: [signatures(texts, hash) for _ in range(int(sys.argv[2]))] for name, hash in hashes.items()}
    print(json.dumps(found))


def signatures(texts: list[bytes], hash: Callable[[bytes], int] | None) -> float:
    """Return the seconds that the signatures of all texts take."""
    started = time.perf_counter()
    first = MinHash(PERMUTATIONS, hashfunc=hash)
    for text in texts:
        sketch = MinHash(PERMUTATIONS, hashfunc=hash, permutations=first.permutations, scheme=first.scheme)
        padded = text + bytes(SHINGLE_BYTES - 1)
        sketch.update_batch([padded[at : at + SHINGLE_BYTES] for at in range(len(text))])
        sketch.digest()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
