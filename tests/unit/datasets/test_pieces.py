"""Long texts in pieces, and synthetic edits of templates that were asked for."""

import pytest

from graftline.astgrep.binding import LANGUAGES, Language
from graftline.datasets.edit import Edit
from graftline.datasets.language import is_clean
from graftline.datasets.synthetic import synthesize
from graftline.datasets.synthetic.excerpts import split_into_excerpts
from graftline.datasets.synthetic.families import HELD_OUT
from graftline.sandbox.actions.memory import MemorySandbox

PYTHON = '''\
import logging

def first(rows):
    """Add all."""
    total = sum([row.size for row in rows])
    # what is left
    if total > LIMIT:
        logging.warning("too many: %s of %s", total, LIMIT)
        total = LIMIT
    return total

class Shop:
    def open(self, key):
        self.door = self.doors.get(key)
        return self.door is not None
'''
JAVASCRIPT = """\
class Shop {
  open(key) {
    const door = this.doors.get(key);
    if (door == null) {
      throw new Error("no such door");
    }
    return door;
  }
}
function first(rows) {
  return rows.map((row) => row.size).filter((size) => size > 0);
}
"""
TYPED = JAVASCRIPT.replace("open(key)", "open(key: string): Door").replace("(rows)", "(rows: Row[])")
JAVA = """\
class Shop {
    Door open(String key) {
        Door door = doors.get(key);
        if (door == null) {
            throw new IllegalStateException("no such door");
        }
        return door;
    }
    int first(List<Row> rows) {
        return rows.stream().mapToInt(Row::size).sum();
    }
}
"""
TEXTS: dict[Language, str] = {
    "python": PYTHON,
    "javascript": JAVASCRIPT,
    "typescript": TYPED,
    "tsx": TYPED,
    "java": JAVA,
}


def edit(text: str, language: Language, id: str = "d:1") -> Edit:
    return Edit(
        instruction="Change it.", pre=text, post=text + "\n", language=language, tags=(), id=id, dataset="d",
        license="MIT", group="g", aliases=(), commit="c", origin="o",
    )  # fmt: skip


@pytest.mark.parametrize("language", LANGUAGES)
def test_pieces_are_short_parse_alone_and_are_of_the_text(language: Language) -> None:
    text = TEXTS[language]
    pieces = split_into_excerpts([edit(text, language)], language, 120)
    lines = {line.strip() for line in text.splitlines()}
    assert len(pieces) > 1
    for piece in pieces:
        # with the line break at its end
        assert len(piece.pre) <= 121
        assert is_clean(piece.pre, language)
        assert not piece.pre.startswith((" ", "\n"))
        assert {line.strip() for line in piece.pre.splitlines()} <= lines
    assert len({piece.id for piece in pieces}) == len(pieces)
    assert {(piece.group, piece.license, piece.id.partition("/")[0]) for piece in pieces} == {("g", "MIT", "d:1")}


def test_statements_stay_together_as_long_as_there_is_room() -> None:
    pieces = split_into_excerpts([edit(PYTHON, "python")], "python", 150)
    assert [piece.pre for piece in pieces] == [
        # one that is too short by itself to say anything is left out: the import
        '"""Add all."""\ntotal = sum([row.size for row in rows])\n# what is left\n',
        'if total > LIMIT:\n    logging.warning("too many: %s of %s", total, LIMIT)\n    total = LIMIT\nreturn total\n',
        "class Shop:\n    def open(self, key):\n        self.door = self.doors.get(key)\n        return self.door is not None\n",
    ]


def test_of_what_does_not_parse_by_itself_the_inside_is_taken() -> None:
    # a method is none without its class
    pieces = split_into_excerpts([edit(JAVASCRIPT, "javascript")], "javascript", 150)
    assert pieces[0].pre == (
        'const door = this.doors.get(key);\nif (door == null) {\n  throw new Error("no such door");\n}\nreturn door;\n'
    )


def test_a_short_text_is_a_piece_as_it_is_and_what_is_nested_too_deeply_is_none() -> None:
    short, deep = edit("f(1)\n", "python"), edit("x = " + "[" * 3000 + "]" * 3000 + "\n", "python", "d:2")
    assert split_into_excerpts([short, deep], "python", 40) == [short]


def made(only: tuple[str, ...], split: str = "test") -> set[str]:
    pieces = split_into_excerpts([edit(PYTHON, "python")], "python", 150)
    edits = synthesize(pieces, "python", 40, 0, MemorySandbox(), split, 8, only)  # type: ignore[arg-type]
    return {tag.partition(":")[2] for edit in edits for tag in edit.tags if tag.startswith("template:")}


def test_only_the_templates_that_were_asked_for_are_made() -> None:
    everything = made(())
    templates = sorted(everything - {"rename_local"})[:2]
    assert len(everything) > 4
    assert made(tuple(templates)) == {*templates}


def test_a_template_that_is_held_out_is_not_trained_on_though_it_was_asked_for() -> None:
    held_out = made(()) & HELD_OUT
    assert held_out
    assert made(tuple(held_out)) == held_out
    assert made(tuple(held_out), "train") == set()
