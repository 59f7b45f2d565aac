"""Progress without a terminal: one line per artifact, as it is, on standard error."""

import pytest

from graftline.core.progress import progress_bars


@pytest.fixture(autouse=True)
def _environment_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def test_each_artifact_is_one_line_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bars() as progress:
        progress.start("tasks", "python/train")
        progress.advance(1, 2)
        progress.finish("code changed")
        progress.start("tasks", "python/dev")
        progress.advance(0, 0)
        progress.finish("")
    assert capsys.readouterr() == ("", "tasks python/train: made (code changed)\ntasks python/dev: unchanged\n")


def test_a_long_reason_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    reason = "unreadable record: " + "/folder" * 40
    with progress_bars() as progress:
        progress.start("tasks", "python/train")
        progress.finish(reason)
    assert capsys.readouterr().err == f"tasks python/train: made ({reason})\n"


def test_a_reason_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    # what rich would take for a color and for a picture
    reason = "file 'a[red].txt' :smile: 12 is missing"
    with progress_bars() as progress:
        progress.start("tasks", "python/train")
        progress.finish(reason)
    assert capsys.readouterr().err == f"tasks python/train: made ({reason})\n"


def test_bars_on_a_terminal_end_in_the_same_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    with progress_bars() as progress:
        progress.start("tasks", "python/train")
        progress.advance(1, 2)
        progress.finish("code changed")
        progress.start("tasks", "python/dev")
        progress.advance(1, 0)
        progress.finish("")
    written = capsys.readouterr()
    lines = [line for line in written.err.splitlines() if ": " in line]
    assert (written.out, lines) == ("", ["tasks python/train: made (code changed)", "tasks python/dev: unchanged"])
