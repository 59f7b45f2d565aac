"""Which edits say the same, why, and which of them is kept."""

from pathlib import Path
from typing import Any

import pytest

from graftline.astgrep.binding import LANGUAGES
from graftline.datasets.catalog import Splitting
from graftline.datasets.deduplicate import load_edits
from graftline.datasets.splits import assign_splits
from tests.unit.datasets.fixtures import dataset
from tests.unit.datasets.shards import Divided, change, written

BODY = "\n".join(f"    value_{number} = first_{number} + second_{number}" for number in range(30))


def near(name: str, **changes: Any) -> dict[str, Any]:
    """Return a change of the same line in a text that differs from others of its kind in its last line."""
    text = f"def f():\n{BODY}\n    {{}}\n    return value_{name}\n"
    sides = {"old_contents": text.format("old()"), "new_contents": text.format("new()")}
    return change(name, **{**sides, **changes})


A = change("a")
ROWS = {
    "duplicate_id": {**change("b"), "commit": A["commit"], "old_file": "a.py", "new_file": "a.py"},
    "duplicate_row": change("b", message=A["message"], old_contents=A["old_contents"]),
    "duplicate_commit": change("b", commit=A["commit"], old_file="a.py", new_file="moved.py"),
    "duplicate_code": change(
        "b", old_contents=A["old_contents"].upper(), new_contents=A["new_contents"].replace(" ", "\t")
    ),
}


# the id of an edit names its dataset
@pytest.mark.parametrize(
    ("reason", "second"),
    [(reason, second) for reason in ROWS for second in ("one", "two") if (reason, second) != ("duplicate_id", "two")],
)
def test_of_edits_that_say_the_same_the_first_is_kept(tmp_path: Path, reason: str, second: str) -> None:
    datasets: dict[str, dict[str, Any]] = {"one": {"a": A}}
    datasets.setdefault(second, {}).update({"b": ROWS[reason], "c": change("c")})
    result = Divided(tmp_path, datasets)
    assert (result.reasons, result.kept, set(result.splits)) == ({"b": reason}, {"b": "a"}, {"a", "c"})
    assert result.counts == {"rows_in": 3, "rows": 2, "clusters": 2, f"dropped.{reason}": 1}


def test_precedence_is_that_of_the_datasets_and_not_of_their_names(tmp_path: Path) -> None:
    row, twin = ROWS["duplicate_code"], A
    for first, second in (("z", "a"), ("a", "z")):
        result = Divided(tmp_path / first, {first: {"first": row}, second: {"second": twin}})
        assert result.kept == {"second": "first"}


def test_the_reason_is_the_first_that_holds(tmp_path: Path) -> None:
    # each repeats the one before in all that comes after its own reason
    same = change("b", **{name: A[name] for name in ("commit", "old_file", "message", "old_contents", "new_contents")})
    rows = {
        "a": A,
        "id": {**same, "new_file": "a.py"},
        "row": {**same, "new_file": "row.py"},
        "commit": {**same, "new_file": "commit.py", "message": "Another wish"},
        "code": {**same, "new_file": "code.py", "message": "A third wish", "commit": "another"},
    }
    result = Divided(tmp_path, {"one": rows})
    assert result.reasons == {
        "id": "duplicate_id",
        "row": "duplicate_row",
        "commit": "duplicate_commit",
        "code": "duplicate_code",
    }
    assert set(result.kept.values()) == {"a"}


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(change("b", old_contents=A["old_contents"]), id="another wish and another text after"),
        pytest.param(change("b", message=A["message"]), id="the same wish of another text"),
        pytest.param(change("b", new_contents=A["new_contents"]), id="another text before"),
        pytest.param(change("b", commit=A["commit"]), id="another file of the commit"),
        pytest.param(change("b", old_file="a.py", new_file="a.py"), id="the same file in another commit"),
        pytest.param(change("b", repos=A["repos"]), id="the same repository"),
    ],
)
def test_what_is_alike_in_one_thing_only_is_kept(tmp_path: Path, row: dict[str, Any]) -> None:
    result = Divided(tmp_path, {"one": {"a": A, "b": row}})
    assert (result.reasons, result.counts["rows"]) == ({}, 2)


