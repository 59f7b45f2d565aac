"""Programs of others that isolate a command: bubblewrap, nsjail, firejail.

Each shows the command the same paths as our own isolation does, and a folder in memory of its own. What runs inside confines
itself further (`inside.case_jail`), so that system calls, path rules and limits are the same with all of them.
"""

import math
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from graftline.core.errors import SandboxError
from graftline.sandbox.inside.case_jail import DEVICES, SPARE_FILES
from graftline.sandbox.jail import CaseLimits
from graftline.sandbox.jail.visible import Visible

FOLDER = "/case"
"""Where most of them mount the folder in memory."""
_SPARE_S = 120  # to start, and to answer


@dataclass(frozen=True, slots=True)
class Wrapper:
    """How one of them is called."""

    program: str
    package: str
    """How to get it."""
    command: Callable[[str, Visible, CaseLimits, Mapping[str, str]], list[str]]
    """From the path of the program, what may be seen, the limits and the environment, to what goes before a command."""
    is_started_as_root: bool = False
    """Whether it cannot do its work for a user that nobody knows the name of."""
    folder: str = FOLDER
    """The folder in memory."""
    leaves: tuple[str, ...] = ()
    """Empty folders that it does not remove; `{user}` stands for the user it was started as."""

    @property
    def path(self) -> str | None:
        """Where it is installed; None where it is not."""
        return shutil.which(self.program)


def _bubblewrap(path: str, view: Visible, limits: CaseLimits, environment: Mapping[str, str]) -> list[str]:
    """Return its command; its memory folder has a size, and no limit on the number of files."""
    return [
        *(path, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"),
        *("--as-pid-1", "--hostname", "jail"),  # the first process cannot be stopped from inside
        *_flatten(("--setenv", name, value) for name, value in environment.items()),
        *_flatten(("--ro-bind", shown, shown) for shown in view.paths),
        *_flatten(("--symlink", target, link) for link, target in view.links.items()),
        *("--proc", "/proc", "--dev", "/dev", "--size", str(1 << 20), "--tmpfs", "/dev/shm"),
        *("--size", str(2 * limits.disk_mb << 20), "--tmpfs", FOLDER, "--chdir", "/"),
        *("--remount-ro", "/", "--remount-ro", "/dev", "--"),
    ]


def _nsjail(path: str, view: Visible, limits: CaseLimits, environment: Mapping[str, str]) -> list[str]:
    """Return its command; its own limits are off, for the lowest of them are below what a case may use."""
    if wrong := [shown for shown in (*view.paths, *view.links, *view.links.values()) if ":" in shown]:
        raise SandboxError(f"nsjail: path {wrong[0]!r} holds a colon; install what is there in a folder without one")
    memory = f"size={2 * limits.disk_mb << 20},nr_inodes={limits.files + SPARE_FILES},mode=755"
    return [
        *_end_with_parent(),
        *(path, "--mode", "o", "--really_quiet", "--time_limit", "0", "--disable_rlimits", "--nice_level", "0"),
        *("--user", "1000", "--group", "1000", "--hostname", "jail", "--cwd", "/"),
        *("--skip_setsid",),  # so that it is ended together with what it runs, even while it starts
        *_flatten(("--env", f"{name}={value}") for name, value in environment.items()),
        *_flatten(("--bindmount_ro", shown) for shown in view.paths),
        *_flatten(("--symlink", f"{target}:{link}") for link, target in view.links.items()),
        *_flatten(("--bindmount", f"/dev/{name}") for name in DEVICES),
        *("--mount", f"none:{FOLDER}:tmpfs:{memory}", "--"),
    ]


def _firejail(path: str, view: Visible, limits: CaseLimits, environment: Mapping[str, str]) -> list[str]:
    """Return its command, which takes the file system of the machine and hides what is not to be seen.

    Weaker than the others: the names of what is in / and /usr stay visible, though nothing below them does; its memory
    folder has no limit but that of a control group, where there is one; it adds variables of its own to the
    environment. It refuses users without a name, so that root starts it as root: it then keeps the right to change its
    user, and no other right, for the server to use. It takes 128 arguments at most, those of the command included.
    """
    tops = {_top(name) for name in (*view.paths, *view.links)}
    minutes = math.ceil((limits.wall_s + _SPARE_S) / 60)
    return [
        *_end_with_parent(),
        # or it looks for threads of the kernel first, and runs the program without any isolation where it sees none
        *("/usr/bin/env", "container=docker"),
        # no "--" at its end, after which it would start a shell
        *(path, "--quiet", "--noprofile", "--net=none", "--ipc-namespace", "--name=jail", "--hostname=jail"),
        *(["--caps.keep=setuid,setgid"] if os.getuid() == 0 else ["--caps.drop=all", "--nogroups", "--noroot"]),
        *("--nonewprivs", "--nosound", "--private-dev", "--private-tmp", "--deterministic-shutdown"),
        f"--timeout={minutes // 60:02}:{minutes % 60:02}:00",  # for it is a set-uid program, and these lose their parents
        *("--whitelist=/run/firejail", "--blacklist=/run/firejail/[a-cn-z]*"),  # the rest is what it needs itself
        *(f"--whitelist={name}" for name in (*view.paths, *view.links) if name not in tops),
        *(f"--blacklist={top}" for top in _tops() if top not in tops),
        *(f"--read-only={name}" for name in sorted({_unchanging(name) for name in view.paths})),
    ]


def _tops() -> list[str]:
    """Return the folders and files that firejail hides or shows as a whole or in parts, but those it has of its own."""
    names = (entry for folder in ("/", "/usr") for entry in Path(folder).iterdir())
    own = {"/dev", "/proc", "/run", "/tmp", "/usr"}
    return sorted(str(name) for name in names if str(name) not in own and not name.is_symlink())


def _top(path: str) -> str:
    """Return which of them holds `path`."""
    return "/".join(path.split("/")[: 3 if path.startswith("/usr/") else 2])


def _unchanging(path: str) -> str:
    """Return what can be made read-only to have `path` read-only: as much as possible, for arguments are few."""
    return path if path.startswith("/tmp/") else _top(path)


def _end_with_parent() -> list[str]:
    """Return what has the kernel end a command with the process that started it, for those that cannot ask for it."""
    program = shutil.which("setpriv")
    return [program, "--pdeathsig", "KILL"] if program else []


def _flatten(options: Iterable[tuple[str, ...]]) -> list[str]:
    return [word for option in options for word in option]


WRAPPERS: Mapping[str, Wrapper] = {
    "bubblewrap": Wrapper("bwrap", "apt-get install bubblewrap", _bubblewrap),
    "nsjail": Wrapper(
        "nsjail",
        "build it from https://github.com/google/nsjail",
        _nsjail,
        leaves=("/tmp/nsjail.{user}.root", "/tmp/nsjail.{user}.tmp"),
    ),
    "firejail": Wrapper("firejail", "apt-get install firejail", _firejail, is_started_as_root=True, folder="/tmp"),
}
