"""The page of a review in a real browser: it is read, groups are unchecked, and the command that it shows does what was chosen."""

import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from graftline.cli.main import main

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FILES = {
    "a.py": "def load(url):\n    return client.get_all(url, 1)\n",
    "b.py": "def save(url, row):\n    client.get_all(url, row)\n",
    "c.py": "text = '<script>document.title = \"changed\"</script>' + client.get_all(2)\n",
}


@pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install chromium")
@pytest.mark.timeout(300)
def test_what_is_unchecked_on_the_page_is_left_out_by_the_command_that_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browsers = pytest.importorskip("playwright.sync_api", reason="pip install 'graftline[ui]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, text in FILES.items():
        Path("repo").mkdir(exist_ok=True)
        Path("repo", name).write_text(text, "utf-8")
    words = ["refactor", "Rename `get_all` to `fetch_all`.", "repo"]
    assert CliRunner().invoke(main, [*words, "--review", "page.html"]).exit_code == 0
    with browsers.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(color_scheme="dark", offline=True)
        faults: list[str] = []
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(Path("page.html").resolve().as_uri())
        assert (page.title(), page.locator("h1").inner_text()) == ("Review of a change", "3 places in 3 files")
        assert "<script>document.title" in "".join(page.locator("pre .ins").all_text_contents())
        page.get_by_text("all of them, those that look alike together").click()
        box = page.locator("h4 input").first
        box.uncheck()
        rejected = box.get_attribute("data-id")
        command = page.locator("#command code").inner_text()
        browser.close()
    assert (faults, f"--reject {rejected}" in command) == ([], True)
    assert CliRunner().invoke(main, shlex.split(command)[1:]).exit_code == 0
    changed = {name for name, text in FILES.items() if Path("repo", name).read_text("utf-8") != text}
    assert 0 < len(changed) < 3
