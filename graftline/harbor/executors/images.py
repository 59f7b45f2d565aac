"""Images of the executor `local`: layers below a folder, made of root file systems that the operator names and of Dockerfiles.

A name such as `ubuntu:24.04` means what the operator says it means: a tar of a root file system (of `mmdebstrap`, `docker
export`), or a folder in the layout of OCI (of `skopeo copy`). What stands for which name is said with
every result. A layer is found again by all that it was made of: equal beginnings of Dockerfiles are built once.
"""

import fnmatch
import io
import json
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from graftline.core.build import lock_folder
from graftline.core.errors import DataError, HarborError, SandboxError
from graftline.core.hashing import digest
from graftline.harbor.executors.dockerfile import Instruction, assignments, put_in, read_instructions
from graftline.sandbox.containers import LinuxContainer, Network
from graftline.sandbox.inside.files import remove_path

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_INDEX, _MANIFEST, _PARTIAL = "index.json", "manifests", ".partial-"
_SHOWN_LOG = 3000
_NO_SPACE = "No space left on device"
_MOST_IMAGE_JSON, _MOST_OF_A_PATH = 4 << 20, 4096
ContextFiles = Mapping[str, tuple[bytes, int]]
"""Content and mode of the files of a build context, by their path."""


@dataclass(frozen=True, slots=True)
class Image:
    """Layers, the lowest first, and what the image says of commands."""

    name: str
    """What was asked for, and what stands for it."""
    layers: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=lambda: {"PATH": PATH})
    workdir: str = "/"
    user: str = ""
    shell: tuple[str, ...] = ("/bin/sh", "-c")

    @property
    def key(self) -> str:
        """What a next layer is found by."""
        return digest([self.layers, dict(self.env), self.workdir, self.user, self.shell])


