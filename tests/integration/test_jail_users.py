"""Jails of an ordinary user, and in a container that allows no namespaces."""

import json
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import graftline
from graftline.astgrep.binding import executable
from graftline.core.errors import SandboxError
from graftline.sandbox.jail.visible import interpreter

USER = 60_999  # of nobody, and not among those that jails take
PACKAGES = (sysconfig.get_path("purelib"), str(Path(graftline.__file__).parents[1]))
SYSTEM = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")

# what containers refuse by default: https://docs.docker.com/engine/security/seccomp/
IN_A_CONTAINER = """
    from graftline.sandbox.inside.seccomp import ENOSYS, NEW_NAMESPACE, Filter
    refused = ["unshare", "mount", "setns", "pivot_root", "umount2", "fsopen", "open_tree", "move_mount", "mount_setattr"]
    calls = Filter().refuse(refused).refuse(["clone3"], ENOSYS).refuse_bits("clone", 0, NEW_NAMESPACE)
    assert calls.install("allow")
"""
SETTING_UP = """
    import json, os, sys, tempfile
    from pathlib import Path
    from graftline.core.errors import SandboxError
    from graftline.sandbox import Case, CaseLimits, JailConfig, judge_tests, open_jail
    from graftline.sandbox.runner import parse_test_spec

    def config(**more):
        limits = CaseLimits(cpu_s=5, wall_s=30, memory_mb=512, disk_mb=8, processes=16)
        return JailConfig(limits=limits, **more)

    def look(path):
        return f"try: print(open({path!r}).read())\\nexcept OSError as error: print(error.errno)\\n"

    def answers(jail):
        folder = tempfile.TemporaryDirectory(prefix="users-secret-")
        Path(folder.name).chmod(0o755)
        Path(folder.name, "secret").write_text("secret")
        text = "import os\\nprint(sorted(os.listdir()), os.getuid() == 0)\\n" + look(f"{folder.name}/secret") + look("/etc/shadow")
        case = Case("python", ("main.py",), {"main.py": text.encode()})
        tests = "from m import add\\ndef test_add():\\n    assert add(1, 2) == 3\\n"
        spec = parse_test_spec({"kind": "pytest", "files": {"test_m.py": tests}, "expected": ["test_m.py::test_add"]})
        try:
            found = {
                "level": jail.isolation.level,
                "implementation": jail.isolation.implementation,
                "features": jail.isolation.features,
                "python": jail.run(case).stdout.decode(),
                "right": judge_tests(jail, {"m.py": b"def add(a, b): return a + b"}, spec).passed,
                "wrong": judge_tests(jail, {"m.py": b"def add(a, b): return a - b"}, spec).passed,
            }
        finally:
            jail.close()
            folder.cleanup()
        return found
"""
RAN = {"right": True, "wrong": False}


@pytest.fixture(params=["whoever runs the tests", "an ordinary user"])
def who(request: pytest.FixtureRequest) -> int | None:
    return ordinary_user() if request.param == "an ordinary user" else None


def ordinary_user() -> int | None:
    """Return the id of a user without any right; None where whoever runs the tests is one."""
    if os.getuid() != 0:
        return None
    if not is_runnable_by_others(SYSTEM):
        pytest.skip(f"{SYSTEM} of version {sys.version_info[:2]} is not here: apt-get install {SYSTEM.name}")
    if closed := [package for package in PACKAGES if not is_open(package)]:
        pytest.skip(f"only its owner may enter {closed[0]}; put the checkout and its environment where others may read")
    return USER


@pytest.fixture
def needs_interpreter_for_others(who: int | None) -> None:
    # started by root, cases run as users of their own
    if who is None and os.getuid() == 0:
        try:
            interpreter(is_other_user=True)
        except SandboxError as error:
            pytest.skip(str(error))


def is_open(path: str) -> bool:
    above = all(folder.stat().st_mode & stat.S_IXOTH for folder in Path(path).parents)
    return above and bool(Path(path).stat().st_mode & stat.S_IROTH)


def is_runnable_by_others(program: Path) -> bool:
    return program.exists() and bool(program.stat().st_mode & stat.S_IXOTH)


def new_environment(home: Path) -> Path:
    """Return the interpreter of a new virtual environment with the packages of this one, for everybody to read."""
    packages = home / "lib" / SYSTEM.name / "site-packages"
    for folder in (home / "bin", packages):
        folder.mkdir(parents=True)
    (home / "pyvenv.cfg").write_text(f"home = {SYSTEM.parent}\ninclude-system-site-packages = false\n")
    (home / "bin" / "python").symlink_to(SYSTEM)
    (packages / "packages.pth").write_text("\n".join(PACKAGES))
    return home / "bin" / "python"


@pytest.fixture(scope="module")
def folder_for_others() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="folder-for-others-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def python_for_others(folder_for_others: Path) -> Path:
    python = new_environment(folder_for_others / "whole")
    python.with_name("ast-grep").symlink_to(executable())
    return python


Says = Callable[[str, int | None], Any]


@pytest.fixture
def said(python_for_others: Path) -> Says:
    """What runs a program as a user, and returns what it prints as JSON."""

    def run(program: str, user: int | None) -> Any:
        return said_by(Path(sys.executable) if user is None else python_for_others, program, user)

    return run


def as_user(user: int | None) -> dict[str, Any]:
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


