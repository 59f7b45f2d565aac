"""What the commands `graftline data …` do and show: each a function that returns plain values, and a table of them.

The stages themselves are in `graftline.pipeline.stages`, what leaves a checkout in `graftline.datasets.dvc` and
`graftline.datasets.publishing`.
"""

from collections.abc import Sequence

Table = tuple[str, Sequence[str], Sequence[tuple[str, ...]]]
"""Title, names of the columns, rows."""
