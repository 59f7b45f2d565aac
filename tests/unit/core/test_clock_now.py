"""The present time as it is stamped into records."""

from datetime import UTC, datetime

from graftline.core.clock import utc_now


def test_now_is_in_utc_and_in_whole_seconds() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    now = utc_now()
    assert before <= now <= datetime.now(UTC)
    assert (now.tzinfo, now.microsecond) == (UTC, 0)


def test_now_reads_as_iso_8601_with_its_offset() -> None:
    text = utc_now().isoformat()
    assert (len(text), text[-6:]) == (len("2026-01-02T03:04:05+00:00"), "+00:00")
