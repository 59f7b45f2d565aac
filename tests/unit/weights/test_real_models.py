"""The real catalog: what is in the checkout's folder of models, and, where it is asked for, the package index."""

import subprocess
import sys
from pathlib import Path

import pytest

from graftline.core.paths import Paths
from graftline.llm.weights.catalog import list_models, load_models, model_file, verify_models

_CHILD = """
import os, sys
from pathlib import Path
from graftline.llm.weights.fetch import fetch_model
from graftline.core.paths import Paths
print(fetch_model("smollm2-135m", Paths(Path(sys.argv[1])), {**os.environ, "GRAFTLINE_MODELS": sys.argv[2]}))
"""


def test_a_model_of_the_checkout_is_a_gguf_file_with_the_pinned_digest(checkout: Path) -> None:
    paths = Paths(checkout)
    smallest = min(list_models(paths, {}), key=lambda one: one.size_bytes)
    if not smallest.path.exists():
        pytest.skip(f"{smallest.path} is not there: run `graftline model fetch {smallest.name}`")
    assert verify_models((smallest.name,), paths, {})[0].fault == ""
    with model_file(smallest.name, paths, {}).open("rb") as stream:
        assert stream.read(4) == b"GGUF"


@pytest.mark.long  # fetches 98 MB
def test_the_smallest_model_comes_from_where_the_catalog_says(checkout: Path, tmp_path: Path) -> None:
    fetched = subprocess.run(
        [sys.executable, "-c", _CHILD, str(checkout), str(tmp_path)], capture_output=True, text=True, timeout=600
    )
    weights = load_models(Paths(checkout)).weights("smollm2-135m")
    assert (fetched.returncode, fetched.stdout) == (0, f"{tmp_path / weights.file}\n"), fetched.stderr
