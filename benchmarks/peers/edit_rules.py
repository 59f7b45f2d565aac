"""What both peers do with a row, one rule after the other, as quick as plain Python is.

The rules are those of `graftline.datasets`: fields, new files, language by the ending of the name, trailers and e-mail
addresses, license, blanks only, length, syntax. Details that hardly any row needs (half surrogate pairs, repeated keys,
agents' signatures, other languages than Python) are left out, which is to the peers' advantage.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from rensa import RMinHash
from xxhash import xxh3_64_intdigest

FIELDS = (
    *("commit", "old_file", "new_file", "old_contents", "new_contents"),
    *("subject", "message", "lang", "license", "repos"),
)
LICENSES = {
    "mit": "MIT",
    "bsd-2-clause": "BSD-2-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "apache-2.0": "Apache-2.0",
    "isc": "ISC",
}
MAX_PRE_TOKENS = 2000
BANDS, BAND_ROWS = 16, 4
LEAST = 0.7

_LANGUAGES = {"py": "python", "pyi": "python", "js": "javascript", "ts": "typescript", "tsx": "tsx", "java": "java"}
_BLANKS = b" \t\n\r\x0b\x0c"
_TRAILERS = re.compile(
    r"^[ \t]*(?:acked|approved|authored|co-authored|committed|reported|reviewed|signed-off|suggested|tested)-by:.*\n?"
    r"|^[ \t]*(?:cc|change-id|git-svn-id):.*\n?",
    re.IGNORECASE | re.MULTILINE,
)
_ADDRESS = re.compile(r" ?<?[\w.%+-]+@(?:[\w-]+\.)+[A-Za-z]{2,24}>?")
_WORD = re.compile(r"\w+")


def refined(row: Mapping[str, Any], check_syntax: bool) -> dict[str, Any] | str:
    """Return the edit of a row, or why there is none."""
    if not all([isinstance(row.get(field), str) for field in FIELDS]):
        return "bad_field"
    pre, post = row["old_contents"], row["new_contents"]
    if not pre or pre.isspace():
        return "empty_pre"
    if not post or post.isspace():
        return "empty_post"
    language = _LANGUAGES.get(row["new_file"].rpartition(".")[2].lower())
    if language is None:
        return "unknown_language"
    instruction = _cleaned(row["message"]) or _cleaned(row["subject"])
    if not instruction:
        return "empty_instruction"
    repository, *others = [name.strip() for name in row["repos"].split(",")]
    license = LICENSES.get(row["license"])
    if license is None:
        return "license"
    pre_bytes, post_bytes = pre.encode(), post.encode()
    pre_folded, post_folded = pre_bytes.translate(None, _BLANKS).lower(), post_bytes.translate(None, _BLANKS).lower()
    if pre_folded == post_folded and _lines(pre) == _lines(post):
        return "unchanged"
    pre_tokens = -(-len(pre) // 4)
    if pre_tokens > MAX_PRE_TOKENS:
        return "too_long"
    if check_syntax and not (_parses(pre_bytes) and _parses(post_bytes)):
        return "unparsable"
    commit, path = row["commit"], row["old_file"]
    return {
        "id": f"{key(f'{commit}:{path}'):016x}",
        "instruction": instruction,
        "pre": pre,
        "post": post,
        "language": language,
        "tags": [f"license:{license}", f"lang:{row['lang']}", f"repo:{repository}"],
        "license": license,
        "group": repository,
        "aliases": others,
        "commit": commit,
        "path": path,
        "origin": f"{repository}@{commit[:12]} {path}",
        "pre_tokens": pre_tokens,
        "post_tokens": -(-len(post) // 4),
        "asked_key": folded_key(instruction.encode() + b"\0" + pre_bytes),
        "change_key": key(f"{commit}\0{path}"),
        "pre_key": folded_key(pre_folded),
        "done_key": folded_key(pre_folded + b"\0" + post_folded),
        "link_keys": [key(name.lower()) for name in (repository, *others, commit)],
    }


def key(text: str) -> int:
    """Return 63 bits that are the same for the same text: a column of 64 bits without a sign is not for every library."""
    return folded_key(text.encode())


def folded_key(text: bytes) -> int:
    """Return `key` of a text that is encoded."""
    return xxh3_64_intdigest(text) >> 1


def grams(text: str) -> list[str]:
    """Return the runs of five words: a sixth of the shingles that graftline hashes."""
    words = _WORD.findall(text.lower())
    return [" ".join(words[at : at + 5]) for at in range(max(1, len(words) - 4))]


def signature(text: str) -> bytes:
    """Return 64 numbers of 32 bits, made by the MinHash in Rust that graftline uses as well."""
    sketch = RMinHash(num_perm=BANDS * BAND_ROWS, seed=42)
    sketch.update(grams(text))
    return np.array(sketch.digest(), np.uint32).tobytes()


def near_pairs(signatures: np.ndarray) -> np.ndarray:
    """Return pairs of rows that share a band and agree in most numbers: each with its neighbor in the band."""
    found = [np.zeros((0, 2), np.int64)]
    for band in range(BANDS):
        rows = np.ascontiguousarray(signatures[:, band * BAND_ROWS : (band + 1) * BAND_ROWS])
        keys = rows.view([("", rows.dtype)] * BAND_ROWS).ravel()
        order = np.argsort(keys, kind="stable")
        same = np.flatnonzero(keys[order[1:]] == keys[order[:-1]])
        pairs = np.sort(np.stack([order[same], order[same + 1]], axis=1), axis=1)
        agree = (signatures[pairs[:, 0]] == signatures[pairs[:, 1]]).mean(axis=1)
        found.append(pairs[agree >= LEAST])
    return np.unique(np.concatenate(found), axis=0)


def divided(
    keys: list[np.ndarray], links: np.ndarray, owners: np.ndarray, pre: np.ndarray, near: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return for each edit whether it is kept, and its split (0, 1, 2): equal keys and near pairs are kept once."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    size = len(pre)
    kept = np.ones(size, bool)
    for column in keys:
        left = np.flatnonzero(kept)
        first = np.zeros(len(left), bool)
        first[np.unique(column[left], return_index=True)[1]] = True
        kept[left[~first]] = False
    kept[near[:, 1]] = False
    _, of_link = np.unique(links, return_inverse=True)
    _, of_pre = np.unique(pre, return_inverse=True)
    nodes = size + int(of_link.max(initial=-1)) + 1
    edges = [
        np.stack([owners, size + of_link], axis=1),
        np.stack([np.arange(size), nodes + of_pre], axis=1),
        near,
    ]
    joined = np.concatenate(edges)
    total = nodes + int(of_pre.max(initial=-1)) + 1
    graph = coo_array((np.ones(len(joined), bool), (joined[:, 0], joined[:, 1])), shape=(total, total))
    clusters = connected_components(graph, directed=False)[1][:size]
    places = np.random.default_rng(0).random(int(clusters.max(initial=-1)) + 1)
    return kept, np.searchsorted([0.8, 0.9], places, side="right")[clusters]


def _cleaned(message: str) -> str:
    if ":" in message:
        message = _TRAILERS.sub("", message)
    if "@" in message:
        message = _ADDRESS.sub("", message)
    return message.strip()


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.split("\n") if not line.isspace() and line]


def _parses(text: bytes) -> bool:
    return not _parser()(text).root_node.has_error


@cache
def _parser() -> Any:
    import tree_sitter_python
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_python.language())).parse
