"""The adapter of a finished run as files: fetched by signed addresses, checked, with a model card and a record.

Its layout is that of PEFT, which vLLM and transformers load.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from graftline.core.build import Contents, Request, build
from graftline.core.download import Advance, Pins, SourceStream, download
from graftline.core.errors import ConfigError, DataError, DownloadError
from graftline.core.hashing import code_version
from graftline.core.paths import portable
from graftline.core.retry import RetryPolicy
from graftline.core.web import AnswerError, Web, WebFile
from graftline.llm.weights.catalog import Weights
from graftline.training.card import CARD, card, write_base
from graftline.training.runs import Runs, TrainingRun
from graftline.training.tinker import TinkerSDKClient

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"
_MAX_FILE_BYTES = 64 << 30


@dataclass(slots=True)
class ExportedFile:
    """One file of an export, as a source of `download`; its signed address is asked for anew once it has expired."""

    name: str
    sign: Callable[[], Mapping[str, str]]
    """Returns the address of every file of the export."""
    web: Web
    urls: Mapping[str, str]

    @property
    def label(self) -> str:
        return self.name

    @contextmanager
    def open(self, offset: int, etag: str) -> Iterator[SourceStream]:
        with ExitStack() as stack:
            try:
                opened = stack.enter_context(WebFile(self.web, self.urls[self.name]).open(offset, etag))
            except AnswerError as error:
                if error.status not in (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED):
                    raise
                self.urls = self.sign()
                if self.name not in self.urls:
                    raise DownloadError(
                        f"{self.name}: is not in the export any more; run `graftline train download` again"
                    ) from None
                opened = stack.enter_context(WebFile(self.web, self.urls[self.name]).open(offset, etag))
            yield opened


def download_adapter(
    runs: Runs,
    run: TrainingRun,
    client: TinkerSDKClient,
    weights: Weights | None,
    advance: Advance = lambda done, total: None,
) -> Path:
    """Return the folder of the adapter of `run`, fetched unless it is there; ConfigError where the run is not done.

    `weights` are what it was trained on, where that is of the catalog.
    """
    if not run.export_path:
        raise ConfigError(
            f"run {run.run_id!r} is {run.status}; `graftline train resume {run.run_id}` brings it to its end first"
        )
    policy = RetryPolicy()
    folder = runs.folder / run.run_id
    request = Request(
        "adapter",
        run.run_id,
        code_version("graftline.training.adapter"),
        run.dataset,
        {"config": run.config, "export": run.export_path},
    )

    def sign() -> Mapping[str, str]:
        return client.external_urls(run.export_path).urls

    def make(partial: Path) -> Contents:
        urls = sign()
        for name in sorted(urls):
            if len(portable(name).parts) != 1:
                raise DataError(f"the export of {run.run_id} holds {name!r}, but files without folders were expected")
            source = ExportedFile(name, sign, Web(policy), urls)
            download(source, Pins(), partial / name, advance, policy, _MAX_FILE_BYTES)
        check_adapter(partial)
        write_base(partial / CONFIG, run, weights)
        (partial / CARD).write_text(card(run, runs.steps(run.run_id), weights, run.run_id), "utf-8")
        return Contents({"trained_tokens": run.trained_tokens, "steps": run.next_step})

    return build(folder, request, make).folder


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
