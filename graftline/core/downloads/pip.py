"""What pip is configured for: the files of a project, and any one of them.

pip itself is asked for its settings alone; what it can bring itself is brought in `graftline.datasets.sources.pypi`.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from graftline.core.downloads.download import Advance, Fetched, Pins, Source, download
from graftline.core.downloads.local_file import LocalFile
from graftline.core.downloads.programs import Ran, run
from graftline.core.downloads.retry import Patience
from graftline.core.downloads.simple_index import Link, Places, local_path, places
from graftline.core.downloads.web import Web
from graftline.core.downloads.web_file import WebFile
from graftline.core.errors import ConfigError


def run_pip(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Ran:
    """Run pip in `folder`.

    Raises:
        ConfigError: it is missing, or cannot be started.
        HomeBusyError: it took too long.
    """
    if find_spec("pip") is None:
        raise ConfigError("pip is not installed, but knows the package index; run `python -m ensurepip`")
    # our own attempts are counted and spaced; pip's would only make each of them longer
    quiet = ["--no-input", "--disable-pip-version-check", "--retries=0"]
    return run([sys.executable, "-m", "pip", *quiet, *arguments], folder, environment)


def configured_places(folder: Path, environment: Mapping[str, str]) -> Places:
    """Return where pip looks when it is run in `folder`.

    Raises:
        ConfigError: pip is missing, or names no index.
        HomeBusyError: it took too long.
    """
    config = run_pip(["config", "list"], folder, environment)

    def usage() -> str:
        # wide, so that no address is broken in two
        return run_pip(["download", "--help"], folder, {**environment, "COLUMNS": "1000"}).output

    return places(config.output, usage)


def fetch_link(
    link: Link, target: Path, advance: Advance, web: Web, patience: Patience, max_bytes: int | None = None
) -> Fetched:
    """Write the file of `link` to `target`, with the checksum that the index states.

    Raises:
        ConfigError, DownloadError: as `download`.
    """
    path = local_path(link.url)
    source: Source = WebFile(web, link.url) if path is None else LocalFile(path)
    return download(source, Pins(sha256=link.sha256), target, advance, patience, max_bytes)
