"""Digests: one text per value, one digest per file, one version per piece of code."""

import ast
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from graftline.core import hashing
from graftline.core.hashing import canonical_json, code_version, digest, sha256_file, sha256_text

COPIED = ("__init__.py", "build.py", "errors.py", "hashing.py", "clock.py", "markdown.py", "record.py")


@pytest.mark.parametrize("value", [{1, 2}, b"a", object(), Path("a"), {("a",): 1}, {1: "a", "b": 2}])
def test_canonical_json_refuses_what_json_cannot_say(value: Any) -> None:
    with pytest.raises(TypeError):
        canonical_json(value)


def test_digest_depends_on_the_order_of_a_list_and_on_types() -> None:
    values: list[Any] = [[1, 2], [2, 1], ["1", 2], [True, 2], [1.0, 2], [None, 2], [[1], 2]]
    assert len({digest(value) for value in values}) == len(values)


def test_digest_is_the_one_that_stored_records_hold() -> None:
    # printf '{"a":[1,null,true],"é":"x"}' | sha256sum
    assert (
        digest({"é": "x", "a": [1, None, True]}) == "689e6b3acad883d564645244cccb2a5bb98baf247ffb57ae8674c62e7083a3a9"
    )


def test_sha256_keeps_lone_surrogates_apart() -> None:
    assert len({sha256_text(text) for text in ("\ud800", "\ud801", "?", "\ufffd")}) == 4


def test_sha256_of_a_file_is_that_of_its_bytes_beyond_one_chunk(tmp_path: Path) -> None:
    content = b"\r\n\x00" * 400_000  # 1.2 MB, read in chunks of 1 MiB
    (tmp_path / "a").write_bytes(content)
    assert sha256_file(tmp_path / "a") == hashlib.sha256(content).hexdigest()


def test_code_version_is_the_same_in_another_process_with_other_modules_loaded() -> None:
    import graftline.pipeline  # noqa: F401 - so that this process has loaded more than the other

    assert _version_elsewhere("graftline.core.record", seed="1") == code_version("graftline.core.record")


def test_code_version_follows_submodules_imported_by_name(tmp_path: Path) -> None:
    package = _copied_package(tmp_path)
    (package / "record.py").write_text("from graftline.core import clock\n", "utf-8")
    before = _version_elsewhere("graftline.core.record", tmp_path)
    (package / "clock.py").write_text("", "utf-8")
    assert _version_elsewhere("graftline.core.record", tmp_path) != before


@pytest.mark.parametrize(
    ("changed", "is_seen"),
    [
        ("build.py", True),
        # imported by build
        ("clock.py", True),
        # not imported by build
        ("markdown.py", False),
    ],
)
def test_code_version_changes_with_the_source_of_what_is_imported(tmp_path: Path, changed: str, is_seen: bool) -> None:
    package = _copied_package(tmp_path)
    before = _version_elsewhere("graftline.core.build", tmp_path)
    with (package / changed).open("a", encoding="utf-8") as stream:
        stream.write("\n# a change\n")
    assert (_version_elsewhere("graftline.core.build", tmp_path) != before) == is_seen


@pytest.mark.parametrize("name", ["graftline.nosuch", "nosuch"])
def test_code_version_refuses_a_module_that_is_not_there(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}': no such module"):
        code_version(name)


def _copied_package(folder: Path) -> Path:
    source = Path(hashing.__file__).parent
    package = folder / "graftline" / "core"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    for name in COPIED:
        shutil.copy(source / name, package / name)
    return package


def _version_elsewhere(module: str, source: Path | None = None, seed: str = "0") -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
    if source:
        environment["PYTHONPATH"] = str(source)
    command = [
        sys.executable,
        "-P",
        "-c",
        f"from graftline.core.hashing import code_version; print(code_version({module!r}))",
    ]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_the_imports_that_are_read_off_the_text_are_those_of_its_syntax_tree(checkout: Path) -> None:
    for path in (checkout / "graftline").rglob("*.py"):
        text = path.read_text("utf-8")
        imports = set[str]()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                imports |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imports |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        ours = [{name for name in names if hashing._path(name)} for names in (hashing._imports(text), imports)]
        assert ours[0] == ours[1], path
