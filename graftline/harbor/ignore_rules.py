r"""Which files of a context are packed, and which folders are not even looked into.

Four sets of rules, each by itself; what one of them leaves out is left out, and an exception (`!`) counts within its own:

1. `DENIED` and `DENIED_PATHS`, of secrets and of repositories; no rule takes any of it back.
2. The globs of the spec, as git reads them: `exclude_globs` leave out, at any depth unless they have a slash before their
   end, and only what one of `include_globs` names is packed.
3. `.harborignore` at the top of the context, as git reads a `.gitignore`.
4. `.dockerignore` at the top, as Docker reads it: a pattern begins at the top (`**/` is any depth), `**` may stand anywhere,
   the last pattern that fits counts, and an exception may take back a file of a folder that is left out.

Other than with Docker, `.dockerignore` may leave out itself and the Dockerfile, whose text travels beside the context, and
a `[` that is never closed is refused when the file is read. Other than with git, ignore files in folders below do not count.
"""

import fnmatch
import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graftline.core.errors import ConfigError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

DOCKER_FILE, HARBOR_FILE = ".dockerignore", ".harborignore"
DENIED = (
    ".env", ".env.*", ".envrc", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.p12", "*.pfx",
    "*.jks", "*.keystore", "*.ppk", "*.kdbx", ".aws", ".azure", ".ssh", ".gnupg", ".kube", "kubeconfig", "*.kubeconfig",
    ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".s3cfg", ".boto", ".vault-token", ".dockercfg",
    ".git-credentials", ".git", ".hg", ".svn", "application_default_credentials.json",
)  # fmt: skip
"""Names of files and folders that are left out at any depth and in any case of letters, whatever a spec says."""
DENIED_PATHS = (
    ".docker/config.json",
    ".config/gcloud",
    ".config/gh/hosts.yml",
    ".cargo/credentials",
    ".cargo/credentials.toml",
)
"""The same of names in folders of a name."""
DEFAULT_INCLUDES = ("**/*", "*")
DEFAULT_EXCLUDES = (
    ".git", "__pycache__", "*.pyc", ".env", ".env.*", "*.egg-info", ".venv", "venv", "node_modules", ".pytest_cache",
    ".mypy_cache", ".ruff_cache", "**/target/debug", "**/target/release",
)  # fmt: skip
_DENIED = re.compile("|".join(map(fnmatch.translate, DENIED)))
_DENIED_ENDS = tuple(f"/{path}" for path in DENIED_PATHS)
_MAX_FILE_BYTES, _MAX_PATTERNS, _MAX_PATTERN_CHARACTERS = 1 << 20, 2000, 1024


@dataclass(frozen=True, slots=True)
class _DockerPattern:
    pattern: re.Pattern[str]
    is_exception: bool


