"""Edits and drops as columns of Parquet files."""

from collections.abc import Mapping

from graftline.core.parquet import Column

EDITS: Mapping[str, Column] = {
    "id": "text",
    "dataset": "word",
    "language": "word",
    "split": "word",
    "instruction": "text",
    "pre": "text",
    "post": "text",
    "tags": "text",
    "licence": "word",
    "origin_group": "word",
    "cluster": "word",
    "origin": "text",
    "pre_tokens": "whole",
    "post_tokens": "whole",
}
"""Of the splits."""

NORMALIZED: Mapping[str, Column] = {
    "id": "text",
    "dataset": "word",
    "instruction": "text",
    "pre": "text",
    "post": "text",
    "tags": "text",
    "licence": "word",
    "origin_group": "word",
    "origin": "text",
    "pre_tokens": "whole",
    "post_tokens": "whole",
    "line_bytes": "whole",
    "id_key": "key",
    "asked_key": "key",
    "pre_key": "key",
    "done_key": "key",
    "change_key": "key",
    "link_keys": "keys",
    "signature": "bytes",
}
"""Of the normalized edits of one language: what the splits show, the length of the edit's line in the JSONL file beside
it, and what edits are compared by (see `datasets.division`)."""

DROPS: Mapping[str, Column] = {
    "dataset": "word",
    "file": "word",
    "line": "whole",
    "reason": "word",
    "detail": "text",
}

DIVISION: Mapping[str, Column] = {
    "dataset": "word",
    "id": "text",
    "split": "word?",
    "reason": "word?",
    "kept_id": "text?",
    "cluster": "word",
}
"""Of every normalized edit of one language: its split, or why it has none and which edit is kept instead."""
