"""The adapter of a finished run as files: fetched by signed addresses, checked, with a model card and a record.

Its layout is that of PEFT, which vLLM and transformers load.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

from graftline.clock import Clock, utc_now
from graftline.downloads.download import Advance, Opened, Pins, download
from graftline.downloads.retry import Patience
from graftline.downloads.web import AnswerError, Web
from graftline.downloads.web_file import WebFile
from graftline.errors import ConfigError, DataError, DownloadError
from graftline.hashing import code_version
from graftline.markdown import table
from graftline.paths import portable
from graftline.record import Contents, Request, build
from graftline.training.runs import Runs, TrainingRun
from graftline.training.tinker import TinkerSDKClient

WEIGHTS, CONFIG, CARD = "adapter_model.safetensors", "adapter_config.json", "README.md"
_RENEWED_BEFORE = timedelta(minutes=5)
_MAX_FILE_BYTES = 64 << 30
_SHOWN_STEPS = 20


@dataclass(slots=True)
class _Addresses:
    """Signed addresses, signed anew before they expire."""

    sign: Callable[[], Any]
    clock: Clock
    current: Any = None

    def of(self, name: str, is_refused: bool = False) -> str:
        if self.current is None or is_refused or self.current.expires - self.clock() < _RENEWED_BEFORE:
            self.current = self.sign()
        if name not in self.current.urls:
            raise DownloadError(f"{name}: is not in the export any more; run `graftline train download` again")
        return str(self.current.urls[name])


@dataclass(frozen=True, slots=True)
class _ExportedFile:
    """One file of an export; a source of `download`."""

    name: str
    addresses: _Addresses
    web: Web

    @property
    def label(self) -> str:
        return self.name

    def open(self, offset: int, etag: str) -> AbstractContextManager[Opened]:
        return self._open(offset, etag)

    @contextmanager
    def _open(self, offset: int, etag: str) -> Iterator[Opened]:
        try:
            with WebFile(self.web, self.addresses.of(self.name)).open(offset, etag) as opened:
                yield opened
                return
        except AnswerError as error:
            if error.status not in (HTTPStatus.FORBIDDEN, HTTPStatus.UNAUTHORIZED):
                raise
        # it expired sooner than was said
        with WebFile(self.web, self.addresses.of(self.name, is_refused=True)).open(offset, etag) as opened:
            yield opened


def download_adapter(
    runs: Runs,
    run: TrainingRun,
    client: TinkerSDKClient,
    advance: Advance = lambda done, total: None,
    patience: Patience | None = None,
    clock: Clock = utc_now,
) -> Path:
    """Return the folder of the adapter of `run`, fetched unless it is there.

    Raises:
        ConfigError: the run is not done.
        TrainingError: the backend does not give the addresses.
        DownloadError: a file cannot be had, or written.
        DataError: what comes is no adapter.
    """
    if not run.export_path:
        raise ConfigError(
            f"run {run.run_id!r} is {run.status}; `graftline train resume {run.run_id}` brings it to its end first"
        )
    given = patience or Patience()
    folder = runs.folder / run.run_id
    request = Request(
        "adapter",
        run.run_id,
        code_version("graftline.training.adapter"),
        run.dataset,
        {"config": run.config, "export": run.export_path},
    )

    def make(partial: Path) -> Contents:
        addresses = _Addresses(lambda: client.external_urls(run.export_path), clock)
        addresses.of(WEIGHTS)
        for name in sorted(addresses.current.urls):
            if len(portable(name).parts) != 1:
                raise DataError(f"the export of {run.run_id} holds {name!r}, but files without folders were expected")
            download(
                _ExportedFile(name, addresses, Web(given)), Pins(), partial / name, advance, given, _MAX_FILE_BYTES
            )
        check_adapter(partial)
        (partial / CARD).write_text(card(run, runs), "utf-8")
        return Contents({"trained_tokens": run.trained_tokens, "steps": run.next_step})

    built = build(folder, request, make, clock)
    run.adapter = run.run_id
    runs.write(run)
    return built.folder


def check_adapter(folder: Path) -> None:
    """Refuse what is no adapter in the layout of PEFT.

    Raises:
        DataError: it is none.
    """
    from safetensors import SafetensorError, safe_open

    try:
        config = json.loads((folder / CONFIG).read_text("utf-8"))
        with safe_open(folder / WEIGHTS, framework="np") as weights:
            names = list(weights.keys())
    except (OSError, ValueError, SafetensorError) as error:
        raise DataError(f"{folder}: is no adapter ({type(error).__name__}: {error}); download it again") from None
    if not isinstance(config, dict) or config.get("peft_type") != "LORA" or not any("lora_A" in name for name in names):
        raise DataError(f"{folder}: is no LoRA adapter of PEFT; download it again")


def card(run: TrainingRun, runs: Runs) -> str:
    """Return the model card of an adapter: what it is, what it was made of, how it went, what it is not."""
    steps = runs.steps(run.run_id)
    every = max(1, len(steps) // _SHOWN_STEPS)
    curve = [
        {"step": step.step + 1, "loss": round(step.loss, 4), "held-out loss": _rounded(step.held_out_loss)}
        for step in steps
        if (step.step + 1) % every == 0 or step.held_out_loss is not None
    ]
    facts = [
        {"": "base model", "is": run.config["model"]},
        {"": "recipe", "is": run.recipe},
        {"": "LoRA rank", "is": run.config["lora"]["rank"]},
        {"": "optimizer steps", "is": run.next_step},
        {"": "examples", "is": run.examples},
        {"": "trained tokens", "is": run.trained_tokens},
        {"": "held-out loss before", "is": _rounded(run.base_held_out_loss)},
        {"": "held-out loss after", "is": _rounded(run.held_out_loss)},
        *({"": f"dropped, {reason}", "is": count} for reason, count in sorted(run.dropped.items())),
        *({"": f"sha256 of {what}", "is": value} for what, value in sorted(run.dataset.items())),
        *({"": package, "is": version} for package, version in sorted(run.versions.items())),
    ]
    return (
        f"---\nbase_model: {run.config['model']}\nlibrary_name: peft\ntags: [lora, ast-grep]\n---\n\n"
        f"# {run.run_id}\n\n"
        "A LoRA adapter that proposes ast-grep rewrites, trained by Graftline on verified steps. Licences are those of the"
        " base model and of the rows it was trained on, which the digests below name.\n\n"
        f"{table(facts)}\n## Loss\n\nMean over trained tokens, in nats.\n\n{table(curve)}\n"
        "## Limits\n\nTrained on short edits of single files. What it proposes is to be verified in the sandbox before it is"
        " used.\n"
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def expiry_of(run: TrainingRun) -> datetime | None:
    """Return when the newest checkpoint of a run expires; None where it does not, or there is none."""
    if not run.checkpoints or run.checkpoints[-1].expires_at is None:
        return None
    return datetime.fromisoformat(run.checkpoints[-1].expires_at)
