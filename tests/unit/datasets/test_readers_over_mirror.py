"""Every reader over whole files of its dataset, or of stand-ins in its very shape.

The expected numbers were counted without the readers: lines of files, endings of names, lines of patches that start
with `diff --git` or `@@`, votes, rows of the table.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from graftline.datasets.edit import Edit, Label, Rejection, RowResult
from graftline.datasets.ingest import parse_row
from graftline.datasets.readers import ReaderName, source_of
from tests.unit.datasets.fixtures import dataset

MAX_LINE_BYTES = 2 << 20


@pytest.fixture
def mirror(checkout: Path) -> Path:
    folder = checkout.parent / "shared" / "data" / "mirror"
    if not folder.is_dir():
        pytest.skip("needs the mirror of the datasets beside the checkout, in ../shared/data/mirror")
    return folder


def rows_of(reader: ReaderName, folder: Path) -> Iterator[Mapping[str, Any]]:
    for row in source_of(reader).rows(folder / reader, dataset(reader), MAX_LINE_BYTES):
        content = parse_row(row.content) if isinstance(row.content, bytes) else row.content
        assert not isinstance(content, Rejection), content
        yield content


def outcomes_of(reader: ReaderName, folder: Path) -> list[RowResult]:
    entry, source = dataset(reader), source_of(reader)
    return [result for row in rows_of(reader, folder) for result in source.outcomes(row, reader, entry)]


def kinds(outcomes: list[RowResult]) -> dict[str, int]:
    return dict(
        Counter(result.reason.value if isinstance(result, Rejection) else type(result).__name__ for result in outcomes)
    )


def edits_in(outcomes: list[RowResult]) -> list[Edit]:
    edits = [result for result in outcomes if isinstance(result, Edit)]
    assert len({edit.id for edit in edits}) == len(edits)
    return edits


def test_every_commit_becomes_an_edit(mirror: Path) -> None:
    outcomes = outcomes_of("commitpackft", mirror)
    assert kinds(outcomes) == {"Edit": 2687}
    edits = edits_in(outcomes)
    # the 430 rows of TypeScript are 304 .ts, 3 .mts and 123 .tsx
    assert Counter(edit.language for edit in edits) == {
        **{"python": 1100, "javascript": 748, "java": 409},
        **{"typescript": 307, "tsx": 123},
    }
    # as the column says: mit, apache-2.0, bsd-3-clause, and 48 rows under two licenses at once
    assert Counter(edit.license for edit in edits) == {
        **{"MIT": 145 + 734 + 312 + 281, "Apache-2.0": 264 + 8 + 347 + 148},
        **{"BSD-3-Clause": 5 + 395, "apache-2.0+mit": 1 + 46 + 1},
    }
    assert [edit.id for edit in edits if "example.invalid" in edit.instruction] == []


def test_hunks_of_single_files_become_edits(mirror: Path) -> None:
    outcomes = outcomes_of("agentpack", mirror)
    # of 168 patches of one file 9 are long, 4 of the others make a new file, and in 7 a line such as
    # "+@pytest.mark.x" was taken for an e-mail address when the stand-in was made; 148 are left
    assert kinds(outcomes) == {"several_files": 732, "too_long": 9, "empty_pre": 4, "bad_patch": 7, "Edit": 336}
    edits = edits_in(outcomes)
    assert Counter(edit.language for edit in edits) == {"python": 303, "typescript": 26, "java": 2, "tsx": 5}
    assert [edit.id for edit in edits if "co-authored-by" in edit.instruction.lower()] == []


def test_rows_that_are_not_even_kept_are_those_without_an_edit(mirror: Path) -> None:
    source = source_of("agentpack")
    unwanted = [source.reject_unusable(row) for row in rows_of("agentpack", mirror)]
    assert Counter(drop.reason.value if drop else "wanted" for drop in unwanted) == {
        **{"several_files": 732, "too_long": 9, "empty_pre": 4, "bad_patch": 7, "wanted": 148},
    }


def test_agreed_refactorings_become_edits_and_refuted_ones_labels(mirror: Path) -> None:
    outcomes = outcomes_of("marv", mirror)
    # one vote each: 180 of 185, 137 of 164 and 90 of 94 are for
    assert kinds(outcomes) == {"Edit": 180 + 137 + 90, "Label": 5 + 27 + 4}
    tags = Counter(edit.tags[1] for edit in edits_in(outcomes))
    assert tags == {"type:extract-method": 180, "type:rename-method": 137, "type:rename-variable": 90}
    assert {result.holds for result in outcomes if isinstance(result, Label)} == {False}


def test_every_smell_outside_of_cpp_becomes_a_label(mirror: Path) -> None:
    outcomes = outcomes_of("smellycode", mirror)
    assert kinds(outcomes) == {"Label": 375, "unknown_language": 103}
    labels = [result for result in outcomes if isinstance(result, Label)]
    assert Counter(label.language for label in labels) == {"python": 131, "java": 128, "javascript": 116}
    assert len({label.id for label in labels}) == 375
    # CheesePizza is declared in the file of Pizza: seven classes, six files
    assert Counter(label.origin.rpartition("/")[2].partition(".")[0] for label in labels)["Pizza"] == 72 + 6
    assert [label.id for label in labels if "smelly" in label.pre.lower()] == []
