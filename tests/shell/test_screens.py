"""Pictures of the UI, by a real browser over a real web server."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from PIL import Image

from orchestration.build import build_definitions
from orchestration.screens import main
from tests.shell.test_contest_assets import root, write

__all__ = ["root"]

CHECKOUT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
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
    key = dg.AssetKey(["raw", "release_pairs"])
    raw = definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection={key})
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert raw.execute_in_process(instance=instance).success
        evaluations = definitions.resolve_job_def("evaluations")
        assert evaluations.execute_in_process(instance=instance, partition_key="teachers").success
    return home


def words(home: Path, into: Path, pages: list[str], reports: list[Path]) -> list[str]:
    only = [word for name in pages for word in ("--only", name)]
    return [str(into), "--home", str(home), *only, *(word for path in reports for word in ("--report", str(path)))]


@needs_chromium
@pytest.mark.timeout(600)
def test_pages_and_whole_reports_are_shown_and_their_pictures_are_small(
    home: Path, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("playwright", reason="pip install 'graftline[ui]'")
    made = root / "reports" / "evaluations" / "teachers" / "report.md"
    into, long, wide = tmp_path / "pictures", tmp_path / "long.md", tmp_path / "wide.md"
    long.write_text("# Long\n\n" + "A line.\n\n" * 200, "utf-8")
    wide.write_text("| " + " | ".join(["a_column"] * 40) + " |\n" + "|---" * 40 + "|\n", "utf-8")
    wanted = ["lineage", "asset-raw-release_pairs"]
    code = main(words(home, into, wanted, [made, long, wide]))
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (code, said["faults"], said["pages"], said["reports"]) == (0, [], 2, 3)
    reports = {
        "made": "report-teachers-report", "long": f"report-{tmp_path.name}-long", "wide": f"report-{tmp_path.name}-wide"
    }  # fmt: skip
    assert {path.stem for path in into.iterdir()} == {*wanted, *reports.values()}
    assert max(path.stat().st_size for path in into.iterdir()) < 300_000
    shapes = {}
    for path in into.iterdir():
        with Image.open(path) as picture:
            shapes[path.stem] = picture.size
            # a page that did not load is of one colour
            assert len(picture.convert("RGB").getcolors(picture.width * picture.height) or []) > 8
    # a line is 24 pixels high, and as far from the next one as a line has room
    assert shapes[reports["long"]][1] > 200 * 24
    assert shapes[reports["wide"]][0] > shapes[reports["long"]][0]


@needs_chromium
@pytest.mark.timeout(600)
def test_a_page_that_tells_of_an_error_or_lacks_a_plot_fails(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("playwright", reason="pip install 'graftline[ui]'")
    broken, lacking = tmp_path / "broken.html", tmp_path / "lacking.md"
    broken.write_text("<p>broken</p><script>missing()</script>", "utf-8")
    lacking.write_text("# Lacking\n\n![a plot](lost.png)\n", "utf-8")
    assert main(words(home, tmp_path / "out", ["runs"], [broken, lacking])) == 1
    faults = " ".join(json.loads(capsys.readouterr().out.splitlines()[-1])["faults"])
    assert "missing is not defined" in faults
    assert f"report-{tmp_path.name}-lacking: shows no picture lost.png" in faults


def test_without_a_run_there_is_nothing_to_take_pictures_of(tmp_path: Path) -> None:
    # what is installed is not looked at, for there is nothing in this folder
    asked = ["make", "-f", str(CHECKOUT / "Makefile"), "-o", "install", "screens"]
    ended = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "there is nothing to take pictures of yet: run make run first\n")


def test_a_home_that_is_no_folder_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["out", "--home", "nowhere", "--chromium", "chromium"])
    assert ended.value.code == 2
    assert "--home: 'nowhere' is no folder; name the DAGSTER_HOME that has the runs" in capsys.readouterr().err
