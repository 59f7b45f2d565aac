"""What a case may see of this machine: interpreters, libraries, and nothing else.

What a jail starts is not looked up by `PATH`: every program has one path, found here. What `shell` and `cargo` start of
themselves is; they see the programs of the system, and `shell` those of the virtual environment of graftline.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import graftline
from graftline.astgrep.binding import executable
from graftline.core.errors import ConfigError, SandboxError
from graftline.sandbox.jail import Program

_PACKAGE = Path(graftline.__file__).resolve().parent
_IS_CHECKOUT = Path(_PACKAGE.parent, "pyproject.toml").is_file()
_LINKS = _PACKAGE.parent / "editable"
"""The folder of a checkout that links to the package, and holds nothing else."""
_LIBRARIES = ("/lib", "/lib64", "/usr/lib64", "/usr/local/lib")
_TIMEOUT_S = 60
_DATA = ("/usr/share/zoneinfo", "/etc/ld.so.cache", "/etc/localtime", "/usr/share/nodejs", "/usr/share/javascript")
_SYSTEM = ("/usr/bin", "/bin")
# of compilers, of git, of what distributions choose between
_OF_THE_SYSTEM = (
    *("/usr/lib/gcc", "/usr/libexec/gcc", "/usr/lib/git-core", "/usr/libexec/git-core", "/usr/share/git-core"),
    *("/usr/include", "/usr/share/perl", "/usr/share/perl5", "/etc/alternatives", "/usr/lib/rustlib"),
)


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that can run the programs of a jail."""

    path: str
    folders: tuple[str, ...] = ()
    """To be searched for modules besides its own, where it is not the one that runs graftline."""

    def command(self, module: str) -> list[str]:
        """Return the command that runs the `main` of a module, away from the settings of the user."""
        return self.command_line(f"from {module} import main; main()")

    def command_line(self, code: str) -> list[str]:
        """Return the command that runs `code`; of the environment only what we put there is read."""
        return [self.path, "-s", "-P", "-c", f"import sys; sys.path[:0] = {[*self.folders]!r}; {code}"]


def interpreter(is_other_user: bool) -> Interpreter:
    """Return the Python that runs graftline, or for another user one of the same version that everybody may read.

    SandboxError if there is none.
    """
    own = str(_LINKS if _LINKS.is_dir() else _PACKAGE.parent)
    if not is_other_user or _is_open(os.path.realpath(sys.executable)):
        return Interpreter(sys.executable, (own,) if _IS_CHECKOUT else ())
    packages = [sysconfig.get_path("purelib"), own]
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for folder in ("/usr/local/bin", "/usr/bin"):
        path = f"{folder}/{name}"
        if Path(path).exists() and all(_is_open(package) for package in packages):
            return Interpreter(path, tuple(packages))
    raise SandboxError(
        f"the interpreter {os.path.realpath(sys.executable)} is in a folder that only its owner may enter, and there is no"
        f" other {name}; install graftline with an interpreter that everybody may read, /usr/bin/{name} for example"
    )


def _is_open(path: str) -> bool:
    above = Path(path).parents
    return bool(Path(path).stat().st_mode & stat.S_IROTH) and all(
        folder.stat().st_mode & stat.S_IXOTH for folder in above
    )


@dataclass(frozen=True, slots=True)
class Visible:
    """Paths that are the same inside and outside."""

    programs: dict[str, str]
    """Path of every program that may be started, by its name."""
    paths: tuple[str, ...]
    """Files and folders to be seen, none below another one."""
    links: dict[str, str]
    """Symbolic links, by their path."""
    runnable: tuple[str, ...]
    """Files and folders that hold what may be run."""
    search: tuple[str, ...] = ()
    """Folders of programs, for `PATH`, after that of the interpreter."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that programs need."""


def visible(programs: Sequence[Program], python: Interpreter) -> Visible:
    """Return what the programs need of this machine; one that is not there is left out."""
    real = os.path.realpath(python.path)
    available: dict[str, str] = {}
    links: dict[str, str] = {}
    own = {real, *_library_of(real)}
    paths = {*own, *_folders_of(python), *filter(os.path.exists, _DATA)}
    runnable = {*own}
    search: list[str] = []
    environment: dict[str, str] = {}
    for name in programs:
        if path := _program(name, python):
            available[name] = path
            home = _home(name, path)
            paths |= {home, *(_outside(home) if name == "java" else ())}
            runnable.add(home)
        if path and name == "cargo":
            search.append(os.path.dirname(path))  # noqa: PTH120
            environment, read = _of_cargo()
            paths |= read
    if available.keys() & {"shell", "cargo"}:
        search += _SYSTEM
        system = {os.path.realpath(folder) for folder in (*_SYSTEM, *_OF_THE_SYSTEM) if Path(folder).is_dir()}
        paths |= system
        runnable |= system
    if "shell" in available and (scripts := _scripts_of(python)):
        paths.add(scripts)
        runnable.add(scripts)
    for folder in (*_LIBRARIES, *(_SYSTEM if search else ()), f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}"):
        target = os.path.realpath(folder)
        if target != folder and Path(target).is_dir():
            links[folder] = str(Path(folder).readlink())
        if Path(target).is_dir() and target not in ("/lib", "/usr/lib"):  # these hold everything else as well
            paths.add(target)
            runnable.add(target)
    for alias in ("python", "python3"):
        links |= _links_to(str(Path(python.path).with_name(alias)))
    links = {
        path: target for path, target in links.items() if not any(str(above) in paths for above in Path(path).parents)
    }
    return Visible(available, tuple(_topmost(paths)), links, tuple(_topmost(runnable)), tuple(search), environment)