class ImageStore:
    """Images below `folder`, and the root file systems that `roots` names by patterns of images."""

    def __init__(
        self, folder: Path, roots: Mapping[str, Path], network: Network, timeout_s: float, disk_mb: int
    ) -> None:
        """Builds reach `network`; one instruction has `timeout_s`, and may add `disk_mb`."""
        self._folder, self._roots = folder, dict(roots)
        self._network, self._timeout_s, self._disk_mb = network, timeout_s, disk_mb

    @property
    def layers_folder(self) -> Path:
        """Where the layers of all images are."""
        return self._folder / "layers"

    def build(self, dockerfile: str, files: ContextFiles) -> Image:
        """Return the image of a Dockerfile, built where it is not there.

        Raises:
            DataError: it cannot be built; the message says what it needs, or which command failed.
            HarborError: this machine failed.
        """
        instructions = read_instructions(dockerfile)
        self.layers_folder.mkdir(parents=True, exist_ok=True)
        # what a container may enter is not for other users of the machine
        self._folder.chmod(0o711)
        arguments: dict[str, str] = {}
        stages: dict[str, Image] = {}
        names: tuple[str, ...] = ()
        image: Image | None = None
        try:
            for instruction in instructions:
                if instruction.name == "FROM":
                    name, *more = put_in(instruction.text, arguments).split() or [""]
                    image = stages.get(name) or self.root_of(name)
                    names = (str(sum(stage.isdigit() for stage in stages)), *more[1:2])
                elif instruction.name == "ARG" and image is None:
                    arguments |= _argument(instruction, arguments)
                elif image is not None:
                    image = self._apply(image, instruction, files, stages, arguments)
                if image is not None:
                    stages |= dict.fromkeys(names, image)
        except SandboxError as error:
            raise HarborError(f"local: {error}") from error
        assert image is not None
        return image

    def knows(self, name: str) -> bool:
        """Return whether a root file system stands for an image."""
        return self._pattern_of(name) is not None

    def _pattern_of(self, name: str) -> str | None:
        short = name.removeprefix("docker.io/").removeprefix("library/")
        tagged = short if ":" in short.rpartition("/")[2] else f"{short}:latest"
        return next((pattern for pattern in self._roots if fnmatch.fnmatch(tagged, pattern)), None)

    def root_of(self, name: str) -> Image:
        """Return the image that a name means here.

        Raises:
            DataError: the operator names none.
        """
        if name == "scratch":
            return Image("scratch", ())
        if (pattern := self._pattern_of(name)) is None:
            names = ", ".join(self._roots) or "none"
            raise DataError(
                f"image {name!r}: no root file system stands for it here (known: {names}); name one in executor.images, or"
                " take the executor docker"
            )
        path = self._roots[pattern]
        if not path.exists():
            raise HarborError(
                f"executor.images: {str(path)!r} is not there; name a tar, or a folder in the layout of OCI"
            )
        state = (path / _INDEX if path.is_dir() else path).stat()
        layer = f"root-{digest([str(path.resolve()), state.st_size, state.st_mtime_ns])[:32]}"
        env, workdir, user = {"PATH": PATH}, "/", ""
        if path.is_dir():
            archives, config = _read_layout(path)
            env |= dict(variable.partition("=")[::2] for variable in config.get("Env") or [])
            workdir, user = config.get("WorkingDir") or "/", config.get("User") or ""
        else:
            archives = [path]

        def fill(upper: Path) -> None:
            for archive in archives:
                # the operator names it, and knows how large it is
                with self._container((), upper, None, archive) as container:
                    container.unpack()

        self._layer(layer, fill)
        return Image(f"{name} ({path.name})", (layer,), env, workdir, user)

    def _apply(
        self,
        image: Image,
        instruction: Instruction,
        files: ContextFiles,
        stages: Mapping[str, Image],
        arguments: dict[str, str],
    ) -> Image:
        variables = {**arguments, **image.env}
        text = put_in(instruction.text, variables)
        match instruction.name:
            case "ENV":
                return replace(image, env={**image.env, **assignments(instruction, variables)})
            case "ARG":
                arguments |= _argument(instruction, variables)
                return image
            case "WORKDIR":
                folder = str(PurePosixPath(image.workdir) / text.strip().strip("\"'"))
                return self._with_layer(replace(image, workdir=folder), image, ["mkdir", folder], _make_folder(folder))
            case "USER":
                return replace(image, user=text.strip())
            case "SHELL":
                return replace(image, shell=tuple(instruction.words))
            case "RUN":
                command = _command(instruction, image)

                shown = f"RUN {instruction.text[:200]}"

                def run(container: LinuxContainer) -> None:
                    env = {**arguments, **image.env}
                    end = container.run(
                        command,
                        env=env,
                        folder=image.workdir,
                        user=image.user,
                        timeout_s=self._timeout_s,
                        glance=None if "disk_limits" in container.features else self._watch_disk(shown),
                    )
                    if end.status != 0:
                        printed = end.output.decode("utf-8", "replace")[-_SHOWN_LOG:]
                        how = "ran out of time" if end.status is None else f"ended with {end.status}"
                        network = (
                            "" if self._network == "host" else " (builds have no network; executor.network is none)"
                        )
                        disk = f" ({self._full_disk()})" if _NO_SPACE in printed else ""
                        raise DataError(f"{shown}: {how}{disk}{network}. The end of the log:\n{printed}")

                return self._with_layer(image, image, ["run", command, arguments, self._network], run)
            case _:
                archive = self._copy(image, instruction, text, files, stages)

                def put(container: LinuxContainer) -> None:
                    container.put("/", archive)

                return self._with_layer(image, image, ["copy", sha256(archive).hexdigest()], put)

    def _with_layer(
        self, image: Image, below: Image, made_of: list[Any], fill: Callable[[LinuxContainer], None]
    ) -> Image:
        layer = digest([below.key, made_of])[:32]

        def into(upper: Path) -> None:
            if self._free_mb() < 2 * self._disk_mb:
                raise HarborError(
                    f"{self._folder}: an instruction of a Dockerfile may add {self._disk_mb} MB (executor.build_disk_mb), which"
                    f" takes twice as much for a moment, and {self._free_mb()} MB are free; make room, or lower it"
                )
            with self._container(below.layers, upper, self._disk_mb) as container:
                fill(container)

        self._layer(layer, into)
        return replace(image, layers=(*below.layers, layer))

    def _layer(self, name: str, fill: Callable[[Path], None]) -> None:
        """Make a layer whole or not at all."""
        if (self.layers_folder / name).is_dir():
            return
        with lock_folder(self.layers_folder):
            if (self.layers_folder / name).is_dir():
                return
            for leftover in self.layers_folder.glob(f"{_PARTIAL}*"):
                # of a process that was killed: nobody else builds while this folder is locked
                with suppress(OSError):
                    remove_path(str(leftover))
            place = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=self.layers_folder))
            place.chmod(0o755)
            try:
                fill(place / "upper")
                (place / "upper").rename(self.layers_folder / name)
            finally:
                with suppress(OSError):
                    remove_path(str(place))

    def _free_mb(self) -> int:
        return shutil.disk_usage(self._folder).free >> 20

    def _full_disk(self) -> str:
        return f"an instruction may add {self._disk_mb} MB; raise executor.build_disk_mb"

    def _watch_disk(self, shown: str) -> Callable[[], None]:
        """Return what ends a build that takes too much, for a machine that can limit the disk of none."""
        free_mb = self._free_mb()

        def glance() -> None:
            if free_mb - self._free_mb() > self._disk_mb:
                raise DataError(f"{shown}: fills the disk ({self._full_disk()})")

        return glance

    @contextmanager
    def _container(
        self, layers: tuple[str, ...], upper: Path, disk_mb: int | None, archive: Path | None = None
    ) -> Iterator[LinuxContainer]:
        container = LinuxContainer(
            self.layers_folder,
            layers,
            upper=upper,
            archive=archive,
            network=self._network,
            memory_mb=8192,
            disk_mb=disk_mb,
        )
        try:
            yield container
            container.save()
        finally:
            container.close()

    def _copy(
        self, image: Image, instruction: Instruction, text: str, files: ContextFiles, stages: Mapping[str, Image]
    ) -> bytes:
        """Return a tar, to be unpacked at /, of what COPY copies."""
        *sources, target = replace(instruction, text=text).words or [""]
        if not sources:
            raise DataError(f"{instruction.name} {text[:80]}: names no source and target; write COPY SOURCE TARGET")
        goes_into_folder = target.endswith("/") or len(sources) > 1 or target in (".", "..")
        place = str(PurePosixPath(image.workdir) / target)
        if stage := instruction.flags.get("from"):
            files = self._files_of(stages.get(stage) or self.root_of(stage), sources)
        copied: dict[str, tuple[bytes, int]] = {}
        heredocs = list(instruction.heredocs)
        for source in sources:
            if source.startswith("<<") and heredocs:
                name = source.lstrip("<-").strip("\"'")
                copied[f"{place}/{name}" if goes_into_folder else place] = (heredocs.pop(0).encode(), 0o644)
                continue
            if len(source) > _MOST_OF_A_PATH:
                raise DataError(f"{instruction.name} {source[:80]}: is longer than any path, {_MOST_OF_A_PATH} bytes")
            pattern = str(PurePosixPath("/") / source).lstrip("/")
            matches = _matches(files, pattern)
            if not matches:
                raise DataError(f"{instruction.name} {source}: is not in the context; it holds {len(files)} files")
            for path, relative in matches.items():
                is_file = relative == ""
                name = PurePosixPath(path).name if is_file else relative
                copied[f"{place}/{name}" if goes_into_folder or not is_file else place] = files[path]
        mode = _mode(instruction.flags.get("chmod", ""))
        owner = _owner(instruction.flags.get("chown", ""))
        return _tar(
            {path: (content, bits if mode is None else mode) for path, (content, bits) in copied.items()}, owner
        )

    def _files_of(self, image: Image, paths: list[str]) -> ContextFiles:
        files: dict[str, tuple[bytes, int]] = {}
        container = LinuxContainer(self.layers_folder, image.layers, network="none")
        try:
            for path in paths:
                data = container.get(path, 512 << 20)
                with tarfile.open(fileobj=io.BytesIO(data or _tar({}, (0, 0)))) as tar:
                    for member in tar:
                        if member.isreg() and (stream := tar.extractfile(member)):
                            name = (
                                path.strip("/")
                                if member.name == PurePosixPath(path).name
                                else f"{path.strip('/')}/{member.name}"
                            )
                            files[name] = (stream.read(), member.mode)
        finally:
            container.close()
        return files


