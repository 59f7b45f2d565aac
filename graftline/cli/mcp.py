"""The command `graftline mcp`: the tools about rules, for coding agents."""

import os
from pathlib import Path

import click

from graftline.cli.options import find_paths
from graftline.core.errors import ConfigError

DEFAULT_ADDRESS = "127.0.0.1:8722"


@click.command()
@click.option(
    "--root", "folder", default=".", type=click.Path(path_type=Path), help="Folder that the server never leaves."
)
@click.option(
    "--http",
    "address",
    metavar="HOST:PORT",
    is_flag=False,
    flag_value=DEFAULT_ADDRESS,
    help=f"Serve over HTTP on this address of loopback, {DEFAULT_ADDRESS} if none is said; without it, over standard streams.",
)
@click.option("--model", default="", metavar="FLEET[:ADAPTER]", help="A language model that is up, for `refactor`.")
@click.option("--tests", default="", metavar="CMD", help="What has to pass in the jail before `refactor` writes.")
@click.pass_obj
def mcp(root: Path | None, folder: Path, address: str | None, model: str, tests: str) -> None:
    """Serve the tools about rules to a coding agent, over the Model Context Protocol, until the agent ends.

    It can learn, preview, apply, undo, explain and mine rules, and have a repository follow an edit or an instruction, below
    --root alone."""
    from graftline.mcp_server.boundary import find_secrets
    from graftline.mcp_server.server import RuleServer, serve_http, serve_streams
    from graftline.mcp_server.tools import AgentSettings
    from graftline.sandbox import SandboxSettings
    from graftline.sandbox.runner import load_sandbox_settings

    # only by name: a folder that an agent works in is not to say how far its own code is held back
    settings_root = root or (Path(os.environ["GRAFTLINE_ROOT"]) if os.environ.get("GRAFTLINE_ROOT") else None)
    settings = load_sandbox_settings(settings_root.resolve()) if settings_root else SandboxSettings()
    agent = AgentSettings(model, find_paths(root).root if model else None, tests, settings.tests)
    server = RuleServer(folder, settings.actions, find_secrets(os.environ, folder), agent=agent).build()
    if address is None:
        serve_streams(server)
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"--http {address!r}: expected HOST:PORT, such as {DEFAULT_ADDRESS}")
    serve_http(server, host.strip("[]"), int(port), lambda url: click.echo(f"{url}; interrupt to end"))


COMMANDS = (mcp,)
