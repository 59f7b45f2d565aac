"""How much is done: bytes as people read them, other things as numbers."""

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


def test_what_failed_is_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    with progress_bars() as progress:
        progress.start("raw", "demo")
        progress.fail()
    assert capsys.readouterr() == ("", "raw demo: failed\n")
