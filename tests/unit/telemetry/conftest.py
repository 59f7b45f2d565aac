"""Where logs and figures go to in these tests, and a logger that nobody else listens to."""

import logging
from collections.abc import Iterator

import pytest

from graftline.core.secrets import EnvironmentSecrets, Secrets
from tests.unit.telemetry.otlp_server import OtlpServer, otlp_server


@pytest.fixture
def otlp() -> Iterator[OtlpServer]:
    with otlp_server() as server:
        yield server


@pytest.fixture
def secret() -> str:
    return "a-secret-of-the-test"


@pytest.fixture
def secrets(secret: str) -> Secrets:
    environment = EnvironmentSecrets({"PUSH_AUTHORIZATION": f"Bearer {secret}"})
    return Secrets([environment], [secret])


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("graftline.test")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield logger
    for handler in [*logger.handlers]:
        logger.removeHandler(handler)
        handler.close()
    logger.propagate = True
    logger.setLevel(logging.NOTSET)


@pytest.fixture
def lost() -> list[int]:
    """What was lost, as it was told."""
    return []
