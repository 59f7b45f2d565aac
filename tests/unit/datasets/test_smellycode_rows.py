"""The reader of `smellycode`."""

from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import DataError
from graftline.datasets.edit import Label, Rejection
from tests.unit.datasets.fixtures import MAX_LINE_BYTES, drop, outcome, raw_rows

HEADER = "Language,Class,Code Smell #,Category,Code Smell,Method,Type,Identifier\n"


def row(**changes: Any) -> dict[str, Any]:
    return {
        "Language": "Python",
        "Class": "Shop",
        "Code Smell #": "3",
        "Category": "Bloaters",
        "Code Smell": "Data Clumps",
        "Method": "order",
        "Type": "Customer details",
        "Identifier": "x",
        "file": "Python/SmellyUnannotated/Shop.py",
        "code": '"""\nThis holds smelly code.\n"""\n\n\nclass Shop:\n    pass\n',
        **changes,
    }


def repository(folder: Path, truth: str, **files: str) -> Path:
    (folder / "Analysis" / "GroundTruthLevel").mkdir(parents=True)
    (folder / "Analysis" / "GroundTruthLevel" / "Cleaned_GroundTruth.csv").write_text(HEADER + truth, "utf-8")
    (folder / "Python" / "SmellyUnannotated").mkdir(parents=True)
    for name, text in files.items():
        (folder / "Python" / "SmellyUnannotated" / f"{name}.py").write_text(text, "utf-8")
    return folder


def test_a_row_becomes_a_label_on_the_text_of_its_class() -> None:
    label = outcome("smellycode", row())
    assert isinstance(label, Label)
    assert label == Label(
        label="Data Clumps",
        holds=True,
        subject="order",
        detail="Customer details",
        instruction="Remove the Data Clumps in `order`.",
        pre="class Shop:\n    pass\n",
        language="python",
        tags=("smellycode", "category:Bloaters"),
        id=label.id,
        dataset="smellycode",
        license="MIT",
        group="HRI-EU/SmellyCodeDataset",
        origin="HRI-EU/SmellyCodeDataset Python/SmellyUnannotated/Shop.py",
    )


@pytest.mark.parametrize(
    ("method", "subject", "place"),
    [
        ("Entire Class", "", "the class `Shop`"),
        ("__init__", "__init__", "the constructor of `Shop`"),
        ("Constructor", "Constructor", "the constructor of `Shop`"),
        ("order", "order", "`order`"),
    ],
)
def test_a_label_says_what_it_is_about(method: str, subject: str, place: str) -> None:
    label = outcome("smellycode", row(Method=method))
    assert isinstance(label, Label)
    assert (label.subject, label.instruction) == (subject, f"Remove the Data Clumps in {place}.")


@pytest.mark.parametrize(
    ("code", "pre", "reason"),
    [
        ("/*\nsmelly code\n*/\r\n\nclass A {}\n", "class A {}\n", "a comment of the other languages"),
        ('"""\nMIT\n"""\nclass A: pass\n', '"""\nMIT\n"""\nclass A: pass\n', "it does not give anything away"),
        ("/* smelly code", "/* smelly code", "it has no end"),
        ("class A: pass # smelly code\n", "class A: pass # smelly code\n", "it is no header"),
    ],
)
def test_the_license_at_the_top_is_taken_off_as_it_calls_the_code_smelly(code: str, pre: str, reason: str) -> None:
    label = outcome("smellycode", row(code=code))
    assert isinstance(label, Label)
    assert label.pre == pre, reason


def test_the_rows_of_a_class_are_told_apart_by_their_number() -> None:
    labels = [outcome("smellycode", row(**change)) for change in ({}, {"Code Smell #": "4"}, {"Language": "Java"})]
    assert len({label.id for label in labels if isinstance(label, Label)}) == 3


def test_a_row_that_cannot_become_a_label_is_dropped_with_its_reason() -> None:
    cases = [
        ({"Language": "C++"}, "unknown_language: Language 'C++'; known: Python, Java, JavaScript"),
        ({"file": "", "code": ""}, "bad_field: Class: no file of Python declares 'Shop'"),
        ({"code": "/* smelly code */\n"}, "empty_pre: Python/SmellyUnannotated/Shop.py is empty"),
        ({"Code Smell": ""}, "bad_field: Code Smell: String should have at least 1 character"),
    ]
    assert [drop("smellycode", row(**change)) for change, _ in cases] == [reason for _, reason in cases]


def test_rows_come_with_the_file_that_declares_their_class(tmp_path: Path) -> None:
    truth = "Python,Shop,1,c,s,m,t,i\nPython,Kiosk,2,c,s,m,t,i\nPython,Bar,3,c,s,m,t,i\nC++,Shop,4,c,s,m,t,i\n"
    shop = "class Shop: pass\nclass Kiosk(Shop): pass\n"
    folder = repository(tmp_path, truth, Shop=shop, Alley="from Shop import Kiosk\nclass Barrel: pass\n")
    rows = raw_rows("smellycode", folder)
    contents = [raw.content for raw in rows if isinstance(raw.content, dict)]
    assert [raw.line for raw in rows] == [2, 3, 4, 5]
    assert [(content["Class"], content["file"], content["code"]) for content in contents] == [
        ("Shop", "Python/SmellyUnannotated/Shop.py", shop),
        ("Kiosk", "Python/SmellyUnannotated/Shop.py", shop),
        ("Bar", "", ""),
        ("Shop", "", ""),
    ]


@pytest.mark.parametrize(
    ("language", "class_name"),
    [("Python", "../../secret"), ("../Python", "Shop"), ("Python", "Sh*"), ("Python", "(a+)+")],
)
def test_names_that_are_no_names_of_files_are_not_looked_for(tmp_path: Path, language: str, class_name: str) -> None:
    folder = repository(tmp_path, f"{language},{class_name},1,c,s,m,t,i\n", Shop="class Shop: pass\n")
    [raw] = raw_rows("smellycode", folder)
    assert isinstance(raw.content, dict)
    assert raw.content["code"] == ""


def test_code_that_is_no_text_or_too_long_is_a_drop(tmp_path: Path) -> None:
    folder = repository(tmp_path, "Python,Shop,1,c,s,m,t,i\nPython,Long,1,c,s,m,t,i\n", Long="x" * (MAX_LINE_BYTES + 1))
    (folder / "Python" / "SmellyUnannotated" / "Shop.py").write_bytes(b"class Shop: '\xff'\n")
    assert [str(raw.content) for raw in raw_rows("smellycode", folder) if isinstance(raw.content, Rejection)] == [
        "invalid_utf8: Python/SmellyUnannotated/Shop.py: byte 14 is not UTF-8",
        "line_too_long: Python/SmellyUnannotated/Long.py: more than 1048576 bytes",
    ]


def test_a_repository_without_its_ground_truth_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"Cleaned_GroundTruth\.csv: is missing; mend `files` of the dataset"):
        raw_rows("smellycode", tmp_path)
