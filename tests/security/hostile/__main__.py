"""`python -m tests.security.hostile [NAME]...`: the hostile suite against every jail and sandbox that is here.

Ends with 1 if a case got out of one that has to contain it, or could not be tried.
"""

import sys
from collections import Counter

from graftline.cli.options import print_table
from graftline.core.errors import ConfigError
from graftline.core.progress import progress_bars
from tests.security.hostile.judging import Outcome
from tests.security.hostile.suite import all_jails, all_sandboxes, has_failed, run_suite, summary, table


def main(names: list[str]) -> int:
    """Run the cases called `names`, or of groups called so, and print a table; return the exit code."""
    counts: Counter[str] = Counter()
    with progress_bars() as bars:

        def show(outcome: Outcome) -> None:
            if not counts[outcome.backend]:
                bars.start("hostile", outcome.backend)
            counts[outcome.backend] += 1
            bars.advance(counts[outcome.backend], 0)

        try:
            outcomes = run_suite(all_jails(), all_sandboxes(), names, show)
        except ConfigError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    columns, rows = table(outcomes)
    print_table("Hostile suite", columns, [tuple(row) for row in rows])
    for outcome in outcomes:
        if outcome.status in ("escaped", "not run"):
            print(f"{outcome.backend}: {outcome.case}: {outcome.detail}", file=sys.stderr)
    print(summary(outcomes))
    return int(has_failed(outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
