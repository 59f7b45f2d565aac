"""The rows of a dataset into files: which there are, what is in them, and what is said of them."""

import json
from pathlib import Path

import pytest

from graftline.core.parquet import read_parquet
from graftline.datasets.decontaminate import evaluations
from graftline.datasets.deduplicate import shard_tables
from graftline.datasets.edit import DROPS, NORMALIZED, Edit, Rejection, RejectReason
from graftline.datasets.fingerprints import key, signatures
from graftline.datasets.normalize import CHUNK_BYTES, CHUNK_ROWS
from graftline.datasets.readers.base import RawRow
from tests.unit.datasets.fixtures import dataset
from tests.unit.datasets.shards import change, written

EXTENSIONS = ("py", "js", "ts", "tsx", "java")


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def mixed(count: int) -> list[bytes]:
    """Return lines of five languages, of which every seventh is broken, every eleventh under the GPL."""
    lines = []
    for number in range(count):
        file = f"f{number}.{EXTENSIONS[number % 5]}"
        row = change(f"f{number}", old_file=file, new_file=file, license="gpl-3.0" if number % 11 == 0 else "isc")
        lines.append(b'{"commit": ' if number % 7 == 0 else json.dumps(row).encode())
    return lines


def test_edits_become_a_shard_per_language(tmp_path: Path) -> None:
    rows = [change("a"), change("b", old_file="b.java", new_file="b.java"), change("c")]
    written(tmp_path / "demo", rows)
    assert list(files(tmp_path / "demo")) == [
        "dropped.parquet",
        "java-00000.jsonl",
        "java-00000.parquet",
        "python-00000.jsonl",
        "python-00000.parquet",
    ]
    lines = (tmp_path / "demo" / "python-00000.jsonl").read_bytes().splitlines()
    assert [Edit.model_validate_json(line).path for line in lines] == ["a.py", "c.py"]


def test_a_line_is_the_whole_edit_as_pydantic_writes_it(tmp_path: Path) -> None:
    written(tmp_path / "demo", [change("a", message='Übel\u2028 \U0001f600 "q" \\', repos="owner/a,fork/a")])
    [line] = (tmp_path / "demo" / "python-00000.jsonl").read_bytes().splitlines()
    edit = Edit.model_validate_json(line)
    assert line == edit.model_dump_json().encode()
    assert (edit.instruction, edit.aliases) == ('Übel\u2028 \U0001f600 "q" \\', ("fork/a",))


