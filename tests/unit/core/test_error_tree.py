"""Errors cross process borders with what they say, and those from outside are told from those of the user."""

import pickle

import pytest

from graftline.core.errors import (
    BoundaryError,
    ConfigError,
    DataError,
    DownloadError,
    GraftlineError,
    RecordError,
    SandboxError,
)

REMEDIES = {
    GraftlineError: (ConfigError, DataError, RecordError, BoundaryError),
    BoundaryError: (DownloadError, SandboxError),
}


@pytest.mark.parametrize(
    ("remedy", "error"), [(remedy, error) for remedy, errors in REMEDIES.items() for error in errors]
)
def test_an_error_stands_under_its_remedy_and_survives_pickling(
    remedy: type[Exception], error: type[Exception]
) -> None:
    copy = pickle.loads(pickle.dumps(error("data/tasks: is missing")))
    assert (error.__bases__, type(copy), str(copy)) == ((remedy,), error, "data/tasks: is missing")
