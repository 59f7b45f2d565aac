"""Images as folders, by the instructions of a Dockerfile: FROM, WORKDIR, ENV, LABEL, COPY and RUN."""

import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from tests.box_files import BoxFiles

BASES = ("scratch", "debian:13", "python:3.11-slim")
INSTRUCTIONS = ("FROM", "WORKDIR", "ENV", "LABEL", "COPY", "RUN")


@dataclass
class Image:
    """A folder, and what the Dockerfile said."""

    files: BoxFiles
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