def said_by(python: Path, program: str, user: int | None = None, path: str | None = None) -> Any:
    done = subprocess.run(
        [python, "-I", "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
        env={"LANG": "C.UTF-8", "PATH": path or os.environ["PATH"]},
        timeout=120,
        **as_user(user),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def has_user_namespaces(user: int | None) -> bool:
    return (
        subprocess.run(["unshare", "--user", "--mount", "true"], check=False, cwd="/", **as_user(user)).returncode == 0
    )


def test_a_user_gets_namespaces_and_cases_run_there_and_probe_says_so(said: Says, who: int | None) -> None:
    if not has_user_namespaces(who):
        pytest.skip("this machine gives this user no user namespaces")
    program = """
        from dataclasses import asdict
        from graftline.sandbox.probe import probe
        probed = {one.implementation: asdict(one) for one in probe() if one.tier == "tests"}
        print(json.dumps([answers(open_jail(config())), probed]))
    """
    found, probed = said(dedent(SETTING_UP) + dedent(program), who)
    assert found.pop("level") in ("namespaces", "full")
    assert found.pop("features") != []
    # neither is there
    assert found == {"implementation": "namespaces", "python": "['main.py'] False\n2\n2\n", **RAN}
    assert probed["namespaces"]["level"] in ("namespaces", "full")
    assert probed["subprocess"]["level"] == "none"
    if who is not None and probed["namespaces"]["level"] == "namespaces":
        # what it cannot have is named, with the way to get it
        missing = {line.partition(": ")[0]: line.partition(": ")[2] for line in probed["namespaces"]["missing"]}
        assert missing == {
            "total_memory": "a control group for memory that may be written to (root, or a delegated one)",
            "total_processes": "a control group for processes that may be written to (root, or a delegated one)",
            "cpu_quota": "a control group for processor time that may be written to (root, or a delegated one)",
        }


@pytest.mark.usefixtures("needs_interpreter_for_others")
def test_where_namespaces_are_refused_it_is_said_and_confined_can_be_had_but_not_without_landlock(
    said: Says, who: int | None
) -> None:
    # the three calls of Landlock have numbers of their own since Linux 5.13, the same on every machine
    program = """
        def refusal(**more):
            try:
                open_jail(config(**more)).close()
            except SandboxError as error:
                return str(error)
            return ""

        found = [refusal(), answers(open_jail(config(required_level="confined")))]
        from graftline.sandbox.inside import seccomp
        calls = seccomp.Filter()
        calls._numbers = {**calls._numbers, "landlock": 444}
        assert calls.refuse(["landlock"], seccomp.ENOSYS).install("allow")
        from graftline.sandbox import ProcessSandboxConfig, open_sandbox
        try:
            open_sandbox(ProcessSandboxConfig(required_level="confined"))
        except SandboxError as error:
            print(json.dumps([*found, refusal(required_level="confined"), str(error)]))
    """
    message, found, without, of_actions = said(dedent(IN_A_CONTAINER) + dedent(SETTING_UP) + dedent(program), who)
    assert message.startswith("namespaces jail: ")
    assert "user namespaces" in message
    assert "sysctl" in message
    assert "--security-opt seccomp=unconfined" in message
    assert message.endswith("'namespaces' is required")
    features = found.pop("features")
    assert {"rlimits", "no_new_privs", "landlock", "seccomp"} <= {*features}
    assert "namespaces" not in features
    # neither may be read
    ran = {"python": "['main.py'] False\n13\n13\n", **RAN}
    assert found == {"level": "confined", "implementation": "confined", **ran}
    assert "reaches 'compute', and lacks landlock: a kernel with Landlock" in without
    assert without.endswith("'confined' is required")
    assert of_actions.startswith("process sandbox: reaches 'compute', and lacks landlock: a kernel with Landlock")
    assert of_actions.endswith("'confined' is required")


@pytest.mark.skipif(os.getuid() != 0 or not SYSTEM.exists(), reason=f"needs root, and {SYSTEM}")
def test_root_applies_actions_where_ast_grep_lies_below_the_private_folder_of_somebody(folder_for_others: Path) -> None:
    python = new_environment(folder_for_others / "private")
    shutil.copy(executable(), python.parent)
    os.chown(folder_for_others / "private", USER, USER)
    (folder_for_others / "private").chmod(0o700)
    program = """
        import json
        from contextlib import closing
        from graftline.astgrep.action import PatternAction
        from graftline.sandbox import ProcessSandboxConfig, open_sandbox
        action = PatternAction(pattern="f($A)", rewrite="g($A)")
        with closing(open_sandbox(ProcessSandboxConfig())) as sandbox:
            print(json.dumps(sandbox.apply_many("f(1)", "python", [action])[0].after))
    """
    assert said_by(python, dedent(program)) == "g(1)"


@pytest.mark.skipif(not SYSTEM.exists(), reason=f"{SYSTEM} is not here: apt-get install {SYSTEM.name}")
def test_a_listed_program_that_is_not_installed_is_missed_only_when_it_is_asked_for(folder_for_others: Path) -> None:
    program = """
        from graftline.core.errors import DataError
        jail = open_jail(config(kind="subprocess", required_level="none"))
        try:
            jail.run(Case("ast-grep"))
        except DataError as error:
            print(json.dumps({"error": str(error)}))
        jail.close()
    """
    found = said_by(
        new_environment(folder_for_others / "bare"), dedent(SETTING_UP) + dedent(program), path="/nonexistent"
    )
    assert found == {"error": "program 'ast-grep': is not installed; there are calls, pytest, python"}
