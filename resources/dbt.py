"""The dbt project of the reports, and the resource that runs it.

`python -m resources.dbt` writes the manifest that the definitions are made from; the Makefile calls it, so that
loading the definitions never parses the project. https://docs.dagster.io/integrations/libraries/dbt
"""

import sys
from functools import cached_property
from importlib.metadata import version
from pathlib import Path

from dagster_dbt import DbtCliResource, DbtProject
from packaging.version import Version

PROJECT = DbtProject(Path(__file__).resolve().parents[1] / "assets" / "reports")


class Dbt(DbtCliResource):
    """dbt on the report project."""

    @cached_property
    def _cli_version(self) -> Version:
        # the parent starts `dbt --version`, which takes seconds and asks the package index for news
        return Version(version("dbt-core"))


def open_dbt() -> Dbt:
    """Return the dbt that is installed beside this interpreter."""
    return Dbt(project_dir=PROJECT, dbt_executable=str(Path(sys.executable).with_name("dbt")))


if __name__ == "__main__":
    open_dbt().cli(["parse", "--quiet"], target_path=PROJECT.project_dir / "target").wait()
