"""Secrets from the environment and `.env`, and out of every log. Vault is in `test_vault_secrets.py`."""

import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from graftline.core.errors import ConfigError
from graftline.core.secrets import EnvironmentSecrets, RedactingFilter, Secrets, open_secrets

SECRET = "hunter2-hunter2"


def found(environment: dict[str, str], dotenv: str | None, folder: Path, name: str = "TOKEN") -> str | None:
    if dotenv is not None:
        (folder / ".env").write_text(dotenv, "utf-8")
    secret = open_secrets(environment, folder).get(name)
    return secret.get_secret_value() if secret else None


@pytest.mark.parametrize(
    ("environment", "dotenv", "value"),
    [
        ({"TOKEN": "from the process"}, None, "from the process"),
        ({}, "TOKEN=from-the-file\n", "from-the-file"),
        ({"TOKEN": "from the process"}, "TOKEN=from-the-file\n", "from the process"),
        ({"OTHER": "x"}, "OTHER=y\n", None),
        ({}, None, None),
        ({"TOKEN": ""}, None, None),
        ({}, "TOKEN=\n", None),
        ({}, "TOKEN\n", None),
        ({}, "export TOKEN='a b'\n", "a b"),
        ({}, "# TOKEN=no\nTOKEN=yes # a comment\n", "yes"),
        ({"HOME": "/home/a"}, "TOKEN=a$HOME-${HOME}\n", "a$HOME-${HOME}"),
        ({}, "TOKEN=é\n", "é"),
        ({"token": "other case"}, None, None),
    ],
)
def test_a_secret_is_looked_up_in_the_process_and_then_in_the_file(
    tmp_path: Path, environment: dict[str, str], dotenv: str | None, value: str | None
) -> None:
    assert found(environment, dotenv, tmp_path) == value


def test_a_file_that_is_not_utf8_is_named_without_its_content(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"TOKEN=caf\xe9\n")
    with pytest.raises(ConfigError) as raised:
        open_secrets({}, tmp_path)
    assert str(raised.value) == f"{tmp_path / '.env'}: is not UTF-8; expected lines NAME=value"


def test_a_required_secret_that_is_missing_is_named_with_its_purpose() -> None:
    with pytest.raises(ConfigError) as raised:
        Secrets([EnvironmentSecrets({})]).require("TINKER_API_KEY", "the tinker trainer")
    assert str(raised.value) == (
        "TINKER_API_KEY: is not set, but the tinker trainer needs it; put it into .env or Vault"
    )


def test_a_secret_does_not_show_its_value() -> None:
    secret = Secrets([EnvironmentSecrets({"TOKEN": SECRET})]).require("TOKEN", "x")
    assert [SECRET in shown for shown in (repr(secret), str(secret), f"{secret}", repr([secret]))] == [False] * 4


def test_what_was_handed_out_is_redacted() -> None:
    secrets = Secrets([EnvironmentSecrets({"TOKEN": SECRET})])
    secrets.get("TOKEN")
    assert secrets.redact(f"a {SECRET} b{SECRET}c") == "a [secret] b[secret]c"


@pytest.mark.parametrize(
    ("value", "text", "redacted"),
    [
        # shorter than six characters: a word of ordinary messages
        ("local", "a local run", "a local run"),
        ("locals", "a locals run", "a [secret] run"),
        # nothing in it is a pattern
        ("a.c+(d)[", "a.c+(d)[ abcc(d)[", "[secret] abcc(d)["),
        ("two\nlines", "x two\nlines y", "x [secret] y"),
    ],
)
def test_redaction_takes_values_literally(value: str, text: str, redacted: str) -> None:
    secrets = Secrets([EnvironmentSecrets({"TOKEN": value})])
    secrets.get("TOKEN")
    assert secrets.redact(text) == redacted


def test_a_secret_that_holds_another_is_redacted_whole() -> None:
    secrets = Secrets([EnvironmentSecrets({"SHORT": "abcdef", "LONG": "abcdef-ghi"})])
    secrets.get("SHORT")
    secrets.get("LONG")
    assert secrets.redact("abcdef-ghi abcdef") == "[secret] [secret]"


class Log(NamedTuple):
    logger: logging.Logger
    stream: io.StringIO


@pytest.fixture
def log() -> Iterator[Log]:
    """A logger with one redacting handler, after the secret was handed out."""
    secrets = Secrets([EnvironmentSecrets({"TOKEN": SECRET})])
    secrets.get("TOKEN")
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(RedactingFilter(secrets))
    logger = logging.getLogger("graftline.test_secrets_handling")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield Log(logger, stream)
    logger.removeHandler(handler)
    logger.propagate = True


def test_the_arguments_of_a_message_are_redacted(log: Log) -> None:
    log.logger.info("%s and %r and %d", f"x{SECRET}", {"token": SECRET}, 3)
    assert log.stream.getvalue() == "x[secret] and {'token': '[secret]'} and 3\n"


def test_a_secret_made_of_message_and_argument_together_is_redacted(log: Log) -> None:
    log.logger.info("hunter2-%s", "hunter2")
    assert log.stream.getvalue() == "[secret]\n"


def test_a_percent_sign_in_an_argument_is_left_alone(log: Log) -> None:
    log.logger.info("%s", "100 %s %")
    assert log.stream.getvalue() == "100 %s %\n"


def test_tracebacks_are_redacted_down_to_their_causes(log: Log) -> None:
    try:
        try:
            raise ValueError(f"bad token {SECRET}")
        except ValueError as error:
            raise RuntimeError(f"cannot use {SECRET}") from error
    except RuntimeError:
        log.logger.exception("it failed with %s", SECRET)
    written = log.stream.getvalue()
    # the message, the cause and the error; the source lines show no values
    assert (SECRET in written, written.count("[secret]")) == (False, 3)
    assert written.startswith("it failed with [secret]\nTraceback (most recent call last):\n")
    assert written.endswith("RuntimeError: cannot use [secret]\n")


def test_arguments_that_do_not_fit_the_message_are_redacted_and_stop_nothing(log: Log) -> None:
    log.logger.info("%d tokens", SECRET)
    assert log.stream.getvalue() == "%d tokens ('[secret]',)\n"
