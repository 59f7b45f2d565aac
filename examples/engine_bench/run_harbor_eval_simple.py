#!/usr/bin/env python3
"""Run EngineBench eval via Harbor using unified task app interface.

Usage:
    python examples/engine_bench/run_harbor_eval_simple.py \
        --deployment-id <id> \
        --seeds 5
"""

import argparse
import os

from localapi_engine_bench import provide_task_instances, run_rollout
from results import print_result

from graftline.harbor import EvalJob, EvalJobConfig, HarborDeploymentRef, HarborInstanceProvider, LocalAPIConfig


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

    # Create Harbor config
    harbor_ref = HarborDeploymentRef(
        deployment_id=args.deployment_id,
        backend_url=args.backend_url,
        api_key=api_key,
    )

    instance_provider = HarborInstanceProvider(deployment_ref=harbor_ref)

    # Create unified config
    config = LocalAPIConfig(
        app_id="engine_bench",
        rollout=run_rollout,
        provide_task_instances=provide_task_instances,
        execution_backend="harbor",
        harbor=harbor_ref,
        instance_provider=instance_provider,
    )

    # Create task app client (uses HarborExecutionBackend)
    # This returns a URL-like object that EvalJob can use
    task_app_url = config.get_task_app_url()  # Returns Harbor endpoint URL

    # Create eval job (same as before)
    eval_config = EvalJobConfig(
        task_app_url=task_app_url,
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
