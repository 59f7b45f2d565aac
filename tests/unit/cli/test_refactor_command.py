"""`graftline refactor`: what it prints, writes and refuses."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from graftline.cli.main import main
from graftline.repository import identify_repository
from graftline.rollouts.shards import read_shards, sealed_shards
from tests.protocol_server import Fault, ProtocolServer

FILES = {
    **{f"app/{name}.py": f"def load(url):\n    return client.get_all(url, {n})\n" for n, name in enumerate("acde")},
    "app/b.py": "def save(url, row):\n    client.get_all(url, row)\n",
}
INSTRUCTION = "Call fetch_all where get_all was called"


def _environment() -> dict[str, str]:
    settings = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return settings | {f"GIT_{who}_{field}": "a@b" for who in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "configs" / "manifests").mkdir(parents=True)
    (tmp_path / "configs" / "sandbox.yaml").write_text(
        "actions: {kind: memory}\ntests: {kind: subprocess, required_level: none}\n", "utf-8"
    )
    folder = tmp_path / "repo"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    environment = _environment()
    for words in (["init", "-q"], ["add", "--all"], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True, env=environment)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return folder


def answer_with(code: str) -> Fault:
    message = {"content": f"```python\n{code}\n```"}
    usage = {"prompt_tokens": 9, "completion_tokens": 9}
    choices = [{"message": message, "finish_reason": "stop"}]
    return Fault(body=json.dumps({"choices": choices, "model": "model", "usage": usage}))


@pytest.fixture
def server() -> Iterator[ProtocolServer]:
    with ProtocolServer(always=answer_with("client.fetch_all(url, row)")) as running:
        actors = f"actors: [{{name: a, url: '{running.url}'}}]"
        Path("configs/vllm_actors.yaml").write_text(f"fleets: {{near: {{engine: vllm, model: model, {actors}}}}}\n")
        yield running


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["--root", ".", "refactor", *arguments])


def texts() -> dict[str, str]:
    return {name: Path("repo", name).read_text("utf-8") for name in FILES}


def test_a_model_changes_the_repository_for_review_and_it_can_be_taken_back(
    repository: Path, server: ProtocolServer
) -> None:
    shown = run(INSTRUCTION, "repo", "--model", "near")
    assert (shown.exit_code, texts()) == (0, FILES), shown.output
    assert "+    return client.fetch_all(url, 3)" in shown.stdout
    assert re.search(r"^repo/app/\w+\.py:\d+: 3 of 3 attempts agree", shown.stderr, re.MULTILINE), shown.stderr
    page = Path("data/agent/review/review.html").read_text("utf-8")
    assert "repo --model near --attempts 4 --write" in page
    assert "fetch_all" in Path("data/agent/review/rules.yml").read_text("utf-8")
    asked = len(server.seen().bodies)
    written = run(INSTRUCTION, "repo", "--model", "near", "--write", "--json")
    output = json.loads(written.stdout)
    assert (written.exit_code, output["written"], output["outcome"]) == (0, True, "changed")
    assert all(row["path"].startswith("repo/app/") for row in (*output["edits"], *output["files"]))
    assert texts() == {name: text.replace("get_all", "fetch_all") for name, text in FILES.items()}
    assert (len(server.seen().bodies), output["model"]["replayed"]) == (asked, output["model"]["questions"])
    undone = CliRunner().invoke(main, ["--root", ".", "undo", "repo"])
    assert (undone.exit_code, texts()) == (0, FILES)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("   ",), 1, "instruction: says nothing"),
        ((INSTRUCTION,), 1, "name a model with --model, or give an --example"),
        ((INSTRUCTION, "--model", "far"), 1, "fleet 'far' is unknown; known: near"),
        (("Use `client` instead of `obtain`.",), 0, "nothing to do: the files have what the instruction asks for"),
        (("zuio qwer",), 1, "no line of the files that parse has a word of the instruction"),
        (("Rename `get_all` to `all`.", "--tests", "false"), 1, "fail before anything is changed"),
    ],
)
def test_what_cannot_be_done_is_said(
    repository: Path, server: ProtocolServer, arguments: tuple[str, ...], code: int, message: str
) -> None:
    result = run(arguments[0], "repo", *arguments[1:])
    assert (result.exit_code, message in result.stderr) == (code, True), result.stderr
    assert (server.seen().bodies, texts()) == ([], FILES)


def test_a_name_that_may_be_misspelt_is_said_before_there_is_nothing_to_do(repository: Path) -> None:
    result = run("Use `client` instead of `get_al`.", "repo")
    first, second = result.stderr.splitlines()
    assert first == "not done: no line has `get_al`; if that is misspelt, the nearest names that are there: `get_all`"
    assert (result.exit_code, second.startswith("nothing to do: ")) == (0, True)


def test_words_change_what_they_name_and_an_unsure_reading_is_not_written(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import typing as t\n\n\ndef f(a: t.Optional[int] = None, b: t.Optional[bool] = None):\n    return a, b\n"
    (repository / "app/a.py").write_text(code, "utf-8")
    words = run("Use `int | None` instead of `t.Optional[int]`.", "repo", "--write", "--force")
    assert words.exit_code == 0, words.stderr
    assert texts()["app/a.py"] == code.replace("t.Optional[int]", "int | None")
    for name, text in {"before.py": "x: t.Optional[str] = 1\n", "after.py": "x: str | None = 1\n"}.items():
        Path(name).write_text(text, "utf-8")
    (repository / "app/a.py").write_text(code.replace("int", "str"), "utf-8")
    monkeypatch.setattr("graftline.repository.UNSURE", 0.6)  # it is sure of what is so small
    example = ("Write optional types as X | None", "repo", "--example", "before.py", "after.py", "--force")
    unforced = run(*example[:-1])
    assert "--write changes them only with --force\n" in unforced.stderr
    shown = run(*example)
    assert ("unsure: " in shown.stderr, shown.exit_code) == (True, 0), shown.stderr
    page = Path("data/agent/review/review.html").read_text("utf-8")
    assert ("unsure: the edit can be read" in page, bool(re.search(r"\(confidence 0\.\d\d\)", page))) == (True, True)
    subprocess.run(["git", "-C", "repo", "commit", "-qam", "x"], check=True, env=_environment())
    refused = run(*example[:-1], "--write")
    assert (refused.exit_code, "say --force; nothing was changed" in refused.stderr) == (1, True), refused.stderr
    assert "t.Optional[str]" in texts()["app/a.py"]


@pytest.mark.parametrize("arguments", [("--keep", "app/a.py"), ("--record",)])
def test_what_cannot_be_heeded_is_said_before_anything_is_written(
    repository: Path, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRAFTLINE_ROOT", raising=False)
    words = ["refactor", "Rename `get_all` to `all_of`.", "repo", "--write", *arguments]
    Path("configs").rename("away")  # this is no checkout
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, texts()) == (1, FILES)
    assert re.search("is to stay, but there is no such file|holds configs/manifests", result.stderr), result.stderr


def test_a_model_that_is_not_up_is_told_with_what_starts_it(
    repository: Path, server: ProtocolServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graftline.agent.model._PATIENCE_S", 0.1)
    server.kill()
    result = run(INSTRUCTION, "repo", "--model", "near")
    assert result.exit_code == 1
    assert "`graftline model serve --fleet near` starts it" in result.stderr


def test_a_dirty_tree_is_written_to_with_force_alone(repository: Path) -> None:
    (repository / "app/a.py").write_text(FILES["app/a.py"] + "x = 1\n", "utf-8")
    rename = ("Rename `get_all` to `all_of`.", "repo")
    shown = run(*rename)
    assert (shown.exit_code, "differ from the current commit" in shown.stderr) == (0, True)
    assert shown.stderr.endswith("would change; --write changes them only with --force\n"), shown.stderr
    refused = run(*rename, "--write")
    assert (refused.exit_code, "say --force; nothing was changed" in refused.stderr) == (1, True)
    assert run(*rename, "--write", "--force").exit_code == 0
    assert texts()["app/a.py"] == FILES["app/a.py"].replace("get_all", "all_of") + "x = 1\n"


def test_tests_that_fail_with_the_change_keep_it_from_being_written(repository: Path) -> None:
    rename = ("Rename `get_all` to `all_of`.", "repo", "--tests", "! grep -rq all_of app", "--write")
    refused = run(*rename)
    assert (refused.exit_code, "tests do not pass with the change" in refused.stderr) == (1, True)
    assert texts() == FILES
    run(*rename, "--force")
    assert "all_of" in texts()["app/a.py"]


def test_a_run_is_recorded_with_what_was_accepted_where_its_user_agrees(repository: Path) -> None:
    key = "AKIA" + "Q7ZP3XKD9M2WLB5T"
    (repository / "app/a.py").write_text(f"def load(url):\n    return client.get_all(url, '{key}')\n", "utf-8")
    (repository / "app/b.py").write_text(FILES["app/b.py"] + "\n\nlast = client.get_all(1)\n", "utf-8")
    rename = ("Rename `get_all` to `all_of`.", "repo", "--force")
    folder = Path("data/trajectories/attempts/recorded/python")
    run(*rename)
    assert not folder.exists()
    shown = run(*rename, "--record")
    assert (shown.exit_code, "recorded: " in shown.stderr) == (0, True), shown.stderr
    groups = json.loads(run(*rename, "--json").stdout)["groups"]
    run(*rename, "--write", "--record")
    undone = CliRunner().invoke(main, ["--root", ".", "undo", "repo"])
    assert "recorded: 1 rule as undone" in undone.stderr
    assert "recorded" not in CliRunner().invoke(main, ["--root", ".", "undo", "repo"]).stderr
    run(*rename, "--record", *(word for group in groups for word in ("--reject", group["id"])))
    rows = [*read_shards(sealed_shards(folder))]
    assert [(row.reward.value, row.reward.cause) for row in rows] == [
        (None, "undecided"), (1.0, "accepted"), (None, "undone"), (0.0, "rejected"),
    ]  # fmt: skip
    stored = [row.model_dump_json() for row in rows]
    assert (any(key in text for text in stored), any("[secret]" in text for text in stored)) == (False, True)
    assert {
        (row.instruction, row.steps[0].sandbox_result.verdict, row.is_verified)
        for row in rows
        if row.steps[0].sandbox_result
    } == {(rename[0], "ok", True)}


@pytest.mark.parametrize("key", ["glpat-" + "Q7zP3xKd9M2wLb5T8vRs", "hf_" + "Q7zP3xKd9M2wLb5T8vRsYh4N"])
def test_a_secret_that_a_rule_is_about_is_in_no_name_and_no_pattern_of_a_record(repository: Path, key: str) -> None:
    (repository / "app/k.py").write_text(f'x = call(get, "{key}")\n', "utf-8")
    Path("before.py").write_text(f'x = call(get, "{key}")\n', "utf-8")
    Path("after.py").write_text("x = call(fetch)\n", "utf-8")
    run("Call with fetch", "repo", "--example", "before.py", "after.py", "--write", "--force", "--record")
    [path] = sealed_shards(Path("data/trajectories/attempts/recorded/python"))
    text = path.read_text("utf-8")
    assert ("[secret]" in text, key[-12:].lower() in text.lower()) == (True, False)


def test_what_would_not_parse_or_names_a_thing_after_itself_stays(repository: Path) -> None:
    texts = {
        "app/n.py": "from app.types import basestring, other\n\n\ndef f(x):\n    return isinstance(x, basestring)\n",
        "app/types.py": "basestring = (str, bytes)\nother = 1\n",
    }
    for name, text in texts.items():
        (repository / name).write_text(text, "utf-8")
    casts = "import typing\n\n\nx = typing.cast(int, 1)\ny = [typing.cast]\n"
    (repository / "app/m.py").write_text(casts, "utf-8")
    removed = run("Remove `typing.cast`.", "repo", "--write", "--force")
    assert "not done: repo/app/m.py: stays where it would not parse" in removed.stderr
    assert (repository / "app/m.py").read_text("utf-8") == "import typing\n\n\nx = typing.cast(int, 1)\ny = []\n"
    result = run("Use `(str, bytes)` instead of `basestring`.", "repo", "--write", "--force")
    assert result.exit_code == 0, result.stderr
    for path in (repository / "app").glob("*.py"):
        compile(path.read_text("utf-8"), str(path), "exec")
    assert "isinstance(x, (str, bytes))" in (repository / "app/n.py").read_text("utf-8")
    assert (repository / "app/types.py").read_text("utf-8") == texts["app/types.py"]
    assert "not done: repo/app/types.py: stays where it would not parse" in result.stderr


def test_a_sentence_whose_halves_share_a_word_is_done_where_only_the_new_half_is_there(repository: Path) -> None:
    (repository / "app/n.py").write_text("def f(x: str | None) -> None: ...\n", "utf-8")
    result = run("Use `str | None` instead of `t.Optional[str]`.", "repo")
    assert (result.exit_code, "nothing to do" in result.stderr) == (0, True), result.stderr


@pytest.mark.parametrize("waits_for", ["model", "tests"])
def test_an_interrupt_ends_a_run_and_changes_nothing_and_the_next_goes_on(
    repository: Path, server: ProtocolServer, waits_for: str
) -> None:
    started = Path("started").resolve()
    os.mkfifo(started)
    tests = f"echo > {started}; sleep 1000" if waits_for == "tests" else "true"
    command = [str(Path(sys.executable).with_name("graftline")), "--root", ".", "refactor", INSTRUCTION, "repo"]
    command += ["--model", "near", "--tests", tests, "--write"]
    if waits_for == "model":
        server.become(latency_s=1000.0)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        if waits_for == "model":
            while not server.seen().ids and process.poll() is None:
                time.sleep(0.01)
        else:
            started.read_text("utf-8")
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate()
    assert (process.returncode, "Traceback" in errors) == (130, False), errors
    assert texts() == FILES
    assert sorted(path.name for path in Path("repo/app").iterdir()) == [f"{name}.py" for name in "abcde"]
    server.become(always=answer_with("client.fetch_all(url, row)"))
    assert run(INSTRUCTION, "repo", "--model", "near", "--tests", "true", "--write").exit_code == 0
    assert texts() != FILES


def test_a_repository_is_one_however_it_was_cloned(repository: Path) -> None:
    names = set()
    for address in (
        "https://me:a@b@Example.org:443/acme/shop.git",
        "git@example.org:acme/shop",
        "ssh://git@example.org/acme/shop/",
    ):
        for words in (["init", "-q"], ["config", "remote.origin.url", address]):
            subprocess.run(["git", "-C", str(repository), *words], check=True)
        names.add(identify_repository(repository))
    assert names == {"example.org/acme/shop"}
    subprocess.run(["git", "-C", str(repository), "config", "remote.origin.url", "/srv/shop.git"], check=True)
    assert identify_repository(repository) == "/srv/shop"
