"""Small git repositories, made for tests by the command itself."""

import os
import subprocess
from pathlib import Path


def git(folder: Path, *arguments: str, stdin: str | None = None) -> str:
    """Run git in `folder` without any configuration of the machine, and return what it prints."""
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    environment |= {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment |= {"GIT_AUTHOR_DATE": "2024-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2024-01-01T00:00:00Z"}
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, env=environment, input=stdin, capture_output=True, text=True, check=True).stdout


def init(folder: Path) -> Path:
    """Make an empty repository."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    return folder


def commit(folder: Path, files: dict[str, str | bytes | None], message: str = "change") -> str:
    """Write `files`, where None removes one, commit them, and return the commit."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    git(folder, "add", "--all")
    git(folder, "commit", "-q", "--allow-empty-message", "-F", "-", stdin=message)
    return git(folder, "rev-parse", "HEAD").strip()
