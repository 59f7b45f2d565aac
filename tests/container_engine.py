"""What stands for a container engine in tests: folders for the file systems of containers and images, and answers by HTTP.

A process sees the whole machine, so that paths of a container are mapped: where its words, its scripts and its texts say
`/app/x`, they come to say `<folder>/app/x`, and what is read back says `/app/x` again.
"""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4

from graftline.harbor.executors.base import Executor

_PLACES = re.compile(
    r"(?<![\w./-])/(?=(?:app|home|logs|root|solution|srv|sys/fs/cgroup|tests|tmp|usr/local/bin|work)\b)"
)
_FOLDERS = ("app", "logs", "sys/fs/cgroup", "tmp", "usr/local/bin", "work")


class ContainerFiles:
    """The file system of one container, or of an image, in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in _FOLDERS:
            (folder / name).mkdir(parents=True, exist_ok=True)

    def path(self, inside: str) -> Path:
        """Where a path of the container is."""
        return self.folder / inside.lstrip("/")

    def mapped(self, text: str) -> str:
        return _PLACES.sub(lambda _: f"{self.folder}/", text)

    def unmapped(self, content: bytes) -> bytes:
        return content.replace(f"{self.folder}/".encode(), b"/")

    def words(self, words: Sequence[str]) -> list[str]:
        first = self.path(words[0]) if words[0].startswith("/") else self.path("usr/local/bin") / words[0]
        return [str(first) if first.exists() else words[0], *map(self.mapped, words[1:])]

    def copy_of(self, other: "ContainerFiles") -> None:
        """Take the files of an image, scripts with their paths mapped."""
        shutil.copytree(other.folder, self.folder, symlinks=True, dirs_exist_ok=True)
        for path in self.folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                self.map_script(path, other)

    def unpack(self, archive: bytes, inside: str) -> None:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            members = tar.getmembers()
            tar.extractall(self.path(inside), filter="fully_trusted")
        for member in members:
            if member.isreg():
                self.map_script(self.path(inside) / member.name)

    def pack(self, inside: str) -> bytes:
        """Return the tar of a file or a folder, as an engine gives it: by its last name, links as links."""
        top = self.path(inside)
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for path in [top, *(sorted(top.rglob("*")) if top.is_dir() and not top.is_symlink() else [])]:
                member = tar.gettarinfo(path, arcname=str(path.relative_to(top.parent)))
                if member is None:
                    continue
                if member.isreg():
                    content = self.unmapped(path.read_bytes())
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
                else:
                    tar.addfile(member)
        return archive.getvalue()

    def environment(self, variables: dict[str, str]) -> dict[str, str]:
        """Return the variables of a process of the container, and no others of this process."""
        # this Python itself, and no script that looks for one
        python = Path(sys.executable).parent
        path = f"{self.path('usr/local/bin')}:{self.path('app')}:{python}:{os.environ['PATH']}"
        return {"HOME": str(self.path("tmp")), **variables, "PATH": path}

    def map_script(self, path: Path, other: "ContainerFiles | None" = None) -> None:
        """Map the paths that a program, or what is told to one, has in its text."""
        content = path.read_bytes()
        if content.startswith(b"#!") or path.suffix in (".json", ".py", ".sh"):
            text = other.unmapped(content) if other is not None else content
            path.write_bytes(self.mapped(text.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape"))


BASES = ("scratch", "tiny:1", "debian:13", "python:3.11-slim")


@dataclass
class Image:
    """A folder, and what the Dockerfile said."""

    files: ContainerFiles
    id: str = field(default_factory=lambda: f"sha256:{uuid4().hex * 2}")
    env: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    working_dir: str = ""

    def steps(self, source: Path, dockerfile: str, images: Mapping[str, "Image"]) -> Iterator[tuple[str, str]]:
        """Carry out a Dockerfile; yield what each step prints, and what is wrong with it, which ends it."""
        lines = [line for line in dockerfile.splitlines() if line.strip() and not line.startswith("#")]
        for number, line in enumerate(lines, start=1):
            word, _, rest = line.partition(" ")
            fault = self._carry_out(source, word.upper(), rest.strip(), images)
            yield f"Step {number}/{len(lines)} : {line}\n", fault
            if fault:
                return

    def _carry_out(self, source: Path, word: str, rest: str, images: Mapping[str, "Image"]) -> str:
        match word:
            case "FROM" if rest in images:
                self.files.copy_of(images[rest].files)
            case "FROM" if rest not in BASES:
                return f"pull access denied for {rest}, repository does not exist or may require 'docker login'"
            case "WORKDIR":
                self.working_dir = rest
                self.files.path(rest).mkdir(parents=True, exist_ok=True)
            case "ENV" | "LABEL":
                values = dict(each.partition("=")[::2] for each in shlex.split(rest))
                (self.env if word == "ENV" else self.labels).update(values)
            case "COPY":
                return self._copy(source, *shlex.split(rest))
            case "RUN":
                done = subprocess.run(
                    ["/bin/sh", "-c", self.files.mapped(rest)],
                    cwd=self.files.path(self.working_dir),
                    env=self.files.environment(self.env),
                    check=False,
                    capture_output=True,
                    text=True,
                )
                if done.returncode:
                    return f"The command '/bin/sh -c {rest}' returned a non-zero code: {done.returncode}: {done.stderr}"
        return ""

    def _copy(self, source: Path, name: str, target: str) -> str:
        place = self.files.path(target if target.startswith("/") else f"{self.working_dir}/{target}")
        if not (source / name).exists():
            return f"COPY failed: file not found in build context: stat {name}: file does not exist"
        if (source / name).is_dir():
            shutil.copytree(source / name, place, symlinks=True, dirs_exist_ok=True)
        else:
            place = place / name if target.endswith("/") or place.is_dir() else place
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, place)
        return ""


class RefusalError(Exception):
    """What is answered in place of what was asked for."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.message, self.headers = status, message, headers or {}


