"""From what the library says of stored artifacts to the results of asset checks.

A check that does not pass says why in a sentence: the UI shows it as the description of the result, the terminal in the
log of the run. Not here: what has to hold (`graftline.pipeline.checks`, `graftline.pipeline.evaluation_checks`).
https://docs.dagster.io/guides/test/asset-checks
"""

from collections.abc import Callable, Sequence

import dagster as dg

from assets.outcome import readable_failure
from graftline.core.markdown import plain_table


def evaluate_check(
    context: dg.AssetCheckExecutionContext, evaluate: Callable[[], dg.AssetCheckResult]
) -> dg.AssetCheckResult:
    """Return the result of `evaluate`; where it cannot be had, the check has failed, for the reason an asset would."""
    try:
        with readable_failure():
            result = evaluate()
    except dg.Failure as failure:
        # a check that raises is shown as "Execution failed", without its cause
        result = dg.AssetCheckResult(passed=False, description=failure.description)
    if not result.passed:
        is_error = result.severity == dg.AssetCheckSeverity.ERROR
        (context.log.error if is_error else context.log.warning)(result.description)
    return result


def result_of_faults(faults: Sequence[str], remedy: str, name: str = "faults") -> dg.AssetCheckResult:
    """Return the result of a check that passes without faults; `remedy` says what to do about them."""
    return dg.AssetCheckResult(
        passed=not faults,
        description=sentence(faults, remedy) if faults else None,
        metadata={name: dg.MetadataValue.md(plain_table([{name: fault} for fault in faults]))},
    )


def sentence(faults: Sequence[str], remedy: str) -> str:
    """Return the first of some faults, how many more there are, and what to do.

    line 3: id: Field required (and 2 more); materialize splits again
    """
    suffix = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{faults[0]}{suffix}; {remedy}"
