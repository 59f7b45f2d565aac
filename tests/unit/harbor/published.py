"""The published package `harbor`, for tests that compare with it: it needs a later Python than ours.

python3.12 -m venv /somewhere && /somewhere/bin/pip install harbor==0.25.0
HARBOR_PYTHON=/somewhere/bin/python make test
"""

import json
import os
import subprocess
from typing import Any

import pytest

_PYTHON = os.environ.get("HARBOR_PYTHON", "")
needs_harbor = pytest.mark.skipif(
    not _PYTHON,
    reason="needs the package harbor: HARBOR_PYTHON names a Python 3.12 that has it (tests/unit/harbor/published.py)",
)


def published(program: str, given: Any) -> Any:
    """Return what a program of that Python prints as JSON; `given` is its variable `given`."""
    start = "import json, sys\ngiven = json.load(sys.stdin)\n"
    words = [_PYTHON, "-c", start + program]
    ended = subprocess.run(words, input=json.dumps(given), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)
