"""Progress: one line per artifact on standard error, and on a terminal how much is done as people read it."""

import pytest

from graftline.core.progress import format_amount, progress_bars

AMOUNTS = [
    ((0, None, None, True), "0 bytes"),
    ((0, None, None, False), "0"),
    ((12_600_000, 135_858_935, 3_100_000.5, True), "12.6 MB of 135.9 MB, 3.1 MB/s"),
    ((8192, 702_062, 4915.7, False), "8,192 of 702,062, 4,915/s"),
    # a source that does not say how large its file is
    ((1500, None, None, True), "1.5 kB"),
    ((1500, 0, 0, False), "1,500"),
]


@pytest.fixture(autouse=True)
def _environment_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("terminal", [{}, {"FORCE_COLOR": "1", "TERM": "dumb"}])
def test_each_artifact_ends_in_one_line_on_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: dict[str, str]
) -> None:
    for name, value in terminal.items():
        monkeypatch.setenv(name, value)
    with progress_bars() as progress:
        progress.start("tasks", "python/train")
        progress.advance(1, 2)
        progress.finish("code changed")
        progress.start("tasks", "python/dev")
        progress.advance(0, 0)
        progress.finish("")
    written = capsys.readouterr()
    # but for bars
    lines = [line for line in written.err.splitlines() if not terminal or ": " in line]
    assert (written.out, lines) == ("", ["tasks python/train: made (code changed)", "tasks python/dev: unchanged"])


def test_a_long_reason_is_printed_as_it_is_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    # with what rich would take for a color and for a picture
    reason = "unreadable record: a[red].txt :smile: 12" + "/folder" * 40
    with progress_bars() as progress:
        progress.start("tasks", "python/train")
        progress.finish(reason)
        progress.start("raw", "demo")
        progress.fail()
    assert capsys.readouterr().err == f"tasks python/train: made ({reason})\nraw demo: failed\n"


@pytest.mark.parametrize(("done", "text"), AMOUNTS)
def test_an_amount_says_what_is_known(done: tuple[float, float | None, float | None, bool], text: str) -> None:
    assert format_amount(*done) == text


@pytest.mark.parametrize(("stage", "shown"), [("raw", "1.5 kB of 3.0 kB"), ("normalized", "1,500 of 3,000")])
def test_a_bar_counts_raw_files_in_bytes_and_everything_else_by_number(
    stage: str, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "200")):
        monkeypatch.setenv(name, value)
    with progress_bars() as progress:
        progress.start(stage, "demo")
        progress.advance(1500, 3000)
    written = capsys.readouterr()
    assert (written.out, shown in written.err) == ("", True)
