"""Runs and checkpoints on disk: everything that outlives the server.

    <root>/runs/<run>/run.json                    what is known of a run
    <root>/runs/<run>/<kind>/<name>/              a checkpoint: an artifact with a record, written last
    <root>/runs/<run>/<kind>/.<name>.json         what was changed since: when it expires

Kinds are `weights` (with the state of the optimizer), `sampler_weights` and `external_weights` (to be downloaded).
"""

import json
import logging
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from graftline.core.build import Contents, Request, build
from graftline.core.clock import Clock
from graftline.core.errors import ConfigError, DataError, RecordError
from graftline.core.hashing import code_version
from graftline.core.record import RECORD_NAME, load_record, load_verified, write_atomically

logger = logging.getLogger(__name__)

ADAPTER, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
OPTIMIZER, FACTS = "optimizer.safetensors", "facts.json"
KINDS: Mapping[str, str] = {"weights": "training", "sampler_weights": "sampler", "external_weights": "external"}
"""Parts of a path of `tinker://`, and what the SDK calls them."""
RECORD_KIND = "training_checkpoint"
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._-]{0,199}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MIN_TTL_S, _MAX_TTL_S = 3600, 315_360_000


class NotFound(DataError):
    """There is no such run, checkpoint or sampler."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint, which need not exist."""

    root: Path
    run_id: str
    kind: str
    name: str

    @property
    def folder(self) -> Path:
        """Its files."""
        return _run_folder(self.root, self.run_id) / self.kind / self.name

    @property
    def uri(self) -> str:
        """What clients call it."""
        return f"tinker://{self.run_id}/{self.kind}/{self.name}"

    @property
    def terms_file(self) -> Path:
        """What was changed since it was written."""
        return self.folder.with_name(f".{self.name}.json")


def utc_now() -> datetime:
    """Return the present time with its fractions: there can be several checkpoints a second."""
    return datetime.now(UTC)


