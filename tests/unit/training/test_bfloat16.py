"""Whether bfloat16 is worth it on a machine, machines that lie about it included."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from graftline.training.local import bfloat16
from graftline.training.local.engine import _precision

LARGEST = "ONEDNN_MAX_CPU_ISA"


@pytest.fixture(autouse=True)
def _tried_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    monkeypatch.delenv(LARGEST)
    bfloat16.gain_of_bfloat16.cache_clear()
    yield
    bfloat16.gain_of_bfloat16.cache_clear()


def tried_by(script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have `script` say what this machine does, in place of this machine."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))


def test_products_can_be_made_here_after_it_was_tried() -> None:
    program = (
        "import torch; from graftline.training.local.bfloat16 import gain_of_bfloat16; gain = gain_of_bfloat16();"
        "x = torch.ones(64, 64); print(gain, x.bfloat16().matmul(x.bfloat16()).sum().item() if gain else 64.0**3)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    gain, total = map(float, found.stdout.split())
    assert (0 <= gain < 100, total) == (True, 64.0**3)


@pytest.mark.parametrize(
    ("gain", "precision"), [("1.8", "bfloat16"), ("1.1", "bfloat16"), ("1.05", "float32"), ("0.6", "float32")]
)
def test_what_is_clearly_faster_is_taken(
    gain: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried_by(f"echo {gain}", tmp_path, monkeypatch)
    assert (bfloat16.gain_of_bfloat16(), _precision("auto", "cpu")) == (float(gain), precision)
    assert (_precision("bfloat16", "cpu"), _precision("float32", "cpu")) == ("bfloat16", "float32")
    assert LARGEST not in os.environ


def test_a_machine_that_ends_who_uses_what_it_names_is_used_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried_by(f'[ -n "${LARGEST}" ] || kill -ILL $$; echo 1.5', tmp_path, monkeypatch)
    monkeypatch.setenv(LARGEST, "")  # taken back after the test
    monkeypatch.delenv(LARGEST)
    assert (bfloat16.gain_of_bfloat16(), os.environ[LARGEST]) == (1.5, "AVX512_CORE_FP16")
    assert "names AMX, but does not run it" in caplog.text


def test_a_machine_that_cannot_takes_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried_by("kill -ILL $$", tmp_path, monkeypatch)
    assert (bfloat16.gain_of_bfloat16(), _precision("auto", "cpu"), LARGEST in os.environ) == (0.0, "float32", False)
