"""The tree of errors: which remedy each is filed under, and that all cross process borders."""

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

PARENTS = {
    GraftlineError: Exception,
    ConfigError: GraftlineError,
    DataError: GraftlineError,
    RecordError: GraftlineError,
    BoundaryError: GraftlineError,
    DownloadError: BoundaryError,
    SandboxError: BoundaryError,
}


@pytest.mark.parametrize("error", PARENTS, ids=lambda error: error.__name__)
def test_every_error_stands_under_its_remedy(error: type[Exception]) -> None:
    assert error.__bases__ == (PARENTS[error],)


@pytest.mark.parametrize("error", PARENTS, ids=lambda error: error.__name__)
def test_every_error_survives_pickling(error: type[Exception]) -> None:
    copy = pickle.loads(pickle.dumps(error("data/tasks: is missing")))
    assert (type(copy), str(copy)) == (error, "data/tasks: is missing")


@pytest.mark.parametrize("error", PARENTS, ids=lambda error: error.__name__)
def test_no_error_has_a_constructor_of_its_own(error: type[Exception]) -> None:
    assert error.__init__ is Exception.__init__
