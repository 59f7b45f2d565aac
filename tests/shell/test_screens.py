"""Pictures of the UI, by a real browser over a real web server."""

import json
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from PIL import Image

from orchestration.build import build_definitions
from orchestration.screens import main

CHECKOUT = Path(__file__).resolve().parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install chromium")


@pytest.fixture
def home(
    small_checkout: Any, varied_pairs: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """An instance with one run, over a root of nine rows."""
    small_checkout.write(varied_pairs)
    monkeypatch.setenv("GRAFTLINE_ROOT", str(small_checkout.root))
    home = tmp_path / "home"
    home.mkdir()
    shutil.copy(CHECKOUT / "dagster.yaml", home)
    definitions = build_definitions()
    key = dg.AssetKey(["raw", "release_pairs"])
    job = definitions.resolve_implicit_global_asset_job_def().get_subset(asset_selection={key})
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert job.execute_in_process(instance=instance).success
    return home


@needs_chromium
@pytest.mark.timeout(600)
def test_pages_and_reports_are_shown_and_their_pictures_are_small(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("playwright", reason="pip install 'graftline[ui]'")
    report, into = tmp_path / "found.md", tmp_path / "pictures"
    report.write_text("# Found\n\n| rows |\n|---|\n| 9 |\n", "utf-8")
    wanted = ["lineage", "asset-raw-release_pairs"]
    code = main(
        [
            str(into),
            "--home",
            str(home),
            *(word for name in wanted for word in ("--only", name)),
            "--report",
            str(report),
        ]
    )
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (code, said["faults"], said["pages"], said["reports"]) == (0, [], 2, 1)
    sizes = {path.stem: path.stat().st_size for path in into.iterdir()}
    assert sizes.keys() == {*wanted, "found"}
    assert max(sizes.values()) < 300_000
    for path in into.iterdir():
        with Image.open(path) as picture:
            # a page that did not load is of one colour
            assert len(picture.convert("RGB").getcolors(picture.width * picture.height) or []) > 8


@needs_chromium
@pytest.mark.timeout(600)
def test_a_page_that_tells_of_an_error_on_its_console_fails(home: Path, tmp_path: Path) -> None:
    pytest.importorskip("playwright", reason="pip install 'graftline[ui]'")
    report = tmp_path / "broken.html"
    report.write_text("<p>broken</p><script>missing()</script>", "utf-8")
    assert main([str(tmp_path / "out"), "--home", str(home), "--only", "runs", "--report", str(report)]) == 1


def test_a_home_that_is_no_folder_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["out", "--home", "nowhere", "--chromium", "chromium"])
    assert ended.value.code == 2
    assert "--home: 'nowhere' is no folder; name the DAGSTER_HOME that has the runs" in capsys.readouterr().err
