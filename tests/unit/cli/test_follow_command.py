"""`graftline follow`: one place is edited by hand, and the command does the rest."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from graftline.cli.main import main
from graftline.core.config import parse_yaml
from tests.git_repositories import commit, git
from tests.protocol_server import Fault, ProtocolServer

FILES = {
    "app/a.py": "from app.net import get\n\n\ndef load(url):\n    return get(url, 5)\n",
    "app/b.py": "from app.net import get\n\n\ndef save(url, rows):\n    for row in rows:\n        get(url, row)\n",
    "app/c.py": "def size(settings):\n    return settings.get('size')\n",
    "app/net.py": "def get(url, what):\n    return url, what\n\n\ndef fetch(url, what):\n    return url, what\n",
}
EDITED = "from app.net import fetch\n\n\ndef load(url):\n    return fetch(url, 5)\n"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "configs" / "manifests").mkdir(parents=True)
    (tmp_path / "configs" / "sandbox.yaml").write_text(
        "actions: {kind: memory}\ntests: {kind: subprocess, required_level: none}\n", "utf-8"
    )
    for name, text in FILES.items():
        path = tmp_path / "repo" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    environment |= {f"GIT_{who}_{field}": "a@b" for who in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
    for words in (["init", "-q"], ["add", "--all"], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", "-C", str(tmp_path / "repo"), *words], check=True, env=environment)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "repo"


def run(*arguments: str, answers: str = "") -> Result:
    return CliRunner().invoke(main, ["--root", ".", "follow", "repo", *arguments], input=answers)


NOT_CLEAR = "--write alone does not change them, for it is not clear what is meant"


def texts(repository: Path) -> dict[str, str]:
    return {name: (repository / name).read_text("utf-8") for name in FILES}


def test_the_rest_follows_with_its_imports_and_can_be_taken_back(repository: Path) -> None:
    (repository / "app/a.py").write_text(EDITED, "utf-8")
    before = texts(repository)
    unsure = run()
    not_clear = "not done: repo/app/a.py: 4 places may be meant, and it is not clear which"
    assert (unsure.exit_code, not_clear in unsure.stderr) == (1, True)
    shown = run("--answers", "y", "--review", "page.html", "--output", "rules.yml")
    assert (shown.exit_code, texts(repository)) == (0, before), shown.output
    facts = parse_yaml(Path("rules.yml").read_text("utf-8"), "rules.yml")["metadata"]
    places = f"{facts['places'] + 1} places in {facts['files']} file"  # and one of imports
    assert (places in shown.output, facts["places"]) == (True, 1), shown.output
    assert ("-        get(url, row)" in shown.output, "get(url, row)" in Path("page.html").read_text()) == (True, True)
    assert run("--answers", "y", "--write").exit_code == 0
    assert texts(repository) == {**before, "app/b.py": FILES["app/b.py"].replace("get", "fetch")}
    assert CliRunner().invoke(main, ["--root", ".", "undo", "repo"]).exit_code == 0
    assert texts(repository) == before


def test_line_ends_stay_and_files_that_are_no_text_are_passed_over(repository: Path) -> None:
    (repository / "app/b.py").write_bytes(FILES["app/b.py"].replace("\n", "\r\n").encode())
    edited = EDITED.replace("\n", "\r\n").encode()
    (repository / "app/a.py").write_bytes(edited)
    (repository / "app/c.py").write_bytes(b"\xff\n")
    assert run("--answers", "y", "--write").exit_code == 0
    assert (repository / "app/a.py").read_bytes() == edited
    changed = FILES["app/b.py"].replace("get", "fetch").replace("\n", "\r\n")
    assert (repository / "app/b.py").read_bytes() == changed.encode()


def test_an_edit_of_a_folder_is_followed_from_a_commit_as_well(repository: Path) -> None:
    (repository / "app/a.py").write_text(EDITED, "utf-8")
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", str(repository), *who, "commit", "-qam", "x"], check=True, env=environment)
    arguments = ["--root", ".", "follow", "repo/app", "--commit", "HEAD", "--answers", "y", "--json"]
    output = json.loads(CliRunner().invoke(main, arguments).stdout)
    assert [(file["path"], file["places"]) for file in output["files"]] == [
        ("repo/app/b.py", {"get-to-fetch": 1, "imports": 1})
    ]


def test_rules_that_reach_further_by_themselves_than_what_is_left_are_written_with_where(repository: Path) -> None:
    commit(repository, {"app/d.py": "from app.net import get\n\nload = [get(url, [7]) for url in (1, 2)]\n"})
    (repository / "app/a.py").write_text(EDITED, "utf-8")
    [group] = [g for g in json.loads(run("--answers", "yy", "--json").stdout)["groups"] if g["rule"] != "imports"]
    assert group["places"] == 2
    result = run("--answers", "yy", "--output", "rules.yml", "--reject", f"{group['id']}.2")
    advice = "rules.yml: by itself, in `graftline apply` or `ast-grep scan`, it changes 1 place more than this, at repo/app/d.py:3"
    assert ("rules: rules.yml\n" in result.stderr, advice in result.stderr) == (True, True), result.stderr
    applied = json.loads(CliRunner().invoke(main, ["--root", ".", "apply", "rules.yml", "repo", "--json"]).stdout)
    assert "load = [fetch(url, [7])" in next(f["diff"] for f in applied["files"] if f["path"] == "repo/app/d.py")
    Path("rules.yml").unlink()
    assert (
        "rules: rules.yml is not written"
        in run("--answers", "yy", "--output", "rules.yml", "--reject", group["rule"]).stderr
    )
    assert not Path("rules.yml").exists()


def test_a_group_that_is_rejected_stays(repository: Path) -> None:
    (repository / "app/a.py").write_text(EDITED, "utf-8")
    groups = json.loads(run("--answers", "y", "--json").stdout)["groups"]
    names = [word for group in groups for word in ("--reject", group["id"])]
    output = json.loads(run("--answers", "y", "--json", *names).stdout)
    assert (len(groups) > 0, output["files"], output["groups"]) == (True, [], [])


def test_what_is_kept_stays_and_tells_rules_apart(repository: Path) -> None:
    kept = {"old/d.py": "def size(settings):\n    return settings.get('old')\n", "app/e.py": "x = settings.get('e')\n"}
    commit(repository, kept)
    (repository / "app/a.py").write_text(EDITED, "utf-8")
    result = run("--answers", "y", "--keep", "repo/old", "--write", "--review", "page.html")
    assert result.exit_code == 0, result.output
    assert "fetch(url, row)" in (repository / "app/b.py").read_text("utf-8")
    assert {name: (repository / name).read_text("utf-8") for name in kept} == kept
    assert "repo --keep repo/old --answers y" in Path("page.html").read_text("utf-8")


def test_a_question_shows_the_place_and_a_no_leaves_it(repository: Path) -> None:
    (repository / "app/c.py").write_text(FILES["app/c.py"].replace("settings.get(", "settings.read("), "utf-8")
    (repository / "app/d.py").write_text("x = other.get('a')\ny = settings.get('b')\n", "utf-8")
    result = run("--questions", "5", "--json", "--review", "page.html", answers="n\n" * 5)
    output = json.loads(result.stdout)
    assert (result.exit_code, output["files"], 0 < output["questions"] <= 5) == (1, [], True)
    assert re.search(r"^repo/app/\w\.py:\d\n(?s:.*)is this to be changed so\?", result.stderr), result.stderr
    letters = "n" * output["questions"]
    page = Path("page.html").read_text("utf-8")
    assert ("Nothing would change" in page, "--write" in page) == (True, False)
    again = json.loads(run("--json", "--answers", letters).stdout)
    assert (again["files"], again["questions"]) == (output["files"], output["questions"])
    assert "expected a letter for each question" in run("--answers", "nx").stderr
    more = run("--answers", f"{letters}nn").stderr
    assert f"--answers {letters}nn: {output['questions']} question" in more, more
    assert "2 letters at its end say nothing" in more, more


def test_what_is_unsure_is_written_where_somebody_says_so(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graftline.repository.UNSURE", 1.0)  # it is sure of what is so small
    commit(repository, {"app/d.py": "x = alpha(1)\n", "app/e.py": "y = alpha(2)\n"})
    (repository / "app/d.py").write_text("x = beta(1)\n", "utf-8")
    shown, refused = run().stderr, run("--write").stderr
    assert shown.endswith(f"1 place in 1 file would change; {NOT_CLEAR}\n"), shown
    assert all("say --questions 0 to write what is likeliest" in text for text in (shown, refused))
    likeliest = run("--questions", "0").stderr
    assert ("--questions 0" in likeliest, likeliest.endswith("--write changes them\n")) == (False, True), likeliest
    assert run("--questions", "0", "--write").stderr.endswith("1 place in 1 file changed\n")


def test_a_language_model_answers_by_what_the_edit_is_about(repository: Path) -> None:
    (repository / "app/a.py").write_text(EDITED, "utf-8")
    message = {"message": {"content": "yes"}, "finish_reason": "length"}
    usage = {"prompt_tokens": 9, "completion_tokens": 1}
    body = json.dumps({"choices": [message], "model": "model", "usage": usage})
    with ProtocolServer(always=Fault(body=body)) as server:
        actors = f"actors: [{{name: a, url: '{server.url}'}}]"
        Path("configs/vllm_actors.yaml").write_text(f"fleets: {{near: {{engine: vllm, model: model, {actors}}}}}\n")
        result = run("--about", "Load by fetch", "--model", "near", "--json")
        bodies = server.seen().bodies
    output = json.loads(result.stdout)
    assert (result.exit_code, output["questions"], [file["path"] for file in output["files"]]) == (
        0, len(bodies), [f"repo/app/{name}.py" for name in ("b", "c", "net")],
    )  # fmt: skip
    assert all("Load by fetch" in body["messages"][1]["content"] for body in bodies)
    assert len(re.findall(r"^repo/app/\w+\.py: near answers y$", result.stderr, re.MULTILINE)) == len(bodies)
    # what was answered is kept
    again = json.loads(run("--about", "Load by fetch", "--model", "near", "--json").stdout)
    assert again == output
    for wrong, code, message in (
        (("--model", "near"), 2, "give it --about"),
        (("--about", "x", "--model", "far"), 1, "fleet 'far' is unknown; known: near"),
    ):
        refused = run(*wrong)
        assert (refused.exit_code, message in refused.stderr) == (code, True)


@pytest.mark.parametrize(
    ("folder", "commit", "message"),
    [
        ("repo", "HEAD~1..HEAD", "'HEAD~1..HEAD' names no commit of repo; expected one such as HEAD or v1\n"),
        ("gone", "HEAD", "gone: no such folder; expected one in a git repository\n"),
    ],
)
def test_no_range_is_asked_for_where_none_is_taken(repository: Path, folder: str, commit: str, message: str) -> None:
    result = CliRunner().invoke(main, ["--root", ".", "follow", folder, "--commit", commit])
    assert (result.exit_code, result.stderr) == (1, f"error: {message}")


def test_what_cannot_be_followed_is_said(repository: Path) -> None:
    assert run().stderr == "error: repo: no tracked file differs from the current commit; edit a file that it has\n"
    unknown = run("--commit", "nope")
    assert (unknown.exit_code, "names no commit of repo" in unknown.stderr) == (1, True)


def test_files_of_other_languages_and_edits_that_contradict_each_other_are_named(repository: Path) -> None:
    commit(repository, {"app/x.rs": "fn a() { get(1) }\n", "app/d.py": "def read(url):\n    return get(url, 7)\n"})
    (repository / "app/x.rs").write_text("fn a() { fetch(1) }\n", "utf-8")
    assert "error: repo/app/x.rs: is in none of the languages that are covered" in run().stderr
    (repository / "app/a.py").write_text(FILES["app/a.py"].replace("return get", "return fetch"), "utf-8")
    (repository / "app/d.py").write_text("def read(url):\n    return obtain(url, 7)\n", "utf-8")
    before = texts(repository)
    names = "get becomes fetch in repo/app/a.py and obtain in repo/app/d.py; show one of them at a time, or answer questions"
    for arguments in (["--write"], ["--questions", "0", "--write"]):
        assert run(*arguments).stderr == f"error: repo: {names}; nothing was changed\n"
    assert f"contradictory: {names}" in run().stderr
    assert texts(repository) == before


def test_a_module_called_otherwise_than_what_is_imported_from_it_contradicts_nothing(repository: Path) -> None:
    code = "import chalk from 'chalk'\n\nexport const show = text => chalk.red(text)\n"
    commit(repository, {f"app/{name}.js": code for name in "xyz"})
    edited = code.replace("chalk from 'chalk'", "colors from 'picocolors'")
    (repository / "app/x.js").write_text(edited, "utf-8")
    written = run("--questions", "0", "--write")
    assert (written.exit_code, "contradict" in written.stderr) == (0, False), written.stderr
    for name in "xyz":
        assert (repository / f"app/{name}.js").read_text("utf-8") == edited.replace("chalk.red", "colors.red")


@pytest.mark.parametrize("place", [".", "/", ".."])
def test_the_whole_difference_is_what_git_applies(
    repository: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    many = "".join(f"    client.get(url, {number})\n    pass\n" for number in range(120))
    commit(repository, {"app/d.py": f"def read(url):\n{many}", "app/e.py": "def one(url):\n    client.get(url, 7)\n"})
    (repository / "app/e.py").write_text("def one(url):\n    client.fetch(url, 7)\n", "utf-8")
    (repository / "docs").mkdir()
    monkeypatch.chdir({".": repository, "/": "/", "..": repository / "docs"}[place])
    folder = {".": ".", "/": str(repository), "..": ".."}[place]
    root = str(repository.parent)
    shown = CliRunner().invoke(main, ["--root", root, "follow", folder, "--answers", "yyyyy"])
    assert "120 places in 1 file would change" in shown.stderr
    assert (repository / "app/d.py").read_text("utf-8").count("client.get(") == 120
    git(repository, "apply", "-", stdin=shown.stdout)
    assert (repository / "app/d.py").read_text("utf-8") == f"def read(url):\n{many}".replace("get", "fetch")


def test_a_name_whose_definition_keeps_its_old_name_is_said(repository: Path) -> None:
    text = FILES["app/a.py"].replace("get", "obtain")
    (repository / "app/a.py").write_text(text, "utf-8")
    output = run("--answers", "y").stderr
    assert "not done: obtain: its definition is called get as before; rename it as well" in output


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("grep -q fetch app/b.py", 0, "tests pass"),
        ("! grep -q fetch app/b.py", 1, "tests fail with the change; they pass with your edit alone"),
        ("echo broken; false", 1, "tests fail with the change; they fail with your edit alone, too\nbroken"),
    ],
)
def test_nothing_is_written_where_the_tests_fail(repository: Path, command: str, code: int, message: str) -> None:
    (repository / "app/a.py").write_text(EDITED, "utf-8")
    before = texts(repository)
    result = run("--answers", "y", "--tests", command, "--write")
    assert (result.exit_code, message in result.stderr) == (code, True), result.stderr
    assert (texts(repository) == before, "nothing is written, for the tests" in result.stderr) == (
        bool(code),
        bool(code),
    )


def test_a_checkout_does_not_weaken_its_own_jail(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAFTLINE_ROOT", raising=False)
    (repository / "app/a.py").write_text(EDITED, "utf-8")
    (repository / "configs").mkdir()
    (repository / "configs" / "sandbox.yaml").write_text("actions: {kind: nonsense}\n", "utf-8")
    monkeypatch.chdir(repository)
    assert CliRunner().invoke(main, ["follow", ".", "--answers", "y"]).exit_code == 0
    refused = CliRunner().invoke(main, ["--root", ".", "follow", ".", "--answers", "y"])
    assert (refused.exit_code, "nonsense" in refused.stderr) == (1, True)