def test_a_row_of_the_table_says_the_same_as_its_line(tmp_path: Path) -> None:
    written(tmp_path / "demo", [change("First"), change("second", repos="Owner/Two,fork/Two", commit="c0ffee")])
    lines = (tmp_path / "demo" / "python-00000.jsonl").read_bytes().splitlines()
    rows = read_parquet(tmp_path / "demo" / "python-00000.parquet")
    assert [list(row) for row in rows] == [list(NORMALIZED)] * 2
    for row, line in zip(rows, lines, strict=True):
        edit = Edit.model_validate_json(line)
        pre, post = ("".join(text.split()).lower().encode() for text in (edit.pre, edit.post))
        assert row == {
            "id": edit.id,
            "dataset": "demo",
            "instruction": edit.instruction,
            "pre": edit.pre,
            "post": edit.post,
            "tags": json.dumps(edit.tags, separators=(",", ":")),
            "license": "MIT",
            "origin_group": edit.group,
            "origin": edit.origin,
            "pre_tokens": -(-len(edit.pre) // 4),
            "post_tokens": -(-len(edit.post) // 4),
            "line_bytes": len(line),
            "id_key": key(edit.id.encode()),
            "asked_key": key(edit.instruction.encode(), edit.pre.encode()),
            "pre_key": key(pre),
            "done_key": key(pre, post),
            "change_key": key(edit.commit.encode(), edit.path.encode()),
            "link_keys": [
                *(key(name.lower().encode()) for name in (edit.group, *edit.aliases)),
                key(b"commit", edit.commit.encode()),
            ],
            "signature": signatures([pre])[0],
            "instruction_source": "commit",
            "answerable": None,
            "answerable_by": None,
        }


def test_drops_are_a_table_in_the_order_of_the_rows(tmp_path: Path) -> None:
    rows = [
        RawRow("a.jsonl", 3, b"{"),
        RawRow("a.jsonl", 4, json.dumps(change("a")).encode()),
        RawRow("b.jsonl", 1, Rejection(RejectReason.LINE_TOO_LONG, "more than 100 bytes")),
        RawRow("b.jsonl", 2, json.dumps(change("b", license="gpl-3.0")).encode()),
    ]
    done = written(tmp_path / "demo", rows)
    table = read_parquet(tmp_path / "demo" / "dropped.parquet")
    assert [list(row) for row in table] == [list(DROPS)] * 3
    assert [tuple(row.values()) for row in table] == [
        ("demo", "a.jsonl", 3, "malformed_json", "unexpected end of data (character 2)"),
        ("demo", "b.jsonl", 1, "line_too_long", "more than 100 bytes"),
        (
            *("demo", "b.jsonl", 2, "license"),
            "'GPL-3.0-only' is not allowed; allowed: MIT, BSD-2-Clause, BSD-3-Clause, Apache-2.0, ISC",
        ),
    ]
    assert [(file, line, str(reason)) for file, line, reason, _ in done.first_rejected] == [
        ("a.jsonl", 3, "malformed_json"),
        ("b.jsonl", 1, "line_too_long"),
        ("b.jsonl", 2, "license"),
    ]


def test_what_became_of_the_rows_is_counted(tmp_path: Path) -> None:
    done = written(tmp_path / "demo", mixed(700))
    # every 7th of 700 is broken; of the 64 that 11 divides, 10 are among those
    assert list(done.counts.items()) == [
        ("rows_in", 700),
        ("rows", 700 - 100 - 54),
        ("labels", 0),
        ("dropped.license", 54),
        ("dropped.malformed_json", 100),
    ]
    assert (done.licenses, len(done.first_rejected)) == ({"ISC": 546}, 20)


def test_labels_are_lines_and_count_with_their_licenses(tmp_path: Path) -> None:
    entry = dataset("marv", licenses={"apache/*": "Apache-2.0"})
    vote = {
        "refactoring_id": 1,
        "commit_sha": "c0ffee",
        "commit_link": "https://github.com/apache/demo/commit/c0ffee",
        "file_path": "A.java",
        "description": "Rename Method private f() : int renamed to private g() : int in class demo.A",
        "code_before": "int f() { return 1; }",
        "code_after": "int g() { return 1; }",
    }
    agreed, disputed = [{"vote": 1}, {"vote": 1}], [{"vote": 1}, {"vote": 0}]
    rows = [
        RawRow("MaRV.json", number, {**vote, "refactoring_id": number, "type": "Rename Method", "evaluations": votes})
        for number, votes in enumerate((agreed, disputed, disputed), 1)
    ]
    done = written(tmp_path / "demo", rows, entry=entry)
    lines = (tmp_path / "demo" / "labels.jsonl").read_bytes().splitlines()
    assert (done.counts, done.licenses) == ({"rows_in": 3, "rows": 1, "labels": 2}, {"Apache-2.0": 3})
    assert [(json.loads(line)["holds"], json.loads(line)["kind"]) for line in lines] == [(None, "label")] * 2


@pytest.mark.parametrize(("rows", "units"), [(CHUNK_ROWS, [CHUNK_ROWS]), (CHUNK_ROWS + 1, [CHUNK_ROWS, 1])])
def test_a_unit_has_so_many_rows(tmp_path: Path, rows: int, units: list[int]) -> None:
    line = json.dumps(change("a")).encode()
    done = written(tmp_path / "demo", (line for _ in range(rows)))
    lines = [path.with_suffix(".jsonl").read_bytes().count(b"\n") for path in shard_tables(tmp_path / "demo", "python")]
    assert (lines, done.counts["rows"]) == (units, rows)


def test_a_unit_has_so_many_bytes(tmp_path: Path) -> None:
    # two of them are less than a unit, and the third ends it
    large = json.dumps(change("a", new_contents="x = 1\n" * (CHUNK_BYTES // 16))).encode()
    assert 2 * len(large) < CHUNK_BYTES < 3 * len(large)
    written(tmp_path / "demo", [large, large, large, json.dumps(change("b")).encode()])
    sizes = [len(read_parquet(path, ["id"])) for path in shard_tables(tmp_path / "demo", "python")]
    assert sizes == [3, 1]


def test_progress_is_told_after_every_unit(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    written(tmp_path / "demo", [b"{"] * (CHUNK_ROWS + 5), advance=lambda *progress: calls.append(progress))
    assert calls == [(CHUNK_ROWS, 0), (CHUNK_ROWS + 5, 0)]


def test_edits_near_an_evaluation_are_counted_and_left_out(tmp_path: Path) -> None:
    exam = "\n".join(f"assert solve({number}, 'question {number}') == {number * 17}" for number in range(20))
    rows = [
        change("a"),
        change("b", old_contents=exam.upper()),
        change("c", new_contents=f"def c():\n    pass\n{exam}"),
        change("d", old_contents=exam, license="gpl-3.0"),
    ]
    done = written(tmp_path / "demo", rows, against=evaluations([("exam.jsonl:1", exam)]))
    assert done.counts == {"rows_in": 4, "rows": 1, "labels": 0, "dropped.contaminated": 2, "dropped.license": 1}
    assert done.licenses == {"MIT": 1}
    assert [(line, str(reason), detail) for _, line, reason, detail in done.first_rejected if reason != "license"] == [
        (2, "contaminated", "shares 100% with evaluation exam.jsonl:1"),
        (3, "contaminated", "shares 100% with evaluation exam.jsonl:1"),
    ]