def _matches(files: ContextFiles, pattern: str) -> dict[str, str]:
    """Return the files that a source of COPY names, with their path below a folder that it names; empty for a file itself."""
    if pattern in ("", "."):
        return {path: path for path in files}
    matches: dict[str, str] = {}
    depth = pattern.count("/") + 1
    for path in files:
        parts = path.split("/")
        top = "/".join(parts[:depth])
        if fnmatch.fnmatchcase(top, pattern):
            matches[path] = "/".join(parts[depth:])
    return matches


def _argument(instruction: Instruction, variables: Mapping[str, str]) -> dict[str, str]:
    name, separator, value = instruction.text.partition("=")
    return {name.strip(): put_in(value.strip().strip("\"'"), variables)} if separator else {}


def _command(instruction: Instruction, image: Image) -> list[str]:
    if instruction.heredocs:
        first, _, _ = instruction.text.partition("<<")
        program = first.split() or [*image.shell]
        script = instruction.heredocs[0]
        return [*program, script] if program == [*image.shell] else [*program, "-c", script]
    return instruction.words if instruction.is_exec_form else [*image.shell, instruction.text]


def _make_folder(folder: str) -> Callable[[LinuxContainer], None]:
    def make(container: LinuxContainer) -> None:
        container.put(folder, _tar({}, (0, 0)))

    return make


