"""The tiny random model that is served in this process: what `tests/contract` does not say of it."""

import threading
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.unit.training.conftest import EXTRA

for library in ("tinker", "tinker_cookbook", "torch", "peft", "uvicorn"):
    pytest.importorskip(library, reason=EXTRA)

from graftline.training.datums import render_all  # noqa: E402
from graftline.training.memory import MemoryTrainingService, memory_tokenizer  # noqa: E402


@pytest.mark.parametrize("renderer", ["role_colon", "qwen3_instruct", "qwen3"])
def test_renderers_of_the_cookbook_suit_its_tokens(renderer: str) -> None:
    chat = [{"role": "user", "content": "two?"}, {"role": "assistant", "content": "é"}]
    [datum] = render_all([chat], memory_tokenizer(), renderer).datums
    inputs = datum.loss_fn_inputs
    pairs = zip(inputs["target_tokens"].data, inputs["weights"].data, strict=True)
    assert "é" in memory_tokenizer().decode([token for token, weight in pairs if weight])


def test_nothing_is_left_of_it_when_it_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with MemoryTrainingService() as service:
        assert service.base_url == "memory"
        path = service.create_training_client("any/model", 2, 0).save_weights_external("final").result().path
        url = service.external_urls(path).urls["adapter_config.json"]
        with urlopen(url) as response:
            assert b'"r": 2' in response.read()
    assert [*tmp_path.iterdir()] == []
    assert not [thread for thread in threading.enumerate() if thread.name == "memory-training"]
    with pytest.raises(URLError, match="refused"):
        urlopen(url)
