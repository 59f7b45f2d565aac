"""The tools as an MCP server, over standard streams or streamable HTTP; the one door to the SDK.

A call runs in a process that is killed when the client cancels it, when it takes too long, or when the server ends; what it
found is then written here, whole or not at all. No result holds a secret that the environment or `.env` names, or that looks like one.
"""

import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeVar

import anyio
import uvicorn
from anyio import to_process, to_thread
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from graftline import __version__
from graftline.agent.record import mark_undone
from graftline.astgrep.binding import Language
from graftline.codemod.rule_file import MAX_FILE_CHARACTERS
from graftline.codemod.writes import FileWrite, default_journals, undo_write, write_files
from graftline.core.errors import ConfigError, GraftlineError
from graftline.core.listener import LOOPBACK, open_listener, url_of
from graftline.core.secrets import Secrets
from graftline.mcp_server import tools
from graftline.mcp_server.boundary import check_inside, redact_result, redact_text, resolve_path
from graftline.mcp_server.results import (
    AppliedResult,
    ExampleInput,
    ExplainedResult,
    FollowedResult,
    LearnedResult,
    MinedResult,
    PreviewResult,
    RefactoredResult,
    UndoneResult,
)
from graftline.sandbox.actions import SandboxConfig

TIME_LIMIT_S = 600.0
"""For one call."""
MAX_CALLS = 2
"""At once; others wait."""
_PROGRESS_S = 1.0
_INSTRUCTIONS = (
    "Graftline turns an edit into ast-grep rules and applies them to a whole repository. Learn a rule from one example"
    " (learn_rule) or edit one place by hand and let the rest follow (follow_edit), or say what is to be changed (refactor); look at what would change"
    " (preview_rule); write it (apply_rule with write=true); take it back (undo). Nothing is written without write=true."
)
_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False)

ModelT = TypeVar("ModelT", bound=BaseModel)
_Tool = Callable[..., Awaitable[BaseModel]]
_Path = Annotated[str, Field(max_length=4096)]
_Paths = Annotated[tuple[_Path, ...], Field(min_length=1, max_length=1000)]
_Names = Annotated[tuple[str, ...], Field(max_length=1000)]
_Rules = Annotated[
    str, Field(max_length=MAX_FILE_CHARACTERS, description="Text of a rule file, as learn_rule returns it.")
]
_RuleFile = Annotated[str, Field(max_length=4096, description="Instead: path of a rule file below the root.")]
_Reject = Annotated[_Names, Field(description="Groups or rules to leave out, by their ids.")]
_Write = Annotated[bool, Field(description="Change the files; without it, nothing is written.")]


