"""`package_releases`: which rows two releases of a package make, and which drops."""

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from graftline.core.config import validate
from graftline.datasets.archives import archive_path
from graftline.datasets.catalog import Dataset
from graftline.datasets.edit import Edit, Rejection, RejectReason
from graftline.datasets.licenses import license_in_core_metadata, license_in_package_json
from graftline.datasets.readers.package_releases import SOURCE

Content = dict[str, Any] | Rejection


class Packages:
    """Archives of releases in the folder of the raw files, and the entry that names them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def wheel(self, version: str, files: Mapping[str, str | bytes], metadata: str = "License: MIT\n") -> None:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, text in {**files, f"demo-{version}.dist-info/METADATA": f"Name: demo\n{metadata}"}.items():
                archive.writestr(name, text)
        self._write("pypi", version, buffer.getvalue())

    def tar(self, registry: str, version: str, files: Mapping[str, str], top: str = "package") -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, text in files.items():
                member = tarfile.TarInfo(f"{top}/{name}")
                member.size = len(text.encode())
                archive.addfile(member, io.BytesIO(text.encode()))
        self._write(registry, version, gzip.compress(buffer.getvalue(), mtime=0))

    def _write(self, registry: str, version: str, content: bytes) -> None:
        path = self.folder / archive_path(registry, "demo", version)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)

    def dataset(self, registry: str = "pypi", **changes: Any) -> Dataset:
        package = {"registry": registry, "name": "demo", "old": "1.0", "new": "2.0"}
        entry = {"reader": "package_releases", "version": "1", "license": "NOASSERTION", "packages": [package]}
        return validate({**entry, **changes}, Dataset, "datasets.yaml")

    def contents(self, registry: str = "pypi") -> list[Content]:
        return [row.content for row in SOURCE.rows(self.folder, self.dataset(registry), 1 << 20)]  # type: ignore[misc]

    def names(self, registry: str = "pypi") -> list[str]:
        return [
            str(content)
            if isinstance(content, Rejection)
            else f"{content['path']} {content['qual']} {content['changed']}"
            for content in self.contents(registry)
        ]


@pytest.fixture
def packages(tmp_path: Path) -> Packages:
    return Packages(tmp_path)


def test_a_changed_function_is_a_row_in_the_shape_of_the_sample(packages: Packages) -> None:
    packages.wheel("1.0", {"demo/a.py": "class A:\n    def f(self):\n        return old()\n"})
    packages.wheel("2.0", {"demo/a.py": "class A:\n    def f(self):\n        return new()\n"})
    [row] = SOURCE.rows(packages.folder, packages.dataset(), 1 << 20)
    assert (row.file, row.line) == ("pypi/demo@2.0.archive", 1)
    assert row.content == {
        "id": "release:e0d062dee51abf08",
        "source": "pypi:demo 1.0->2.0",
        "license": "MIT",
        "language": "python",
        "pre": "def f(self):\n    return old()\n",
        "post": "def f(self):\n    return new()\n",
        "registry": "pypi",
        "pkg": "demo",
        "old": "1.0",
        "new": "2.0",
        "path": "demo/a.py",
        "qual": "A.f",
        "changed": 2,
    }


def test_a_row_becomes_an_edit_of_its_package(packages: Packages) -> None:
    packages.wheel("1.0", {"a.py": "def f():\n    return old()\n"})
    packages.wheel("2.0", {"a.py": "def f():\n    return new()\n"})
    [row] = packages.contents()
    assert isinstance(row, dict)
    [edit] = SOURCE.outcomes(row, "pairs", packages.dataset())
    assert isinstance(edit, Edit)
    assert (edit.id, edit.dataset) == (f"pairs:{row['id'].removeprefix('release:')}", "pairs")
    assert (edit.group, edit.license) == ("pypi:demo", "MIT")
    assert (edit.instruction, edit.instruction_source) == ("", "none")


def test_a_license_that_the_package_does_not_state_is_that_of_the_entry(packages: Packages) -> None:
    row = {"license": "NOASSERTION", "registry": "pypi", "pkg": "demo", "old": "1", "new": "2", "path": "a.py"}
    row |= {"id": "release:1", "source": "s", "language": "python", "pre": "a\n", "post": "b\n", "qual": "f"}
    stated = packages.dataset(licenses={"pypi:demo": "BSD-3-Clause"})
    for dataset, license in ((stated, "BSD-3-Clause"), (packages.dataset(), "NOASSERTION")):
        [edit] = SOURCE.outcomes(row, "pairs", dataset)
        assert isinstance(edit, Edit)
        assert edit.license == license


def test_only_functions_in_both_releases_with_different_texts_are_rows(packages: Packages) -> None:
    packages.wheel("1.0", {"a.py": "def same(): 1\ndef gone(): 1\ndef f(): 1\n", "old.py": "def f(): 1\n"})
    packages.wheel("2.0", {"a.py": "def f(): 2\ndef same(): 1\ndef made(): 1\n", "new.py": "def f(): 2\n"})
    assert packages.names() == ["a.py f 2"]


def test_rows_come_by_package_path_and_place_whatever_the_order_of_the_archive(packages: Packages) -> None:
    old = {"b.py": "def z(): 1\ndef a(): 1\n", "a/c.py": "def f(): 1\n", "a.py": "def f(): 1\n"}
    packages.wheel("1.0", old)
    packages.wheel("2.0", {name: old[name].replace("1", "2") for name in sorted(old)})
    assert packages.names() == ["a.py f 2", "a/c.py f 2", "b.py z 2", "b.py a 2"]


def test_overloads_are_paired_by_their_order_where_their_numbers_agree(packages: Packages) -> None:
    old = "class A {\n  int f(int a) { return 1; }\n  int f(long a) { return 2; }\n  int f() { return 3; }\n}\n"
    packages.tar("npm", "1.0", {"A.java": old})
    # the first goes, one that is not new is in its place: only the numbers of the changed ones count
    packages.tar("npm", "2.0", {"A.java": old.replace("return 2", "return 4").replace("return 3", "return 5")})
    assert packages.names("npm") == ["A.java A.f 2", "A.java A.f 2"]
    packages.tar("npm", "2.0", {"A.java": old.replace("return 2", "return 4").replace("  int f() { return 3; }\n", "")})
    assert packages.names("npm") == []


def test_line_ends_and_a_byte_order_mark_are_no_change(packages: Packages) -> None:
    packages.wheel("1.0", {"a.py": "def f():\n    return 1\n"})
    packages.wheel("2.0", {"a.py": b"\xef\xbb\xbfdef f():\r\n    return 1\r\n"})
    assert packages.names() == []


@pytest.mark.parametrize(
    "path",
    [
        "demo/a.pyi",  # declarations have nothing to change
        "types/a.d.ts",
        "lib/a.min.js",
        "lib/a.bundle.js",
        "dist/a.js",
        "demo/_vendor/a.py",
        "node_modules/x/a.js",
        "tests/fixtures/a.py",
        "demo/Build/a.py",
        "demo/a.rb",  # no language that is read
    ],
)
def test_what_is_built_or_from_elsewhere_is_not_read(packages: Packages, path: str) -> None:
    packages.wheel("1.0", {path: "def f(): 1\n", "a.py": "def f(): 1\n"})
    packages.wheel("2.0", {path: "def f(): 2\n", "a.py": "def f(): 2\n"})
    assert packages.names() == ["a.py f 2"]


@pytest.mark.parametrize(
    ("old", "new", "reason", "detail"),
    [
        (b"def f(): 1\n", b"def f(): '\xff'\n", RejectReason.INVALID_UTF8, "a.py: byte 10"),
        (
            b"def f(: 1\n",
            b"def f(): 1\n",
            RejectReason.UNPARSABLE,
            "a.py: source is not python that the parser understands",
        ),
        (b"#" * (2 << 20) + b"#", b"def f(): 1\n", RejectReason.TOO_LONG, "a.py: more than 524288 characters"),
        (
            b"def f():\n" + b"    a()\n" * 7,
            b"def f():\n" + b"    b()\n" * 7,
            RejectReason.TOO_LONG,
            "a.py: f: 14 lines changed; at most 12 are an edit",
        ),
        (
            b"def f():\n    a = '" + b"a" * 6000 + b"'\n",
            b"def f():\n    a = 1\n",
            RejectReason.TOO_LONG,
            "a.py: f: 6020 characters; at most 6000 are compared",
        ),
    ],
)
def test_what_cannot_be_compared_is_one_drop(
    packages: Packages, old: bytes, new: bytes, reason: RejectReason, detail: str
) -> None:
    packages.wheel("1.0", {"a.py": old})
    packages.wheel("2.0", {"a.py": new})
    assert packages.contents() == [Rejection(reason, detail)]


def test_releases_without_a_common_file_are_a_drop(packages: Packages) -> None:
    packages.wheel("1.0", {"a.py": "def f(): 1\n"})
    packages.wheel("2.0", {"b.py": "def f(): 2\n"})
    assert packages.names() == [
        "unknown_language: pypi:demo 1.0->2.0: no source file lies at the same path in both releases"
    ]


def test_a_wheel_is_compared_with_a_source_archive(packages: Packages) -> None:
    sources = {"src/demo/a.py": "def f(): 1\n", "setup.py": "def g(): 1\n", "PKG-INFO": "License: MIT\n"}
    packages.tar("pypi", "1.0", {**sources, "package.json": '{"license": "GPL-3.0"}'}, top="demo-1.0")
    packages.wheel("2.0", {"demo/a.py": "def f(): 2\n"})
    [row] = packages.contents()
    assert isinstance(row, dict)
    assert (row["path"], row["qual"], row["license"]) == ("demo/a.py", "f", "MIT")


@pytest.mark.parametrize(
    ("old", "new", "license"),
    [
        ("MIT", "MIT", "MIT"),
        ("MIT", "Apache-2.0", "MIT AND Apache-2.0"),  # the row holds text under each
        ("MIT", None, "NOASSERTION"),
    ],
)
def test_the_license_of_a_row_is_that_of_both_releases(
    packages: Packages, old: str, new: str | None, license: str
) -> None:
    packages.tar("npm", "1.0", {"a.js": "function f() { 1 }", "package.json": json.dumps({"license": old})})
    packages.tar("npm", "2.0", {"a.js": "function f() { 2 }", "package.json": json.dumps({"license": new})})
    [row] = packages.contents("npm")
    assert isinstance(row, dict)
    assert row["license"] == license


@pytest.mark.parametrize(
    ("metadata", "license"),
    [
        ("License-Expression: MIT OR Apache-2.0\nLicense: BSD", "MIT OR Apache-2.0"),
        ("License: mit", "MIT"),
        ("License: Apache License, Version 2.0", "Apache-2.0"),
        ("License: BSD 3-Clause", "BSD-3-Clause"),
        ("License: BSD\nClassifier: License :: OSI Approved :: BSD License", "NOASSERTION"),  # of 2, 3 or 4 clauses
        ("Classifier: License :: OSI Approved :: MIT License", "MIT"),
        ("Classifier: License :: OSI Approved", "NOASSERTION"),
        ("Classifier: License :: OSI Approved :: Apache Software License", "NOASSERTION"),  # 1.1 or 2.0
        ("Classifier: License :: A :: MIT License\nClassifier: License :: A :: ISC License (ISCL)", "NOASSERTION"),
        ("License: see the file\nClassifier: License :: OSI Approved :: MIT License", "MIT"),
        ("License: The MIT License (MIT)\n        \n        Copyright (c) the authors", "MIT"),
        ("License: Copyright (c) the authors\n        All rights reserved", "NOASSERTION"),
        ("License: Proprietary", "Proprietary"),  # not ours to name, and on no allow-list
        ("Name: demo", "NOASSERTION"),
        ("\x00\xff", "NOASSERTION"),
    ],
)
def test_licenses_of_python_packages(metadata: str, license: str) -> None:
    assert license_in_core_metadata(f"{metadata}\n\nText.\n".encode("latin-1")) == license


@pytest.mark.parametrize(
    ("package", "license"),
    [
        ({"license": "MIT"}, "MIT"),
        ({"license": "apache-2.0"}, "Apache-2.0"),
        ({"license": "(MIT OR GPL-3.0)"}, "(MIT OR GPL-3.0)"),
        ({"license": {"type": "ISC", "url": "x"}}, "ISC"),
        ({"licenses": [{"type": "MIT"}, {"type": "GPL-2.0"}]}, "MIT OR GPL-2.0-only"),
        ({"license": "SEE LICENSE IN LICENSE.md"}, "SEE LICENSE IN LICENSE.md"),
        ({"licenses": []}, "NOASSERTION"),
        ({"license": 1}, "NOASSERTION"),
        ({}, "NOASSERTION"),
        ([], "NOASSERTION"),
    ],
)
def test_licenses_of_npm_packages(package: Any, license: str) -> None:
    assert license_in_package_json(json.dumps(package).encode()) == license


def test_a_package_json_that_is_none_states_no_license() -> None:
    assert license_in_package_json(b"[" * 100_000) == license_in_package_json(b"\xff") == "NOASSERTION"
