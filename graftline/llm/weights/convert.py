"""GGUF weights as safetensors, for vLLM and transformers.

The work is done by `gguf_to_safetensors.py` in a Python environment of its own, for torch and transformers are no
dependencies of this library. What it writes is an artifact whose record names the weights that it was made of.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graftline.core.build import Contents, Request, build
from graftline.core.errors import ModelError
from graftline.core.hashing import code_version
from graftline.core.paths import Paths
from graftline.core.processes import run_program
from graftline.core.retry import SourceBusyError
from graftline.llm.weights.catalog import CONVERTED_KIND, load_models, model_file, safetensors_folder, safetensors_path

_SCRIPT = Path(__file__).with_name("gguf_to_safetensors.py")
_NEEDED = {"accelerate": "1.15", "gguf": "0.19", "torch": "2.13", "transformers": "5.5"}
"""Packages that the environment has to hold, and their least versions."""
_TIME_LIMIT_S = 3600.0


def convert_model(name: str, python: Path, paths: Paths, environment: Mapping[str, str]) -> Path:
    """Return the folder of the safetensors made of the weights called `name`; `python` makes them unless they are there."""
    weights = load_models(paths).weights(name)
    source = model_file(name, paths, environment)
    folder = safetensors_path(name, paths, environment)
    packages = _packages(python, source.parent, environment)

    def make(partial: Path) -> Contents:
        for path in partial.iterdir():
            path.unlink()  # left by a killed call
        report = _say(python, ["convert", str(source), str(partial)], source.parent, environment)
        return Contents({"parameters": int(report["parameters"])})

    request = Request(
        CONVERTED_KIND,
        name,
        code_version("graftline.llm.weights.gguf_to_safetensors"),
        {"weights": weights.sha256},
        {"packages": packages},
    )
    return build(folder, request, make).folder


def convert_here(name: str, paths: Paths, environment: Mapping[str, str]) -> Path:
    """Return the folder of the safetensors made of the weights called `name`; this Python makes them unless they are there."""
    try:
        return safetensors_folder(name, paths, environment)
    except ModelError:
        return convert_model(name, Path(sys.executable), paths, environment)


def _packages(python: Path, folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of what `python` needs; ModelError where it lacks something, or has it too old."""
    versions = _say(python, ["packages", *_NEEDED], folder, environment)
    lacking = [name for name, least in _NEEDED.items() if not _is_at_least(versions.get(name), least)]
    if lacking:
        requirements = " ".join(f"'{name}>={least}'" for name, least in _NEEDED.items())
        raise ModelError(
            f"{python}: lacks {', '.join(lacking)}, which converting needs; name a Python of an environment of its own,"
            f" made by `python -m venv ENV` and `ENV/bin/pip install {requirements}`"
        )
    return {name: str(versions[name]) for name in _NEEDED}


def _is_at_least(version: str | None, least: str) -> bool:
    return version is not None and _numbers(version) >= _numbers(least)


def _numbers(version: str) -> list[int]:
    """Return the first two numbers of `version`: [2, 13] of 2.13.0+cpu."""
    return [int(number) for number in re.findall(r"\d+", version)[:2]]


def _say(python: Path, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what the script prints in its last line."""
    # isolated: nothing of our own environment is to be found by it
    command = [str(python), "-I", str(_SCRIPT), *arguments]
    try:
        ran = run_program(command, folder, environment, _TIME_LIMIT_S)
    except SourceBusyError:
        raise ModelError(f"{python}: was not done within {_TIME_LIMIT_S:g} s; use a machine with more memory") from None
    try:
        report: dict[str, Any] = json.loads(ran.output.splitlines()[-1])
    except (IndexError, ValueError):
        report = {}
    if ran.status != 0 or not isinstance(report, dict) or not report:
        why = f"ended with {ran.status}: {ran.last_error()}"
        raise ModelError(
            f"{python}: cannot do `{arguments[0]}` ({why}); check its packages, and that its memory suffices"
        )
    return report
