"""The benchmark of whole commits, on a small one."""

import json
import lzma
from pathlib import Path

import pytest

from benchmarks import follow_speed
from benchmarks.migration_measure import Commit, counts_of
from benchmarks.migrations import main, summarize
from benchmarks.peers.templates import make_templates, rewrite_text

_BODY = "def f{n}(app):\n    link = app.broker_link({n})\n    return link\n"
_FILES = [
    {"path": f"m{n}.py", "before": _BODY.format(n=n), "after": _BODY.format(n=n).replace("broker_link", "link")}
    for n in range(5)
]
_ROW = {
    "id": "a__b-1", "repo": "a/b", "commit": "1", "subject": "Rename broker_link", "files": _FILES,
    "untouched": [{"path": "n.py", "text": "# broker_link\nbroker = link\n"}, {"path": "o.py", "text": "x = 1\n"}],
}  # fmt: skip


def test_a_renamed_method_is_found_everywhere_and_runs_are_not_made_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with lzma.open(tmp_path / "migrations_dev.jsonl.xz", "wt") as stream:
        stream.write(json.dumps(_ROW) + "\n")
    arguments = ["--data", str(tmp_path), "--cache", str(tmp_path), "--half", "tuning", "--seeds", "2"]
    main(arguments)
    line = json.loads(capsys.readouterr().out)
    arms = line["figures"]["tuning"] | line["peers"]["tuning"]
    measured = {arm: [arms[arm]["1"][name] for name in ("recall", "precision", "false_per_1000")] for arm in arms}
    assert measured == {
        **{arm: [1.0, 1.0, 0.0] for arm in ("generalize", "generalize-asks", "learn")},
        **{arm: [1.0, 0.8, 500.0] for arm in ("sed", "template")},
    }
    assert arms["generalize"]["3"]["recall_at_p90"] == 1.0
    main(arguments)
    assert json.loads(capsys.readouterr().out) == line


def test_hunks_are_counted_whole_and_demonstrated_places_left_out() -> None:
    commit = Commit(_ROW)
    shown = commit.show(0, 1)
    done = {file.path: file.after for file in commit.files[:3]} | {"o.py": "x = 2\n"}
    part = {commit.files[3].path: commit.files[3].before.replace("broker_link", "link_to")}
    is_done = shown[0].path in done
    counts = counts_of(commit.score(done | part, shown))
    assert counts == {
        "gold": 4, "hit": 3 - is_done, "made": (3 - is_done) + (shown[0].path not in part), "good": 3 - is_done,
        "false": 1, "untouched": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("replacement", "is_part"), [("link", True), ("link_to", False), ("broker_link.x", False), ("(link)", False)]
)
def test_a_change_is_right_if_it_is_a_part_of_the_commit(replacement: str, is_part: bool) -> None:
    commit, text = Commit(_ROW), _FILES[0]["before"]
    start = text.index("broker_link")
    assert commit.agrees("m0.py", start, start + len("broker_link"), replacement, text) == is_part
    assert not commit.agrees("n.py", 2, 13, replacement, "# broker_link\n")


@pytest.mark.parametrize(
    ("before", "after", "text", "expected"),
    [
        ("if d.has_key(k.x):", "if k.x in d:", "if d.has_key(f(1, 2)):\n", "if f(1, 2) in d:\n"),
        ("get(url, 5).x", "get(url, timeout=5).x", "get(a[0], (7))\n", "get(a[0], timeout=(7))\n"),
        ("foo(a, b)", "foo(a, b, timeout=3)", "foo(\n)  foo(c)", "foo(\n)  foo(c, timeout=3)"),
        ("class A:", "class A(object):", "class A: ...", "class A(object): ..."),
    ],
)
def test_a_template_has_holes_where_an_edit_leaves_things(before: str, after: str, text: str, expected: str) -> None:
    (template,) = make_templates(before, after)
    assert rewrite_text(template, text) == expected


def test_recall_counts_at_a_precision_of_nine_tenths() -> None:
    fields = {"gold": 10, "hit": 8, "good": 8, "false": 0, "untouched": 10, "seconds": 0.1, "cause": ""}
    rows = [{**fields, "commit": name, "made": made} for name, made in (("a", 8), ("b", 10))]
    figures = summarize(rows)
    assert (figures["recall_at_p90"], figures["recall"], figures["solved"]) == (0.4, 0.8, 0.0)


@pytest.mark.parametrize(
    ("run", "arguments", "message"),
    [
        (follow_speed.main, ["--files", "x"], "argument --files: 'x': expected whole numbers from 1"),
        (follow_speed.main, ["--edits", "super,x"], "argument --edits: 'x': is none of getLogger"),
        (main, ["--shown", "0"], "argument --shown: '0': expected whole numbers from 1"),
        (main, ["--arms", "x,y"], "argument --arms: 'x, y': is none of "),
    ],
)
def test_an_argument_that_means_nothing_is_told_with_what_is_expected(run, arguments, message, capsys):
    with pytest.raises(SystemExit):
        run(arguments)
    assert message in capsys.readouterr().err
