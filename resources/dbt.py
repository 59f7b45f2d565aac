"""The dbt project of the reports, and the resource that runs it: the door to dagster-dbt.

`python -m resources.dbt` writes the manifest that the definitions are made from; the Makefile calls it, so that
loading the definitions never parses the project. dbt itself takes seconds to import, and runs in a process of its own.
https://docs.dagster.io/integrations/libraries/dbt
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

from packaging.version import Version


@contextmanager
def _hidden(module: str) -> Iterator[None]:
    """Let an import of `module` fail as if it were not installed."""
    before = sys.modules.get(module)
    sys.modules[module] = None  # type: ignore[assignment]  # https://docs.python.org/3/library/sys.html#sys.modules
    try:
        yield
    finally:
        del sys.modules[module]
        if before is not None:
            sys.modules[module] = before


# without dbt-core, as beside dbt Fusion, it reads the manifest by itself
with _hidden("dbt.version"):
    from dagster_dbt import DagsterDbtTranslator as DagsterDbtTranslator
    from dagster_dbt import DagsterDbtTranslatorSettings as DagsterDbtTranslatorSettings
    from dagster_dbt import DbtCliResource
    from dagster_dbt import DbtProject as DbtProject
    from dagster_dbt import dbt_assets as dbt_assets

PROJECT = DbtProject(Path(__file__).resolve().parents[1] / "assets" / "reports")


class Dbt(DbtCliResource):
    """dbt on the report project."""

    @cached_property
    def _cli_version(self) -> Version:
        # the parent starts `dbt --version`, which takes seconds and asks the package index for news
        return Version(version("dbt-core"))

    def _initialize_dbt_core_adapter(self, args: Sequence[str]) -> Any:
        """Return none: the parent loads dbt into this process to ask for columns, which the warehouse tells us."""


def open_dbt() -> Dbt:
    """Return the dbt that is installed beside this interpreter."""
    return Dbt(project_dir=PROJECT, dbt_executable=str(Path(sys.executable).with_name("dbt")))


if __name__ == "__main__":
    open_dbt().cli(["parse", "--quiet"], target_path=PROJECT.project_dir / "target").wait()
