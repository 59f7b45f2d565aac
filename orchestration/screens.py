"""Pictures of the UI and of reports, taken by a browser without a window: `python -m orchestration.screens <folder>`.

It serves the UI over `DAGSTER_HOME`, opens the lineage, every group, asset, job, sensor, schedule and resource, and the
runs, and writes a PNG of each. It ends with 1 where a page does not show what it should, or its console tells of an error.
The browser is the machine's own Chromium; the driver is playwright's, the extra `ui`.
"""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from playwright.sync_api import Page as Tab

CHECKOUT = Path(__file__).resolve().parents[1]
_STARTS_WITHIN_S = 300.0
_ENDS_WITHIN_S = 30.0
_SHOWS_WITHIN_MS = 90_000
_QUIET_S = 1.5
_SETTLES_WITHIN_S = 45.0
_QUERY = """{
  assetNodes { assetKey { path } groupName }
  repositoriesOrError { ... on RepositoryConnection { nodes {
    location { name } jobs { name } schedules { name } sensors { name } allTopLevelResourceDetails { name }
  } } }
}"""
_OF_DAGSTER = "__ASSET_JOB"
"""The job over all assets that Dagster makes itself, and does not list."""
_FOLDED = "reports"
"""The group of most assets, which hides what it is about where all of it is shown."""
_UPRIGHT = """localStorage.setItem("asset-graph-direction", '"vertical"')"""
_COLORS = 128
_MOST_WIDTH, _MOST_HEIGHT = 2400, 16_000
"""Of the picture of a report, in pixels: a browser draws no more at once."""
_MARGIN = 48
_STYLE = """
body { margin: 2.5rem 3rem; font: 16px/1.55 system-ui, sans-serif; color: #1f2328 }
body > :not(table) { max-width: 62rem }
h1, h2, h3 { line-height: 1.25; margin: 1.8em 0 .6em }
h1 { margin-top: 0; padding-bottom: .3em; border-bottom: 1px solid #d0d7de }
table { border-collapse: collapse; margin: 1em 0; font-size: 14px; font-variant-numeric: tabular-nums }
td, th { padding: .3em .65em; border: 1px solid #d0d7de; text-align: left }
td { overflow-wrap: break-word; max-width: 34rem }
th { background: #f6f8fa; vertical-align: bottom }
tr:nth-child(even) td { background: #fafbfc }
img { max-width: 62rem; height: auto }
code, pre { font: 13px/1.45 ui-monospace, monospace; background: #f6f8fa; border-radius: 4px }
code { padding: .1em .3em }
pre { padding: .8em 1em; white-space: pre-wrap; overflow-wrap: anywhere }
pre code { padding: 0 }
"""


@dataclass(frozen=True)
class Page:
    """A page of the UI, and what it shows when it has loaded."""

    name: str
    path: str
    text: str | re.Pattern[str]
    key: str = ""
    """Pressed once it shows the text."""
    size: tuple[int, int] = (1800, 1000)
    is_whole: bool = False
    """Whether the picture has all of it, however long it is."""
    is_upright: bool = False
    """Whether its graph goes down, and not to the right: it is narrow then, and its words are large."""


