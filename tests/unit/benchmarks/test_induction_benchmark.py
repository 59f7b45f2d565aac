"""The benchmark of rule induction, on a handful of pairs: that it measures what it says; no clock is judged."""

import gzip
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks import induction
from benchmarks.induction_groups import outcome, shared, transfer
from benchmarks.induction_pairs import COMMITS, FIXTURES, RELEASES, File, Pair, changed_lines, is_judged, pairs_of
from benchmarks.induction_replay import Replay, replayed
from benchmarks.induction_solving import Solved, failure_row, figures_of, solved
from benchmarks.induction_synthetic import agreement, compared, synthetic_tasks
from benchmarks.induction_text import learned, replaced
from benchmarks.induction_trajectories import collected, task_of_pair
from benchmarks.induction_unseen import UnseenFiles, without_corpus
from graftline.astgrep.action import PatternAction
from graftline.codemod.background import texts
from graftline.codemod.equality import Level
from graftline.codemod.induce import Induction
from graftline.core.errors import SandboxError
from graftline.core.progress import Progress, progress_bars
from graftline.sandbox import MemorySandboxConfig, Sandbox, open_sandbox

TINY = induction.Sizes(pairs=4, peers=2, synthetic=2, files=8, groups=2, trajectories=2)
RENAMED = ("a = load(x)\nb = load(y, 2)\n", "a = read(x)\nb = read(y, 2)\n")


@pytest.fixture
def progress() -> Iterator[Progress]:
    with progress_bars() as shown:
        yield shown