class IgnoreRules:
    """The rules of one context. Paths are relative to its top, with forward slashes."""

    def __init__(self, folder: Path, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._include = _git_rules(include, "include_globs")
        self._takes_all = set(include) >= {"*"} and not any(glob.startswith("!") for glob in include)
        self._excludes = [
            _git_rules(exclude, "exclude_globs"),
            _git_rules(_lines(folder / HARBOR_FILE), str(folder / HARBOR_FILE)),
        ]
        self._docker = _docker_rules(folder / DOCKER_FILE)
        self._has_docker_exceptions = any(rule.is_exception for rule in self._docker)

    def is_denied(self, path: str) -> bool:
        """Return whether nothing can have this packed."""
        lower = path.lower()
        return bool(_DENIED.fullmatch(lower.rpartition("/")[2])) or f"/{lower}".endswith(_DENIED_ENDS)

    def is_excluded(self, path: str, is_folder: bool) -> bool:
        """Return whether git's rules leave this out, with all that is below it."""
        name = _as_git(path, is_folder)
        return any(rules.match_file(name) for rules in self._excludes)

    def enters(self, path: str) -> bool:
        """Return whether there may be files to pack in a folder."""
        if self.is_denied(path) or self.is_excluded(path, True):
            return False
        return self._has_docker_exceptions or not self._is_docker_ignored(path)

    def packs(self, path: str, is_folder: bool = False) -> bool:
        """Return whether a file or link is packed, or a folder for itself; of what is in folders that are entered."""
        if self.is_denied(path) or self.is_excluded(path, is_folder) or self._is_docker_ignored(path):
            return False
        return self._takes_all or self._include.match_file(_as_git(path, is_folder))

    def _is_docker_ignored(self, path: str) -> bool:
        fits = (rule for rule in reversed(self._docker) if rule.pattern.fullmatch(path))
        last = next(fits, None)
        return last is not None and not last.is_exception


def _as_git(path: str, is_folder: bool) -> str:
    return f"{path}/" if is_folder else path


def _git_rules(patterns: Iterable[str], source: str) -> "GitIgnoreSpec":
    from pathspec import GitIgnoreSpec

    lines = list(patterns)
    _check_bounds(lines, source)
    try:
        return GitIgnoreSpec.from_lines(lines)
    except (ValueError, re.error) as error:
        raise ConfigError(f"{source}: holds a pattern that git does not take ({error}); mend it") from None


def _docker_rules(file: Path) -> list[_DockerPattern]:
    lines = [line.strip() for line in _lines(file) if not line.startswith("#")]
    _check_bounds(lines, str(file))
    return [_docker_pattern(line, file) for line in lines if line.strip("! \t")]


def _docker_pattern(line: str, file: Path) -> _DockerPattern:
    is_exception = line.startswith("!")
    glob = posixpath.normpath(line.removeprefix("!").strip()).lstrip("/")
    try:
        # below what fits, everything fits
        pattern = re.compile(f"(?:{_docker_regex(glob)})(?:/.*)?", re.DOTALL)
    except re.error as error:
        raise ConfigError(f"{file}: {line!r} is no pattern ({error}); mend it") from None
    return _DockerPattern(pattern, is_exception)


def _docker_regex(pattern: str) -> str:
    """Return a glob of Docker's as a regular expression: `a/**/b*` as `a/(?:.*/)?b[^/]*`."""
    tokens = re.findall(r"\*\*/?|\[\^?\]?[^\]]*\]|\\.|.", re.sub(r"(\*\*/)+", "**/", pattern), re.DOTALL)
    is_deep = bool(tokens) and tokens[-1].startswith("**")
    return "".join(map(_docker_token, tokens[:-1] if is_deep else tokens)) + (".*" if is_deep else "")


def _docker_token(token: str) -> str:
    plain = {"**/": "(?:.*/)?", "**": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    if token in plain:
        return plain[token]
    if token[0] == "[":
        if len(token) == 1:
            raise re.error("a [ is not closed")
        inner = token[1:-1]
        negation = "^" if inner.startswith("^") else ""
        members = re.sub(r"([\[&~|])", r"\\\1", inner.removeprefix("^"))
        return f"[{negation}{members}]"
    return re.escape(token[-1])


def _check_bounds(patterns: Sequence[str], source: str) -> None:
    if len(patterns) > _MAX_PATTERNS or any(len(pattern) > _MAX_PATTERN_CHARACTERS for pattern in patterns):
        raise ConfigError(
            f"{source}: has more than {_MAX_PATTERNS} patterns, or one of more than {_MAX_PATTERN_CHARACTERS} characters;"
            " write fewer or shorter ones"
        )


def _lines(file: Path) -> list[str]:
    if not file.is_file():
        return []
    try:
        with file.open("rb") as stream:
            content = stream.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise ConfigError(f"{file}: has more than {_MAX_FILE_BYTES} bytes; expected lines of patterns")
        return content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: is not UTF-8; expected lines of patterns") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read ({error.strerror}); expected lines of patterns") from None
