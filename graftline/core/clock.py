"""The time of day, as an argument: whatever stamps something takes a `Clock`."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """Return the present time in UTC, without fractions of a second."""
    return datetime.now(UTC).replace(microsecond=0)
