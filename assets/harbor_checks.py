"""The checks of `deployment_evaluation` and `evaluation`. Not here: what is asked (`graftline.pipeline.evaluation_checks`).

https://docs.dagster.io/guides/test/asset-checks
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import dagster as dg

from assets.checks import evaluate_check, sentence
from assets.harbor import DEPLOYMENT_EVALUATION, EVALUATION
from graftline.core.markdown import table
from graftline.pipeline import evaluation_checks as checks
from graftline.pipeline.deployed_adapter import Standing, adapter_not_worse_than_deployed
from graftline.pipeline.lineage import Lineage
from resources.artifacts import Artifacts


def harbor_checks() -> list[dg.AssetChecksDefinition]:
    """Return the checks over all evaluations that are stored."""
    of_deployments = (checks.coverage, checks.mean_reward, checks.cost, checks.calibration)
    return [*map(_check, of_deployments), _check_of_adapters()]


def _check(find: Callable[[Lineage], list[checks.Finding]]) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=DEPLOYMENT_EVALUATION, name=find.__name__, blocking=True, description=_describe_check(find))
    def check(context: dg.AssetCheckExecutionContext, artifacts: Artifacts) -> dg.AssetCheckResult:
        return evaluate_check(context, lambda: _result(find.__name__, find(artifacts.stages({}))))

    return check


def _describe_check(find: Callable[..., Any]) -> str:
    """Return what a check looks at, for the UI: what is written of the function that looks, without its `Return`."""
    description = (find.__doc__ or "").removeprefix("Return ")
    return description[:1].upper() + description[1:]


def _result(check: str, findings: Sequence[checks.Finding]) -> dg.AssetCheckResult:
    passed = checks.all_right(findings)
    faults = [
        f"evaluation {finding.name!r}: {check} is {finding.found}, but {finding.wanted} is asked for"
        for finding in findings
        if not finding.is_right
    ] or ["no evaluation is stored"]
    values = {finding.name: finding.value for finding in findings if finding.value is not None}
    return dg.AssetCheckResult(
        passed=passed,
        description=None if passed else sentence(faults, "materialize deployment_evaluation again, or change its file"),
        metadata={"findings": dg.MetadataValue.md(table([asdict(finding) for finding in findings])), **values},
    )


def _check_of_adapters() -> dg.AssetChecksDefinition:
    find = adapter_not_worse_than_deployed

    @dg.asset_check(asset=EVALUATION, name=find.__name__, blocking=True, description=_describe_check(find))
    def check(context: dg.AssetCheckExecutionContext, artifacts: Artifacts) -> dg.AssetCheckResult:
        return evaluate_check(context, lambda: _result_of_standings(find(artifacts.stages({}))))

    return check


def _result_of_standings(standings: Sequence[Standing]) -> dg.AssetCheckResult:
    has_failed = any(standing.outcome == "failed" for standing in standings)
    faults = [
        f"evaluation {standing.name!r}: {standing.candidate} {standing.outcome} beside {standing.deployed}: {standing.found}"
        for standing in standings
        if standing.outcome == ("failed" if has_failed else "warned")
    ]
    values = {
        f"difference.{standing.name}": standing.difference for standing in standings if standing.difference is not None
    }
    return dg.AssetCheckResult(
        passed=not faults,
        description=sentence(faults, "deploy another adapter, or evaluate more tasks") if faults else None,
        # what is not known holds up nobody, and is said
        severity=dg.AssetCheckSeverity.ERROR if has_failed else dg.AssetCheckSeverity.WARN,
        metadata={"standings": dg.MetadataValue.md(table([asdict(standing) for standing in standings])), **values},
    )
