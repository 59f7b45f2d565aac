"""Which names of files a workspace refuses."""

from pathlib import Path

import pytest

from graftline.core.errors import DataError
from graftline.sandbox.workspaces import Workspaces

REFUSED = [
    ("", "is empty"),
    (".", "must stay inside"),
    ("..", "must stay inside"),
    ("../a", "must stay inside"),
    ("a/../../b", "must stay inside"),
    ("a/..", "must stay inside"),
    ("/a", "must be relative"),
    ("//a", "must be relative"),
    ("./a", "write it as 'a'"),
    ("a//b", "write it as 'a/b'"),
    ("a/./b", "write it as 'a/b'"),
    ("a/", "write it as 'a'"),
    ("a/.", "write it as 'a'"),
    ("C:/a", "forward slashes"),
    ("a:b", "forward slashes"),
    ("a\\b", "forward slashes"),
    ("..\\a", "forward slashes"),
    ("CON", "reserved name"),
    ("con", "reserved name"),
    ("a/Nul.py", "reserved name"),
    ("com1.txt", "reserved name"),
    ("LPT9", "reserved name"),
    ("aux.tar.gz", "reserved name"),
    # Windows takes superscript digits for digits there
    ("COM\u00b9.py", "reserved name"),
    ("a/com\u00b2", "reserved name"),
    ("Lpt\u00b3.tar.gz", "reserved name"),
    ("a.", "reserved name"),
    ("a ", "reserved name"),
    ("a./b", "reserved name"),
    ("...", "reserved name"),
    ("a*b", "reserved one"),
    ("a?", "reserved one"),
    ('a"', "reserved one"),
    ("<a>", "reserved one"),
    ("a|b", "reserved one"),
    ("a\0b", "control character"),
    ("a\nb", "control character"),
    ("a\tb", "control character"),
    ("\x1b[31m", "control character"),
    ("a\x7f", "control character"),
    ("a\ud800", "control character"),
    ("\udcff", "control character"),
    *(
        (f"a{chr(number)}b.py", rf"holds U\+{number:04X}, which is not shown")
        for number in (
            *(0x85, 0x9B),  # controls of eight bits: the next line, what begins an escape sequence
            *(0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)),  # directions
            *(0xAD, 0x180E, *range(0x200B, 0x200E), *range(0x2060, 0x2065), *range(0x206A, 0x2070), 0xFEFF),
            *(0x2028, 0x2029, 0xFFF9, 0x1D173, 0xE0001, 0xE0041),
        )
    ),
    ("\u202egpj.py", r"holds U\+202E, which is not shown; use a plain relative path such as 'src/a\.py'"),
    ("a" * 256, "255 bytes"),
    ("é" * 128, "255 bytes"),
    ("a/" * 600 + "b", "1024 are accepted"),
    ("x" * 10_000_000, "1024 are accepted"),
    ("a/" * 32 + "b", "nested deeper than 32"),
    ("sgconfig.yml", "native code"),
    ("sgconfig.yaml", "native code"),
    ("SGCONFIG.YML", "native code"),
    ("a/b/SgConfig.yaml", "native code"),
    ("sgconfig.yml/a.py", "native code"),
    ("\u017fgconfig.yml", "native code"),  # a long s is an s where case does not count
]


@pytest.mark.parametrize(("name", "reason"), REFUSED, ids=[ascii(name)[:30] for name, _ in REFUSED])
def test_a_name_that_some_system_takes_otherwise_is_refused(
    workspaces: Workspaces, tmp_path: Path, name: str, reason: str
) -> None:
    workspace = workspaces.prepare("t", {})
    for refused in (lambda: workspaces.prepare("t", {name: "x"}), lambda: workspaces.write(workspace, {name: b"x"})):
        with pytest.raises(DataError, match=reason) as caught:
            refused()
        assert len(str(caught.value)) < 12_000
    assert (workspaces.read(workspace), len(list((tmp_path / "workspaces").glob("t-*")))) == ({}, 1)


@pytest.mark.parametrize(
    "name",
    [
        "a",
        ".gitignore",
        "a b.py",
        "console.py",
        "com10",
        "com\u2074",  # no digit to Windows
        "x\u00b9.py",
        "a..b",
        "-x",
        "--config=x",
        "$(id)",
        "é/漢字.py",
        "a" * 255,
        "mysgconfig.yml",
        "sgconfig.yml.bak",
        ".partial-" + "0" * 32,
        "/".join("a" * 32),
    ],
)
def test_a_name_that_means_the_same_everywhere_is_accepted(workspaces: Workspaces, name: str) -> None:
    workspace = workspaces.prepare("t", {name: "x"})
    workspaces.write(workspace, {name: b"y"})
    assert workspaces.read(workspace) == {name: b"y"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a.py", "A.py"),
        ("a/b.py", "A/c.py"),
        ("a/b.py", "a/B.PY"),
        ("straße", "STRASSE"),
        ("\u00e9", "e\u0301"),
        ("\u00c9", "e\u0301"),
        ("\u212a", "k"),  # the sign for kelvin
        ("a", "a/b"),
        ("a/b/c", "a/b"),
        ("A", "a/b"),
    ],
)
def test_two_names_that_are_one_to_some_system_are_refused(workspaces: Workspaces, first: str, second: str) -> None:
    with pytest.raises(DataError, match="rename one of them"):
        workspaces.prepare("t", {first: "x", second: "y"})
    workspace = workspaces.prepare("t", {first: "x"})
    with pytest.raises(DataError, match="rename one of them"):
        workspaces.write(workspace, {second: b"y"})
    assert workspaces.read(workspace) == {first: b"x"}


def test_names_that_collide_are_refused_when_they_are_read(workspaces: Workspaces) -> None:
    workspace = workspaces.prepare("t", {"a.py": "x"})
    (workspace / "A.py").touch()
    with pytest.raises(DataError, match=r"files 'A\.py' and 'a\.py': are the same to some systems"):
        workspaces.read(workspace)


@pytest.mark.parametrize("content", ["\ud800", "a\udcffb"])
def test_a_text_that_is_no_unicode_is_refused(workspaces: Workspaces, content: str) -> None:
    with pytest.raises(DataError, match=r"^file 'a\.py': character \d is half of a surrogate pair"):
        workspaces.prepare("t", {"a.py": content})
