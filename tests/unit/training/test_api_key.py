from pathlib import Path

import pytest

from graftline.core.errors import ConfigError

for library in ("tinker", "torch", "peft", "uvicorn"):
    pytest.importorskip(library, reason="pip install 'graftline[training]'")

from graftline.training.local.serve import api_key  # noqa: E402
from graftline.training.tinker import TinkerSDKClient  # noqa: E402


def test_the_key_that_is_made_stands_in_its_file_as_clients_give_it(tmp_path: Path) -> None:
    key = api_key(tmp_path, {}).get_secret_value()
    path = tmp_path / "api_key"
    assert (path.read_text("utf-8"), oct(path.stat().st_mode & 0o777)) == (key, "0o600")
    assert TinkerSDKClient(path.read_text("utf-8"), "http://127.0.0.1:9").is_available
    assert api_key(tmp_path, {}).get_secret_value() == key
    assert len(key) > 40


def test_a_key_that_is_given_is_taken_and_written_nowhere(tmp_path: Path) -> None:
    assert api_key(tmp_path, {"TINKER_API_KEY": "tml-given"}).get_secret_value() == "tml-given"
    assert [*tmp_path.iterdir()] == []


def test_a_key_that_the_sdk_would_refuse_is_refused_without_saying_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        api_key(tmp_path, {"TINKER_API_KEY": "hidden-word"})
    assert "TINKER_API_KEY does not begin with 'tml-'" in str(error.value)
    assert "hidden-word" not in str(error.value)
