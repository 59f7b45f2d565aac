"""A training run in wandb, in a process of its own: lines of JSON on standard input, the answer as last line of output.

The first line begins the run, those after it are steps, a summary, and how it ended. If that last one does not come, who
trained was killed. What begins the run, and what it keeps to itself, is in `datasets.wandb_run`.
"""

import json
import sys
from collections.abc import Iterable
from typing import Any

from graftline.datasets.wandb_run import begin_run, failure


def main() -> None:
    """Answer with `run`, or `error`."""
    try:
        answer = _follow(json.loads(line) for line in sys.stdin)
    except Exception as error:  # wandb raises its own errors, those of its clients, and plain ones
        answer = {"error": failure(error)}
    print(f"\n{json.dumps(answer)}")


def _follow(messages: Iterable[dict[str, Any]]) -> dict[str, str]:
    messages = iter(messages)
    first = next(messages)
    is_online = first["mode"] == "online"
    # a run on disk cannot be gone on with: each attempt is one, and `wandb sync` puts them together
    resume = {"resume": "allow"} if is_online else {}
    run = begin_run(first["mode"], first["folder"], **first["about"], job_type="training", **resume)
    next_step, exit_code = run.step, 1
    for line in messages:
        # W&B takes no step twice, and one that is taken again comes out the same
        if "step" in line and line["step"] >= next_step:
            run.log(line["metrics"], step=line["step"])
        run.summary.update(line.get("summary", {}))
        if "is_whole" in line:
            exit_code = 0 if line["is_whole"] else 1
            break
    location = run.url if is_online else run.dir.removesuffix("/files")
    run.finish(exit_code=exit_code)
    return {"run": location or run.id}


if __name__ == "__main__":
    main()
