"""A small root file system for images in tests: programs of this machine, with the libraries that they need."""

import io
import os
import re
import shutil
import subprocess
import tarfile
from functools import cache
from pathlib import Path

from tests.jails import has_user_namespaces

_PROGRAMS = (
    *(
        "bash",
        "cat",
        "chmod",
        "cp",
        "cut",
        "dash",
        "diff",
        "env",
        "find",
        "grep",
        "head",
        "id",
        "kill",
        "ls",
        "mkdir",
        "mv",
    ),
    *("rm", "sed", "sleep", "tail", "touch", "tr", "uname", "wc"),
)
_USERS = b"root:x:0:0::/root:/bin/sh\nsmith:x:1000:1000::/home/smith:/bin/sh\n"
_LIBRARY = re.compile(r"(/\S+) \(0x")
has_containers = os.getuid() == 0 and has_user_namespaces()
"""Whether containers of images can be made here."""


@cache
def _paths() -> tuple[str, ...]:
    programs = [path for name in _PROGRAMS if (path := shutil.which(name, path="/usr/bin:/bin"))]
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    return (*programs, *dict.fromkeys(_LIBRARY.findall(listed)))


def small_root(path: Path) -> Path:
    """Write the tar to `path`, and return it."""
    with tarfile.open(path, "w") as tar:
        for source in _paths():
            name = source.lstrip("/")
            # where a system has /lib and /bin as links, its programs still ask for them by these names
            for place in {name, name.removeprefix("usr/"), f"usr/{name.removeprefix('usr/')}"}:
                member = tar.gettarinfo(os.path.realpath(source), arcname=place)
                member.uid = member.gid = 0
                with Path(os.path.realpath(source)).open("rb") as stream:
                    tar.addfile(member, stream)
        for link, target in (("bin/sh", "dash"), ("usr/bin/sh", "dash")):
            entry = tarfile.TarInfo(link)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            tar.addfile(entry)
        users = tarfile.TarInfo("etc/passwd")
        users.size = len(_USERS)
        tar.addfile(users, io.BytesIO(_USERS))
    return path
