"""EngineBench as a deployment."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graftline.harbor.engine_bench.cards import read_cards, stage_cards
from graftline.harbor.task_format.importing import build_spec

if TYPE_CHECKING:
    from graftline.harbor.build_spec import HarborBuildSpec
    from graftline.harbor.contract import HarborLimits


def engine_bench_spec(
    tasks: Path,
    crate: Path,
    dockerfile: Path,
    name: str,
    staging: Path,
    *,
    agent: str = "codex",
    include: Sequence[str] = ("*",),
    package: str = "",
    limits: "HarborLimits | None" = None,
    verifier_timeout_s: int | None = None,
) -> "HarborBuildSpec":
    """Return the deployment of the cards in `tasks`; its contexts are written below `staging`, which stays until the upload.

    Args:
        tasks: A folder of Harbor tasks.
        crate: The crate that every card is a file of.
        dockerfile: Of the image: Rust, Python and the agents.
        name: Of the deployment.
        staging: Gets `context` and `verifier`.
        agent: Who acts: `codex`, `opencode`, `claude_code`; or `nop` and `oracle`, for floor and ceiling.
        include: Globs of the tasks' names.
        package: Of a workspace, which member is built.
        limits: In place of the largest of the tasks'.
        verifier_timeout_s: Of `cargo check` and `cargo test` together.

    Raises:
        DataError: tasks, crate or Dockerfile cannot be read or do not fit together.
    """
    cards = read_cards(tasks, include)
    staged = stage_cards(
        cards,
        crate,
        dockerfile,
        staging,
        agent=agent,
        package=package,
        limits=limits,
        verifier_timeout_s=verifier_timeout_s,
    )
    return build_spec(staged, name, {"agent_type": agent, "benchmark": "engine-bench", "version": "1.0"})