@pytest.fixture(scope="module")
def memory() -> Iterator[Sandbox]:
    with closing(open_sandbox(MemorySandboxConfig())) as sandbox:
        yield sandbox


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with pairs of all sources, in the columns of the real ones."""
    sides = (RENAMED, ("print(load(p))\n", "print(read(p))\n"))
    _write(
        tmp_path / FIXTURES,
        [
            {
                **{"id": f"f{number}", "source": "linter", "repo": "a/linter", "rule": "no-load", "language": "python"},
                **{"pre": before, "post": after, "changed_lines": changed_lines(before, after)},
            }
            for number, (before, after) in enumerate(sides)
        ],
    )
    _write(
        tmp_path / RELEASES,
        [{"id": "r", "pkg": "p", "language": "python", "pre": RENAMED[0], "post": RENAMED[1], "changed": 4}],
    )
    body = "".join(f"    total = total + read(item_{number}, total)\n" for number in range(12))
    _write(
        tmp_path / COMMITS / "python" / "data.jsonl.gz",
        [
            _commit(f"o/{letter}", f"def sum_{letter}(total):\n{body}    return total\n", "read", "load")
            for letter in "abcdefgh"
        ],
    )
    return tmp_path


def _commit(repository: str, before: str, old: str, new: str) -> dict[str, Any]:
    return {
        **{"commit": repository, "old_file": "m.py", "new_file": "m.py", "repos": f"{repository},fork/of-it"},
        **{"old_contents": before, "new_contents": before.replace(f"{old}(item_1,", f"{new}(item_1,")},
    }


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)


def _pair(before: str, after: str, id: str = "p") -> Pair:
    return Pair(id, "fixtures", "linter", "a/linter", "no-load", "python", before, after)


def _file(repository: str, text: str) -> File:
    return File(repository, "m.py", "python", text)


def _bench(data: Path, folder: Path, progress: Progress) -> induction.Bench:
    return induction.Bench(data, TINY, folder, progress, None)


def test_commits_are_those_of_the_repositories_that_are_kept_for_measuring(data: Path) -> None:
    found = pairs_of(data, "commits")
    assert {pair.group for pair in found} == {f"o/{letter}" for letter in "abcdefgh" if is_judged(f"o/{letter}")}
    assert 0 < len(found) < 8
    others = pairs_of(data, "commits", "tuning")
    assert {pair.group for pair in (*found, *others)} == {f"o/{letter}" for letter in "abcdefgh"}
    assert len(found) + len(others) == 8


def test_texts_of_commits_that_are_judged_are_not_written() -> None:
    one = Solved(_pair(*RENAMED), Induction((), RENAMED[0], Level.NONE, "partial"), 1.0, "", (), None)
    hidden, shown = failure_row(one, False), failure_row(one, True)
    assert (hidden["reason"], set(shown) - set(hidden)) == ("partial", {"steps", "before", "wanted", "result"})


def test_pairs_with_many_changed_lines_are_left_out(data: Path) -> None:
    before, after = ("".join(f"{name} = {number}\n" for number in range(11)) for name in "ab")
    row = {"id": "long", "pkg": "p", "language": "python", "pre": before, "post": after, "changed": 22}
    _write(data / RELEASES, [row])
    assert pairs_of(data, "releases") == []


def test_a_part_without_data_says_what_is_missing(tmp_path: Path, progress: Progress) -> None:
    figures, peers = induction.measure(_bench(tmp_path, tmp_path, progress), ["fixtures", "commits", "synthetic"])
    assert figures["fixtures"] == {
        "missing": f"{tmp_path / FIXTURES}: no such file; give the folder of the data with --data"
    }
    assert list(figures["commits"]) == list(figures["synthetic"]) == ["missing"]
    assert peers == {}


def test_every_figure_of_a_source_is_there(data: Path, tmp_path: Path, progress: Progress) -> None:
    figures, peers = induction.one_source(_bench(data, tmp_path, progress), "fixtures")
    assert {key: figures[key] for key in ("pairs", "solved_percent", "exact_percent", "replay", "failures")} == {
        **{"pairs": 2, "solved_percent": 100.0, "exact_percent": 100.0, "failures": {}},
        "replay": {
            **{"solutions": 2, "as_written_percent": 100.0, "at_the_end_percent": 100.0, "by_itself_percent": 100.0},
        },
    }
    assert list(figures["by_language"]) == ["python"]
    assert figures["by_origin"]["linter"]["pairs"] == 2
    assert list(peers) == ["graftline", "literal", "plain", "text"]
    assert peers["literal"]["all_general_percent"] == 0.0
    assert peers["text"] == {"pairs": 2, "solved_percent": 100.0, "exact_percent": 100.0}


def test_a_crash_is_a_failure_with_its_name(memory: Sandbox) -> None:
    def crashing(pair: Pair, sandbox: Sandbox) -> Induction:
        raise RecursionError("too deep")

    found = solved(_pair(*RENAMED), crashing, memory)
    assert (found.failure, figures_of([found])["failures"]) == (
        "crash RecursionError",
        {"crash RecursionError": 1},
    )


def test_a_sandbox_that_fails_once_is_asked_again_and_twice_is_an_error(memory: Sandbox) -> None:
    asked = []

    def failing(pair: Pair, sandbox: Sandbox) -> Induction:
        asked.append(pair)
        if len(asked) != 2:
            raise SandboxError("out of order")
        return Induction((), pair.before, Level.NONE, "no_candidate")

    assert solved(_pair(*RENAMED), failing, memory).failure == "no_candidate"
    asked += [_pair(*RENAMED)]
    with pytest.raises(SandboxError, match="out of order"):
        solved(_pair(*RENAMED), failing, memory)


def test_rules_are_tried_on_files_of_other_repositories_only() -> None:
    files = [_file("o/a", "x = 1\n"), _file("o/b", "y = 2\n"), _file("o/c", "z = 3\n")]
    assert UnseenFiles(files).apart_from("o/b", "python", 5) == [files[0], files[2]]
    assert UnseenFiles(files).apart_from("o/b", "java", 5) == []


@pytest.mark.parametrize(
    ("action", "places"),
    [
        (PatternAction(pattern="load($A)", rewrite="read($A)"), 2),
        (PatternAction(pattern="load($A)", rewrite="load($A)"), 0),  # matches, and changes nothing
        (PatternAction(pattern="load($A, $B)", rewrite="read($A)"), 0),
    ],
)
def test_places_that_a_rule_changes_elsewhere_are_counted(memory: Sandbox, action: PatternAction, places: int) -> None:
    files = [_file("o/a", "load(1)\nload(2)\n"), _file("o/b", "read(3)\n")]
    assert UnseenFiles(files).touched(action, files, memory) == places


def test_rules_are_applied_to_other_files_one_after_the_other(memory: Sandbox) -> None:
    files = [_file("o/a", "one(1)\n"), _file("o/b", "other(1)\n")]
    actions = [
        PatternAction(pattern="one($A)", rewrite="two($A)"),
        PatternAction(pattern="two($A)", rewrite="three($A)"),
    ]
    assert UnseenFiles(files).edited(actions, files, memory) == {files[0]: "three(1)\n"}


def test_files_that_hold_functions_of_the_corpus_are_left_out() -> None:
    files = [_file("o/a", texts("python")[0]), _file("o/b", "x = 1\n")]
    assert without_corpus(files) == [files[1]]


def test_the_command_line_agrees_with_the_sandbox_where_blanks_are_tidied(memory: Sandbox, tmp_path: Path) -> None:
    # ast-grep indents the empty line between the two statements
    before, after = "def f():\n    go(1)\n", "def f():\n    one(1)\n\n    two(1)\n"
    found = induction.induced(_pair(before, after), memory)
    assert (found.level, found.result) == (Level.EXACT, after)
    assert replayed(before, found, "python", memory, tmp_path) == Replay(True, True, True)


@pytest.mark.parametrize(
    ("before", "after", "replacements"),
    [
        ("a = load(x)\n", "a = read(x)\n", (("load", "read"),)),
        ("a\nb\n", "a\nc\nb\n", (("a\n", "a\nc\n"),)),  # something must be searched for
        ("load(load_all)\n", "read(load_all)\n", (("load(", "read("),)),  # wider, where less would change too much
    ],
)
def test_search_and_replace_is_learned_from_one_pair(
    before: str, after: str, replacements: tuple[tuple[str, str], ...]
) -> None:
    assert learned(before, after) == replacements
    assert replaced(before, replacements) == after


@pytest.mark.parametrize(
    ("text", "became"),
    [
        (RENAMED[1], "solved"),
        (RENAMED[0], "untouched"),
        ("a = read(x)\nb = load(y, 2)\n", "nearer"),
        ("a = read(x)\nb = scan(y, 2)\n", "wrong"),
    ],
)
def test_what_became_of_another_pair_is_told_apart(text: str, became: str) -> None:
    assert outcome(_pair(*RENAMED), text) == became


def test_one_list_is_made_for_a_group_and_tried_on_the_rest(memory: Sandbox, progress: Progress) -> None:
    pairs = [_pair(*RENAMED, id="a"), _pair("print(load(p))\n", "print(read(p))\n", id="b")]
    figures = shared([pairs], memory, progress)
    assert figures["all_pairs_solved_percent"] == {"2 pairs": 100.0, "all": 100.0, "python": 100.0}
    rest = transfer([pairs], memory, progress)
    assert (rest["learned_on_1"]["other_pairs"], rest["learned_on_2"]["groups"]) == (1, 0)


def test_edits_elsewhere_are_compared_with_those_of_the_known_rule() -> None:
    a, b = _file("o/a", "f(1)\ng(2)\n"), _file("o/b", "h(3)\n")
    found = agreement({a: "f(9)\ng(9)\n"}, {a: "f(9)\ng(2)\n", b: "h(9)\n"})
    # wanted: two places in a; made: one of them, and one in b
    assert {name: found[name] for name in ("wanted", "made", "both", "compared", "equivalent")} == {
        **{"wanted": 2, "made": 2, "both": 1, "compared": 1, "equivalent": 0},
    }


def test_tasks_with_a_known_rule_are_solved_and_compared(data: Path, tmp_path: Path, progress: Progress) -> None:
    bench = _bench(data, tmp_path, progress)
    with closing(open_sandbox(MemorySandboxConfig())) as sandbox:
        tasks, _ = synthetic_tasks(bench.files(), 2, sandbox, progress)
        figures = compared(tasks, induction.induced, bench.files(), sandbox, progress)
    assert (len(tasks), figures["all"]["tasks"], figures["all"]["solved_percent"]) == (2, 2, 100.0)
    assert sum(name.startswith("family ") for name in figures) == 2


def test_trajectories_are_counted_until_there_are_enough(progress: Progress) -> None:
    tasks = [task_of_pair(_pair(*RENAMED, id=str(number))) for number in range(3)]
    figures = collected(tasks, 2, 1, progress)
    assert (figures["verified"], figures["attempts"], figures["workers"]) == (2, 2, 1)


def test_one_line_of_json_is_printed_and_failures_are_written(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = tmp_path / "failures.jsonl"
    sides = {"pre": f"x = '{'a' * 20_000}'\n", "post": "x = ''\n"}  # a line longer than is parsed
    _write(data / RELEASES, [{"id": "r", "pkg": "p", "language": "python", "changed": 2, **sides}])
    arguments = ["--quick", "--parts", "releases", "--limit", "1", "--data", str(data), "--failures", str(failures)]
    monkeypatch.setattr("sys.argv", ["induction", *arguments])
    induction.main()
    printed = capsys.readouterr().out.splitlines()
    assert [list(json.loads(line)) for line in printed] == [["name", "figures", "peers", "machine"]]
    assert json.loads(printed[0])["figures"]["releases"]["pairs"] == 1
    [row] = map(json.loads, failures.read_text("utf-8").splitlines())
    assert (row["id"], row["reason"]) == ("r", "too_large")
