"""Converting by a Python of another environment, of which the tests have a small one that writes what it is told."""

import json
from pathlib import Path

import pytest

from graftline.core.errors import ConfigError, ModelError
from graftline.core.record import load_record
from graftline.llm.weights.catalog import safetensors_folder
from graftline.llm.weights.convert import convert_here, convert_model
from tests.unit.weights.places import CONTENT, SHA256, Places

PACKAGES = {"accelerate": "1.15.0", "gguf": "0.19.0", "torch": "2.13.0+cpu", "transformers": "5.19.0"}


def interpreter(folder: Path, converting: str, packages: dict[str, str] = PACKAGES) -> Path:
    """Return a program that is called as a Python would be: -I SCRIPT packages NAME... or -I SCRIPT convert IN OUT."""
    path = folder / "python"
    path.write_text(
        f"#!/bin/sh\nif [ $3 = packages ]; then echo '{json.dumps(packages)}'; exit; fi\necho $3 >> {folder}/calls\n{converting}\n"
    )
    path.chmod(0o755)
    return path


WRITES = "echo loading; cp $4 $5/model.safetensors; echo '{\"parameters\": 7}'"


def convert(places: Places, python: Path) -> Path:
    return convert_model("demo", python, places.paths, places.environment)


def refusal(places: Places, python: Path) -> str:
    with pytest.raises(ModelError) as error:
        convert(places, python)
    return str(error.value)


def test_what_was_converted_has_a_record_that_names_its_weights(stored: Places, tmp_path: Path) -> None:
    folder = convert(stored, interpreter(tmp_path, WRITES))
    assert folder == stored.folder / "demo-safetensors"
    assert (folder / "model.safetensors").read_bytes() == CONTENT
    record = load_record(folder)
    assert (record.kind, record.name, record.inputs, record.config, record.counts) == (
        "safetensors",
        "demo",
        {"weights": SHA256},
        {"packages": PACKAGES},
        {"parameters": 7},
    )
    assert safetensors_folder("demo", stored.paths, stored.environment) == folder


def test_the_same_weights_are_converted_once_by_the_same_packages(stored: Places, tmp_path: Path) -> None:
    convert(stored, interpreter(tmp_path, WRITES))
    convert(stored, interpreter(tmp_path, WRITES))
    assert (tmp_path / "calls").read_text() == "convert\n"
    convert(stored, interpreter(tmp_path, WRITES, {**PACKAGES, "torch": "2.14.0"}))
    assert (tmp_path / "calls").read_text() == "convert\nconvert\n"


def test_a_conversion_that_fails_leaves_nothing_that_could_be_used(stored: Places, tmp_path: Path) -> None:
    python = interpreter(tmp_path, "touch $5/model.safetensors; echo 'out of memory' >&2; exit 1")
    assert refusal(stored, python) == (
        f"{python}: cannot do `convert` (ended with 1: out of memory); check its packages, and that its memory suffices"
    )
    assert not (stored.folder / "demo-safetensors").exists()
    # what a failed or killed one has left is not taken for something
    convert(stored, interpreter(tmp_path, "left=$(ls $5 | wc -l); echo $left > $5/count; echo '{\"parameters\": 7}'"))
    assert (stored.folder / "demo-safetensors" / "count").read_text().strip() == "0"


@pytest.mark.parametrize(
    ("packages", "lacking"),
    [
        ({}, "accelerate, gguf, torch, transformers"),
        ({**PACKAGES, "transformers": "5.4.1"}, "transformers"),
        ({**PACKAGES, "gguf": None}, "gguf"),
    ],
)
def test_what_a_python_lacks_is_said_with_how_to_get_it(
    stored: Places, tmp_path: Path, packages: dict[str, str], lacking: str
) -> None:
    python = interpreter(tmp_path, WRITES, {"other": "1", **packages})
    assert refusal(stored, python) == (
        f"{python}: lacks {lacking}, which converting needs; name a Python of an environment of its own, made by"
        " `python -m venv ENV` and"
        " `ENV/bin/pip install 'accelerate>=1.15' 'gguf>=0.19' 'torch>=2.13' 'transformers>=5.5'`"
    )
    assert not (tmp_path / "calls").exists()


def test_this_python_refuses_what_is_no_model(stored: Places) -> None:
    for library in ("accelerate", "gguf", "torch", "transformers"):
        pytest.importorskip(library, reason="pip install 'graftline[training]'")
    with pytest.raises(ModelError, match="cannot do `convert`"):
        convert_here("demo", stored.paths, stored.environment)


def test_a_python_that_is_none_is_a_fault_of_the_command(stored: Places, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        convert(stored, tmp_path / "python")
    assert str(error.value).startswith(f"{tmp_path / 'python'}: cannot be started (No such file or directory)")