def _owner(text: str) -> tuple[int, int]:
    user, _, group = text.partition(":")
    if not text:
        return 0, 0
    if not (user.isdigit() and (group or "0").isdigit()):
        raise DataError(f"COPY --chown={text}: executor 'local' takes numbers alone")
    return int(user), int(group or user)


def _mode(text: str) -> int | None:
    if text and not re.fullmatch("[0-7]{1,4}", text):
        raise DataError(f"COPY --chmod={text[:80]}: executor 'local' takes modes such as 755 alone")
    return int(text, 8) if text else None


def _tar(files: Mapping[str, tuple[bytes, int]], owner: tuple[int, int]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, (content, mode) in sorted(files.items()):
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode, (member.uid, member.gid) = len(content), mode, owner
            tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


def _read_layout(folder: Path) -> tuple[list[Path], dict[str, Any]]:
    """Return the layers of an image in the layout of OCI, and its configuration."""

    def blob(descriptor: Mapping[str, Any]) -> Path:
        algorithm, _, value = str(descriptor.get("digest", "")).partition(":")
        path = folder / "blobs" / algorithm / value
        if not (value.isalnum() and algorithm.isalnum() and path.is_file()):
            raise HarborError(f"executor.images: {folder}: blob {value[:20]!r} is not there; copy the image again")
        return path

    def read(path: Path) -> dict[str, Any]:
        with suppress(OSError, ValueError):
            tree = json.loads(path.read_bytes()[:_MOST_IMAGE_JSON])
            if isinstance(tree, dict):
                return tree
        raise HarborError(f"executor.images: {path} is no JSON of an image; copy the image again")

    tree = read(folder / _INDEX)
    while _MANIFEST in tree:
        rows = [row for row in tree[_MANIFEST] if (row.get("platform") or {}).get("architecture", "amd64") == "amd64"]
        if not rows:
            raise HarborError(f"executor.images: {folder} has no image for amd64")
        tree = read(blob(rows[0]))
    layers = [blob(layer) for layer in tree.get("layers") or []]
    return layers, read(blob(tree.get("config") or {})).get("config") or {}
