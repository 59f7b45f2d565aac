"""Where things lie under one root, how it is found, and which names from outside are accepted."""

from pathlib import Path, PurePosixPath

import pytest

from graftline.core.errors import ConfigError, DataError
from graftline.core.paths import find_root, portable


def test_the_environment_goes_before_the_folder_one_stands_in(tmp_path: Path) -> None:
    folder, named = tmp_path / "folder", tmp_path / "named"
    (folder / "configs" / "manifests").mkdir(parents=True)
    named.mkdir()
    assert find_root({"GRAFTLINE_ROOT": str(named)}, start=folder) == named


@pytest.mark.parametrize("below", [".", "data", "configs/manifests", "a/b/c"])
def test_the_root_is_the_nearest_folder_upwards_with_manifests(tmp_path: Path, below: str) -> None:
    (tmp_path / "configs" / "manifests").mkdir(parents=True)
    start = tmp_path / below
    start.mkdir(parents=True, exist_ok=True)
    assert find_root({}, start) == tmp_path


def test_an_inner_root_goes_before_an_outer_one(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    for root in (tmp_path, inner):
        (root / "configs" / "manifests").mkdir(parents=True)
    assert find_root({}, inner) == inner


def test_the_environment_of_the_process_and_the_working_folder_are_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "configs" / "manifests").mkdir(parents=True)
    monkeypatch.delenv("GRAFTLINE_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    assert find_root() == tmp_path


def test_a_root_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    named = str(tmp_path / "nowhere")
    with pytest.raises(ConfigError) as raised:
        find_root({"GRAFTLINE_ROOT": named})
    assert str(raised.value) == (f"GRAFTLINE_ROOT: {named!r} is not a folder; name the folder that holds configs/")


def test_without_any_root_the_message_says_how_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        find_root({}, tmp_path)
    assert str(raised.value) == (
        f"{tmp_path}: neither this folder nor one above it holds configs/manifests/;"
        " run from a checkout of graftline or set GRAFTLINE_ROOT"
    )


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a.py", "a.py"),
        (".hidden", ".hidden"),
        ("a b/c d.txt", "a b/c d.txt"),
        ("é/\U0001f600.txt", "é/\U0001f600.txt"),
        ("./a//b/", "a/b"),
        ("a..b", "a..b"),
        ("console.txt", "console.txt"),
        ("a/con-1", "a/con-1"),
        ("-rf", "-rf"),
        ("x" * 255, "x" * 255),
    ],
)
def test_a_plain_relative_name_is_accepted(name: str, path: str) -> None:
    assert portable(name) == PurePosixPath(path)


RELATIVE = "must be relative and use forward slashes"
INSIDE = "must stay inside its folder"
CHARACTER = "holds a control character or a reserved one"
RESERVED = "uses a reserved name"
LENGTH = "is empty or longer than 1024 characters"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", LENGTH),
        ("x" * 1025, LENGTH),
        ("x" * 256, "has a part of more than 255 bytes"),
        ("\ud800", "holds a control character or a reserved one"),
        ("/", RELATIVE),
        ("/etc/passwd", RELATIVE),
        ("//server/share", RELATIVE),
        ("C:/a", RELATIVE),
        ("C:a", RELATIVE),
        ("a.txt:stream", RELATIVE),
        ("a\\b", RELATIVE),
        ("\\\\server\\share", RELATIVE),
        ("..\\a", RELATIVE),
        (".", INSIDE),
        ("./.", INSIDE),
        ("..", INSIDE),
        ("../a", INSIDE),
        ("a/../b", INSIDE),
        ("a/..", INSIDE),
        ("a\0b", CHARACTER),
        ("a\nb", CHARACTER),
        ("a\tb", CHARACTER),
        ("a\x7fb", CHARACTER),
        *((f"a{character}b", CHARACTER) for character in '<>"|?*'),
        ("con", RESERVED),
        ("a/NUL", RESERVED),
        ("aux.py", RESERVED),
        ("prn.tar.gz", RESERVED),
        ("nul/a", RESERVED),
        ("Com1.txt", RESERVED),
        ("lpt9", RESERVED),
        ("con .txt", RESERVED),
        ("conin$", RESERVED),
        ("CONOUT$.log", RESERVED),
        ("a.", RESERVED),
        ("a ", RESERVED),
        ("a /b", RESERVED),
        ("...", RESERVED),
    ],
)
def test_a_name_that_is_not_the_same_everywhere_is_refused(name: str, reason: str) -> None:
    with pytest.raises(DataError) as raised:
        portable(name)
    assert str(raised.value) == f"file name {name!r}: {reason}; use a plain relative path such as 'src/a.py'"