class RuleServer:
    """The tools over one root."""

    def __init__(
        self,
        root: Path,
        actions: SandboxConfig,
        secrets: Secrets,
        time_limit_s: float = TIME_LIMIT_S,
        agent: tools.AgentSettings | None = None,
    ) -> None:
        """`secrets` are taken out of every result. ConfigError if `root` is no folder."""
        if not root.is_dir():
            raise ConfigError(f"{root}: is no folder; name the one that the server is to work in")
        self._root, self._actions, self._secrets = root.resolve(), actions, secrets
        self._agent = agent or tools.AgentSettings()
        self._time_limit_s, self._limiter = time_limit_s, anyio.CapacityLimiter(MAX_CALLS)

    def build(self) -> MCPServer[Any]:
        """Return the server, to be run over some transport."""
        server: MCPServer[Any] = MCPServer(
            "graftline", instructions=_INSTRUCTIONS, version=__version__, log_level="ERROR", subscriptions=False
        )
        reading: tuple[_Tool, ...] = (self.learn_rule, self.preview_rule, self.mine_rules, self.explain_rule)
        writing: tuple[_Tool, ...] = (self.apply_rule, self.follow_edit, self.refactor, self.undo)
        for function in (*reading, *writing):
            server.add_tool(function, annotations=_READS if function in reading else _WRITES)
        return server

    async def learn_rule(
        self,
        ctx: Context[Any, Any],
        examples: Annotated[tuple[ExampleInput, ...], Field(max_length=20)] = (),
        from_diff: Annotated[bool, Field(description="Learn from what differs from the current commit.")] = False,
        path: Annotated[_Path, Field(description="With from_diff: the folder whose files count.")] = ".",
        language: Annotated[Language | None, Field(description="Needed with examples that are texts.")] = None,
        keep: Annotated[_Names, Field(description="Files or folders that the rules must leave as they are.")] = (),
    ) -> LearnedResult:
        """Find ast-grep rules that make the text before of each example into the text after, and as little else as may be."""
        arguments = {"examples": examples, "from_diff": from_diff, "path": path, "language": language, "keep": keep}
        return await self._run(ctx, tools.learn, arguments)

    async def preview_rule(
        self, ctx: Context[Any, Any], rules: _Rules = "", rule_file: _RuleFile = "", paths: _Paths = (".",)
    ) -> PreviewResult:
        """Show what rules would change, in groups of places that look alike; nothing is written."""
        return await self._run(ctx, tools.preview, {"rules": rules, "rule_file": rule_file, "paths": paths})

    async def apply_rule(
        self, ctx: Context[Any, Any], rules: _Rules = "", rule_file: _RuleFile = "", paths: _Paths = (".",),
        reject: _Reject = (), write: _Write = False,
    ) -> AppliedResult:  # fmt: skip
        """Apply rules to files: return the differences, and with `write` change all of the files, or none."""
        arguments = {"rules": rules, "rule_file": rule_file, "paths": paths, "reject": reject, "write": write}
        return await self._run(ctx, tools.apply, arguments)

    async def follow_edit(
        self,
        ctx: Context[Any, Any],
        path: Annotated[_Path, Field(description="Folder of the git repository, or one in it.")] = ".",
        instruction: Annotated[str, Field(max_length=10_000, description="What the edit is about.")] = "",
        answers: Annotated[str, Field(pattern="^[ynd]{0,100}$", description="Answers to the questions so far.")] = "",
        reject: _Reject = (),
        write: _Write = False,
    ) -> FollowedResult:
        """Have the rest of a git repository follow an edit that was made in one or a few places and is not committed.

        Imports follow, too. If it is not clear what is meant, the result has a question."""
        arguments = {"path": path, "instruction": instruction, "answers": answers, "reject": reject, "write": write}
        return await self._run(ctx, tools.follow_tree, arguments)

    async def refactor(
        self,
        ctx: Context[Any, Any],
        instruction: Annotated[str, Field(min_length=1, max_length=10_000)],
        path: Annotated[_Path, Field(description="Folder of the repository, or one in it.")] = ".",
        examples: Annotated[tuple[ExampleInput, ...], Field(max_length=20)] = (),
        language: Annotated[Language | None, Field(description="Needed with examples that are texts.")] = None,
        keep: Annotated[_Names, Field(description="Files or folders that stay as they are.")] = (),
        attempts: Annotated[int, Field(ge=1, le=64, description="Of the model, at each place.")] = 4,
        reject: _Reject = (),
        write: _Write = False,
    ) -> RefactoredResult:
        """Change a repository as an instruction says, such as "Use `fetch(url)` instead of `get(url)`", with code in backticks.

        Examples, or the language model that the server was started with, settle what the instruction leaves open."""
        arguments = {
            "instruction": instruction, "path": path, "examples": examples, "language": language, "keep": keep,
            "attempts": attempts, "reject": reject, "write": write,
        }  # fmt: skip
        return await self._run(ctx, tools.refactor_tree, arguments)

    async def mine_rules(
        self,
        ctx: Context[Any, Any],
        path: Annotated[_Path, Field(description="Folder of the git repository, or one in it.")] = ".",
        commits: Annotated[int, Field(ge=1, le=10_000, description="So many at most.")] = 200,
        span: Annotated[str, Field(max_length=200, description="A..B: commits after A up to B.")] = "",
        languages: Annotated[tuple[Language, ...], Field(max_length=5)] = (),
        min_support: Annotated[int, Field(ge=1, le=1000, description="Changes that a rule has to make.")] = 2,
        max_rules: Annotated[int, Field(ge=1, le=100)] = 20,
    ) -> MinedResult:
        """Find the edits that a git history repeats, as rules, the one that explains most first."""
        arguments = {
            "path": path, "commits": commits, "span": span, "languages": languages, "min_support": min_support,
            "max_rules": max_rules,
        }  # fmt: skip
        return await self._run(ctx, tools.mine, arguments)

    async def explain_rule(
        self, ctx: Context[Any, Any], rules: _Rules = "", rule_file: _RuleFile = ""
    ) -> ExplainedResult:
        """Say in words what rules match, what their variables stand for, and what they write."""
        return await self._run(ctx, tools.explain_rules, {"rules": rules, "rule_file": rule_file})

    async def undo(self, path: _Path = ".") -> UndoneResult:
        """Take back the newest write of Graftline that changed a file at or below `path`; later changes of others stay."""
        with self._as_tool_errors():
            # not in the process of a call: it is not to be ended in the middle
            with anyio.CancelScope(shield=True):
                folder = resolve_path(self._root, path)
                undone = await to_thread.run_sync(undo_write, folder, default_journals(), self._root, mark_undone)
            restored, changed = (
                [file.relative_to(self._root).as_posix() for file in files]
                for files in (undone.restored, undone.changed_since)
            )
            result = UndoneResult(at=f"{undone.at:%Y-%m-%d %H:%M:%S}", restored=restored, changed_since=changed)
        return redact_result(result, self._secrets)

    async def _run(
        self, ctx: Context[Any, Any], function: Callable[..., tools.Planned[ModelT]], arguments: dict[str, Any]
    ) -> ModelT:
        """Return what `function` returns, once what it wants to have written is written."""
        outcome: tools.Planned[ModelT] | Exception
        descriptor = os.memfd_create("progress", os.MFD_CLOEXEC)
        call = tools.Call(self._root, self._actions, self._agent, self._time_limit_s, os.getpid(), descriptor)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._report_progress, ctx, descriptor)
                try:
                    with anyio.fail_after(self._time_limit_s):
                        outcome = await to_process.run_sync(
                            tools.run_call, function, call, arguments, cancellable=True, limiter=self._limiter
                        )
                except (GraftlineError, OSError, anyio.BrokenWorkerProcess) as error:  # a time-out is an OSError
                    outcome = error
                group.cancel_scope.cancel()
        finally:
            os.close(descriptor)
        with self._as_tool_errors():
            if isinstance(outcome, Exception):
                raise outcome
            result, writes = outcome
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._write, writes)
        return redact_result(result, self._secrets)

    async def _report_progress(self, ctx: Context[Any, Any], descriptor: int) -> None:
        """Say again and again how many seconds have passed, and what is being done."""
        start = anyio.current_time()
        while True:
            await anyio.sleep(_PROGRESS_S)
            message = redact_text(os.pread(descriptor, 4096, 0).decode(errors="replace").strip(), self._secrets)
            await ctx.report_progress(anyio.current_time() - start, self._time_limit_s, message or "waiting for a turn")

    def _write(self, writes: Sequence[FileWrite]) -> None:
        for write in writes:
            check_inside(self._root, write.path)
        write_files(writes, default_journals())

    @contextmanager
    def _as_tool_errors(self) -> Iterator[None]:
        """Raise what the client is to read, without secrets."""
        try:
            yield
        except TimeoutError:
            message = f"took longer than {self._time_limit_s:g} s, and was ended; nothing was changed; name a part of the files"
        except anyio.BrokenWorkerProcess:
            message = "the process of the call was ended, for want of memory as a rule; nothing was changed"
        except GraftlineError as error:
            message = str(error)
        except OSError as error:
            message = f"{error.filename or 'the file system'}: {error.strerror or error}"
        else:
            return
        raise ToolError(redact_text(message, self._secrets)) from None


def serve_http(server: MCPServer[Any], host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve over HTTP on loopback until interrupted; `announce` is called with the address.

    Requests with the name of another host, as a page of a browser may send them, are refused. ConfigError if others could
    reach `host`, for whoever reaches it may change the files of the root, or if its port is taken.
    """
    if host not in LOOPBACK:
        raise ConfigError(f"{host}: can be reached from other machines; name one of {', '.join(LOOPBACK)}")
    names = ["127.0.0.1:*", "localhost:*", "[::1]:*"]
    security = TransportSecuritySettings(allowed_hosts=names, allowed_origins=[f"http://{name}" for name in names])
    app = server.streamable_http_app(host=host, transport_security=security)
    listener = open_listener(host, port)
    announce(f"{url_of(listener)}/mcp")
    web = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False))
    anyio.run(web.serve, [listener])


def serve_streams(server: MCPServer[Any]) -> None:
    """Serve over standard input and output until the input ends; nothing else is written to the output."""
    server.run("stdio")
