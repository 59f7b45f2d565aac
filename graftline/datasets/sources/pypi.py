"""Releases from the indexes that pip is configured for, without running anything of them.

A wheel for every platform comes by pip itself, so that every machine gets the same file. Where a release has none, its
source archive is fetched from the index directly, for pip would run its build to learn its name; where it has none
either, the first of its other wheels in the order of their names.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from graftline.core.errors import DownloadError
from graftline.core.pip import Link, fetch_link, filename_endings, list_links, read_pip_sources, run_pip
from graftline.core.processes import ProgramResult
from graftline.core.retry import RetryPolicy, SourceBusyError
from graftline.core.web import Web

SOURCE_ENDINGS = (".tar.gz", ".zip", ".tgz", ".tar.bz2")
"""In the order of preference."""
_FOR_EVERY_PLATFORM = (
    *("--only-binary=:all:", "--platform=any", "--implementation=py", "--abi=none", "--ignore-requires-python"),
    # later than any Python there is, so that which one runs us makes no difference
    "--python-version=3.99",
)
_UNIVERSAL_WHEEL = re.compile(r"-(.*[-.])?py3\d*(\.[^-]*)?-none-any\.whl")
_SHOWN_FILES = 5


def fetch_pypi(name: str, version: str, folder: Path, environment: Mapping[str, str], patience: RetryPolicy) -> Path:
    """Bring a release into the empty `folder`, and return its file.

    Raises:
        ConfigError: pip is missing.
        DownloadError: there is no such release, or it is not what the index says.
        SourceBusyError: the index does not answer.
    """
    label = f"pypi:{name} {version}"
    ran = run_pip(["download", "--no-deps", *_FOR_EVERY_PLATFORM, "--", f"{name}=={version}"], folder, environment)
    if ran.status == 0 and (found := sorted(folder.glob("*.whl"))):
        return found[0]
    web = Web(patience)
    offered = list(list_links(name, read_pip_sources(folder, environment), web))
    link = _chosen(label, name, version, offered, ran)
    fetch_link(link, folder / "archive", lambda done, total: None, web, patience)
    return folder / "archive"


def _chosen(label: str, name: str, version: str, offered: Sequence[Link], ran: ProgramResult) -> Link:
    ending = filename_endings(name, version, (link.filename for link in offered))
    ours = sorted((link for link in offered if link.filename in ending), key=lambda link: link.filename)
    if any(_UNIVERSAL_WHEEL.fullmatch(ending[link.filename]) for link in ours):
        # another file in its place would make other rows of the same release
        raise SourceBusyError(f"{label}: pip cannot bring its wheel ({ran.last_error()}); check pip's configuration")
    for wanted in (*SOURCE_ENDINGS, ".whl"):
        for link in ours:
            if ending[link.filename] == wanted or (wanted == ".whl" and link.filename.endswith(wanted)):
                return link
    project = "[-_.]+".join(map(re.escape, re.split(r"[-_.]+", name)))
    others = (link.filename for link in offered if re.match(f"{project}-\\d", link.filename, re.IGNORECASE))
    known = ", ".join(list(dict.fromkeys(others))[-_SHOWN_FILES:]) or "nothing of that name"
    raise DownloadError(
        f"{label}: no such release in pip's indexes, which have {known}; mend `packages` of the dataset"
    )
