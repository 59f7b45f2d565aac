"""The folder of a Harbor task: its digest, its bounds, what is refused."""

import os
from pathlib import Path

import pytest

from graftline.core.errors import DataError
from graftline.harbor.task_format import task_folder
from graftline.harbor.task_format.task_folder import read_task, task_folders, write_files
from tests.unit.harbor.tiny_crate import write, write_card

PLAIN = {
    "task.toml": 'version = "1.0"\n',
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM alpine:3.20\n",
    "tests/test.sh": "#!/bin/sh\n",
    "solution/solve.sh": "#!/bin/sh\n",
}


def test_the_digest_is_that_of_harbor(tmp_path: Path) -> None:
    # of `Packager.compute_content_hash` of harbor 0.25.0 over the same files
    task = read_task(write(tmp_path / "plain", PLAIN))
    assert task.digest == "9fda5afa915a2897b265e6739cb255305347e88f43df571b43a4480ff11999c5"
    assert task.instruction == "Do it.\n"
    assert sorted(task.part("tests")) == ["test.sh"]


@pytest.mark.parametrize(
    "more",
    [
        {"tests/__pycache__/a.pyc": "", "environment/.DS_Store": "", "notes.txt": "x", ".git/HEAD": "x"},
        {"tests/big.bin": "x", ".gitignore": "*.bin\n"},
    ],
    ids=["leftovers", "what .gitignore names"],
)
def test_some_files_do_not_count(tmp_path: Path, more: dict[str, str]) -> None:
    folder = write(tmp_path / "plain", PLAIN)
    before = read_task(folder).digest
    assert read_task(write(folder, more)).digest == before


def test_files_that_are_written_read_back_as_the_same(tmp_path: Path) -> None:
    folder = write_card(tmp_path / "a")
    (folder / "tests" / "test.sh").chmod(0o755)
    task = read_task(folder)
    write_files(task.files, tmp_path / "b" / task.id)
    assert read_task(tmp_path / "b" / task.id) == task


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"environment/docker-compose.yaml": ""}, "environment/docker-compose.yaml"),
        ({"environment/compose.yml": ""}, "environment/docker-compose.yaml"),
        ({"tests/docker-compose.yaml": ""}, "environment/docker-compose.yaml"),
        ({"trajectory.json": "{}"}, r"trajectory.json \(prior context\)"),
        ({"steps/one/instruction.md": "x"}, "steps/"),
        ({"tests/test.bat": ""}, "scripts of Windows"),
        ({"tests/.harborignore": ""}, ".harborignore"),
    ],
)
def test_files_that_are_not_supported_are_named(tmp_path: Path, more: dict[str, str], named: str) -> None:
    with pytest.raises(DataError, match=f"uses what is not supported here: {named}; take it out"):
        read_task(write(tmp_path / "plain", {**PLAIN, **more}))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("task.toml", "has no task.toml"),
        ("instruction.md", "has no instruction.md"),
        ("tests/test.sh", "has no tests/test.sh"),
        ("environment/Dockerfile", "has neither environment/Dockerfile nor"),
    ],
)
def test_a_folder_that_lacks_something_is_no_task(tmp_path: Path, path: str, message: str) -> None:
    folder = write(tmp_path / "plain", PLAIN)
    (folder / path).unlink()
    with pytest.raises(DataError, match=message):
        read_task(folder)


def test_an_image_takes_the_place_of_a_dockerfile(tmp_path: Path) -> None:
    folder = write(tmp_path / "plain", {**PLAIN, "task.toml": '[environment]\ndocker_image = "alpine:3.20"\n'})
    (folder / "environment" / "Dockerfile").unlink()
    assert read_task(folder).toml.environment.docker_image == "alpine:3.20"


def test_links_and_devices_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "plain", PLAIN)
    (folder / "tests" / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(DataError, match="tests/passwd is a link or a device"):
        read_task(folder)
    (folder / "tests" / "passwd").unlink()
    os.mkfifo(folder / "tests" / "pipe")
    with pytest.raises(DataError, match="tests/pipe is a link or a device"):
        read_task(folder)


def test_a_folder_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "plain", PLAIN)
    monkeypatch.setattr(task_folder, "MAX_FILES", 3)
    with pytest.raises(DataError, match="has more than 3 files"):
        read_task(folder)


def test_a_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "plain", PLAIN)
    (folder / "instruction.md").write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"instruction.md: byte 0 is not UTF-8"):
        read_task(folder)


def test_tasks_are_found_by_name(tmp_path: Path) -> None:
    write(tmp_path / "b", PLAIN)
    write(tmp_path / "a", PLAIN)
    write(tmp_path / "no task", {"x": ""})
    assert [folder.name for folder in task_folders(tmp_path)] == ["a", "b"]
    assert task_folders(tmp_path / "a") == [tmp_path / "a"]
    with pytest.raises(DataError, match="holds no folder with a task"):
        task_folders(tmp_path / "no task")
    with pytest.raises(DataError, match="cannot be read"):
        task_folders(tmp_path / "nowhere")