class CheckpointStore:
    """The checkpoints below `root`; to be used by one process at a time.

    Methods raise NotFound where there is no such run or checkpoint or it has expired, and DataError where a name cannot be
    one, a time is out of range, or a checkpoint was altered.
    """

    def __init__(self, root: Path, clock: Clock = utc_now) -> None:
        self._root, self._clock = root, clock
        (root / "runs").mkdir(parents=True, exist_ok=True)

    # runs

    def note_run(self, run_id: str, **facts: Any) -> None:
        """Write down what is known of a run, and that something was just asked of it."""
        path = self._run_file(run_id)
        run = json.loads(path.read_text("utf-8")) if path.exists() else {"training_run_id": run_id}
        run |= {**facts, "last_request_time": self._clock().isoformat()}
        write_atomically(path, json.dumps(run, indent=2) + "\n")

    def run(self, run_id: str) -> dict[str, Any]:
        """Return what is known of a run, its newest checkpoints with it."""
        path = self._run_file(run_id)
        if not path.exists():
            raise NotFound(f"there is no training run {run_id!r}")
        return {**json.loads(path.read_text("utf-8")), **self._newest_of_run(run_id)}

    def runs(self) -> list[dict[str, Any]]:
        """Return all runs, those that something was asked of last first."""
        runs = [json.loads(path.read_text("utf-8")) for path in self._root.glob("runs/*/run.json")]
        runs.sort(key=lambda run: (run["last_request_time"], run["training_run_id"]), reverse=True)
        return [{**run, **self._newest_of_run(run["training_run_id"])} for run in runs]

    def _newest_of_run(self, run_id: str) -> dict[str, Any]:
        newest: dict[str, Any] = {"training": None, "sampler": None}
        for checkpoint in self.list_checkpoints(run_id):
            newest[checkpoint["checkpoint_type"]] = checkpoint
        return {"last_checkpoint": newest["training"], "last_sampler_checkpoint": newest["sampler"]}

    # checkpoints

    def parse(self, uri: str) -> Checkpoint:
        """Return the checkpoint that `uri` names, whether it exists or not."""
        parts = uri.removeprefix("tinker://").split("/") if uri.startswith("tinker://") else []
        if len(parts) != 3:
            raise DataError(f"{uri!r} is no path of a checkpoint; tinker://RUN/{'|'.join(KINDS)}/NAME was expected")
        return self.at(*parts)

    def at(self, run_id: str, kind: str, name: str) -> Checkpoint:
        """Return the checkpoint of that name, whether it exists or not."""
        if kind not in KINDS:
            raise DataError(f"{kind!r} is no kind of checkpoint; there are {', '.join(KINDS)}")
        if not _NAME.fullmatch(name):
            raise DataError(
                f"checkpoint name {name!r} is not made of up to 128 letters, digits, dots, dashes and underlines"
            )
        _run_folder(self._root, run_id)
        return Checkpoint(self._root, run_id, kind, name)

    def existing(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return `checkpoint`, which exists and has not expired."""
        expiry = self._terms(checkpoint)["expires_at"]
        if self._is_over(expiry):
            raise NotFound(f"checkpoint {checkpoint.uri} expired at {expiry}")
        return checkpoint

    def has(self, checkpoint: Checkpoint) -> bool:
        """Return whether `checkpoint` exists and has not expired."""
        try:
            self.existing(checkpoint)
        except NotFound:
            return False
        return True

    def files(self, checkpoint: Checkpoint) -> Path:
        """Return the folder of a checkpoint, its files checked to be what was written."""
        folder = self.existing(checkpoint).folder
        try:
            load_verified(folder, RECORD_KIND)
        except RecordError as error:
            raise _damage_error(checkpoint, error) from None
        return folder

    def write(
        self,
        checkpoint: Checkpoint,
        make: Callable[[Path], None],
        ttl_s: int | None = None,
        user_metadata: Mapping[str, str] | None = None,
        may_replace: bool = False,
    ) -> None:
        """Write the files of `checkpoint`, which does not exist yet: all of them, or none even after `kill -9`."""
        if not may_replace and self.has(checkpoint):
            raise DataError(f"checkpoint {checkpoint.uri} exists already; choose another name, or ask to overwrite it")
        time = self._clock()
        config = {
            # a second of the same name is never taken for the first
            "id": secrets.token_hex(8),
            "created_at": time.isoformat(),
            "expires_at": _expiry(time, ttl_s),
            "user_metadata": dict(user_metadata or {}),
        }
        request = Request(RECORD_KIND, checkpoint.uri, code_version("graftline.training.local.engine"), {}, config)

        def build_files(folder: Path) -> Contents:
            make(folder)
            return Contents({})

        build(checkpoint.folder, request, build_files, self._clock)

    def restore(self, uri: str, adapter: Path) -> None:
        """Write the checkpoint `uri` from the adapter in a folder, without an optimizer, unless it exists; it never expires.

        An adapter is kept for as long as its folder is; what it was fetched from may have expired, or been made elsewhere.
        """
        checkpoint = self.parse(uri)
        if self.has(checkpoint):
            return
        if not (adapter / FACTS).is_file():
            raise ConfigError(
                f"{adapter}: was not trained by a backend of this machine (it has no {FACTS}), which cannot go on from it; train"
                " it here, or name a checkpoint by start_from"
            )
        facts = json.loads((adapter / FACTS).read_text("utf-8"))

        def make(folder: Path) -> None:
            for name in (ADAPTER, ADAPTER_CONFIG, FACTS):
                shutil.copyfile(adapter / name, folder / name)

        self.note_run(
            checkpoint.run_id,
            base_model=facts["base_model"],
            model_owner="local",
            is_lora=True,
            lora_rank=facts["rank"],
            user_metadata={"restored_from": adapter.name},
        )
        self.write(checkpoint, make, may_replace=True)

    def delete(self, checkpoint: Checkpoint) -> None:
        """Remove a checkpoint."""
        if not (checkpoint.folder / RECORD_NAME).exists():
            raise NotFound(f"there is no checkpoint {checkpoint.uri}")
        _remove(checkpoint)

    def set_ttl(self, checkpoint: Checkpoint, ttl_s: int | None) -> None:
        """Let a checkpoint expire in `ttl_s` seconds, or never."""
        terms = {**self._terms(self.existing(checkpoint)), "expires_at": _expiry(self._clock(), ttl_s)}
        write_atomically(checkpoint.terms_file, json.dumps(terms) + "\n")

    def list_checkpoints(self, run_id: str | None = None) -> list[dict[str, Any]]:
        """Return what the SDK is told of the checkpoints of a run, or of all, oldest first."""
        rows = [
            _describe(checkpoint, terms)
            for checkpoint, terms in self._all(run_id)
            if not self._is_over(terms["expires_at"])
        ]
        return sorted(rows, key=lambda row: (row["time"], row["tinker_path"]))

    def sweep(self) -> list[str]:
        """Remove what has expired, and what killed writers left; return the paths of what has expired.

        Nothing may be written meanwhile.
        """
        for partial in self._root.glob("runs/*/*/.*.partial-*"):
            shutil.rmtree(partial)
        for old in self._root.glob("runs/*/*/.*.old"):
            # moved away for another of its name, which did not come
            folder = old.with_name(old.name[1:].removesuffix(".old"))
            shutil.rmtree(old) if folder.exists() else old.rename(folder)
        expired = [checkpoint for checkpoint, terms in self._all(None) if self._is_over(terms["expires_at"])]
        for checkpoint in expired:
            _remove(checkpoint)
        return sorted(checkpoint.uri for checkpoint in expired)

    def _all(self, run_id: str | None) -> Iterator[tuple[Checkpoint, dict[str, Any]]]:
        """Yield checkpoints and their terms, those that have expired too."""
        pattern = "*" if run_id is None else _run_folder(self._root, run_id).name
        for path in self._root.glob(f"runs/{pattern}/*/[!.]*/{RECORD_NAME}"):
            kind, run = path.parent.parent, path.parent.parent.parent
            checkpoint = Checkpoint(self._root, run.name.replace("~", ":"), kind.name, path.parent.name)
            try:
                yield checkpoint, self._terms(checkpoint)
            except DataError as error:
                # one that nobody can read does not keep the others from being listed
                logger.warning("%s", error)

    def _is_over(self, expires_at: str | None) -> bool:
        return expires_at is not None and datetime.fromisoformat(expires_at) <= self._clock()

    def _terms(self, checkpoint: Checkpoint) -> dict[str, Any]:
        if not (checkpoint.folder / RECORD_NAME).exists():
            raise NotFound(f"there is no checkpoint {checkpoint.uri}; `tinker checkpoint list` shows those there are")
        try:
            config = load_record(checkpoint.folder).config
        except RecordError as error:
            raise _damage_error(checkpoint, error) from None
        terms = {"of": config["id"], "expires_at": config["expires_at"]}
        path = checkpoint.terms_file
        changed: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else terms
        # a checkpoint that took the place of another has terms of its own
        return changed if changed["of"] == terms["of"] else terms

    def _run_file(self, run_id: str) -> Path:
        return _run_folder(self._root, run_id) / "run.json"


def _run_folder(root: Path, run_id: str) -> Path:
    if not _RUN_ID.fullmatch(run_id):
        raise DataError(f"{run_id!r} is no id of a training run")
    return root / "runs" / run_id.replace(":", "~")


def _describe(checkpoint: Checkpoint, terms: Mapping[str, Any]) -> dict[str, Any]:
    record = load_record(checkpoint.folder)
    return {
        "checkpoint_id": f"{checkpoint.kind}/{checkpoint.name}",
        "checkpoint_type": KINDS[checkpoint.kind],
        "time": record.config["created_at"],
        "tinker_path": checkpoint.uri,
        "size_bytes": sum(file.size_bytes for file in record.files.values()),
        "public": False,
        "user_metadata": record.config["user_metadata"] or None,
        "expires_at": terms["expires_at"],
    }


def _remove(checkpoint: Checkpoint) -> None:
    # gone at once, under a name whose remains go with the next sweep if this process is killed
    remains = checkpoint.folder.with_name(f".{checkpoint.name}.partial-removed")
    shutil.rmtree(remains, ignore_errors=True)
    checkpoint.folder.rename(remains)
    shutil.rmtree(remains)
    checkpoint.terms_file.unlink(missing_ok=True)


def _damage_error(checkpoint: Checkpoint, error: RecordError) -> DataError:
    return DataError(f"checkpoint {checkpoint.uri} is damaged: {error}")


def _expiry(now: datetime, ttl_s: int | None) -> str | None:
    if ttl_s is None:
        return None
    if not _MIN_TTL_S <= ttl_s <= _MAX_TTL_S:
        raise DataError(f"ttl_seconds is {ttl_s}, but an hour to ten years was expected: {_MIN_TTL_S} to {_MAX_TTL_S}")
    return (now + timedelta(seconds=ttl_s)).isoformat()
