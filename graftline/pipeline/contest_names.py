"""The names of the files in `configs/evaluations`, for whoever needs no more of them."""

from graftline.core.paths import Paths


def contest_names(paths: Paths) -> list[str]:
    """Return the names of the files, in order."""
    return sorted(path.stem for path in paths.contests.glob("*.yaml"))
