"""The files of a project in the indexes and folders that pip is configured for, and any one of them.

pip itself is asked for its settings alone; what it can bring itself is brought in `graftline.datasets.sources.registry`. The
pages are those of the simple repository API, JSON or HTML
(https://packaging.python.org/en/latest/specifications/simple-repository-api/). Of pip's configuration `index-url`,
`extra-index-url`, `find-links` and `no-index` are followed; certificates and proxies are those of the environment.
"""

import ast
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import url2pathname

from graftline.core.download import Advance, Download, LocalFile, Pins, Source, download
from graftline.core.errors import ConfigError, DownloadError
from graftline.core.processes import ProgramResult, run_program
from graftline.core.retry import RetryPolicy
from graftline.core.web import AnswerError, Web, WebFile, public_url

MAX_PAGE_BYTES = 64 << 20
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_SETTING = re.compile(r"(?P<section>[^\s=]+?)\.(?P<key>[\w-]+)=(?P<value>'.*'|\".*\")")
_SECTIONS = ("global", "download", ":env:")
"""The later ones count more, as they do for `pip download`."""
_DEFAULT_INDEX = re.compile(r"-index-url\s.*?\(default\s+(?P<url>\S+?)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Link:
    """A file that an index or a folder offers."""

    filename: str
    url: str
    sha256: str | None


@dataclass(frozen=True, slots=True)
class PipSources:
    """Where pip looks for projects."""

    indexes: tuple[str, ...]
    folders: tuple[str, ...]


def run_pip(arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> ProgramResult:
    """Run pip in `folder`, as `run_program`; raises ConfigError where it is missing."""
    if find_spec("pip") is None:
        raise ConfigError("pip is not installed, but knows the package index; run `python -m ensurepip`")
    # our own attempts are counted and spaced; pip's would only make each of them longer
    quiet = ["--no-input", "--disable-pip-version-check", "--retries=0"]
    return run_program([sys.executable, "-m", "pip", *quiet, *arguments], folder, environment)


def read_pip_sources(folder: Path, environment: Mapping[str, str]) -> PipSources:
    """Return where pip looks when it is run in `folder`; raises as `run_pip` and `parse_pip_config`."""
    config = run_pip(["config", "list"], folder, environment)
    # wide, so that no address is broken in two
    wide = {**environment, "COLUMNS": "1000"}
    return parse_pip_config(config.output, lambda: run_pip(["download", "--help"], folder, wide).output)


def parse_pip_config(config: str, usage: Callable[[], str]) -> PipSources:
    """Return where pip looks, from what `pip config list` prints and, for its own index, `pip download --help`.

    Raises:
        ConfigError: neither names an index.
    """
    matches = [match for line in config.splitlines() if (match := _SETTING.fullmatch(line.strip()))]
    settings = {
        match["key"]: str(ast.literal_eval(match["value"]))
        for section in _SECTIONS
        for match in matches
        if match["section"] == section
    }
    folders = tuple(settings.get("find-links", "").split())
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        return PipSources((), folders)
    index = settings.get("index-url")
    if not index:
        default = _DEFAULT_INDEX.search(usage())
        if default is None:
            raise ConfigError("pip: neither its configuration nor its help names an index; set PIP_INDEX_URL")
        index = default["url"]
    return PipSources((index, *settings.get("extra-index-url", "").split()), folders)


def list_links(project: str, sources: PipSources, web: Web) -> Iterator[Link]:
    """Yield the files of `project`, and of others where a folder holds several, in the order in which pip looks.

    Raises:
        DownloadError: an index cannot be read; one that does not know the project is no error.
    """
    for folder in sources.folders:
        yield from _links_at(folder, web)
    page = re.sub(r"[-_.]+", "-", project).lower()
    for index in sources.indexes:
        yield from _links_at(f"{index.rstrip('/')}/{page}/", web)


def fetch_link(
    link: Link, target: Path, advance: Advance, web: Web, policy: RetryPolicy, max_bytes: int | None = None
) -> Download:
    """Write the file of `link` to `target` as `download`, with the checksum that the index states."""
    path = local_path(link.url)
    source: Source = WebFile(web, link.url) if path is None else LocalFile(path)
    return download(source, Pins(sha256=link.sha256), target, advance, policy, max_bytes)


def filename_endings(project: str, version: str, filenames: Iterable[str]) -> dict[str, str]:
    """Return what follows project and version in the names of the files of one release, by name.

    {"Demo_x-1.0-py3-none-any.whl": "-py3-none-any.whl", "demo-x-1.0.tar.gz": ".tar.gz"}
    """
    name = "[-_.]+".join(map(re.escape, re.split(r"[-_.]+", project)))
    start = re.compile(f"{name}-{re.escape(version)}(?P<ending>-.*\\.whl|\\.[a-z].*)", re.IGNORECASE)
    return {filename: match["ending"] for filename in filenames if (match := start.fullmatch(filename))}


def local_path(url: str) -> Path | None:
    """Return the path that a URL or a plain path means; None where it is on another machine."""
    scheme = urlsplit(url).scheme
    if scheme == "file":
        return Path(url2pathname(urlsplit(url).path))
    return Path(url) if "://" not in url else None


def _links_at(location: str, web: Web) -> Iterator[Link]:
    path = local_path(location)
    if path is None:
        yield from _links_on_web(location, web)
    elif path.is_dir():
        yield from (Link(file.name, file.resolve().as_uri(), None) for file in sorted(path.iterdir()) if file.is_file())
        if (page := path / "index.html").is_file():
            yield from _links_in_html(page.read_bytes(), page.resolve().as_uri())
    elif path.is_file():
        yield from _links_in_html(path.read_bytes(), path.resolve().as_uri())


def _links_on_web(url: str, web: Web) -> Iterator[Link]:
    try:
        with web.answer("GET", url, {"Accept": _ACCEPT}) as response:
            body = web.body(response, url, MAX_PAGE_BYTES, "expected an index")
            base, media_type = str(response.url), response.headers.get("Content-Type", "")
    except AnswerError as error:
        if error.status == 404:
            return
        raise
    yield from _links_in_json(body, base) if "json" in media_type else _links_in_html(body, base)


def _links_in_json(body: bytes, base: str) -> Iterator[Link]:
    try:
        for file in json.loads(body)["files"]:
            yield Link(str(file["filename"]), urljoin(base, str(file["url"])), _sha256(file.get("hashes")))
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise DownloadError(
            f"{public_url(base)}: is not a page of the simple repository API; check PIP_INDEX_URL"
        ) from None


def _sha256(hashes: Any) -> str | None:
    value = hashes.get("sha256") if isinstance(hashes, Mapping) else None
    return value if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) else None


def _links_in_html(body: bytes, base: str) -> Iterator[Link]:
    page = _LinkParser()
    page.feed(body.decode("utf-8", "replace"))
    for href in page.hrefs:
        url, _, fragment = urljoin(base, href).partition("#")
        algorithm, _, value = fragment.partition("=")
        yield Link(unquote(urlsplit(url).path.rpartition("/")[2]), url, _sha256({algorithm: value}))


class _LinkParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hrefs += [value for key, value in attrs if tag == "a" and key == "href" and value]