@contextmanager
def serve(home: Path) -> Iterator[str]:
    """Serve the UI of the checkout over the instance in `home`, and yield its address.

    Raises:
        TimeoutError: it does not answer.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["dagster-webserver", "-h", "127.0.0.1", "-p", str(port), "-w", "workspace.yaml", "--read-only"]
    words[0] = str(Path(sys.executable).with_name(words[0]))
    variables = {**os.environ, "DAGSTER_HOME": str(home), "DAGSTER_DISABLE_TELEMETRY": "1", "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(words, cwd=CHECKOUT, env=variables, stdout=log, stderr=subprocess.STDOUT)
        try:
            url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + _STARTS_WITHIN_S
            while not _answers(f"{url}/server_info"):
                if server.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    output = log.read().decode("utf-8", "replace")[-2000:]
                    raise TimeoutError(f"the UI over {home} did not start within {_STARTS_WITHIN_S:.0f} s:\n{output}")
                time.sleep(0.5)
            yield url
        finally:
            # the web server ends the code location, which is a process of its own
            server.terminate()
            try:
                server.wait(_ENDS_WITHIN_S)
            except subprocess.TimeoutExpired:
                # one that is still loading does not listen; its code location ends when it hears nothing of it
                server.kill()
                server.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def pages(url: str) -> list[Page]:
    """Return the pages of what is loaded at `url`: the lineage, every group, asset, job, sensor, schedule and resource.

    Raises:
        ValueError: the definitions did not load.
    """
    request = urllib.request.Request(
        f"{url}/graphql", json.dumps({"query": _QUERY}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=_STARTS_WITHIN_S) as answer:
        data = json.load(answer)["data"]
    nodes: list[dict[str, Any]] = data["assetNodes"]
    if not nodes:
        raise ValueError("the definitions have no asset, or did not load; dagster definitions validate says which")
    [loaded, *_] = data["repositoriesOrError"]["nodes"]
    location = f"/locations/{quote(loaded['location']['name'])}"
    groups: dict[str, list[str]] = {}
    for node in nodes:
        groups.setdefault(node["groupName"], []).append(re.escape(node["assetKey"]["path"][-1]))
    views = [Page("lineage", "/asset-groups", "Global asset lineage", key="Alt+KeyE", size=(2400, 3000))]
    opened = ",".join(f"global@global:{group}" for group in sorted(groups) if group != _FOLDED)
    path = f"/asset-groups?expanded={quote(opened, safe='')}"
    views.append(Page("lineage-upright", path, "Global asset lineage", size=(1700, 1800), is_upright=True))
    for group, members in sorted(groups.items()):
        # of a large group only a part is in view
        member = re.compile(f"^({'|'.join(members)})$")
        views.append(Page(f"group-{group}", f"{location}/asset-groups/{quote(group)}/lineage", member))
    for node in sorted(nodes, key=lambda entry: str(entry["assetKey"]["path"])):
        parts = node["assetKey"]["path"]
        path = "/".join(quote(part) for part in parts)
        views.append(
            Page(f"asset-{'-'.join(parts)}", f"/assets/{path}?view=overview", "Code location", size=(1600, 2200))
        )
    for job in sorted(entry["name"] for entry in loaded["jobs"] if entry["name"] != _OF_DAGSTER):
        views.append(Page(f"job-{job}", f"{location}/jobs/{quote(job)}", job))
    for kind in ("schedules", "sensors"):
        for name in sorted(entry["name"] for entry in loaded[kind]):
            views.append(Page(f"{kind[:-1]}-{name}", f"{location}/{kind}/{quote(name)}", name))
    for name in sorted(entry["name"] for entry in loaded["allTopLevelResourceDetails"]):
        views.append(Page(f"resource-{name}", f"{location}/resources/{quote(name)}", name, size=(1600, 1400)))
    lists = {"runs": "/runs", "automation": "/automation", "jobs": "/jobs", "resources": f"{location}/resources"}
    return [*views, *(Page(name, path, name.capitalize()) for name, path in lists.items())]


def take(url: str, shown: Sequence[Page], reports: Sequence[Path], into: Path, chromium: str) -> list[str]:
    """Write a picture of every page and report below `into`, and return what was wrong with them."""
    from playwright.sync_api import sync_playwright

    into.mkdir(parents=True, exist_ok=True)
    # a browser that is root has no sandbox, and /dev/shm of containers is small
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        faults = [fault for page in shown for fault in _shoot(browser, f"{url}{page.path}", page, into)]
        for report in reports:
            with _as_html(report) as address:
                faults += _shoot(browser, address, report_page(report), into)
        browser.close()
    return faults


def report_page(report: Path) -> Page:
    """Return how a report is shown: whole, under a name that has its folder, for many are called the same."""
    return Page(f"report-{report.resolve().parent.name}-{report.stem}", "", "", size=(1090, 1400), is_whole=True)


def _shoot(browser: "Browser", address: str, page: Page, into: Path) -> list[str]:
    from playwright.sync_api import Error

    faults: list[str] = []
    tab = browser.new_page(viewport={"width": page.size[0], "height": page.size[1]})
    if page.is_upright:
        tab.add_init_script(_UPRIGHT)
    tab.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: faults.append(str(error)))
    in_flight: set[object] = set()
    # playwright keeps a mark on what it calls, which methods of a set do not take
    tab.on("request", lambda request: in_flight.add(request))
    tab.on("requestfinished", lambda request: in_flight.discard(request))
    tab.on("requestfailed", lambda request: in_flight.discard(request))
    try:
        tab.goto(address, timeout=_SHOWS_WITHIN_MS)
        if page.text:
            tab.get_by_text(page.text).first.wait_for(timeout=_SHOWS_WITHIN_MS)
        _settle(tab, in_flight)
        if page.key:
            tab.keyboard.press(page.key)
            _settle(tab, in_flight)
        if page.is_whole:
            faults += _lacking(tab)
            # a table may be wider than the text is; how long a page is depends on how wide
            width = int(tab.evaluate("document.documentElement.scrollWidth"))
            width = min(width + _MARGIN if width > page.size[0] else width, _MOST_WIDTH)
            tab.set_viewport_size({"width": width, "height": page.size[1]})
            height = int(tab.evaluate("document.documentElement.scrollHeight"))
            tab.set_viewport_size({"width": width, "height": min(height, _MOST_HEIGHT)})
        _write(tab.screenshot(), into / f"{page.name}.png")
    except Error as error:
        faults.append(str(error).partition("\n")[0])
    tab.close()
    return [f"{page.name}: {fault}" for fault in dict.fromkeys(faults)]


def _lacking(tab: "Tab") -> list[str]:
    """Return what a report does not show that it should: anything at all, and each of its plots."""
    empty = [] if tab.inner_text("body").strip() else ["shows nothing"]
    missing: list[str] = tab.evaluate("[...document.images].filter(one => !one.naturalWidth).map(one => one.src)")
    return [*empty, *(f"shows no picture {source.rpartition('/')[2]}" for source in missing)]


def _settle(tab: "Tab", in_flight: set[object]) -> None:
    """Wait until nothing was asked for a while; a page that polls is not waited for longer than that takes."""
    quiet_since, deadline = time.monotonic(), time.monotonic() + _SETTLES_WITHIN_S
    while time.monotonic() < deadline and time.monotonic() - quiet_since < _QUIET_S:
        tab.wait_for_timeout(100)
        if in_flight:
            quiet_since = time.monotonic()


def _write(picture: bytes, path: Path) -> None:
    from PIL import Image

    with Image.open(BytesIO(picture)) as image:
        image.convert("RGB").quantize(_COLORS, dither=Image.Dither.NONE).save(path, optimize=True)


@contextmanager
def _as_html(report: Path) -> Iterator[str]:
    """Yield the address of a page, made of `report` where that is Markdown."""
    if report.suffix != ".md":
        yield report.resolve().as_uri()
        return
    from markdown_it import MarkdownIt

    body = MarkdownIt().enable("table").render(report.read_text("utf-8"))
    # names of columns may be broken between their words, or a table is wider than the page
    body = re.sub(r"<th.*?</th>", lambda head: head[0].replace("_", "_<wbr>"), body)
    with tempfile.NamedTemporaryFile("w", suffix=".html", encoding="utf-8") as page:
        page.write(
            f'<meta charset="utf-8"><base href="{report.resolve().parent.as_uri()}/"><style>{_STYLE}</style>{body}'
        )
        page.flush()
        yield Path(page.name).as_uri()


def main(arguments: Sequence[str] | None = None) -> int:
    """Take the pictures that the command line asks for, and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m orchestration.screens", description="Take pictures of the UI.")
    parser.add_argument("folder", type=Path, help="where they go")
    parser.add_argument("--home", type=Path, default=os.environ.get("DAGSTER_HOME"), help="DAGSTER_HOME if not given")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="these pages alone; repeatable")
    parser.add_argument(
        "--report", action="append", default=[], type=Path, metavar="FILE", help=".md or .html; repeatable"
    )
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("chromium-browser"))
    options = parser.parse_args(arguments)
    if options.home is None or not options.home.is_dir():
        parser.error(f"--home: {str(options.home)!r} is no folder; name the DAGSTER_HOME that has the runs")
    if options.chromium is None:
        parser.error("chromium is not installed: apt-get install chromium, or name it with --chromium")
    # told to end, it ends what it started, too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with serve(options.home.resolve()) as url:
        every = pages(url)
        if unknown := set(options.only) - {page.name for page in every}:
            parser.error(f"--only: no page {sorted(unknown)}; there are {', '.join(page.name for page in every)}")
        chosen = [page for page in every if not options.only or page.name in options.only]
        faults = take(url, chosen, options.report, options.folder, options.chromium)
    print(
        json.dumps(
            {"folder": str(options.folder), "pages": len(chosen), "reports": len(options.report), "faults": faults}
        )
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
