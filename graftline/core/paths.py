"""Where things lie under one root folder, and which relative paths are accepted from outside."""

import os
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from graftline.core.errors import ConfigError, DataError

_RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$) *(\..*)?")
_RESERVED_CHARACTERS = re.compile(r'[\x00-\x1f\x7f<>"|?*\ud800-\udfff]')
# controls, formats (directions and joiners among them), ends of lines and of paragraphs: two names that differ in them
# look the same, and some systems take them for one (CVE-2014-9390, CVE-2021-42574)
_INVISIBLE = frozenset(("Cc", "Cf", "Zl", "Zp"))


@dataclass(frozen=True)
class Paths:
    """The folders of one installation; nothing is created before something is written."""

    root: Path

    @property
    def configs(self) -> Path:
        return self.root / "configs"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def reports(self) -> Path:
        return self.root / "reports"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def warehouse(self) -> Path:
        """The DuckDB file the report models are built in."""
        return self.data / "warehouse" / "graftline.duckdb"

    def raw(self, dataset: str) -> Path:
        """The untouched files of a dataset."""
        return self.data / "raw" / dataset / "source"

    def normalized(self, dataset: str) -> Path:
        """The edits of a dataset."""
        return self.data / "raw" / dataset / "normalized"

    @property
    def division(self) -> Path:
        """Which split every edit is in."""
        return self.data / "division"

    @property
    def repository_changes(self) -> Path:
        """Changes that span a repository."""
        return self.data / "repository_changes"

    @property
    def label_tasks(self) -> Path:
        """Tasks without gold, made of labels."""
        return self.data / "label_tasks"

    @property
    def benchmarks(self) -> Path:
        """Benchmark files that a user put there, to keep edits away from."""
        return self.configs / "evals"

    def partition(self, stage: str, language: str, split: str) -> Path:
        """The artifact of `stage` for one language and split."""
        return self.data / stage / language / split

    def attempts(self, language: str, split: str, teacher: str) -> Path:
        """The artifact of the attempts of one teacher at the tasks of one language and split."""
        return self.partition("trajectories/raw", language, split) / file_name(teacher)

    def training_set(self, recipe: str) -> Path:
        """What a recipe of `configs/recipes` trains on."""
        return self.data / "training" / file_name(recipe)

    def adapter(self, recipe: str) -> Path:
        """The adapter that a recipe of `configs/recipes` ends with."""
        return self.adapters / file_name(recipe)

    @property
    def adapters(self) -> Path:
        """Adapters by recipe, beside the records of runs in `tinker`."""
        return self.root / "models" / "adapters"

    @property
    def deployed_adapter(self) -> Path:
        """The record of the adapter that is deployed."""
        return self.root / "models" / "deployed"

    def harbor(self, kind: str, deployment: str) -> Path:
        """The `deployments`, `instances` or `evaluations` of a file of `configs/harbor`."""
        return self.data / "harbor" / kind / file_name(deployment)

    @property
    def evaluation_configs(self) -> Path:
        """The files that say which solvers are evaluated."""
        return self.configs / "evaluations"

    def evaluation(self, name: str) -> Path:
        """The evaluation of a file of `configs/evaluations`."""
        return self.data / "evaluations" / file_name(name)

    def prompt(self, name: str) -> Path:
        """The prompt that a file of `configs/prompts` was made into."""
        return self.data / "prompts" / file_name(name)

    def relative(self, path: Path) -> str:
        """Return `path` as it reads from the root, for messages and records."""
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else str(path)


def file_name(name: str) -> str:
    """Return the name of a folder that stands for `name`: `openai/a b` is `openai-a-b`."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") or "-"


def find_root(environment: Mapping[str, str] | None = None, start: Path | None = None) -> Path:
    """Return the folder that `GRAFTLINE_ROOT` names, else the nearest one upwards with a `configs/manifests`.

    Raises:
        ConfigError: there is neither.
    """
    variable = (os.environ if environment is None else environment).get("GRAFTLINE_ROOT")
    if variable:
        root = Path(os.path.expanduser(variable)).resolve()  # noqa: PTH111 - an unknown ~user stays as it is
        if not root.is_dir():
            raise ConfigError(f"GRAFTLINE_ROOT: {variable!r} is not a folder; name the folder that holds configs/")
        return root
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / "configs" / "manifests").is_dir():
            return folder
    raise ConfigError(
        f"{start}: neither this folder nor one above it holds configs/manifests/;"
        " run from a checkout of graftline or set GRAFTLINE_ROOT"
    )


def portable(name: str) -> PurePosixPath:
    """Return `name` as a relative path that means the same on every system.

    Raises:
        DataError: it is absolute, leaves its folder, or uses a name or character some system reserves.
    """
    path = PurePosixPath(name)
    invisible = next((character for character in name[:1024] if unicodedata.category(character) in _INVISIBLE), "")
    faults = [
        (not name or len(name) > 1024, "is empty or longer than 1024 characters"),
        (path.is_absolute() or "\\" in name or ":" in name, "must be relative and use forward slashes"),
        (".." in path.parts or not path.parts, "must stay inside its folder"),
        (_RESERVED_CHARACTERS.search(name), "holds a control character or a reserved one"),
        (invisible, f"holds U+{ord(invisible or ' '):04X}, which is not shown"),
        (any(len(part.encode("utf-8", "replace")) > 255 for part in path.parts), "has a part of more than 255 bytes"),
        (any(_RESERVED.fullmatch(part) or part[-1] in ". " for part in path.parts), "uses a reserved name"),
    ]
    for is_fault, reason in faults:
        if is_fault:
            raise DataError(f"file name {name!r}: {reason}; use a plain relative path such as 'src/a.py'")
    return path
