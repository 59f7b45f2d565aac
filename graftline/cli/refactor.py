"""The command `graftline refactor`: an instruction and a repository become a change for somebody to review."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from graftline.cli.options import find_paths

if TYPE_CHECKING:
    from graftline.agent.model import AgentModel, Limits


@contextmanager
def open_agent_model(root: Path | None, name: str, limits: "Limits | None" = None) -> "Iterator[AgentModel]":
    """Open the language model `name`; its answers are kept below the data folder of the root.

    ActorError with what to do where nobody answers.
    """
    from graftline.agent.model import open_model
    from graftline.core.errors import ActorError
    from graftline.core.secrets import open_secrets

    paths = find_paths(root)
    model = open_model(
        name, paths.configs, open_secrets(os.environ, paths.root), paths.data / "agent" / "answers", limits
    )
    try:
        yield model
    except ActorError as error:
        fleet = name.partition(":")[0]
        advice = f"`graftline model serve --fleet {fleet}` starts it, if it is one of this machine"
        raise ActorError(f"--model {name}: {error}; {advice}") from error
    finally:
        model.model.close()
