"""Pictures of the UI, by a real browser over a real web server."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from PIL import Image

from orchestration.build import build_definitions
from orchestration.screens import main, take
from tests.shell.test_contest_assets import root, write

__all__ = ["root"]

CHECKOUT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
BROKEN = "<p>broken</p><script>missing()</script>"
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install chromium")


@pytest.fixture
def home(root: Path, small_checkout: Any, varied_pairs: list[dict[str, Any]], tmp_path: Path) -> Path:
    """An instance with one run, over a root of nine rows and the report of an evaluation."""
    small_checkout.write(varied_pairs)
    write(root, "induction", "gold")
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(CHECKOUT / "dagster.yaml", home)
    definitions = build_definitions()
    key = dg.AssetKey("raw_release_pairs")
    raw = definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection={key})
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert raw.execute_in_process(instance=instance).success
        instance.add_dynamic_partitions("evaluations", ["teachers"])
        evaluations = definitions.resolve_job_def("evaluations")
        assert evaluations.execute_in_process(instance=instance, partition_key="teachers").success
    return home


def words(home: Path, into: Path, pages: list[str], report: Path) -> list[str]:
    only = [word for name in pages for word in ("--only", name)]
    return [str(into), "--home", str(home), *only, "--report", str(report)]


@pytest.mark.long  # a minute of a browser and a web server
@needs_chromium
@pytest.mark.timeout(600)
def test_pages_and_reports_are_shown_and_their_pictures_are_small(
    home: Path, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("playwright", reason="pip install 'graftline[ui]'")
    report, into = root / "reports" / "evaluations" / "teachers" / "report.md", tmp_path / "pictures"
    wanted = [
        "lineage", "lineage-upright", "group-reports", "asset-raw_release_pairs", "job-lineage", "sensor-lost_runs",
        "resources", "resource-tinker",
    ]  # fmt: skip
    code = main(words(home, into, wanted, report))
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (code, said["faults"], said["pages"], said["reports"]) == (0, [], 8, 1)
    sizes = {path.stem: path.stat().st_size for path in into.iterdir()}
    assert sizes.keys() == {*wanted, "report-teachers-report"}
    assert max(sizes.values()) < 300_000
    for path in into.iterdir():
        with Image.open(path) as picture:
            # a page that did not load is of one color
            assert len(picture.convert("RGB").getcolors(picture.width * picture.height) or []) > 8


@pytest.mark.long  # as above, for its exit code: what is wrong with a page is in make test, below
@needs_chromium
@pytest.mark.timeout(600)
def test_a_page_that_tells_of_an_error_on_its_console_fails(home: Path, tmp_path: Path) -> None:
    pytest.importorskip("playwright", reason="pip install 'graftline[ui]'")
    report = tmp_path / "broken.html"
    report.write_text(BROKEN, "utf-8")
    assert main(words(home, tmp_path / "out", ["runs"], report)) == 1


def taken(reports: Mapping[str, str], tmp_path: Path) -> tuple[list[str], dict[str, tuple[int, int]]]:
    """Return what was wrong with reports of these texts, and how wide and high the pictures of them are."""
    pytest.importorskip("playwright", reason="pip install 'graftline[ui]'")
    assert CHROMIUM is not None
    folder, into = tmp_path / "of", tmp_path / "pictures"
    folder.mkdir()
    for name, text in reports.items():
        (folder / name).with_suffix(Path(name).suffix or ".md").write_text(text, "utf-8")
    faults = take("", [], sorted(folder.iterdir()), into, CHROMIUM)
    shapes = {}
    for path in into.iterdir():
        with Image.open(path) as picture:
            shapes[path.stem.removeprefix("report-of-")] = picture.size
    return faults, shapes


@needs_chromium
@pytest.mark.timeout(600)
def test_a_report_is_shown_whole_however_long_or_wide_it_is(tmp_path: Path) -> None:
    table = "| " + " | ".join(["a_column"] * 40) + " |\n" + "|---" * 40 + "|\n"
    texts = {"short": "# Short\n", "long": "A line.\n\n" * 200, "wide": table, "endless": "A line.\n\n" * 2000}
    faults, shapes = taken(texts, tmp_path)
    assert faults == []
    # what is short fills a screen; a line has 24 pixels; a browser draws no more than so much
    assert shapes["short"] == (1090, 1400)
    assert (shapes["long"][0], shapes["long"][1] > 200 * 24) == (1090, True)
    assert (shapes["wide"][0] > 1090, shapes["wide"][1]) == (True, 1400)
    assert shapes["endless"][1] == 16_000


@needs_chromium
@pytest.mark.timeout(600)
def test_a_report_without_its_plots_or_anything_and_an_error_on_its_console_are_told(tmp_path: Path) -> None:
    reports = {"empty": "", "lacking": "# Lacking\n\n![a plot](lost.png)\n", "broken.html": BROKEN}
    faults, _ = taken(reports, tmp_path)
    assert {"report-of-empty: shows nothing", "report-of-lacking: shows no picture lost.png"} <= {*faults}
    assert [fault for fault in faults if "missing is not defined" in fault] != []


def test_without_a_run_there_is_nothing_to_take_pictures_of(tmp_path: Path) -> None:
    # what is installed is not looked at, for there is nothing in this folder
    asked = ["make", "--no-print-directory", "-f", str(CHECKOUT / "Makefile"), "-o", "install", "screens"]
    ended = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "there is nothing to take pictures of yet: run make run first\n")


def test_a_home_that_is_no_folder_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["out", "--home", "nowhere", "--chromium", "chromium"])
    assert ended.value.code == 2
    assert "--home: 'nowhere' is no folder; name the DAGSTER_HOME that has the runs" in capsys.readouterr().err
