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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from uuid import uuid4

_PLACES = re.compile(r"(?<![\w./-])/(?=(?:app|logs|srv|sys/fs/cgroup|tests|tmp|usr/local/bin|work)\b)")
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


BASES = ("scratch", "debian:13", "python:3.11-slim")
INSTRUCTIONS = ("FROM", "WORKDIR", "ENV", "LABEL", "COPY", "RUN")


@dataclass
class Image:
    """A folder, and what the Dockerfile said."""

    files: ContainerFiles
    id: str = field(default_factory=lambda: f"sha256:{uuid4().hex * 2}")
    env: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    working_dir: str = ""


def instructed(image: Image, source: Path, word: str, rest: str, images: Mapping[str, Image]) -> str:
    """Carry out one instruction on `image`, and return what is wrong with it; nothing where it is right."""
    if word == "FROM":
        if rest not in BASES and rest not in images:
            return f"pull access denied for {rest}, repository does not exist or may require 'docker login'"
        if rest in images:
            image.files.copy_of(images[rest].files)
    elif word == "WORKDIR":
        image.working_dir = rest
        image.files.path(rest).mkdir(parents=True, exist_ok=True)
    elif word in ("ENV", "LABEL"):
        values = dict(each.partition("=")[::2] for each in shlex.split(rest))
        (image.env if word == "ENV" else image.labels).update(values)
    elif word == "COPY":
        return _copied(image, source, rest)
    elif word == "RUN":
        done = subprocess.run(
            ["/bin/sh", "-c", image.files.mapped(rest)],
            cwd=image.files.path(image.working_dir),
            env=image.files.environment(image.env),
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            return f"The command '/bin/sh -c {rest}' returned a non-zero code: {done.returncode}: {done.stderr}"
    return ""


def _copied(image: Image, source: Path, rest: str) -> str:
    wanted, target = shlex.split(rest)
    found = source / wanted
    base = "" if target.startswith("/") else image.working_dir
    place = image.files.path(f"{base}/{target}")
    if not found.exists():
        return f"COPY failed: file not found in build context: stat {wanted}: file does not exist"
    if found.is_dir():
        shutil.copytree(found, place, symlinks=True, dirs_exist_ok=True)
    else:
        place = place / found.name if target.endswith("/") or place.is_dir() else place
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(found, place)
    return ""


class RefusalError(Exception):
    """What is answered in place of what was asked for."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        self.status, self.message, self.headers = status, message, headers or {}


class EngineHandler(BaseHTTPRequestHandler):
    """Requests of every method, answered by `answer`."""

    protocol_version = "HTTP/1.1"

    def address_string(self) -> str:
        return "local"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.answer()

    do_POST = do_PUT = do_DELETE = do_HEAD = do_GET

    def answer(self) -> None:
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
