"""`docs/mcp.md` and `examples/mcp`: the configuration files of two coding agents start the server that they name, and the page's
example prints what is shown.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp import Client, StdioServerParameters

from graftline.codemod.source_files import MAX_FILES
from graftline.core.secrets import Secrets
from graftline.mcp_server.server import MAX_CALLS, TIME_LIMIT_S, RuleServer
from graftline.mcp_server.tools import MAX_TOTAL_BYTES
from graftline.sandbox.actions import MemorySandboxConfig
from tests.pages import CHECKOUT, PAGES, codes, fences, section, table

SHOWN = [fence for fence in fences() if fence.page == "docs/mcp.md"]
PROGRAMS = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
PING = "def ping(client, url):\n    return client.get(url)\n"

STRINGS: dict[str, Any] = {"type": "object", "additionalProperties": {"type": "string"}}
STDIO: dict[str, Any] = {
    "command": {"type": "string", "minLength": 1},
    "args": {"type": "array", "items": {"type": "string"}},
    "env": STRINGS,
}


def servers_schema(key: str, server: dict[str, Any], **more: Any) -> dict[str, Any]:
    servers = {"type": "object", "minProperties": 1, "additionalProperties": server}
    properties = {key: servers, **more}
    return {"type": "object", "properties": properties, "required": [key], "additionalProperties": False}


# https://code.claude.com/docs/en/mcp: a server without `type` is one over standard streams
CLAUDE_CODE = servers_schema(
    "mcpServers",
    {
        "type": "object",
        "properties": {**STDIO, "type": {"const": "stdio"}},
        "required": ["command"],
        "additionalProperties": False,
    },
)
# https://code.visualstudio.com/docs/copilot/reference/mcp-configuration
VS_CODE = servers_schema(
    "servers",
    {
        "type": "object",
        "properties": {**STDIO, "type": {"const": "stdio"}, "cwd": {"type": "string"}, "envFile": {"type": "string"}},
        "required": ["type", "command"],
        "additionalProperties": False,
    },
    inputs={"type": "array"},
)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "ping.py").write_text(PING, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", PROGRAMS)
    monkeypatch.setenv("HOME", str(tmp_path))  # the client passes it on, but not XDG_STATE_HOME
    return tmp_path / "shop"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "schema", "key", "expand"),
    [
        (".mcp.json", CLAUDE_CODE, "mcpServers", lambda text, folder: text),
        (".vscode/mcp.json", VS_CODE, "servers", lambda text, folder: text.replace("${workspaceFolder}", folder)),
    ],
)
async def test_the_configuration_of_an_agent_starts_the_server(
    name: str, schema: dict[str, Any], key: str, expand: Callable[[str, str], str], shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    text = (CHECKOUT / "examples" / "mcp" / name).read_text("utf-8")
    assert text in [fence.body for fence in SHOWN]
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(text), schema)
    server = json.loads(text)[key]["graftline"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({key: {"graftline": {**server, "command": 1}}}, schema)
    monkeypatch.chdir(shop)  # where agents start it
    arguments = [expand(argument, str(shop)) for argument in server["args"]]
    async with Client(
        StdioServerParameters(command=server["command"], args=arguments, env=server.get("env"))
    ) as client:
        rule = "id: a\nlanguage: python\nrule:\n  pattern: client.get($A)\nfix: client.fetch($A)\n"
        result = await client.call_tool("preview_rule", {"rules": rule})
    assert (result.structured_content or {})["places"] == 1


def test_the_example_of_the_page_prints_what_is_shown(shop: Path) -> None:
    [fence] = [fence for fence in SHOWN if fence.language == "python"]
    done = subprocess.run([sys.executable, "-c", fence.body], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (fence.output, "")
    assert (shop / "ping.py").read_text("utf-8") == PING


def test_the_command_of_the_page_serves(shop: Path) -> None:
    [fence] = [fence for fence in SHOWN if fence.language == "sh"]
    words = shlex.split(fence.body)
    words[-1] = "127.0.0.1:0"  # a free one
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/mcp; interrupt to end\n", process.stdout.readline())
    process.terminate()
    process.wait()
    process.stdout.close()


@pytest.mark.anyio
async def test_the_page_names_the_tools_and_the_bounds_that_there_are(shop: Path) -> None:
    server = RuleServer(shop, MemorySandboxConfig(kind="memory"), Secrets([])).build()
    named = [codes(row[0])[0] for row in table(section("docs/mcp.md", "## The tools"))]
    assert sorted(named) == sorted(tool.name for tool in await server.list_tools())
    words = " ".join(PAGES["docs/mcp.md"].read_text("utf-8").split())
    assert f"ends after {TIME_LIMIT_S:g} seconds" in words
    assert f"{MAX_FILES:,} files and {MAX_TOTAL_BYTES:,} bytes at most" in words
    assert MAX_CALLS == 2
    assert "two calls run at once" in words.lower()
