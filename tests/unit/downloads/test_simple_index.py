"""Where pip looks for a project, and what is on the pages there; and the limits of the programs that are run."""

import os
from pathlib import Path

import pytest

from graftline.core.errors import ConfigError
from graftline.core.pip import Link, PipSources, list_links, local_path, parse_pip_config
from graftline.core.processes import run_program
from graftline.core.retry import RetryPolicy, SourceBusyError
from graftline.core.web import Web
from tests.processes import wait_until_ended

SUM = "0" * 64
OPTION = "index-url"
USAGE = f"""
Package Index Options:
  -i, --{OPTION} <url>  Base URL of the Python Package Index (default http://index.invalid/simple). This should
                         point to a repository.
"""


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("", PipSources(("http://index.invalid/simple",), ())),
        (
            "global.index-url='http://a.invalid'\n:env:.index-url='http://c.invalid'\ndownload.index-url='http://b.invalid'",
            PipSources(("http://c.invalid",), ()),  # the environment counts most
        ),
        (
            "global.extra-index-url='http://b.invalid\\nhttp://c.invalid'\nglobal.index-url='http://a.invalid'",
            PipSources(("http://a.invalid", "http://b.invalid", "http://c.invalid"), ()),
        ),
        (
            "global.find-links='/shelf http://d.invalid/links'\n:env:.no-index='1'",
            PipSources((), ("/shelf", "http://d.invalid/links")),
        ),
        (
            "install.index-url='http://b.invalid'\nglobal.timeout='5'\nno setting",  # not of `pip download`
            PipSources(("http://index.invalid/simple",), ()),
        ),
    ],
)
def test_places_are_those_of_pips_configuration(config: str, expected: PipSources) -> None:
    assert parse_pip_config(config, lambda: USAGE) == expected


def test_a_pip_that_names_no_index_is_a_fault_of_the_configuration() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_pip_config("", lambda: "no usage")
    assert str(caught.value) == "pip: neither its configuration nor its help names an index; set PIP_INDEX_URL"


def test_a_page_in_a_folder_is_read_as_an_index(tmp_path: Path) -> None:
    page = tmp_path / "simple" / "demo-project" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(
        "<!DOCTYPE html><a href='../../files/demo%20project-1.0.tar.gz#sha256=" + SUM + "'>1</a>"
        "<a HREF=\"http://other.invalid/d-2.0.zip?x=1#md5=1\">2</a><a>no address</a><img src='x'>",
        "utf-8",
    )
    sources = PipSources((str(tmp_path / "simple"),), ())
    assert list(list_links("Demo_.Project", sources, Web(RetryPolicy()))) == [
        Link("index.html", page.as_uri(), None),
        Link(
            "demo project-1.0.tar.gz",
            (tmp_path / "files" / "demo%20project-1.0.tar.gz").as_uri().replace("%25", "%"),
            SUM,
        ),
        Link("d-2.0.zip", "http://other.invalid/d-2.0.zip?x=1", None),
    ]


def test_a_page_that_is_named_is_read(tmp_path: Path) -> None:
    (tmp_path / "links.html").write_text("<a href='a-1.0.zip'>a</a>", "utf-8")
    sources = PipSources((), ((tmp_path / "links.html").as_uri(), str(tmp_path / "none")))
    assert list(list_links("a", sources, Web(RetryPolicy()))) == [
        Link("a-1.0.zip", (tmp_path / "a-1.0.zip").as_uri(), None)
    ]


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///shelf/of%20files", Path("/shelf/of files")),
        ("/shelf", Path("/shelf")),
        ("shelf", Path("shelf")),
        ("http://a.invalid/shelf", None),
    ],
)
def test_paths_are_told_from_addresses(url: str, path: Path | None) -> None:
    assert local_path(url) == path


def test_a_program_says_how_it_ended(tmp_path: Path) -> None:
    ran = run_program(["/bin/sh", "-c", "echo out; echo why >&2; echo >&2; exit 3"], tmp_path, os.environ)
    assert (ran.status, ran.output, ran.last_error()) == (3, "out\n", "why")


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        run_program(["/no/such/program"], tmp_path, os.environ)
    assert str(caught.value) == (
        "/no/such/program: cannot be started (No such file or directory); mend its installation"
    )


def test_a_program_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", "sleep 60 & echo $! > child; wait"]
    with pytest.raises(SourceBusyError) as caught:
        run_program(command, tmp_path, os.environ, time_limit_s=2)  # by when it has started its child
    assert str(caught.value) == "sh: was not done within 2 s; check the network or its registry"
    wait_until_ended(int((tmp_path / "child").read_text()))
