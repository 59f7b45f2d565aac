"""The features that isolation is made of: which of them a level needs, and how to get those that are missing.

Not here: how they are found (`confined.case_server`, `sandbox.cgroups`), and the order of levels (`sandbox.limits`).
"""

from collections.abc import Collection, Mapping

from graftline.sandbox.base import IsolationLevel
from graftline.sandbox.limits import LEVELS

_COMPUTE = ("rlimits", "no_new_privs", "seccomp")
NEEDED: Mapping[IsolationLevel, tuple[str, ...]] = {
    "none": (),
    "compute": _COMPUTE,
    "confined": (*_COMPUTE, "landlock", "signals_kept_in"),
    "namespaces": (*_COMPUTE, "namespaces", "disk_limits"),
    "full": (
        *(*_COMPUTE, "landlock", "signals_kept_in", "namespaces", "disk_limits", "file_limits", "no_exec"),
        *("total_memory", "total_processes", "cpu_quota"),
    ),
}
"""What each level is made of."""

REMEDIES: Mapping[str, str] = {
    "seccomp": "a kernel with seccomp filters (Linux 3.17 or newer, x86_64 or aarch64)",
    "no_new_privs": "Linux 3.5 or newer",
    "rlimits": "a system with resource limits",
    "landlock": "a kernel with Landlock (Linux 5.13 or newer, with 'landlock' among its security modules)",
    "signals_kept_in": "Landlock of version 6 (Linux 6.12), or graftline started as root",
    "namespaces": "user namespaces: sysctl kernel.apparmor_restrict_unprivileged_userns=0,"
    " user.max_user_namespaces above 0; in a container --security-opt seccomp=unconfined",
    "disk_limits": "a working folder in memory, of limited size; kind 'namespaces' has one",
    "file_limits": "a working folder of a limited number of files; kind 'namespaces' has one",
    "no_exec": "a working folder from which nothing can be run; kind 'namespaces' has one",
    "total_memory": "a control group for memory that may be written to (root, or a delegated one)",
    "total_processes": "a control group for processes that may be written to (root, or a delegated one)",
    "cpu_quota": "a control group for processor time that may be written to (root, or a delegated one)",
}
"""How to get what is missing."""


def level_of(features: Collection[str]) -> IsolationLevel:
    """Return the strongest level that is reached by what took hold."""
    return next(level for level in reversed(LEVELS) if not missing(features, level))


def missing(features: Collection[str], level: IsolationLevel) -> dict[str, str]:
    """Return what `level` needs beside `features`, and how to get it."""
    # who has a user of its own cannot signal others, whatever the version of Landlock
    have = {*features, "signals_kept_in"} if "own_user" in features else {*features}
    return {name: REMEDIES[name] for name in NEEDED[level] if name not in have}
