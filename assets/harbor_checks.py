"""The checks of `evaluation`. Not here: what is asked (`graftline.runtime.evaluation_checks`).

https://docs.dagster.io/guides/test/asset-checks
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict

import dagster as dg

from assets.harbor import EVALUATION
from assets.outcome import readable_failure
from graftline.markdown import table
from graftline.runtime import evaluation_checks as checks
from graftline.runtime.contest_checks import adapter_not_worse_than_deployed
from graftline.runtime.lineage import Lineage


def harbor_checks(evaluated: Sequence[str], contests: Sequence[str] = ()) -> list[dg.AssetChecksDefinition]:
    """Return the checks over all evaluations that are stored; nothing where none is asked for."""
    asked = (checks.coverage, checks.mean_reward, checks.cost, checks.calibration)
    found = [_check(find) for find in asked] if evaluated else []
    return [*found, _check_of_adapters()] if contests else found


def _check(find: Callable[[Lineage], list[checks.Finding]]) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=EVALUATION, name=find.__name__, blocking=True, description=find.__doc__)
    def check(lineage: dg.ResourceParam[Lineage]) -> dg.AssetCheckResult:
        with readable_failure():
            findings = find(lineage)
        values = {finding.name: finding.value for finding in findings if finding.value is not None}
        return dg.AssetCheckResult(
            passed=checks.all_right(findings),
            metadata={"findings": dg.MetadataValue.md(table([asdict(finding) for finding in findings])), **values},
        )

    return check


def _check_of_adapters() -> dg.AssetChecksDefinition:
    find = adapter_not_worse_than_deployed

    @dg.asset_check(asset=EVALUATION, name=find.__name__, blocking=True, description=find.__doc__)
    def check(lineage: dg.ResourceParam[Lineage]) -> dg.AssetCheckResult:
        with readable_failure():
            standings = find(lineage)
        has_failed = any(standing.outcome == "failed" for standing in standings)
        is_doubtful = any(standing.outcome == "warned" for standing in standings)
        rows = [{**asdict(standing)} for standing in standings]
        values = {f"difference.{one.name}": one.difference for one in standings if one.difference is not None}
        return dg.AssetCheckResult(
            passed=not has_failed and not is_doubtful,
            # what is not known holds up nobody, and is said
            severity=dg.AssetCheckSeverity.ERROR if has_failed else dg.AssetCheckSeverity.WARN,
            metadata={"standings": dg.MetadataValue.md(table(rows)), **values},
        )

    return check
