"""The deployments that are configured below `configs/harbor/`, found by file, by name of the file, or by their own name."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graftline.core.errors import ConfigError
from graftline.harbor.deployment_file import DeploymentFile, deployment_spec, load_deployment

if TYPE_CHECKING:
    from graftline.harbor.build_spec import HarborBuildSpec

FOLDER = Path("configs/harbor")
_SUFFIX = ".yaml"


@dataclass(frozen=True, slots=True)
class ConfiguredDeployment:
    """One file, and what it says."""

    path: Path
    root: Path
    file: DeploymentFile

    @property
    def calibration_path(self) -> Path:
        """Where its floor and ceiling are kept."""
        return self.root / self.file.calibration_path

    def spec(self, staging: Path, name: str | None = None) -> "HarborBuildSpec":
        """Return the deployment, its contexts written below `staging`; `name` takes the place of its own.

        Raises:
            ConfigError, DataError: as `deployment_spec`; also where the spec is refused.
        """
        file = self.file if name is None else self.file.model_copy(update={"name": name})
        try:
            return deployment_spec(file, self.root, staging)
        except ValueError as error:
            raise ConfigError(f"{self.path}: {error}") from None


def configured(root: Path) -> list[str]:
    """Return the names of the files, in order."""
    return sorted(path.stem for path in (root / FOLDER).glob(f"*{_SUFFIX}"))


def configured_deployment(given: str, root: Path) -> ConfiguredDeployment:
    """Return the deployment of a file, or of a name.

    Raises:
        ConfigError: there is none, or its file does not fit.
    """
    if given.endswith((_SUFFIX, ".yml")):
        path = Path(given) if Path(given).exists() else root / given
        return ConfiguredDeployment(path, root, load_deployment(path))
    known = configured(root)
    if given in known:
        path = root / FOLDER / f"{given}{_SUFFIX}"
        return ConfiguredDeployment(path, root, load_deployment(path))
    for name in known:
        path = root / FOLDER / f"{name}{_SUFFIX}"
        file = load_deployment(path)
        if file.name == given:
            return ConfiguredDeployment(path, root, file)
    raise ConfigError(
        f"deployment {given!r} is not configured; known: {', '.join(known) or 'none'}; name one of them, or a file that"
        f" ends in {_SUFFIX}"
    )