def test_edits_without_a_commit_are_not_of_the_same_one(tmp_path: Path) -> None:
    rows = [
        {
            **{"id": f"release:{name}", "source": "", "license": "MIT", "language": "python", "registry": "pypi"},
            **{"pre": f"old({name})\n", "post": f"new({name})\n", "pkg": name, "old": "1", "new": "2"},
            **{"path": "a.py", "qual": name},
        }
        for name in ("a", "b")
    ]
    written(tmp_path / "pairs", rows, entry=dataset("release_pairs"))
    division = assign_splits(load_edits({"pairs": tmp_path / "pairs"}, LANGUAGES), Splitting())
    assert division.counts() == {"rows_in": 2, "rows": 2, "clusters": 2}


def test_near_texts_with_the_same_lines_changed_are_one(tmp_path: Path) -> None:
    result = Divided(tmp_path, {"one": {"a": near("a")}, "two": {"b": near("b"), "c": change("c")}})
    assert (result.reasons, result.kept) == ({"b": "near_duplicate"}, {"b": "a"})


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"new_contents": near("b")["new_contents"].replace("new()", "newer()")}, id="another line comes"),
        pytest.param({"old_contents": near("b")["old_contents"].replace("old()", "older()")}, id="another line goes"),
        pytest.param({"new_contents": near("b")["new_contents"] + "done = True\n"}, id="one line more comes"),
    ],
)
def test_near_texts_with_other_lines_changed_are_two_and_stay_together(tmp_path: Path, changes: dict[str, Any]) -> None:
    result = Divided(tmp_path, {"one": {"a": near("a"), "b": near("b", **changes)}})
    assert (result.reasons, result.clusters["a"] == result.clusters["b"]) == ({}, True)


def test_the_same_lines_changed_in_texts_that_are_not_near_are_two(tmp_path: Path) -> None:
    first = change("a", old_contents="old()\n" + A["old_contents"], new_contents="new()\n" + A["old_contents"])
    b = change("b")["old_contents"]
    other = change("b", old_contents="old()\n" + b, new_contents="new()\n" + b)
    result = Divided(tmp_path, {"one": {"a": first, "b": other}})
    assert (result.reasons, result.clusters["a"] == result.clusters["b"]) == ({}, False)


def test_how_near_is_that_of_the_configuration(tmp_path: Path) -> None:
    rows = {"one": {"a": near("a"), "b": near("b")}}
    assert Divided(tmp_path / "least", rows, near_duplicate=0.5).reasons == {"b": "near_duplicate"}
    # they differ in a word, so only equal texts are near enough
    assert Divided(tmp_path / "most", rows, near_duplicate=1.0).reasons == {}


def test_in_a_chain_of_duplicates_the_same_one_is_kept_for_all(tmp_path: Path) -> None:
    rows = {
        "a": A,
        "b": change("b", commit=A["commit"], old_file="a.py"),
        # says the same as `b`, which is not kept, and nothing that `a` says
        "c": change("c", old_contents=change("b")["old_contents"], new_contents=change("b")["new_contents"]),
        "d": change("d", message="Change c", old_contents=change("b")["old_contents"]),
    }
    result = Divided(tmp_path, {"one": rows})
    assert (result.reasons, result.kept) == (
        {"b": "duplicate_commit", "d": "duplicate_row"},
        {"b": "a", "d": "c"},
    )


def test_an_edit_that_falls_out_late_passes_those_it_stands_for_on(tmp_path: Path) -> None:
    # `c` falls to `b` by its row, and `b` to `a` by its code
    rows = {
        "a": A,
        "b": change("b", old_contents=A["old_contents"], new_contents=A["new_contents"]),
        "c": change("c", old_contents=A["old_contents"], message="Change b"),
    }
    result = Divided(tmp_path, {"one": rows})
    assert result.reasons == {"b": "duplicate_code", "c": "duplicate_row"}
    assert result.kept == {"b": "a", "c": "a"}
    assert len(set(result.clusters.values())) == 1
