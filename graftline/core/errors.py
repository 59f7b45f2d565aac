"""What can go wrong, grouped by what the reader of the message has to do.

    GraftlineError
    ├── ConfigError        mend the configuration file or the command line
    ├── DataError          mend or replace the input data
    ├── RecordError        rebuild the stored artifact
    └── BoundaryError      look outside: a service, a tool, the machine
        ├── DownloadError  where a file comes from: the source of a dataset, a server, a registry
        ├── SandboxError   the jail itself (an action that fails in the jail is a result, not an error)
        ├── ModelError     the places of a model's weights
        ├── ActorError     a served model (an answer, however poor, is a result, not an error)
        ├── QueueError     the job queue
        ├── TrainingError  the Tinker service or the local backend
        └── HarborError    the Harbor service, or what it runs rollouts with (how a rollout ends is a result)

A message is one sentence: what, which, what was expected, what to do. The classes take a message and nothing
else, so that they cross process borders.
"""

import json
from importlib.metadata import PackageNotFoundError, distribution


class GraftlineError(Exception):
    """The root: everything the library raises on purpose."""


class ConfigError(GraftlineError):
    """A configuration value is wrong: mend the file or the option."""


class DataError(GraftlineError):
    """Input data cannot be used as a whole (single bad rows are rejected and counted, not errors)."""


class RecordError(GraftlineError):
    """A stored artifact is missing, unfinished or altered: build it again."""


class BoundaryError(GraftlineError):
    """Something outside the library failed: look there."""


class DownloadError(BoundaryError):
    """The source of a file cannot be read, or gives something else than was pinned."""


class SandboxError(BoundaryError):
    """The jail is broken or weaker than required; never the verdict on an action."""


class ModelError(BoundaryError):
    """Weights cannot be had from any of their places, or are not those that were pinned."""


class ActorError(BoundaryError):
    """No actor answered in time, or all refused; nothing is known about what was asked."""


class QueueError(BoundaryError):
    """The queue cannot be reached, or lost what it must keep."""


class TrainingError(BoundaryError):
    """The Tinker service or the local backend cannot be reached, refuses, fails, or is not done in time."""

    status: int | None = None
    """What the service answered by HTTP, where that is the error."""


class HarborError(BoundaryError):
    """The Harbor service or an executor cannot be reached, refuses, or fails; nothing is known of what was asked."""

    status: int | None = None
    """What the service answered by HTTP, where that is the error."""


def install_command(extra: str) -> str:
    """Return the command that installs `extra`, in the checkout or from the file that Graftline was installed from.

    Graftline is on no package index.
    """
    try:
        text = distribution("graftline").read_text("direct_url.json")  # https://peps.python.org/pep-0610/
    except PackageNotFoundError:
        text = None
    origin = json.loads(text) if text else {}
    if origin.get("dir_info", {}).get("editable"):
        return f".venv/bin/pip install -c constraints.txt -e '.[{extra}]'"
    # whoever copied the files by hand has the wheel they came from, or a checkout that builds one
    return f"pip install 'graftline[{extra}] @ {origin.get('url') or 'file:///path/of/the/wheel'}'"
