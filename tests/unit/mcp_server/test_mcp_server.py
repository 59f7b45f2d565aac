"""`graftline mcp`, asked by the SDK's own client: over standard streams and HTTP, at hostile paths, canceled, and out of time."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import psutil
import pytest
from mcp import Client, StdioServerParameters

from graftline.codemod.source_files import replace_file
from graftline.codemod.writes import FileWrite, write_files
from graftline.core.secrets import Secrets
from graftline.mcp_server.boundary import find_secrets
from graftline.mcp_server.server import RuleServer
from graftline.mcp_server.tools import AgentSettings
from graftline.sandbox.actions import MemorySandboxConfig
from graftline.sandbox.jail.open import JailConfig
from tests.git_repositories import commit, init

pytestmark = pytest.mark.anyio

COMMAND = Path(sys.executable).with_name("graftline")
EXAMPLE = {"before": "x = get(url, 5)\n", "after": "x = fetch(url, 5)\n"}
INSTRUCTION = "Use `fetch(url, row)` instead of `get(url, row)`."
LEARN = {"examples": [EXAMPLE], "language": "python"}
NET = "def get(a, b):\n    return a\n\n\ndef fetch(a, b):\n    return a\n"
FILES = {
    "a.py": "from app.net import get\n\n\ndef load(url):\n    return get(url, 5)\n",
    "app/b.py": "from app.net import get\n\n\ndef save(url, rows):\n    for row in rows:\n        get(url, row)\n",
    "app/net.py": NET,
}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository, with a file and a folder beside it that nobody may read or change."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = init(tmp_path / "repo")
    commit(folder, dict(FILES))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.py").write_text("get(url, 'outside')\n")
    return folder


def environment(repository: Path) -> dict[str, str]:
    """Return the variables of a server: a root with a sandbox that starts quickly."""
    root = repository.parent / "settings"
    (root / "configs" / "manifests").mkdir(parents=True, exist_ok=True)
    (root / "configs" / "sandbox.yaml").write_text("actions: {kind: memory}\n", "utf-8")
    return {"GRAFTLINE_ROOT": str(root), "XDG_STATE_HOME": os.environ["XDG_STATE_HOME"], "PATH": os.environ["PATH"]}


@asynccontextmanager
async def over_streams(repository: Path, faults: list[Exception]) -> AsyncIterator[Client]:
    async def collect(message: Any) -> None:
        faults.extend([message] if isinstance(message, Exception) else [])

    arguments = ["mcp", "--root", str(repository)]
    parameters = StdioServerParameters(command=str(COMMAND), args=arguments, env=environment(repository))
    async with Client(parameters, message_handler=collect) as client:
        yield client


@pytest.fixture
def address(repository: Path) -> Iterator[str]:
    """The address of a server over HTTP."""
    command = [COMMAND, "mcp", "--root", repository, "--http", "127.0.0.1:0"]
    process = subprocess.Popen(command, env=environment(repository), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield process.stdout.readline().partition(";")[0]
    process.terminate()
    process.wait()
    process.stdout.close()


def in_process(repository: Path, time_limit_s: float = 600.0, secrets: Secrets | None = None) -> Client:
    server = RuleServer(repository, MemorySandboxConfig(kind="memory"), secrets or Secrets([]), time_limit_s)
    return Client(server.build())


async def ask(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content or {}


async def refuse(client: Client, tool: str, **arguments: Any) -> str:
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    return result.content[0].text


def texts(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text("utf-8") for name in FILES}


async def learn_to_undo(client: Client, repository: Path) -> None:
    """Learn a rule, look at what it does, do it, and take it back."""
    learned = await ask(client, "learn_rule", **LEARN)
    rules = learned["yaml"]
    assert (learned["solved"], [rule["id"] for rule in learned["rules"]]) == (True, ["get-to-fetch"])
    preview = await ask(client, "preview_rule", rules=rules)
    [group] = preview["groups"]
    assert (preview["places"], preview["files"], [place["path"] for place in group["typical"]]) == (
        2,
        2,
        ["a.py", "app/b.py"],
    )
    dry = await ask(client, "apply_rule", rules=rules)
    assert (dry["written"], texts(repository)) == (False, FILES)
    assert "-    return get(url, 5)\n+    return fetch(url, 5)\n" in dry["files"][0]["diff"]
    assert (await ask(client, "apply_rule", rules=rules, reject=[group["id"]], write=True))["written"] is False
    written = await ask(client, "apply_rule", rules=rules, paths=["app"], write=True)
    assert (written["written"], written["places"]) == (True, 1)
    assert texts(repository) == {**FILES, "app/b.py": FILES["app/b.py"].replace("        get", "        fetch")}
    assert (await ask(client, "undo"))["restored"] == ["app/b.py"]
    assert texts(repository) == FILES
    [words] = (await ask(client, "explain_rule", rules=rules))["rules"]
    assert words["lines"][:2] == ["Matches", "  code of the form `get($$$A)`"]


async def test_a_rule_is_learned_tried_applied_and_undone_over_streams(repository: Path) -> None:
    faults: list[Exception] = []
    async with over_streams(repository, faults) as client:
        offered = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert all(tool.output_schema and tool.annotations for tool in offered.values())
        reading = {name for name, tool in offered.items() if tool.annotations and tool.annotations.read_only_hint}
        assert reading == {"learn_rule", "preview_rule", "mine_rules", "explain_rule"}
        assert {*offered} - reading == {"apply_rule", "follow_edit", "refactor", "undo"}
        await learn_to_undo(client, repository)
    assert faults == []  # of a line that is not of the protocol


async def test_a_rule_is_learned_tried_applied_and_undone_over_http(repository: Path, address: str) -> None:
    async with Client(address) as client:
        await learn_to_undo(client, repository)


@pytest.mark.parametrize(
    ("header", "status"), [({"Host": "evil.example"}, 421), ({"Origin": "http://evil.example"}, 403)]
)
def test_a_page_of_a_browser_gets_no_answer(address: str, header: dict[str, str], status: int) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accept = {"Accept": "application/json, text/event-stream"}
    assert httpx.post(address, json=body, headers={**accept, **header}).status_code == status


def test_an_address_that_other_machines_reach_is_refused(repository: Path) -> None:
    command = [COMMAND, "mcp", "--root", repository, "--http", "0.0.0.0:0"]
    done = subprocess.run(command, env=environment(repository), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "0.0.0.0: can be reached from other machines" in done.stderr


async def test_the_rest_follows_an_edit_and_a_question_is_asked(repository: Path) -> None:
    edited = FILES["a.py"].replace("get", "fetch")
    (repository / "a.py").write_text(edited, "utf-8")
    async with in_process(repository) as client:
        unsure = await ask(client, "follow_edit")
        assert (unsure["unsure"], unsure["question"]["path"]) == (True, "app/b.py")
        assert (unsure["question"]["before"].strip(), unsure["question"]["after"].strip()) == (
            "get(url, row)",
            "fetch(url, row)",
        )
        assert "nothing was changed" in await refuse(client, "follow_edit", write=True)
        assert (await ask(client, "follow_edit", answers="y", write=True))["written"] is True
        assert texts(repository) == {**FILES, "a.py": edited, "app/b.py": FILES["app/b.py"].replace("get", "fetch")}
        alone = await ask(client, "follow_edit", path="app")
        assert [line.partition(": ")[0] for line in alone["undone"]] == ["app/b.py"]
        learned = await ask(client, "learn_rule", from_diff=True, path="app")
        assert (learned["solved"], "fetch" in learned["yaml"]) == (True, True)


async def test_an_instruction_is_done_by_its_words_and_by_an_example(repository: Path) -> None:
    async with in_process(repository) as client:
        vague = await ask(client, "refactor", instruction="Load faster with get")
        assert (vague["outcome"], vague["files"], "--model" in vague["meaning"]) == ("not asked", [], True)
        done = await ask(client, "refactor", instruction=INSTRUCTION, keep=["a.py"], write=True)
        assert (done["outcome"], done["written"], [file["path"] for file in done["files"]]) == (
            "changed",
            True,
            ["app/b.py"],
        )
        assert "        fetch(url, row)\n" in (repository / "app/b.py").read_text()
        await ask(client, "undo")
        example = {"before": FILES["a.py"], "after": FILES["a.py"].replace("get", "fetch")}
        led = await ask(client, "refactor", instruction="Load with fetch", examples=[example], language="python")
        assert (led["outcome"], led["written"], texts(repository)) == ("changed", False, FILES)
        assert led["yaml"].startswith("id: ")


async def test_tests_of_the_server_keep_a_change_back_and_no_client_names_any(repository: Path, tmp_path: Path) -> None:
    agent = AgentSettings(tests="! grep -rq fetch\\(url .", jail=JailConfig())
    server = RuleServer(repository, MemorySandboxConfig(kind="memory"), Secrets([]), agent=agent)
    async with Client(server.build()) as client:
        assert (await ask(client, "refactor", instruction=INSTRUCTION))["tests_passed"] is False
        assert "nothing was changed" in await refuse(client, "refactor", instruction=INSTRUCTION, write=True)
        tool = next(tool for tool in (await client.list_tools()).tools if tool.name == "refactor")
        assert {"tests", "model"} & {*tool.input_schema["properties"]} == set()
    assert texts(repository) == FILES


async def test_a_history_is_mined(repository: Path) -> None:
    for number in range(3):
        name = f"app/old_{number}.py"
        commit(repository, {name: f"def f(rows):\n    return list(filter(None, rows[{number}]))\n"})
        commit(repository, {name: f"def f(rows):\n    return compact(rows[{number}])\n"})
    async with in_process(repository) as client:
        mined = await ask(client, "mine_rules")
    assert (mined["commits"], [rule["language"] for rule in mined["rules"]]) == (7, ["python"])
    assert "compact" in mined["yaml"]


HOSTILE = (
    "..",
    "../outside",
    "/etc",
    "/etc/passwd",
    "link",
    "link/secret.py",
    "loop",
    ".git/hooks",
    "a\0b",
    "x" * 4000,
)


@pytest.fixture
def traps(repository: Path) -> Path:
    (repository / "link").symlink_to(repository.parent / "outside")
    (repository / "loop").symlink_to("loop")
    (repository / "app" / "c.py").symlink_to(repository.parent / "outside" / "secret.py")
    return repository


async def test_nothing_leaves_the_root(traps: Path) -> None:
    outside = traps.parent / "outside" / "secret.py"
    async with in_process(traps) as client:
        rules = (await ask(client, "learn_rule", **LEARN))["yaml"]
        for name in HOSTILE:
            refusals = [
                await refuse(client, "preview_rule", rules=rules, paths=[name]),
                await refuse(client, "apply_rule", rules=rules, paths=[name], write=True),
                await refuse(client, "explain_rule", rule_file=name),
                await refuse(client, "learn_rule", examples=[{"before_file": name, "after_file": "a.py"}]),
                await refuse(client, "learn_rule", **LEARN, keep=[name]),
                await refuse(client, "learn_rule", from_diff=True, path=name),
                await refuse(client, "mine_rules", path=name),
                await refuse(client, "follow_edit", path=name, write=True),
                await refuse(client, "refactor", instruction="Use `a()` instead of `get()`", path=name, write=True),
                await refuse(client, "undo", path=name),
            ]
            assert [text for text in refusals if "get(url" in text or "root:" in text] == [], name
        applied = await ask(client, "apply_rule", rules=rules, write=True)
        assert ([file["path"] for file in applied["files"]], applied["skipped"]) == (
            ["a.py", "app/b.py"],
            "3 symbolic link",
        )
    assert outside.read_text() == "get(url, 'outside')\n"


async def test_a_folder_that_became_a_link_is_no_edit(repository: Path) -> None:
    outside = repository.parent / "outside"
    (outside / "b.py").write_text(FILES["app/b.py"].replace("get", "fetch_the_secret"), "utf-8")
    (repository / "app").rename(repository.parent / "app")
    (repository / "app").symlink_to(outside)
    async with in_process(repository) as client:
        for tool, arguments in (("learn_rule", {"from_diff": True}), ("follow_edit", {})):
            assert "secret" not in await refuse(client, tool, **arguments)


async def test_a_write_that_goes_beyond_the_root_is_not_undone_here(repository: Path) -> None:
    files = [repository / "a.py", repository.parent / "outside" / "secret.py"]
    write_files(
        [FileWrite(path, path.read_bytes(), b"x = 1\n") for path in files],
        Path(os.environ["XDG_STATE_HOME"]) / "graftline" / "writes",
    )
    async with in_process(repository) as client:
        assert "not below" in await refuse(client, "undo")
    assert [path.read_text() for path in files] == ["x = 1\n"] * 2


async def test_no_secret_is_in_any_result(repository: Path) -> None:
    values = ("sk-proj-0a1B2c3D4e5F6g7H8i9J", "hunter2-hunter2", "AKIA0Z1Y2X3W4V5U6T7S", "MIIEvQIBADANBgkqhkiG9w0B")
    key = f"-----BEGIN PRIVATE KEY-----\n{values[3]}\n-----END PRIVATE KEY-----"
    (repository / ".env").write_text(f"DATABASE_PASSWORD={values[1]}\n", "utf-8")
    code = f'get("{values[0]}", "{values[1]}")\nget("{values[2]}", """{key}""")\n'
    (repository / "keys.py").write_text(code, "utf-8")
    secrets = find_secrets({"OPENAI_API_KEY": values[0]}, repository)
    rule = "id: a\nlanguage: python\nrule:\n  pattern: get($A, $B)\nfix: fetch($A, $B)\n"
    async with in_process(repository, secrets=secrets) as client:
        results = [
            await client.call_tool("preview_rule", {"rules": rule}),
            await client.call_tool("apply_rule", {"rules": rule, "write": True}),
            await client.call_tool("explain_rule", {"rules": rule.replace("$B", f"'{values[2]}'")}),
            await client.call_tool("explain_rule", {"rules": f"{values[1]}: 1\nrule: {{}}\nlanguage: python\n"}),
        ]
    shown = "".join(result.model_dump_json() for result in results)
    assert ("[secret]" in shown, [value for value in values if value in shown]) == (True, [])
    assert (repository / "keys.py").read_text() == code.replace("get", "fetch")


async def test_a_long_result_is_cut_and_says_so(repository: Path) -> None:
    lines = "".join(f"get(url, {number})\n" for number in range(500))
    for number in range(12):
        replace_file(repository / f"long_{number}.py", lines.encode())
    async with in_process(repository) as client:
        rules = (await ask(client, "learn_rule", **LEARN))["yaml"]
        applied = await ask(client, "apply_rule", rules=rules)
    assert (applied["places"], len(applied["files"])) == (6002, 14)
    assert applied["files_not_shown"] == sum(not file["diff"] for file in applied["files"]) > 0
    assert sum(len(file["diff"]) for file in applied["files"]) < 41_000


async def test_what_takes_too_long_is_ended(repository: Path) -> None:
    async with in_process(repository, time_limit_s=0.05) as client:
        assert "took longer than 0.05 s" in await refuse(client, "learn_rule", **LEARN)


async def test_a_canceled_call_ends_its_process_and_the_server_goes_on(repository: Path) -> None:
    for number in range(30):
        text = "".join(f"def f_{number}_{row}(a):\n    return a.get({row}, {number})\n\n\n" for row in range(30))
        commit(repository, {f"app/m{number % 2}.py": text})
    reported = anyio.Event()

    async def report(progress: float, total: float | None, message: str | None) -> None:
        if message and message.startswith("commit "):
            reported.set()

    async with over_streams(repository, []) as client, anyio.create_task_group() as group:
        [server] = [child for child in psutil.Process().children() if "mcp" in child.cmdline()]

        async def mine() -> None:
            await client.call_tool("mine_rules", {}, progress_callback=report)

        group.start_soon(mine)
        await reported.wait()
        working = server.children(recursive=True)
        group.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            assert working
            await asyncio.to_thread(psutil.wait_procs, working, timeout=60)
            assert [process for process in working if process.is_running()] == []
            assert (await ask(client, "learn_rule", **LEARN))["solved"] is True


async def test_the_values_of_arguments_are_checked(repository: Path) -> None:
    async with in_process(repository) as client:
        assert "not both" in await refuse(client, "preview_rule")
        assert "not both" in await refuse(client, "learn_rule")
        assert "language: is needed" in await refuse(client, "learn_rule", examples=[EXAMPLE])
        assert "before_file" in await refuse(client, "learn_rule", examples=[{"before": "a", "before_file": "a.py"}])
        assert "string_pattern_mismatch" in await refuse(client, "follow_edit", answers="maybe")
        assert "is no file" in await refuse(client, "preview_rule", rule_file="app")
        assert "no tracked file differs" in await refuse(client, "follow_edit")