class ContainerEngine:
    """A server in a thread, with a folder for what it keeps.

    Engines have `listen()`, which returns the server, `open_executor(**changes)`, `forget_images()`, `remove(container)` and
    `leave_container(name, snapshot_id, labels)`, which makes a container that somebody left.

    `faults` are used up in order: a text that the next path that has it is answered with, the status, message, headers.
    """

    build_path: ClassVar[str]
    create_path: ClassVar[str]
    write_path: ClassVar[str]
    read_path: ClassVar[str]
    """Texts in the paths by which an image is built, a container made, filled and read."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        """What every container was asked for as."""
        self.containers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.faults: list[tuple[Any, ...]] = []

    def labels(self) -> list[dict[str, str]]:
        """Those of every container that was asked for, by their last names."""
        key = "Labels" if self.created and "Labels" in self.created[0] else "labels"
        return [{name.rpartition(".")[2]: value for name, value in each[key].items()} for each in self.created]

    def __enter__(self) -> Self:
        # the name of a socket must be short
        self._folder = Path(tempfile.mkdtemp(prefix="engine-"))
        self._server = self.listen()
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        for container in list(self.containers.values()):
            self.remove(container)
        shutil.rmtree(self._folder)

    def folder(self) -> Path:
        path = self._folder / uuid4().hex[:12]
        path.mkdir()
        return path

    def unpacked(self, *archives: bytes) -> Path:
        """Return a folder of what is in tars."""
        folder = self.folder()
        for archive in archives:
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                tar.extractall(folder, filter="fully_trusted")
        return folder


@contextmanager
def executor_of(kind: type[ContainerEngine]) -> Iterator[Executor]:
    """Yield an executor with an engine of its own."""
    with kind() as engine, closing(engine.open_executor()) as executor:
        yield executor


class EngineHandler(BaseHTTPRequestHandler):
    """Requests of every method, answered by `route`."""

    protocol_version = "HTTP/1.1"
    engine: Any

    def address_string(self) -> str:
        return "local"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        split = urlsplit(self.path)
        parts = [unquote(part) for part in split.path.split("/")[1:]]
        # Docker's paths begin with a version
        parts = parts[1:] if parts[0].startswith("v1.") else parts
        self.query = {name: values[0] for name, values in parse_qs(split.query, keep_blank_values=True).items()}
        self.body = self._read()
        asked = f"{self.command} {'/'.join(parts)}"
        self.engine.asked.append(asked)
        try:
            for fault in self.engine.faults:
                if fault[0] in asked:
                    self.engine.faults.remove(fault)
                    raise RefusalError(*fault[1:])
            self.route(parts)
        except RefusalError as refusal:
            answer = {"message": refusal.message, "statusCode": refusal.status}
            self.send_json(answer, refusal.status, refusal.headers)

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET

    def route(self, parts: list[str]) -> None:
        raise NotImplementedError

    def send_json(self, answer: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.send_content(json.dumps(answer).encode(), "application/json", status, headers)

    def send_content(
        self, content: bytes, kind: str = "text/plain", status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _read(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)
