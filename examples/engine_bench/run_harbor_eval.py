#!/usr/bin/env python3
"""Run EngineBench eval via Harbor with a URL made by hand. The old way, which keeps working.

Usage:
    python examples/engine_bench/run_harbor_eval.py --deployment-id <id> --seeds 5

`run_harbor_eval_simple.py` does the same by the unified task app interface.
"""

import argparse
import os

from results import print_result

from graftline.harbor import EvalJob, EvalJobConfig


def main() -> None:
    """Submit the job, and wait for it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--deployment-id", required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--model", default="gpt-4o-mini")
    parser.add_argument("--backend-url", default=os.environ.get("GRAFTLINE_HARBOR_URL", "http://127.0.0.1:8020"))
    args = parser.parse_args()

    api_key = os.environ.get("GRAFTLINE_HARBOR_KEY") or os.environ.get("SYNTH_API_KEY")
    if not api_key:
        raise ValueError("GRAFTLINE_HARBOR_KEY not set")

    eval_config = EvalJobConfig(
        task_app_url=f"{args.backend_url}/api/harbor/deployments/{args.deployment_id}",
        backend_url=args.backend_url,
        api_key=api_key,
        task_app_api_key=api_key,
        app_id="engine-bench",
        env_name="enginebench",
        seeds=list(range(args.seeds)),
        policy_config={"model": args.model, "provider": "openai"},
    )

    job = EvalJob(eval_config)
    job.submit()
    result = job.poll_until_complete(progress=True)
    print_result(result)


if __name__ == "__main__":
    main()
