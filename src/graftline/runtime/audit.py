"""Checks of what is stored: configuration files against their models, artefacts against their records."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from graftline.errors import GraftlineError
from graftline.paths import Paths
from graftline.record import RECORD_NAME, load_record, verified
from graftline.runtime.lineage import load_settings
from graftline.runtime.manifests import MANIFESTS, load_manifest


@dataclass
class Audit:
    """What was looked at, and what is wrong with it."""

    checked: int = 0
    faults: list[str] = field(default_factory=list)


def audit(paths: Paths) -> Audit:
    """Return the faults of every configuration file and every artefact below `paths`."""
    report = Audit()
    checks: list[Callable[[], object]] = [partial(load_settings, paths)]
    checks += [partial(load_manifest, paths, name) for name in MANIFESTS]
    for path in sorted(paths.data.rglob(RECORD_NAME)):
        if not any(part.startswith(".") for part in path.relative_to(paths.data).parts):
            checks.append(partial(_check_artefact, path.parent))
    for check in checks:
        report.checked += 1
        try:
            check()
        except GraftlineError as error:
            report.faults.append(str(error))
    return report


def _check_artefact(folder: Path) -> None:
    verified(folder, load_record(folder).kind)
