"""Runs jobs one after the other in one process: `python -m orchestration.run_jobs lineage training`.

`dagster job execute` loads the definitions for every run, which takes longer than a run over what is unchanged. A run is over
partitions of one kind, so most jobs are a run for each file of configuration, whose partitions are added: `training` for each recipe
that has data and is not on demand, `closed_loop` for each adapter and evaluation of `configs/closed_loop.yaml` and then for what they
come to, so that what is interrupted goes on at the step it was at. `--partition` names others, recipes on demand among them.

Ends with 1 after the first run that fails, with the cause of each step that failed as the last lines, for Dagster prints them between
tracebacks. Not here: what the jobs are over (`orchestration.jobs`). https://docs.dagster.io/guides/build/jobs
"""

import argparse
import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence

import click
import dagster as dg

from assets.closed_loop import GROUP as CLOSED_LOOP
from assets.closed_loop import JOBS
from assets.partitions import (
    DEPLOYMENTS,
    EVALUATED_DEPLOYMENTS,
    EVALUATIONS,
    RECIPES,
    add_partitions,
    load_partitions,
    range_tags,
    use_instance_of_checkout,
    whole_range,
)
from graftline.core.errors import GraftlineError
from graftline.core.paths import Paths, find_root
from graftline.pipeline.lineage import open_lineage
from graftline.pipeline.manifests import load_manifest
from graftline.pipeline.settings import load_settings
from graftline.pipeline.stages.closed_loop import plan_closed_loop
from orchestration.jobs import deployment_evaluation_job, evaluation_job, harbor_job, lineage_job, training_job

LINEAGE = lineage_job.name
OVER_FILES: Mapping[str, dg.DynamicPartitionsDefinition] = {
    training_job.name: RECIPES,
    harbor_job.name: DEPLOYMENTS,
    deployment_evaluation_job.name: EVALUATED_DEPLOYMENTS,
    evaluation_job.name: EVALUATIONS,
}
"""Jobs that are a run for each file of configuration, with its partitions."""


def plan_runs(paths: Paths, job: str, partitions: Sequence[str]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield job and tags of every run that `job` needs, in their order, and add the partitions that they are over.

    Args:
        paths: Of the checkout.
        job: The name of a job.
        partitions: Those to run; empty stands for all that the configuration asks for.

    Raises:
        GraftlineError: there is no such partition, or a configuration file does not fit.
    """
    if job == LINEAGE:
        yield LINEAGE, range_tags(*whole_range(load_settings(paths).catalog))
    elif job == CLOSED_LOOP:
        manifest = load_manifest(paths, os.environ.get("GRAFTLINE_MANIFEST", "local"))
        with open_lineage(paths, manifest, CLOSED_LOOP) as lineage:
            steps = [(JOBS[step.stage], step.name) for step in plan_closed_loop(lineage)]
        for name, partition in steps:
            yield from plan_runs(paths, name, [partition])
        yield CLOSED_LOOP, {}
    else:
        definition = OVER_FILES[job]
        names = partitions or dict(load_partitions(paths))[definition]
        add_partitions(paths, definition, names)
        for name in names:
            yield job, {"dagster/partition": name}


def run_job(job: str, tags: Mapping[str, str]) -> bool:
    """Run a job of the definitions as `dagster job execute` does, and return whether it succeeded."""
    # the command and not what it calls: it says to the instance where the job is from, and ends a run that is interrupted
    from dagster._cli import cli

    arguments = ["job", "execute", "-m", "orchestration.definitions", "-j", job, "--tags", json.dumps(tags)]
    try:
        with warnings.catch_warnings():
            # each run would begin with the name of the command's successor
            warnings.filterwarnings("ignore", "Function `job_execute_command`")
            cli.main(arguments, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return False
    return True


def describe_failures(instance: dg.DagsterInstance) -> Iterator[str]:
    """Yield step and cause of every failure of the last run; nothing where it did not fail."""
    for run in instance.get_runs(limit=1):
        events = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE).records
        for event in (record.event_log_entry.dagster_event for record in events):
            if event is None:
                continue
            failure = event.step_failure_data
            description = failure.user_failure_data.description if failure.user_failure_data else None
            yield f"{event.step_key}: {description or (failure.error.message.strip() if failure.error else 'failed')}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the jobs that the command line names, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m orchestration.run_jobs", description="Runs jobs one after the other."
    )
    parser.add_argument(
        "jobs", nargs="+", choices=[LINEAGE, *OVER_FILES, CLOSED_LOOP], metavar="job", help="%(choices)s"
    )
    parser.add_argument("--partition", action="append", default=[], help="a file of configuration; may be repeated")
    options = parser.parse_args(arguments)
    if options.partition and not {*options.jobs} <= {*OVER_FILES}:
        parser.error(f"--partition: only of {', '.join(OVER_FILES)}")
    use_instance_of_checkout()
    paths = Paths(find_root(dict(os.environ)))
    for name in options.jobs:
        for job, tags in plan_runs(paths, name, options.partition):
            if not run_job(job, tags):
                with dg.DagsterInstance.get() as instance:
                    for line in describe_failures(instance):
                        print(f"error: {line}", file=sys.stderr)
                return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (GraftlineError, dg.DagsterError) as error:
        sys.exit(f"error: {error}")