def _library_of(real: str) -> list[str]:
    """Return the library in which an interpreter is, if it is one outside of the system's folders.

    Without it, the loader takes one of the system that has the same name, and modules of the interpreter do not fit to it.
    """
    if real != os.path.realpath(sys.executable) or not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        return []
    library = Path(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME"))
    return [str(library)] if library.is_file() else []


def _folders_of(python: Interpreter) -> set[str]:
    """Return where an interpreter finds modules, and where a virtual environment says which one it is of."""
    code = "import json, sys; print(json.dumps([sys.prefix, *sys.path]))"
    command = python.command_line(code)
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S, env={})
        prefix, *folders = json.loads(answer.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise SandboxError(f"the interpreter {python.path} does not say where its modules are ({error})") from error
    settings = str(Path(prefix, "pyvenv.cfg"))
    paths = {os.path.realpath(folder) for folder in (settings, *folders) if folder and Path(folder).exists()}
    # beside the package of a checkout lie data, secrets and whatever else
    return {str(_PACKAGE), *(paths - ({str(_PACKAGE.parent)} if _IS_CHECKOUT else set()))}


def _scripts_of(python: Interpreter) -> str:
    """Return the folder of a virtual environment that has its programs, such as pytest; empty where it is none.

    They run what the interpreter may import anyway. That of another interpreter is the system's, or has everything.
    """
    folder = str(Path(python.path).parent)
    is_virtual = python.path == sys.executable and sys.prefix != sys.base_prefix
    return folder if is_virtual and os.path.realpath(folder) == folder else ""


def _program(name: Program, python: Interpreter) -> str | None:
    match name:
        case "python" | "calls":
            return python.path
        case "pytest":
            return python.path if find_spec("pytest") else None
        case "ast-grep":
            with suppress(ConfigError):
                return os.path.realpath(executable())
            return None
        case "node" | "java":
            path = shutil.which(name)
            return os.path.realpath(path) if path else None
        case "shell":
            return next((path for path in ("/bin/bash", "/usr/bin/bash", "/bin/sh") if Path(path).exists()), None)
        case "cargo":
            return _cargo()


def _cargo() -> str | None:
    """Return the cargo of the toolchain itself: the one of rustup chooses between several, and writes settings."""
    compiler = shutil.which("rustc")
    if compiler is None:
        return None
    answer = subprocess.run(
        [compiler, "--print", "sysroot"], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
    )
    path = Path(answer.stdout.strip() or "/nonexistent", "bin", "cargo")
    return str(path) if path.exists() else shutil.which("cargo")


def _of_cargo() -> tuple[dict[str, str], set[str]]:
    """Return the variables of cargo, and what it may read of its home: packages, and nothing that is secret."""
    home = os.path.realpath(os.environ.get("CARGO_HOME") or Path("~/.cargo").expanduser())
    packages = {str(folder) for name in ("registry", "git") if (folder := Path(home, name)).is_dir()}
    return {"CARGO_HOME": home, "CARGO_NET_OFFLINE": "true"}, packages


def _home(name: Program, path: str) -> str:
    """Return the file or folder that holds all of a program."""
    home = str(Path(path).parents[1])
    # a toolchain of the distribution lies among everything else
    has_its_own = name == "java" or (name == "cargo" and home not in ("/", "/usr", "/usr/local"))
    return home if has_its_own else os.path.realpath(path)


def _outside(home: str) -> set[str]:
    """Return where links below a folder lead to: distributions keep settings of their programs elsewhere."""
    links = (Path(folder, name) for folder, folders, files in os.walk(home) for name in (*folders, *files))
    return {os.path.realpath(link) for link in links if link.is_symlink() and link.exists()}


def _links_to(path: str) -> dict[str, str]:
    """Return the symbolic links that lead from `path` to a file."""
    links = {}
    while Path(path).is_symlink():
        links[path] = str(Path(path).readlink())
        path = str(Path(path).parent / links[path])
    return links


def _topmost(paths: Collection[str]) -> list[str]:
    return [path for path in sorted(paths) if not any(str(above) in paths for above in Path(path).parents)]
