"""The adapter of a finished run as files: fetched by signed addresses, checked, with a model card and a record.

Its layout is that of PEFT, which vLLM and transformers load.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

from graftline.core.build import Contents, Request, build
from graftline.core.clock import Clock, utc_now
from graftline.core.download import Advance, Pins, SourceStream, download
from graftline.core.errors import ConfigError, DataError, DownloadError
from graftline.core.hashing import code_version
from graftline.core.paths import portable
from graftline.core.retry import RetryPolicy
from graftline.core.web import AnswerError, Web, WebFile
from graftline.llm.weights.catalog import Weights
from graftline.training.card import CARD, base_of, card, write_base
from graftline.training.runs import Runs, TrainingRun
from graftline.training.tinker import TinkerSDKClient

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_RENEWED_BEFORE = timedelta(minutes=5)
_MAX_FILE_BYTES = 64 << 30


@dataclass(slots=True)
class Addresses:
    """Signed addresses, signed anew before they expire."""

    sign: Callable[[], Any]
    clock: Clock
    current: Any = None

    def url_of(self, name: str, is_refused: bool = False) -> str:
        if self.current is None or is_refused or self.current.expires - self.clock() < _RENEWED_BEFORE:
            self.current = self.sign()
        if name not in self.current.urls:
            raise DownloadError(f"{name}: is not in the export any more; run `graftline train download` again")
        return str(self.current.urls[name])


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """One file of an export; a source of `download`."""

    name: str
    addresses: Addresses
    web: Web

    @property
    def label(self) -> str:
        return self.name

    @contextmanager
    def open(self, offset: int, etag: str) -> Iterator[SourceStream]:
        with ExitStack() as stack:
            try:
                opened = stack.enter_context(WebFile(self.web, self.addresses.url_of(self.name)).open(offset, etag))
            except AnswerError as error:
                if error.status not in (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED):
                    raise
                # it expired sooner than was promised
                renewed = self.addresses.url_of(self.name, is_refused=True)
                opened = stack.enter_context(WebFile(self.web, renewed).open(offset, etag))
            yield opened


def download_adapter(
    runs: Runs,
    run: TrainingRun,
    client: TinkerSDKClient,
    weights: Weights | None,
    advance: Advance = lambda done, total: None,
    patience: RetryPolicy | None = None,
    clock: Clock = utc_now,
) -> Path:
    """Return the folder of the adapter of `run`, fetched unless it is there; ConfigError where the run is not done.

    `weights` are what it was trained on, where that is of the catalog.
    """
    if not run.export_path:
        raise ConfigError(
            f"run {run.run_id!r} is {run.status}; `graftline train resume {run.run_id}` brings it to its end first"
        )
    policy = patience or RetryPolicy()
    folder = runs.folder / run.run_id
    request = Request(
        "adapter",
        run.run_id,
        code_version("graftline.training.adapter"),
        run.dataset,
        {"config": run.config, "export": run.export_path},
    )

    def make(partial: Path) -> Contents:
        addresses = Addresses(lambda: client.external_urls(run.export_path), clock)
        addresses.url_of(WEIGHTS)
        for name in sorted(addresses.current.urls):
            if len(portable(name).parts) != 1:
                raise DataError(f"the export of {run.run_id} holds {name!r}, but files without folders were expected")
            download(
                ExportedFile(name, addresses, Web(policy)), Pins(), partial / name, advance, policy, _MAX_FILE_BYTES
            )
        check_adapter(partial)
        base = base_of(run, weights)
        write_base(partial / CONFIG, base)
        (partial / CARD).write_text(card(run, runs.steps(run.run_id), base, run.run_id), "utf-8")
        return Contents({"trained_tokens": run.trained_tokens, "steps": run.next_step})

    return build(folder, request, make, clock).folder


def check_adapter(folder: Path) -> None:
    """Raise DataError where `folder` holds no adapter in the layout of PEFT."""
    from safetensors import SafetensorError, safe_open

    try:
        config = json.loads((folder / CONFIG).read_text("utf-8"))
        with safe_open(folder / WEIGHTS, framework="np") as weights:
            names = list(weights.keys())
    except (OSError, ValueError, SafetensorError) as error:
        raise DataError(f"{folder}: is no adapter ({type(error).__name__}: {error}); download it again") from None
    if not isinstance(config, dict) or config.get("peft_type") != "LORA" or not any("lora_A" in name for name in names):
        raise DataError(f"{folder}: is no LoRA adapter of PEFT; download it again")
