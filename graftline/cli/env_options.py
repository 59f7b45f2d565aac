"""What the commands of `graftline env` have in common: options, the service they talk to, and progress."""

import functools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.options import CommandT, changes_option, find_paths

if TYPE_CHECKING:
    from graftline.harbor.service_connection import ServiceConnection

SERVICE_FOLDER = "harbor/service"
"""Below `data/`: the files of a service of this machine."""
MOST_SEEDS = 100_000
_LAST_SEED = 2**31 - 1
_SEEDS = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
_MAX_REASON = 160
"""Characters of a reason in a table."""


class _Seeds(click.ParamType[list[int]]):
    """`1,2,5-9`: seeds, and ranges of them with both ends."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        seeds: list[int] = []
        for part in str(value).split(","):
            match = _SEEDS.fullmatch(part.strip())
            span = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
            if not span or span[-1] > _LAST_SEED:
                self.fail(f"{part[:40]!r} is no seed and no range of them; expected them as 1,2,5-9", param, ctx)
            if len(seeds) + len(span) > MOST_SEEDS:
                self.fail(f"there are more than {MOST_SEEDS}; ask for them in several goes", param, ctx)
            seeds += span
        if len(set(seeds)) < len(seeds):
            self.fail("one of them is there twice; expected each once", param, ctx)
        return seeds


status_option = click.option(
    "--status", type=click.Choice(["pending", "building", "ready", "failed"]), help="Only those of one status."
)
concurrency_option = click.option(
    "--concurrency", type=click.IntRange(1, 1000), default=8, help="Rollouts at the same time."
)
wait_option = click.option("--wait/--no-wait", "is_waiting", default=True, help="Until it is ready.")
url_option = click.option(
    "--url",
    envvar=["GRAFTLINE_HARBOR_URL", "SYNTH_BACKEND_URL"],
    default="http://127.0.0.1:8020",
    help="Address of the service; else GRAFTLINE_HARBOR_URL or SYNTH_BACKEND_URL.",
)


def policy_options(command: CommandT) -> CommandT:
    """Add who acts, and how many at once."""
    command = click.option("--model", help="Which model the agent asks.")(command)
    command = click.option("--agent", help="Who acts, in place of the deployment's agent.")(command)
    return concurrency_option(changes_option("Of the policy, as temperature=0.2.")(command))


def seeds_option(text: str) -> Callable[[CommandT], CommandT]:
    """Return what adds `--seeds`."""
    return click.option("--seeds", type=_Seeds(), metavar="1,2,5-9", help=text)


def open_service(root: Path | None, url: str) -> "ServiceConnection":
    """Return the service at an address, with its key."""
    from graftline.core.secrets import open_secrets
    from graftline.harbor.service_connection import find_service

    paths = find_paths(root)
    return find_service(url, open_secrets(os.environ, paths.root), paths.data / SERVICE_FOLDER)


def pass_service(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--url`, and call `command` with the service there."""

    @click.pass_obj
    def with_service(root: Path | None, /, *args: Any, url: str, **kwargs: Any) -> Any:
        return command(open_service(root, url), *args, **kwargs)

    return url_option(functools.update_wrapper(with_service, command))


def make_policy(model: str | None, agent: str | None, changes: dict[str, Any]) -> dict[str, Any]:
    """Return the `policy.config` that options describe; `--set` has dotted keys."""
    from graftline.core.config import put

    options = {"model": model, "agent": agent}
    policy: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    for key, value in changes.items():
        put(policy, key, value, "--set")
    return policy


def format_reason(text: str | None) -> str:
    """Return the message in `text` after a colon, shortened; empty where there is none."""
    from graftline.harbor.results import find_message

    message = find_message(text or "")
    return f": {message[:_MAX_REASON]}{'…' if len(message) > _MAX_REASON else ''}" if message else ""


@contextmanager
def show_waiting(activity: str) -> Iterator[None]:
    """Say on a terminal what is waited for."""
    from rich.console import Console

    with Console(stderr=True).status(activity):
        yield


@contextmanager
def show_count(kind: str, name: str, total: int) -> Iterator[Callable[..., None]]:
    """Yield a function to be called whenever one more has ended; it takes another total."""
    from graftline.core.progress import progress_bars

    done = 0
    with progress_bars() as bars:
        bars.start(kind, name)

        def advance(total: int = total) -> None:
            nonlocal done
            done += 1
            bars.advance(done, total)

        try:
            yield advance
        except BaseException:
            bars.fail()
            raise
        bars.finish(f"{done} ended")
