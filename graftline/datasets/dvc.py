"""Artifacts into DVC: their files into a remote in DVC's layout, and a `.dvc` file beside each folder.

What DVC 3 writes for `dvc add` and `dvc push` of a folder (https://dvc.org/doc/user-guide/project-structure), without
DVC: it need not be installed, and nothing is copied into a cache first. A folder is one entry, whatever is in it.
Not here: `.dvc/config`, which names the remote for `dvc pull` and belongs to the user (see docs/governance.md).
"""

import hashlib
import json
import logging
from dataclasses import dataclass

from graftline.core.errors import ConfigError, RecordError
from graftline.core.paths import Paths
from graftline.core.progress import Progress
from graftline.core.record import RECORD_NAME, load_record, write_atomically
from graftline.core.secrets import Secrets
from graftline.core.store import ObjectStore, ObjectStoreConfig, open_objects
from graftline.datasets.governance import StoredArtifact, stored_artifacts

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Exported:
    """An artifact that is in the remote."""

    folder: str
    """Relative to the root; the `.dvc` file has the same name with `.dvc` after it."""
    md5: str
    """By which DVC knows the folder, `.dir` at its end."""
    files: int
    size_bytes: int
    copied: int
    """Objects that the remote did not hold yet; the list of the folder is one too."""
    is_changed: bool
    """Whether the `.dvc` file is new or another one than before."""


@dataclass(frozen=True)
class DvcExport:
    """What `export_dvc` did."""

    remote: str
    artifacts: tuple[Exported, ...]
    refused: tuple[str, ...]
    """A sentence for each folder that was left out, for it is not what its record says."""


def export_dvc(paths: Paths, remote: str | None, progress: Progress | None = None) -> DvcExport:
    """Bring every artifact of the data stages to `remote`, and write or renew its `.dvc` file.

    An object that the remote holds is not copied again. A `.dvc` file is written when everything it names is there.

    Raises:
        ConfigError: `remote` is None, or nothing that can be written to from here.
        RecordError: there is no artifact, or one was replaced meanwhile.
        BoundaryError: the remote fails.
    """
    if remote is None:
        raise ConfigError("configs/governance.yaml: dvc.remote is not set; name a folder or a URL there or by --remote")
    objects = open_objects(ObjectStoreConfig(url=remote), paths.root, Secrets([]), "dvc.remote")
    artifacts, refused = stored_artifacts(paths)
    exports = []
    for stored in artifacts:
        name = paths.relative(stored.folder)
        if progress:
            progress.start("dvc", name)
        exported = _export(stored, name, objects, progress)
        exports.append(exported)
        if progress:
            progress.finish(f"copied {exported.copied} objects" if exported.copied or exported.is_changed else "")
        logger.info("dvc %s: %s, copied %d objects", name, exported.md5, exported.copied)
    return DvcExport(remote, tuple(exports), tuple(refused))


def _export(stored: StoredArtifact, name: str, objects: ObjectStore, progress: Progress | None) -> Exported:
    folder, size_bytes, copied, entries = stored.folder, 0, 0, []
    # by name, for DVC lists a folder so
    files = sorted([*stored.record.files, RECORD_NAME])
    for number, file in enumerate(files, 1):
        path = folder / file
        size = path.stat().st_size
        with path.open("rb") as stream:
            md5 = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        if objects.size_bytes(_name(md5)) != size:
            objects.put_file(_name(md5), path)
            copied += 1
        entries.append({"md5": md5, "relpath": file})
        size_bytes += size
        if progress:
            progress.advance(number, len(files))
    listing = json.dumps(entries, sort_keys=True).encode()
    md5 = hashlib.md5(listing, usedforsecurity=False).hexdigest()
    if objects.size_bytes(_name(f"{md5}.dir")) != len(listing):
        objects.write(_name(f"{md5}.dir"), listing)
        copied += 1
    if load_record(folder) != stored.record:
        raise RecordError(f"{folder}: was replaced while it was exported; export again")
    text = (
        f"outs:\n- md5: {md5}.dir\n  size: {size_bytes}\n  nfiles: {len(files)}\n  hash: md5\n  path: {folder.name}\n"
    )
    dvc_file = folder.with_name(f"{folder.name}.dvc")
    is_changed = not dvc_file.exists() or dvc_file.read_bytes() != text.encode()
    if is_changed:
        write_atomically(dvc_file, text)
    return Exported(name, f"{md5}.dir", len(files), size_bytes, copied, is_changed)


def _name(md5: str) -> str:
    return f"files/md5/{md5[:2]}/{md5[2:]}"
