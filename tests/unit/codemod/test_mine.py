"""Edits that a git history repeats."""

from pathlib import Path

import pytest

from graftline.astgrep.action import Action, PatternAction, RuleAction
from graftline.codemod.history import History, list_ignored_by_git
from graftline.codemod.hunks import find_statement, split_into_hunks
from graftline.codemod.mine import MinedRules, mine_rules
from graftline.codemod.mining.pairs import CollectedPairs, Pair, collect_pairs
from graftline.codemod.mining.subjects import free_arguments, is_half, is_of_imports
from graftline.codemod.mining.trial import MiningConfig, limit_share
from graftline.codemod.rule_file import format_rules
from graftline.core.errors import DataError, GraftlineError
from graftline.datasets.language import language_of_path
from graftline.sandbox.actions import MemorySandboxConfig
from graftline.sandbox.actions.memory import MemorySandbox
from tests.git_repositories import commit as committed
from tests.git_repositories import git

PYTHON = frozenset({"python"})
FIRST = """import client


def one(url, timeout):
    data = client.get(url, timeout)
    return data


def two(rows):
    return sum([row for row in rows])


def three(other):
    print(client.get(other, 5))
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    committed(folder, {"a.py": FIRST, "b.py": 'import client\n\nclient.get("x", 1)\n', "c.txt": "client.get(1)\n"})
    committed(folder, {"a.py": FIRST.replace("client.get(", "client.fetch(")})
    committed(folder, {"b.py": 'import client\n\nclient.fetch("x", 1)\n', "c.txt": "client.fetch(1)\n"})
    return folder


def mined_from(folder: Path, journal: Path | None = None, span: str = "") -> MinedRules:
    history = History.read(folder, span)
    found = collect_pairs(history.changes(language_of_path, PYTHON), journal, 0, MemorySandboxConfig())
    newest = list(history.newest_files(language_of_path, PYTHON))
    return mine_rules(found, MiningConfig(), MemorySandbox(), newest)


def test_a_repeated_edit_becomes_one_rule_with_its_support(repository: Path) -> None:
    [rule] = mined_from(repository).rules
    assert rule.action == PatternAction(pattern="client.get($$$A)", rewrite="client.fetch($$$A)")
    assert rule.facts["support"] == {"changes": 3, "places": 3, "commits": 2, "files": 2, "contradictions": 0}
    assert [(one.before, one.after) for one in rule.examples][:1] == [
        ('client.get("x", 1)\n', 'client.fetch("x", 1)\n')
    ]


def test_the_same_history_gives_the_same_bytes_with_a_journal_and_without(repository: Path, tmp_path: Path) -> None:
    texts = {format_rules(mined_from(repository, journal).rules) for journal in (None, tmp_path / "j", tmp_path / "j")}
    assert len(texts) == 1
    assert len((tmp_path / "j").read_text("utf-8").splitlines()) == 3  # two files and a group


def test_a_journal_that_was_cut_is_gone_on_from(repository: Path, tmp_path: Path) -> None:
    wanted = mined_from(repository, tmp_path / "j")
    content = (tmp_path / "j").read_bytes()
    (tmp_path / "j").write_bytes(content[: len(content) // 2])
    assert mined_from(repository, tmp_path / "j") == wanted


@pytest.mark.parametrize(("content", "said"), [("a note", "line 1 is no entry"), (None, "name a file")])
def test_what_is_no_journal_is_not_taken_for_one(
    repository: Path, tmp_path: Path, content: str | None, said: str
) -> None:
    if content is None:
        (tmp_path / "j").mkdir()
    else:
        (tmp_path / "j").write_text(f"{content}\n{content}")
    with pytest.raises(GraftlineError, match=said):
        mined_from(repository, tmp_path / "j")
    assert content is None or (tmp_path / "j").read_text() == f"{content}\n{content}"


def test_an_interrupt_leaves_what_was_found_until_then(repository: Path) -> None:
    def stop(_: object) -> None:
        raise KeyboardInterrupt

    changes = History.read(repository).changes(language_of_path, PYTHON)
    found = collect_pairs(changes, None, 0, MemorySandboxConfig(), stop)
    assert (found.changes, found.is_interrupted) == (1, True)


def test_a_range_leaves_out_what_is_before_it(repository: Path) -> None:
    assert len(History.read(repository, "HEAD~1..HEAD").commits) == 1
    assert mined_from(repository, span="HEAD~1..").rules == ()


def test_a_folder_of_a_repository_has_the_history_of_its_files(repository: Path) -> None:
    committed(repository, {"sub/d.py": "f(1)\n"})
    committed(repository, {"sub/d.py": "g(1)\n", "a.py": "x = 1\n"})
    history = History.read(repository / "sub")
    assert [change.path for change in history.changes(language_of_path, PYTHON)] == ["sub/d.py"]


def make_pair(number: int, before: str, after: str, *actions: Action, path: str = "") -> Pair:
    names = {"commit": f"c{number}", "path": path or f"{number}.py", "line": 1, "language": "python"}
    return Pair.model_validate({**names, "before": f"{before}\n", "after": f"{after}\n", "actions": actions})


def mined_of(*pairs: Pair, config: MiningConfig | None = None) -> list[Action]:
    mined = mine_rules(CollectedPairs(list(pairs)), config or MiningConfig(), MemorySandbox())
    return [rule.action for rule in mined.rules]


def test_a_rule_that_people_contradict_is_not_kept() -> None:
    action = PatternAction(pattern="f($A)", rewrite="g($A)")
    same = [make_pair(number, f"f({number})", f"g({number})", action) for number in range(3)]
    assert mined_of(*same) == [action]
    other = make_pair(9, "f(9)\nh()", "f(9)\ni()")
    assert mined_of(other, *same) == []
    # before anybody did so, it was how it was written
    assert mined_of(*same, other) == [action]
    assert mined_of(other, *same, config=MiningConfig(min_precision=0.5)) == [action]


@pytest.mark.parametrize(("left", "pattern"), [("", "f($A)"), ("f(z)", "f($A.x())")])
def test_rules_that_differ_in_an_argument_become_one(left: str, pattern: str) -> None:
    """It has a variable there; or what most places have, where that would change what people left."""
    pairs = [
        make_pair(
            number,
            f"f(a.{name}())\n{left}",
            f"g(a.{name}()).k()\n{left}",
            PatternAction(pattern=f"f($A.{name}())", rewrite=f"g($A.{name}()).k()"),
            # says the same of one of them, and explains nothing new
            RuleAction(rule={"pattern": "f(a.y())"}, fix="g(a.y()).k()"),
        )
        for number, name in enumerate("xyxyxyx")
    ]
    [action] = mined_of(*pairs)
    assert action == PatternAction(pattern=pattern, rewrite=f"g{pattern[1:]}.k()")


def test_what_takes_away_what_people_moved_is_no_rule() -> None:
    action = PatternAction(pattern="$A.old", rewrite="check.new")
    moved = [make_pair(n, f"a{n}.old()", f"check.new(a{n})", action) for n in range(4)]
    assert mined_of(*moved) == []
    gone = [make_pair(n, f"a{n}.old()", "check.new()", action) for n in range(4)]
    assert mined_of(*gone) == [action]


def test_what_never_finishes_a_line_is_half_of_an_edit() -> None:
    call = PatternAction(pattern="old($A)", rewrite="new($A)")
    more = [make_pair(n, f"x.y(old({n}))", f"x.z(new({n}))", call) for n in range(4)]
    assert mined_of(*more) == []
    assert mined_of(*more, make_pair(9, "old(9)", "new(9)", call)) == [call]
    # a renaming of what becomes another thing is finished now and then
    name = RuleAction(rule={"kind": "identifier", "regex": "^folder$"}, fix="path")
    joined = [make_pair(n, f"f(folder, old({n}))", f"f(path, new({n}))", name) for n in range(4)]
    alone = [make_pair(10 + n, f"f(folder, {n})", f"f(path, {n})", name) for n in range(4)]
    assert mined_of(*joined, *alone[:3]) == []
    assert mined_of(*joined, *alone) == [name]


@pytest.mark.parametrize(
    ("rule", "fix", "is_part"),
    [
        ({"kind": "function_declaration", "has": {"field": "name", "regex": "^f$"}}, "", True),
        ({"pattern": "def f(a):\n    return a"}, "", True),
        ({"pattern": "def test_f(a):\n    return a"}, "", False),
        ({"kind": "identifier", "regex": "^a$", "inside": {"kind": "parameters"}}, "b", True),
        ({"kind": "identifier", "regex": "^a$", "inside": {"kind": "parameters"}}, "m.b", False),
        ({"pattern": {"context": "def f(a, $A): pass", "selector": "parameters"}}, "(b, $A)", True),
        ({"pattern": {"context": "def f(a: T): pass", "selector": "typed_parameter"}}, "a: S", False),
    ],
)
def test_definitions_go_and_parameters_are_renamed_with_what_uses_them(rule, fix, is_part) -> None:
    assert is_half(RuleAction(rule=rule, fix=fix), "python") is is_part


def test_parameters_and_what_methods_are_called_of_are_variables_of_one_rule() -> None:
    context, selector = "def f(a: T = None): pass", "typed_default_parameter"
    rule = {"pattern": {"context": "def f($A: $B = None): pass", "selector": selector}}
    free = [
        (
            PatternAction(pattern=context, rewrite="a: Optional[T] = None", selector=selector),
            RuleAction(rule=rule, fix="$A: Optional[$B] = None", constraints={"B": {"regex": r"^[\w.]+$"}}),
        ),
        (
            PatternAction(pattern="check(rows.has(1))", rewrite="check_that(rows).has(1)"),
            PatternAction(pattern="check($A.has($B))", rewrite="check_that($A).has($B)"),
        ),
        (
            PatternAction(pattern="reader.read(1)", rewrite="reader.load(1)"),
            PatternAction(pattern="reader.read($A)", rewrite="reader.load($A)"),
        ),
    ]
    for action, expected in free:
        assert free_arguments(action, "python") == expected
    narrow = PatternAction(pattern="check(rows.has($A))", rewrite="check_that(rows).has($A)")
    assert free_arguments(free[1][0], "python", frees_receivers=False) == narrow


def test_what_the_language_has_is_many_things() -> None:
    action = PatternAction(pattern="check(a, None)", rewrite="check(a, 'utf-8')")
    same = [make_pair(n, "check(a, None)", "check(a, 'utf-8')", action, path=f"{n % 2}.py") for n in range(5)]
    assert mined_of(*same) == [action]
    assert mined_of(*(pair.model_copy(update={"commit": "c"}) for pair in same)) == []


def test_the_names_of_one_file_have_no_rules() -> None:
    action = PatternAction(pattern="helper($A)", rewrite="tool($A)")
    same = [make_pair(number, f"helper({number})", f"tool({number})", action, path="a.py") for number in range(5)]
    assert mined_of(*same) == []
    member = PatternAction(pattern="self.helper", rewrite="self.tool")
    own = [
        make_pair(number, f"self.helper({number})", f"self.tool({number})", member, path="a.py") for number in range(5)
    ]
    other = [make_pair(8, "print(self, tool, helper)", "print(self, tool, helper, 1)", path="b.py")]
    assert mined_of(*own, *other) == []
    assert mined_of(*own[1:], own[0].model_copy(update={"path": "c.py"}), *other) == [member]
    assert mined_of(*same, make_pair(9, "helper = 1\ntool = 1", "helper = 1\ntool = 2", path="b.py")) == [action]


def test_a_bare_name_has_to_be_surer_than_a_call() -> None:
    call = PatternAction(pattern="old($A)", rewrite="new($A)")
    name = RuleAction(rule={"kind": "identifier", "regex": "^old$"}, fix="new")
    for action in (call, name):
        same = [make_pair(number, f"old({number})", f"new({number})", action) for number in range(1, 31)]
        assert mined_of(*same) == [action]
        kept = mined_of(make_pair(0, "old(0)\nh()", "old(0)\ni()"), *same)
        assert kept == [action] * (action == call)
    assert limit_share(30, 1) == pytest.approx(0.8676, abs=0.0001)


def test_names_with_dots_of_java_are_of_imports() -> None:
    for kind, is_import in (("scoped_identifier", True), ("field_access", False)):
        rule = {"kind": kind, "regex": r"^org\.junit\.Assert$"}
        assert is_of_imports(RuleAction(rule=rule, fix="com.google.Truth")) is is_import


def test_what_a_rule_would_change_in_the_newest_files_speaks_against_it(repository: Path) -> None:
    committed(
        repository, {"d.py": "client.get(1, 2)\n", "_vendor/e.py": "x = 1\n", "vendor/e.py": "client.get(1, 2)\n"}
    )
    assert mined_from(repository).rules == ()
    (repository / "d.py").unlink()
    committed(repository, {})
    assert len(mined_from(repository).rules) == 1


def test_imports_have_no_rules_and_a_rule_that_takes_away_a_test_says_so(repository: Path) -> None:
    for number in range(3):
        test = "\n\ndef test_old():\n    check(1)\n"
        committed(repository, {f"t{number}.py": f"import old\n\nx = old.f({number}){test}"})
        committed(repository, {f"t{number}.py": f"import new\n\nx = old.f({number})\n"})
    rules = mined_from(repository).rules
    assert [rule.facts.get("removes") for rule in rules if "test_old" in str(rule.action)] == ["test"]
    assert not [rule for rule in rules if "import" in str(rule.action)]


def test_nothing_that_a_repository_says_is_run(repository: Path, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n", "utf-8")
    script.chmod(0o755)
    for key in (
        "core.fsmonitor", "core.pager", "core.sshCommand", "core.editor", "diff.external", "diff.x.textconv",
        "diff.x.command", "gpg.program", "credential.helper", "filter.x.clean", "filter.x.smudge", "filter.x.process",
    ):  # fmt: skip
        git(repository, "config", key, str(script))
    git(repository, "config", "log.showSignature", "true")
    (repository / ".gitattributes").write_text("*.py diff=x filter=x\n", "utf-8")
    for hook in ("post-index-change", "pre-auto-gc", "reference-transaction"):
        (repository / ".git" / "hooks" / hook).write_text(script.read_text("utf-8"), "utf-8")
        (repository / ".git" / "hooks" / hook).chmod(0o755)
    assert len(list(History.read(repository).changes(language_of_path, PYTHON))) == 2
    assert list_ignored_by_git(repository) == frozenset()
    assert not (tmp_path / "ran").exists()


def test_a_shallow_clone_is_told(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", "shallow")
    history = History.read(tmp_path / "shallow")
    assert (history.is_shallow, len(history.commits)) == (True, 1)
    assert list(history.changes(language_of_path, PYTHON)) == []


def test_binary_large_and_linked_files_are_left_out(repository: Path) -> None:
    committed(repository, {"z.py": "x = 1\n", "y.py": "y = 1\n", "w.py": "w = 1\n"})
    (repository / "z.py").write_bytes(b"x\0")
    (repository / "y.py").write_text("y = 2\n" * 200_000, "utf-8")
    (repository / "w.py").unlink()
    (repository / "w.py").symlink_to("z.py")
    committed(repository, {})
    history = History.read(repository, "HEAD~1..HEAD")
    assert list(history.changes(language_of_path, PYTHON)) == []
    assert dict(history.skipped) == {"too large": 1, "unreadable": 1}


@pytest.mark.parametrize(
    ("span", "said"),
    [
        (
            "nope..HEAD",
            "range 'nope..HEAD': 'nope' names no commit of {}; expected one such as HEAD or v1, or a range such as v1..v2",
        ),
        (
            "--output=x",
            "'--output=x' names no commit of {}; expected one such as HEAD or v1, or a range such as v1..v2",
        ),
    ],
)
def test_a_range_that_is_none_is_refused(repository: Path, span: str, said: str) -> None:
    with pytest.raises(DataError) as caught:
        History.read(repository, span)
    assert str(caught.value) == said.format(repository)


def test_what_is_no_repository_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "-q")
    (tmp_path / "plain").mkdir()
    said = {}
    for name in ("plain", "empty", "gone"):
        with pytest.raises(DataError) as caught:
            History.read(tmp_path / name)
        said[name] = str(caught.value).removeprefix(f"{tmp_path}/")
    assert said == {
        "plain": "plain: is in no git repository that can be read; name the folder of one",
        "empty": "empty: its repository has no commits yet; commit something",
        "gone": "gone: no such folder; expected one in a git repository, or a range such as v1..v2",
    }


def test_a_change_is_divided_into_functions_and_statements() -> None:
    after = FIRST.replace("client.get(", "client.fetch(").replace("import client", "import client, os")
    found = split_into_hunks(FIRST, after, "python")
    assert [(hunk.line, hunk.before.partition("\n")[0]) for hunk in found] == [
        (1, "import client"),
        (4, "def one(url, timeout):"),
        (13, "def three(other):"),
    ]
    small = split_into_hunks(FIRST, after, "python", ("statement",))
    assert [hunk.before for hunk in small][1:] == ["data = client.get(url, timeout)\n", "print(client.get(other, 5))\n"]


def test_a_method_is_in_a_class_where_it_would_not_parse_alone() -> None:
    before = "class A {\n    int f() {\n        return g(1);\n    }\n}\n"
    [hunk] = split_into_hunks(before, before.replace("g(1)", "h(1)"), "java")
    assert hunk.before == "class Example {\nint f() {\n    return g(1);\n}\n}\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [("", ""), ("", "x = 1\n"), ("x = 1\n", ""), ("x = 1\n", "x = 1 \n"), ("f(\n", "g(\n"), ("a\n", "a\n\n")],
)
def test_nothing_is_made_of_what_is_no_small_change(before: str, after: str) -> None:
    assert split_into_hunks(before, after, "python") == []


def test_a_change_of_many_lines_is_left_out() -> None:
    before = "".join(f"f({number})\n" for number in range(50))
    assert split_into_hunks(before, before.replace("f(", "g("), "python") == []


def test_the_statement_of_a_line_is_cut_out() -> None:
    assert find_statement(FIRST, "python", 10) == "return sum([row for row in rows])\n"
