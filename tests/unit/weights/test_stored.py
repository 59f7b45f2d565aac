"""What lies in the folder of models: known by its digest, and read no more often than it has to be."""

import os
from pathlib import Path

import pytest

from graftline.core.build import Contents, Request, build
from graftline.core.errors import ModelError
from graftline.llm.weights.catalog import Verified, list_models, model_file, safetensors_folder, verify_models
from tests.unit.weights.places import CONTENT, FILE, SHA256, Places

WRONG = bytes(len(CONTENT))


def state(places: Places) -> str:
    return list_models(places.paths, places.environment)[0].state


def file(places: Places) -> Path:
    return model_file("demo", places.paths, places.environment)


def refusal(places: Places) -> str:
    with pytest.raises(ModelError) as error:
        file(places)
    return str(error.value)


def converted(places: Places, sha256: str = SHA256) -> Path:
    """Store something converted of the weights with this digest."""

    def make(folder: Path) -> Contents:
        (folder / "config.json").write_text("{}")
        return Contents({"parameters": 1})

    request = Request("safetensors", "demo", "1", {"weights": sha256})
    return build(places.folder / "demo-safetensors", request, make).folder


def test_weights_that_are_not_there_are_asked_for_by_a_command(places: Places) -> None:
    places.configure(places.hub())
    assert refusal(places) == f"model 'demo': {places.target} is not there; run `graftline model fetch demo`"


def test_weights_are_read_once_and_again_when_they_were_written_to(stored: Places) -> None:
    assert state(stored) == "not verified"
    assert (file(stored), state(stored)) == (stored.target, "verified")
    before = stored.target.stat()
    stored.target.write_bytes(WRONG)
    # as long as its size and time are the ones of the file that was read, it counts as that
    os.utime(stored.target, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file(stored), state(stored)) == (stored.target, "verified")
    os.utime(stored.target, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert state(stored) == "not verified"
    fault = f"model 'demo': {stored.target} is not the pinned file; run `graftline model fetch demo`"
    assert (refusal(stored), state(stored)) == (fault, "not verified")


def test_a_note_of_other_weights_is_worth_nothing(stored: Places) -> None:
    file(stored)
    stored.configure(stored.hub(), sha256="0" * 64)
    assert (state(stored), "is not the pinned file" in refusal(stored)) == ("not verified", True)


def test_a_note_that_is_damaged_is_made_again(stored: Places) -> None:
    file(stored)
    (stored.folder / f".{FILE}.verified").write_text("{")
    assert (state(stored), file(stored), state(stored)) == ("not verified", stored.target, "verified")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        (FILE, b"", "altered"),
        (f".{FILE}.partial", b"1", "in part"),
        (f".{FILE}.partial", b"", "missing"),
        ("other.gguf", CONTENT, "missing"),
    ],
)
def test_states_are_told_without_reading(places: Places, name: str, content: bytes, expected: str) -> None:
    places.configure(places.hub())
    places.folder.mkdir(parents=True)
    (places.folder / name).write_bytes(content)
    assert state(places) == expected


def test_another_folder_is_named_by_the_environment(places: Places, tmp_path: Path) -> None:
    places.configure(places.hub())
    places.environment["GRAFTLINE_MODELS"] = str(tmp_path / "shared")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / FILE).write_bytes(CONTENT)
    assert file(places) == tmp_path / "shared" / FILE


def test_verifying_reads_what_is_remembered_too(stored: Places) -> None:
    file(stored)
    before = stored.target.stat()
    stored.target.write_bytes(WRONG)
    os.utime(stored.target, ns=(before.st_atime_ns, before.st_mtime_ns))
    fault = f"{stored.target} is not the pinned file; run `graftline model fetch demo`"
    assert verify_models((), stored.paths, stored.environment) == [Verified("demo", stored.target, fault)]
    assert state(stored) == "not verified"


def test_converted_weights_are_verified_by_their_record(stored: Places) -> None:
    folder = converted(stored)
    assert safetensors_folder("demo", stored.paths, stored.environment) == folder
    right = [Verified("demo", stored.target, ""), Verified("demo", folder, "")]
    assert verify_models((), stored.paths, stored.environment) == right
    (folder / "config.json").write_text("altered")
    fault = f"{folder}: file 'config.json' was altered after it was written; run `graftline model convert demo --python PYTHON`"
    assert verify_models((), stored.paths, stored.environment)[1] == Verified("demo", folder, fault)


def test_weights_converted_of_others_are_refused(stored: Places) -> None:
    folder = converted(stored, "0" * 64)
    with pytest.raises(ModelError) as error:
        safetensors_folder("demo", stored.paths, stored.environment)
    assert str(error.value) == (
        f"model 'demo': {folder} was made of other weights ({'0' * 64}); run `graftline model convert demo --python PYTHON`"
    )
