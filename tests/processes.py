"""Processes by their command lines; one may end while it is looked at, and stay for a while after it has ended."""

import time

import psutil

_ENDS_WITHIN_S = 240.0


def command_line(process: psutil.Process) -> str:
    """Return the command line of a process; empty where it has ended, whether or not its parent has noticed."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def children_with(word: str, process: psutil.Process | None = None) -> list[psutil.Process]:
    """Return the children of a process, of this one if it is None, that run and have `word` in their command lines."""
    return [child for child in (process or psutil.Process()).children() if word in command_line(child)]


def running(processes: list[psutil.Process]) -> list[str]:
    """Return the command lines of those that have not ended."""
    return [line for process in processes if (line := command_line(process))]


def wait_until_ended(pid: int) -> None:
    """Wait for a process to be gone, or a zombie that nobody has asked for: one that was killed takes a while to end."""
    deadline = time.monotonic() + _ENDS_WITHIN_S
    while _is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
