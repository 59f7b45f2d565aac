"""Control groups: limits over all processes of a jail together, where this machine lets us make one.

Version 1 has a tree per controller, version 2 one tree (https://docs.kernel.org/admin-guide/cgroup-v2.html). Whether
one can be had is found by making it.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_MOUNTS, _OWN = Path("/proc/mounts"), Path("/proc/self/cgroup")
_FEATURES = {"memory": "total_memory", "pids": "total_processes", "cpu": "cpu_quota"}
_CONTROLLERS = {*_FEATURES, "cpuacct"}  # the last has no limit, and is in a tree of its own or in that of cpu
_PREFIX = "graftline-"
_PERIOD_US = 100_000
_REMOVAL_S = 2.0


class ControlGroup:
    """A group of its own in every tree that limits memory, processes or processor time."""

    def __init__(self, name: str, memory_mb: int, processes: int, cores: int) -> None:
        """Make it, with what can be had; `features` says what that is."""
        self._folders: dict[str, Path] = {}
        self.features: list[str] = []
        for controller, parent in _trees().items():
            _remove_orphans(parent)
            folder = parent / f"{_PREFIX}{os.getpid()}-{name}"
            try:
                folder.mkdir(exist_ok=True)
                _limit(folder, controller, memory_mb, processes, cores)
            except OSError:
                with suppress(OSError):
                    folder.rmdir()
                continue
            self._folders[controller] = folder
            if controller in _FEATURES:
                self.features.append(_FEATURES[controller])

    def add(self, pid: int) -> None:
        """Put a process, and all it starts from now on, into the group."""
        for folder in {*self._folders.values()}:
            (folder / "cgroup.procs").write_text(str(pid), "ascii")

    @property
    def kills(self) -> int:
        """How many processes have been killed for want of memory."""
        folder = self._folders.get("memory")
        for name in ("memory.events", "memory.oom_control"):
            if folder and (folder / name).exists():
                lines = dict(line.split() for line in (folder / name).read_text("ascii").splitlines())
                return int(lines.get("oom_kill", 0))
        return 0

    @property
    def used_s(self) -> float:
        """Processor time of all processes that are or were in it; 0 where nobody counts it."""
        for folder in self._folders.values():
            with suppress(OSError):
                return int((folder / "cpuacct.usage").read_text("ascii")) / 1e9
            with suppress(OSError):
                lines = dict(line.split() for line in (folder / "cpu.stat").read_text("ascii").splitlines())
                if "usage_usec" in lines:
                    return int(lines["usage_usec"]) / 1e6
        return 0.0

    def remove(self) -> None:
        """End what is still in it, and remove it."""
        deadline = time.monotonic() + _REMOVAL_S
        for folder in {*self._folders.values()}:
            while not _is_removed(folder) and time.monotonic() < deadline:
                _end_all(folder)
                time.sleep(0.005)
        self._folders = {}


def _trees() -> dict[str, Path]:
    """Return the folder of this process in the tree of each controller."""
    own: dict[str, str] = {}
    with suppress(OSError):
        for line in _OWN.read_text("ascii").splitlines():
            _, controllers, path = line.split(":", 2)
            own |= dict.fromkeys(controllers.split(","), path)
    trees = {}
    with suppress(OSError):
        for line in _MOUNTS.read_text("utf-8").splitlines():
            _, folder, kind, options = line.split()[:4]
            if kind == "cgroup":
                for controller in _CONTROLLERS & {*options.split(",")}:
                    trees[controller] = _below(folder, own.get(controller, "/"))
            elif kind == "cgroup2":
                parent = _below(folder, own.get("", "/"))
                with suppress(OSError):
                    for controller in (parent / "cgroup.subtree_control").read_text("ascii").split():
                        if controller in _CONTROLLERS:
                            trees.setdefault(controller, parent)
    return trees


def _below(folder: str, path: str) -> Path:
    # within a container the path is that of the host, and its folder is the mount itself
    inside = Path(folder + path)
    return inside if inside.is_dir() else Path(folder)


def _limit(folder: Path, controller: str, memory_mb: int, processes: int, cores: int) -> None:
    is_second = (folder / "cgroup.controllers").exists()
    quota = cores * _PERIOD_US
    match controller, is_second:
        case "memory", False:
            (folder / "memory.limit_in_bytes").write_text(str(memory_mb << 20), "ascii")
            with suppress(OSError):  # where swap is counted
                (folder / "memory.memsw.limit_in_bytes").write_text(str(memory_mb << 20), "ascii")
        case "memory", True:
            (folder / "memory.max").write_text(str(memory_mb << 20), "ascii")
            with suppress(OSError):
                (folder / "memory.swap.max").write_text("0", "ascii")
        case "pids", _:
            (folder / "pids.max").write_text(str(processes), "ascii")
        case "cpu", False:
            (folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US), "ascii")
            (folder / "cpu.cfs_quota_us").write_text(str(quota), "ascii")
        case "cpu", True:
            (folder / "cpu.max").write_text(f"{quota} {_PERIOD_US}", "ascii")


def _remove_orphans(parent: Path) -> None:
    """Remove groups whose maker was killed."""
    with suppress(OSError):
        for folder in parent.glob(f"{_PREFIX}*"):
            maker = folder.name.removeprefix(_PREFIX).partition("-")[0]
            if maker.isdigit() and not Path(f"/proc/{maker}").exists() and not _is_removed(folder):
                _end_all(folder)
                time.sleep(0.01)
                _is_removed(folder)


def _end_all(folder: Path) -> None:
    with suppress(OSError):
        for process in (folder / "cgroup.procs").read_text("ascii").split():
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)


def _is_removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
