"""Figures and checksums of the datasets as a W&B artifact: counts, licenses, identities, and SHA-256 of sample edits.

Never a text of an edit, and no file of a dataset. wandb runs in a process of its own (`datasets.wandb_run`): it starts
a service, listens to a great many variables of the environment and may wait for long, none of which is ours to suffer.
"""

import json
import logging
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from graftline.core.errors import BoundaryError, ConfigError, RecordError, install_command
from graftline.core.hashing import canonical_json, digest
from graftline.core.paths import Paths
from graftline.core.record import DatasetRecord, NormalizedRecord, write_atomically
from graftline.core.secrets import Secrets
from graftline.datasets.governance import StoredArtifact, Wandb, stored_artifacts
from graftline.datasets.wandb_run import KEY, SERVER, environment_of

logger = logging.getLogger(__name__)

ARTIFACT = "graftline-datasets"
_PATIENCE_S = 600


@dataclass(frozen=True)
class Published:
    """What `publish` handed to W&B."""

    mode: str
    artifact: str
    """Name of the artifact in its project."""
    digest: str
    """What W&B knows the content by: equal figures are one version."""
    run: str
    """Folder of the run below the root, to be given to `wandb sync`, or its address where it was sent."""
    files: tuple[str, ...]
    """What is in the artifact, relative to the root."""
    identities: Mapping[str, str]
    """Identity of every artifact that is told of; the run is tagged with them."""


def publish(paths: Paths, settings: Wandb, secrets: Secrets, environment: Mapping[str, str]) -> Published:
    """Log one artifact of type `dataset` that tells of every artifact of the data stages.

    Raises:
        ConfigError: it is switched off, wandb is missing, or there is no key for it.
        RecordError: an artifact is not what its record says, or there is none.
        BoundaryError: wandb or its server fails.
    """
    if settings.mode == "disabled":
        raise ConfigError("configs/governance.yaml: wandb.mode is disabled; set it to offline or online to publish")
    if find_spec("wandb") is None:
        raise ConfigError(f"wandb is missing, but wandb.mode asks for it; {install_command('wandb')}")
    key = secrets.require(KEY, "wandb.mode online").get_secret_value() if settings.mode == "online" else None
    artifacts, refused = stored_artifacts(paths)
    if refused:
        raise RecordError(refused[0])
    contents = {"samples.json": samples(artifacts, settings.samples), "stats.json": stats(artifacts)}
    folder = paths.logs / "wandb" / "datasets" / digest(contents)[:16]
    for name, content in contents.items():
        write_atomically(folder / name, json.dumps(content, indent=1, sort_keys=True) + "\n")
    identities = {_name(stored): stored.record.identity for stored in artifacts}
    request = {
        "mode": settings.mode,
        "project": settings.project,
        "entity": settings.entity,
        "folder": str(paths.logs),
        "artifact": ARTIFACT,
        "files": {name: str(folder / name) for name in contents},
        "identities": identities,
    }
    answer = _run_wandb(request, environment_of(paths.logs / "wandb", environment, key), secrets)
    logger.info("wandb %s: %s, digest %s", settings.mode, answer["run"], answer["digest"])
    run = answer["run"] if settings.mode == "online" else paths.relative(Path(answer["run"]))
    files = tuple(paths.relative(folder / name) for name in contents)
    return Published(settings.mode, ARTIFACT, answer["digest"], run, files, identities)


def stats(artifacts: Sequence[StoredArtifact]) -> dict[str, Any]:
    """Return by stage and name what the records count, the licenses of rows, and where datasets came from."""
    summary: dict[str, dict[str, Any]] = {}
    for stored in artifacts:
        record = stored.record
        entry: dict[str, Any] = {"identity": record.identity, "counts": record.counts}
        if isinstance(record, DatasetRecord):
            entry |= {"version": record.version, "license": record.license, "sha256": record.sha256}
        if isinstance(record, NormalizedRecord):
            entry |= {"licenses": record.licenses, "tokenizer": record.tokenizer}
        summary.setdefault(record.kind, {})[record.name] = entry
    return {"schema_version": 1, **summary}


def samples(artifacts: Sequence[StoredArtifact], number: int) -> dict[str, list[dict[str, str]]]:
    """Return, by language and split, SHA-256 of the ids of the first edits, and of their lines in `edits.jsonl`."""
    checksums = {}
    for stored in artifacts:
        if stored.record.kind == "splits":
            with (stored.folder / "edits.jsonl").open("rb") as stream:
                lines = [line.rstrip(b"\n") for line in islice(stream, number)]
            checksums[stored.record.name] = [
                {"id": sha256(json.loads(line)["id"].encode()).hexdigest(), "edit": sha256(line).hexdigest()}
                for line in lines
            ]
    return checksums


def _name(stored: StoredArtifact) -> str:
    return f"{stored.record.kind}/{stored.record.name}"


def _run_wandb(request: Mapping[str, Any], environment: Mapping[str, str], secrets: Secrets) -> dict[str, str]:
    # -P: the current folder may hold one called wandb
    command = [sys.executable, "-P", "-m", "graftline.datasets.wandb_run"]
    with TemporaryDirectory(prefix="graftline-") as scratch:
        try:
            done = subprocess.run(
                command,
                input=canonical_json(request),
                env={**environment, "TMPDIR": scratch},
                capture_output=True,
                text=True,
                timeout=_PATIENCE_S,
            )
        except subprocess.TimeoutExpired:
            raise BoundaryError(
                f"wandb: has not ended after {_PATIENCE_S} s; check its server, then publish again"
            ) from None
    *_, last = ("", *done.stdout.splitlines())
    try:
        answer: dict[str, str] = json.loads(last)
    except ValueError:
        *_, last = ("nothing", *done.stderr.splitlines())
        answer = {"error": f"its process ended with {done.returncode} and said {last!r}"}
    if "error" in answer:
        raise BoundaryError(
            f"wandb {request['mode']}: {secrets.redact(answer['error'])};"
            f" check {KEY}, {SERVER}, wandb.project and wandb.entity, then publish again"
        )
    return answer
