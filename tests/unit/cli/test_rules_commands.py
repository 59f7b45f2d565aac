"""The commands about rules: what they print, what they change, what they end with."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from graftline.astgrep.binding import executable
from graftline.cli.main import main
from tests.git_repositories import commit

BEFORE = "def f(client, url):\n    data = client.get(url, timeout=3)\n    return data\n"
AFTER = BEFORE.replace("client.get", "client.fetch")
RULE = """id: fetch
language: python
rule:
  pattern: $A.get($B, timeout=$C)
fix: $A.fetch($B, timeout=$C)
metadata:
  examples:
    - before: "a.get(1, timeout=2)\\n"
      after: "a.fetch(1, timeout=2)\\n"
  stays: ["a.get(1)\\n"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "configs" / "manifests").mkdir(parents=True)
    (tmp_path / "configs" / "sandbox.yaml").write_text("actions: {kind: memory}\n", "utf-8")
    put(tmp_path, {"before.py": BEFORE, "after.py": AFTER, "rules.yml": RULE})
    put(tmp_path, {"code/m.py": "x.get(1, timeout=2)\ny.get(1)\n", "code/node_modules/n.py": "x.get(1, timeout=2)\n"})
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def put(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


def run(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--root", str(folder), *arguments])


def test_learn_prints_a_rule_file_that_ast_grep_takes(folder: Path) -> None:
    result = run(folder, "learn", "before.py", "after.py")
    assert result.exit_code == 0, result.stderr
    put(folder, {"found.yml": result.stdout})
    command = [str(executable()), "scan", "--rule", "found.yml", "--update-all", "before.py"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    assert (folder / "before.py").read_text("utf-8") == AFTER


def test_learn_says_what_is_general_what_changes_and_what_matches_elsewhere(folder: Path) -> None:
    output = run(folder, "learn", "before.py", "after.py", "--check", "code").stderr
    assert "-    data = client.get(url, timeout=3)\n+    data = client.fetch(url, timeout=3)\n" in output
    assert ": general\n  1 match in 1 file\n  code/m.py: 1 (line 1)\nnot looked at: 1 vendored folder\n" in output


def test_learn_says_all_there_is_as_json(folder: Path) -> None:
    output = json.loads(run(folder, "learn", "before.py", "after.py", "--check", "code", "--json").stdout)
    assert (output["solved"], output["unsolved"], output["levels"]) == (True, "", ["exact"])
    assert [(entry["path"], entry["lines"]) for entry in output["matched"]] == [("code/m.py", [1])]
    assert [entry["facts"]["general"] for entry in output["rules"]] == [True]


def test_learn_counts_what_a_rule_replaces_as_one_place_however_much_of_it_differs(folder: Path) -> None:
    put(folder, {"before.py": "x = foo(a, b, c)\n", "after.py": "x = foo(b, c, d)\n"})
    output = json.loads(run(folder, "learn", "before.py", "after.py", "--json").stdout)
    assert [entry["facts"]["places"] for entry in output["rules"]] == [1]


def test_what_learn_writes_passes_its_own_test(folder: Path) -> None:
    assert run(folder, "learn", "before.py", "after.py", "--output", "found.yml").exit_code == 0
    result = run(folder, "test", "found.yml", "--json")
    assert (result.exit_code, {entry["passed"] for entry in json.loads(result.stdout)["outcomes"]}) == (0, {True})


def test_learn_takes_the_language_of_both_files_from_their_names(folder: Path) -> None:
    put(folder, {"after.js": "fetch(1);\n"})
    result = run(folder, "learn", "before.py", "after.js")
    expected = "error: examples: are in javascript and python; give those of one language, or say --language\n"
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", expected)


def test_learn_takes_a_file_after_whose_name_says_no_language_for_one_of_that_before(folder: Path) -> None:
    put(folder, {"before.py.new": AFTER})
    assert json.loads(run(folder, "learn", "before.py", "before.py.new", "--json").stdout)["solved"]


def test_learn_takes_several_pairs_and_files_to_keep(folder: Path) -> None:
    put(folder, {"b/one.py": "f(a.x)\n", "b/two.py": "f(b.y)\n", "a/one.py": "g(a.x)\n", "a/two.py": "g(b.y)\n"})
    put(folder, {"b/same.py": "k()\n", "a/same.py": "k()\n", "kept.py": "h(1)\n"})
    result = run(folder, "learn", "b", "a", "--keep", "kept.py", "--json")
    output = json.loads(result.stdout)
    assert (result.exit_code, output["solved"], output["levels"]) == (0, True, ["exact", "exact"])


def test_learn_ends_with_1_and_says_why_where_it_finds_nothing(folder: Path) -> None:
    put(folder, {"long.py": "x = '" + "a" * 9_000 + "'\n", "other.py": "y = '" + "b" * 9_999 + "'\n"})
    put(folder, {"empty.py": ""})
    result = run(folder, "learn", "empty.py", "after.py")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1].startswith("unsolved (")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("before.py",), 2, "give a file before and the same file after, or --pair, --from-diff, --from-commit"),
        ((), 2, "give a file before and the same file after, or --pair, --from-diff, --from-commit"),
        (("gone.py", "after.py"), 1, "error: gone.py: no such file; expected a source file such as a.py\n"),
        (("code", "after.py"), 1, "error: code: is a folder; expected a file, or a folder on both sides\n"),
        (
            ("rules.yml", "after.py"),
            1,
            "error: rules.yml: is in none of the languages that are covered, python, javascript, typescript, tsx, java; "
            "if its name alone hides it, say --language\n",
        ),
        (("latin.py", "after.py"), 1, "error: latin.py: is not UTF-8 at byte 0; save it as UTF-8\n"),
        (("zero.py", "after.py"), 1, "error: zero.py: is binary, it holds a zero byte; expected source code\n"),
        (
            ("before.py", "before.py"),
            1,
            "error: before.py and before.py: are equal; expected a change from the first to the second\n",
        ),
        (
            ("before.py", "after.py", "--pair", "a.js", "b.js"),
            1,
            "error: examples: are in javascript and python; give those of one language, or say --language\n",
        ),
    ],
)
def test_learn_answers_bad_input_in_one_sentence(
    folder: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    put(folder, {"a.js": "f()\n", "b.js": "g()\n"})
    (folder / "latin.py").write_bytes(b"\xff")
    (folder / "zero.py").write_bytes(b"x\0")
    result = run(folder, "learn", *arguments)
    assert (result.exit_code, message in result.stderr) == (code, True), result.stderr


def test_apply_shows_the_difference_and_changes_nothing(folder: Path) -> None:
    result = run(folder, "apply", "rules.yml", "code")
    assert (result.exit_code, result.stderr) == (
        0,
        "1 match in 1 file would change; --write changes them\nnot looked at: 1 vendored folder\n",
    )
    assert "--- a/code/m.py\n+++ b/code/m.py\n" in result.stdout
    assert "-x.get(1, timeout=2)\n+x.fetch(1, timeout=2)\n y.get(1)\n" in result.stdout
    assert (folder / "code" / "m.py").read_text("utf-8") == "x.get(1, timeout=2)\ny.get(1)\n"


def test_apply_writes_at_once_and_keeps_the_mode_the_line_ends_and_the_mark(folder: Path) -> None:
    path = folder / "code" / "m.py"
    path.write_bytes(b"\xef\xbb\xbfx.get(1, timeout=2)\r\ny = 1")
    path.chmod(0o754)
    assert run(folder, "apply", "rules.yml", "code/m.py", "code", "--write").exit_code == 0
    assert path.read_bytes() == b"\xef\xbb\xbfx.fetch(1, timeout=2)\r\ny = 1"
    assert stat.S_IMODE(path.stat().st_mode) == 0o754
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["m.py", "node_modules"]


PLACES = {f"code/{n}.py": "x.get(1, timeout=2)\n" * 5 for n in "ab"} | {"code/c.py": "x.get('<b>&', timeout=f(y)[0])\n"}


def test_apply_leaves_out_the_groups_that_are_rejected(folder: Path) -> None:
    put(folder, PLACES)
    groups = json.loads(run(folder, "apply", "rules.yml", "code", "--json").stdout)["groups"]
    assert [(group["id"], group["shape"], group["places"], group["rare"]) for group in groups] == [
        ("fetch/1", "get → fetch", 1, True),
        ("fetch/2", "get → fetch", 11, False),
    ]
    result = run(folder, "apply", "rules.yml", "code", "--reject", "fetch/2", "--write", "--review", "page.html")
    assert (result.exit_code, "1 match in 1 file changed" in result.stderr) == (0, True)
    texts = {name: (folder / name).read_text("utf-8") for name in PLACES}
    assert texts == {**PLACES, "code/c.py": "x.fetch('<b>&', timeout=f(y)[0])\n"}
    page = (folder / "page.html").read_text("utf-8")
    assert ("+x.fetch(&#x27;&lt;b&gt;&amp;&#x27;, timeout=f(y)[0])" in page, "<b>" in page) == (True, False)
    refused = run(folder, "apply", "rules.yml", "code", "--reject", "get/1")
    assert refused.stderr == (
        "error: --reject 'get/1': is no rule that changes something, and no group; there are fetch/1\n"
    )


def test_a_group_is_split_into_places_that_look_alike(folder: Path) -> None:
    files = {"code/a.py": "x.get(1, timeout=2)\n" * 5, "code/b.py": "x.get(f(1), timeout=2)\n" * 3}
    put(folder, files)
    arguments = ["--root", str(folder), "apply", "rules.yml", "code"]
    result = run(folder, *arguments[2:], "--reject", "fetch/1.1", "--review", "page.html", "--json")
    assert [(group["id"], group["places"]) for group in json.loads(result.stdout)["groups"]] == [("fetch/1", 3)]
    assert 'data-id="fetch/1"' in (folder / "page.html").read_text("utf-8")
    assert CliRunner().invoke(main, [*arguments, "--ask", "--write"], input="s\ny\nn\n").exit_code == 0
    assert [name for name in files if (folder / name).read_text("utf-8") == files[name]] == ["code/b.py"]


def test_a_review_names_a_rule_by_what_goes_and_comes_and_calls_rare_what_is_unlike_most(folder: Path) -> None:
    calls = [f"x.get({'f(' * depth}1{')' * depth}, timeout=2)\n" for depth in range(12)]
    put(
        folder,
        {"code/a.py": "".join(calls), "cut.yml": "id: cut\nlanguage: python\nrule: {pattern: y.get($A)}\nfix: ''\n"},
    )
    groups = json.loads(run(folder, "apply", "rules.yml", "code", "--json").stdout)["groups"]
    assert [(group["shape"], group["places"], group["rare"]) for group in groups] == [("get → fetch", 13, False)]
    assert run(folder, "apply", "cut.yml", "code", "--review", "page.html").exit_code == 0
    page = (folder / "page.html").read_text("utf-8")
    assert ("y.get(1) → nothing" in page, '"ins"' in page) == (True, False)


def test_apply_keeps_the_line_breaks_and_the_comments_of_a_call(folder: Path) -> None:
    call = "x.get(\n    # one\n    1,\n    timeout=2,  # two\n)\n"
    put(folder, {"code/m.py": call})
    assert run(folder, "apply", "rules.yml", "code", "--write").exit_code == 0
    assert (folder / "code/m.py").read_text("utf-8") == call.replace("get", "fetch")


@pytest.mark.parametrize(("answers", "changed"), [("n\ny\n", "ab"), ("y\nn\n", "c"), ("a\n", "abc"), ("q\n", "")])
def test_apply_asks_of_every_group(folder: Path, answers: str, changed: str) -> None:
    put(folder, PLACES)
    arguments = ["--root", str(folder), "apply", "rules.yml", "code", "--ask", "--write"]
    assert CliRunner().invoke(main, arguments, input=answers).exit_code == 0
    assert "".join(name[5] for name in PLACES if (folder / name).read_text("utf-8") != PLACES[name]) == changed


def test_undo_takes_back_the_newest_write_and_leaves_what_was_changed_since(folder: Path) -> None:
    files = {f"code/{name}.py": "x.get(1, timeout=2)\n" for name in ("a", "b")}
    put(folder, files)
    assert run(folder, "apply", "rules.yml", "code", "--write").exit_code == 0
    put(folder, {"code/b.py": "mine\n"})
    result = run(folder, "undo", "code", "--json")
    output = json.loads(result.stdout)
    names = [[Path(path).name for path in output[key]] for key in ("restored", "changed_since")]
    assert (result.exit_code, names) == (1, [["a.py", "m.py"], ["b.py"]])
    assert [(folder / name).read_text("utf-8") for name in files] == ["x.get(1, timeout=2)\n", "mine\n"]
    assert '"before":"x.get(1, timeout=2)\\n"' in Path(output["journal"]).read_text("utf-8")
    expected = "error: code: nothing was written there that could be taken back; expected an earlier `--write`\n"
    assert run(folder, "undo", "code").stderr == expected


def test_learn_takes_what_was_edited_in_a_repository_or_what_a_commit_changed(folder: Path) -> None:
    repository = repository_with_a_repeated_edit(folder)
    unchanged = run(folder, "learn", "--from-diff", "repo")
    assert (unchanged.exit_code, "no tracked file differs" in unchanged.stderr) == (1, True)
    (repository / ".git" / "config").write_text('[filter "f"]\n\tclean = touch ran; cat\n', "utf-8")
    put(repository, {".gitattributes": "* filter=f\n", "new.py": "x = 1\n", "one.py": "client.load(one, timeout=1)\n"})
    learned = json.loads(run(folder, "learn", "--from-diff", "repo", "--json").stdout)
    assert (learned["solved"], ["load" in rule["action"]["rewrite"] for rule in learned["rules"]]) == (True, [True])
    assert not [*folder.rglob("ran")]
    learned = json.loads(run(folder, "learn", "--from-commit", "HEAD~1", "repo", "--keep", "code", "--json").stdout)
    assert (learned["solved"], ["fetch" in rule["action"]["rewrite"] for rule in learned["rules"]]) == (True, [True])


def test_apply_does_not_follow_links(folder: Path) -> None:
    put(folder, {"outside.py": "x.get(1, timeout=2)\n"})
    (folder / "code" / "link.py").symlink_to(folder / "outside.py")
    (folder / "code" / "sub").symlink_to(folder)
    result = run(folder, "apply", "rules.yml", "code", "--write")
    assert "not looked at: 2 symbolic link, 1 vendored folder" in result.stderr
    assert run(folder, "apply", "rules.yml", "code/link.py", "--write").stderr == (
        "error: code/link.py: is a symbolic link; name the file or folder that it leads to\n"
    )
    assert (folder / "outside.py").read_text("utf-8") == "x.get(1, timeout=2)\n"


def test_apply_leaves_out_what_git_ignores_and_what_cannot_be_read(folder: Path) -> None:
    put(folder, {"code/.gitignore": "made.py\n", "code/made.py": "x.get(1, timeout=2)\n"})
    put(folder, {"code/long.py": f"x = '{'a' * 20_000}'\n", "code/large.py": "x = 1\n" * 100_000})
    (folder / "code" / "zero.py").write_bytes(b"\0")
    (folder / "code" / "latin.py").write_bytes(b"\xff")
    subprocess.run(["git", "init", "-q", "code"], check=True, env={"PATH": os.environ["PATH"]})
    assert json.loads(run(folder, "apply", "rules.yml", "code", "--json").stdout)["skipped"] == (
        "1 binary, 1 ignored by git, 1 minified, 1 not UTF-8, 1 too large, 1 vendored folder"
    )


def test_apply_says_which_rule_ast_grep_refuses(folder: Path) -> None:
    put(folder, {"rules.yml": RULE.replace("$A.fetch($B", "$A.fetch($Z")})
    result = run(folder, "apply", "rules.yml", "code")
    assert (result.exit_code, result.stderr) == (
        1,
        "error: rule 'fetch': ast-grep refuses it: Undefined meta var `Z` used in `fix`.\n",
    )


def test_explain_says_a_rule_in_words(folder: Path) -> None:
    result = run(folder, "explain", "rules.yml")
    assert (result.exit_code, result.stdout) == (
        0,
        "fetch (python)\nMatches\n  code of the form `$A.get($B, timeout=$C)`\nVariables\n  `$A`: any one node\n"
        "  `$B`: any one node\n  `$C`: any one node\nWrites `$A.fetch($B, timeout=$C)`\n",
    )


def test_test_ends_with_1_where_an_example_fails_or_there_is_none(folder: Path) -> None:
    assert run(folder, "test", "rules.yml").exit_code == 0
    put(folder, {"wrong.yml": RULE.replace("a.fetch(1, timeout=2)", "a.fetch(2)")})
    result = run(folder, "test", "wrong.yml")
    assert (result.exit_code, "FAILED" in result.stdout) == (1, True)
    put(folder, {"bare.yml": RULE.partition("metadata")[0]})
    result = run(folder, "test", "bare.yml")
    assert (result.exit_code, "untested" in result.stdout) == (1, True)


def test_test_exports_a_project_that_ast_grep_tests(folder: Path) -> None:
    assert run(folder, "test", "rules.yml", "--output", "project").exit_code == 0
    command = [str(executable()), "test", "--skip-snapshot-tests"]
    done = subprocess.run(command, cwd=folder / "project", capture_output=True, text=True, check=False)
    assert (done.returncode, "1 passed; 0 failed" in done.stdout) == (0, True)
    assert "is there already" in run(folder, "test", "rules.yml", "--output", "project").stderr


@pytest.mark.parametrize("command", [("apply", "{}", "code"), ("explain", "{}"), ("test", "{}")])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "error: x.yml: cannot be read (No such file or directory); expected a rule file\n"),
        (b"\xff", "error: x.yml: is not UTF-8 at byte 0; save it as UTF-8\n"),
        (b"", "error: x.yml: holds no rule; expected ast-grep rules with `rule` and `fix`\n"),
    ],
)
def test_a_rule_file_that_is_none_is_refused(
    folder: Path, command: tuple[str, ...], content: bytes | None, message: str
) -> None:
    if content is not None:
        (folder / "x.yml").write_bytes(content)
    result = run(folder, *(part.format("x.yml") for part in command))
    assert (result.exit_code, result.stderr) == (1, message)


