"""Folders that stand for the file systems of containers, for protocol servers that run what is in them as processes.

A process sees the whole machine, so that paths of a container are mapped: where its words, its scripts and its texts say
`/app/x`, they come to say `<folder>/app/x`, and what is read back says `/app/x` again.
"""

import io
import os
import re
import shutil
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

_PLACES = re.compile(r"(?<![\w./-])/(?=(?:app|logs|srv|sys/fs/cgroup|tests|tmp|work)\b)")
_FOLDERS = ("app", "logs", "sys/fs/cgroup", "tmp", "usr/local/bin", "work")


class BoxFiles:
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

    def copy_of(self, other: "BoxFiles") -> None:
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

    def map_script(self, path: Path, other: "BoxFiles | None" = None) -> None:
        """Map the paths that a program, or what is told to one, has in its text."""
        content = path.read_bytes()
        if content.startswith(b"#!") or path.suffix in (".json", ".py", ".sh"):
            text = other.unmapped(content) if other is not None else content
            path.write_bytes(self.mapped(text.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape"))
