"""What the commands of `graftline harbor` have in common: options, the service they talk to, and progress."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from graftline.cli.main import changes_of, paths_of

if TYPE_CHECKING:
    from graftline.harbor.known_service import KnownService

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

FOLDER = "harbor/service"
"""Below `data/`: the files of a service of this machine."""
STATUS = click.Choice(["pending", "building", "ready", "failed"])
"""Of deployments and of instances."""
MOST_SEEDS = 100_000
_LAST_SEED = 2**31 - 1
_SEEDS = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
_BACKEND = "http://127.0.0.1:8020"


class _Seeds(click.ParamType[list[int]]):
    """`1,2,5-9`: seeds, and ranges of them with both ends."""

    name = "seeds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        seeds: list[int] = []
        for part in str(value).split(","):
            found = _range(part.strip())
            if not found or found[-1] > _LAST_SEED:
                self.fail(f"{part[:40]!r} is no seed and no range of them; expected them as 1,2,5-9", param, ctx)
            if len(seeds) + len(found) > MOST_SEEDS:
                self.fail(f"there are more than {MOST_SEEDS}; ask for them in several goes", param, ctx)
            seeds += found
        if len(set(seeds)) < len(seeds):
            self.fail("one of them is there twice; expected each once", param, ctx)
        return seeds


def _range(text: str) -> range:
    """Return the seeds of `5-9`, or of `5`; none where it is something else."""
    found = _SEEDS.fullmatch(text)
    return range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)


def backend_option(command: CommandT) -> CommandT:
    """Add the address of the service."""
    return click.option(
        "--backend-url",
        envvar=["GRAFTLINE_HARBOR_URL", "SYNTH_BACKEND_URL"],
        default=_BACKEND,
        show_default=True,
        help="Of the service; else GRAFTLINE_HARBOR_URL or SYNTH_BACKEND_URL.",
    )(command)


def policy_options(command: CommandT) -> CommandT:
    """Add who acts, and how many at once."""
    command = click.option("--model", help="Which model the agent asks.")(command)
    command = click.option("--agent", help="Who acts, in place of the deployment's agent.")(command)
    command = click.option(
        "--set", "changes", multiple=True, metavar="KEY=VALUE", help="Of the policy, as temperature=0.2."
    )(command)
    return click.option(
        "--at-once", type=click.IntRange(1, 1000), default=8, show_default=True, help="Rollouts at the same time."
    )(command)


def wait_option(command: CommandT) -> CommandT:
    """Add whether to wait."""
    return click.option("--wait/--no-wait", "is_waiting", default=True, show_default=True, help="Until it is ready.")(
        command
    )


def seeds_option(text: str) -> Callable[[CommandT], CommandT]:
    """Return what adds `--seeds`."""
    return click.option("--seeds", type=_Seeds(), metavar="1,2,5-9", help=text)


def service_of(root: Path | None, backend_url: str) -> "KnownService":
    """Return the service at an address, with its key."""
    from graftline.core.secrets import open_secrets
    from graftline.harbor.known_service import known_service

    paths = paths_of(root)
    return known_service(backend_url, open_secrets(os.environ, paths.root), paths.data / FOLDER)


def policy_of(model: str | None, agent: str | None, changes: tuple[str, ...]) -> dict[str, Any]:
    """Return `policy.config` of what was given; `--set` has dotted keys."""
    from graftline.core.config import put

    named = {"model": model, "agent": agent}
    policy: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
    for key, value in changes_of(changes).items():
        put(policy, key, value, "--set")
    return policy


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say on a terminal what is waited for."""
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


@contextmanager
def counted(kind: str, name: str, total: int) -> Iterator[Callable[..., None]]:
    """Yield what is called whenever one more has ended; it takes another total."""
    from graftline.core.progress import progress_bars

    done = 0
    with progress_bars() as bars:
        bars.start(kind, name)

        def advance(of: int = total) -> None:
            nonlocal done
            done += 1
            bars.advance(done, of)

        try:
            yield advance
        except BaseException:
            bars.fail()
            raise
        bars.finish(f"{done} ended")