def test_mine_writes_rules_that_ast_grep_takes_with_their_support(folder: Path) -> None:
    repository = repository_with_a_repeated_edit(folder)
    result = run(folder, "mine", str(repository), "--concurrency", "0", "--output", "mined.yml")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (0, "1 rule from 2 small changes in 3 commits")
    command = [str(executable()), "scan", "--rule", "mined.yml", "--json", "before.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert [entry["replacement"] for entry in json.loads(done.stdout)] == ["client.fetch(url, timeout=3)"]
    assert run(folder, "test", "mined.yml").exit_code == 0


def test_an_interrupt_at_the_terminal_ends_mining_with_what_there_is_and_the_next_call_goes_on(folder: Path) -> None:
    repository = repository_with_a_repeated_edit(folder)
    for number in range(40):
        put(repository, {f"m{number}.py": f"x = old({number})\n"})
    commit(repository, {})
    for number in range(40):
        commit(repository, {f"m{number}.py": f"x = new({number})\n"})
    command = [str(Path(sys.executable).with_name("graftline")), "--root", ".", "mine", "repo", "--concurrency", "2"]
    command += ["--journal", "j", "--output", "mined.yml"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        while not (Path("j").exists() and Path("j").stat().st_size) and process.poll() is None:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate()
    assert (process.returncode, "Traceback" in errors) == (130, False), errors
    assert "the same command goes on from there" in errors
    stored = Path("j").read_bytes()
    assert run(folder, *command[3:]).exit_code == 0
    assert Path("j").read_bytes().startswith(stored[: stored.rfind(b"\n") + 1])
    assert "id: old-to-new\n" in Path("mined.yml").read_text("utf-8")


def test_mine_takes_a_range_in_the_current_repository(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository_with_a_repeated_edit(folder))
    output = json.loads(run(folder, "mine", "HEAD~1..HEAD", "--concurrency", "0", "--json").stdout)
    assert {key: output[key] for key in ("commits", "files", "changes", "rules")} == {
        "commits": 1, "files": 1, "changes": 1, "rules": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("code",), "error: code: is in no git repository that can be read; name the folder of one\n"),
        (("gone",), "error: gone: no such folder; expected one in a git repository, or a range such as v1..v2\n"),
        (
            ("repo", "--range", "x..y"),
            "error: range 'x..y': 'y' names no commit of repo; expected one such as HEAD or v1, or a range such as v1..v2\n",
        ),
    ],
)
def test_mine_answers_bad_input_in_one_sentence(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    repository_with_a_repeated_edit(folder)
    result = run(folder, "mine", *arguments)
    assert (result.exit_code, result.stderr) == (1, message)


def repository_with_a_repeated_edit(folder: Path) -> Path:
    repository = folder / "repo"
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    environment |= {f"GIT_{who}_{field}": "a@b" for who in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
    names = ("one", "two")
    states = [{f"{name}.py": f"client.{{}}({name}, timeout=1)\n" for name in names}]
    subprocess.run(["git", "init", "-q", str(repository)], check=True, env=environment)
    for done in range(3):
        texts = {
            f"{name}.py": states[0][f"{name}.py"].format("fetch" if n < done else "get") for n, name in enumerate(names)
        }
        put(repository, texts)
        for arguments in (["add", "--all"], ["commit", "-q", "-m", "change"]):
            subprocess.run(["git", "-C", str(repository), *arguments], check=True, env=environment)
    return repository
