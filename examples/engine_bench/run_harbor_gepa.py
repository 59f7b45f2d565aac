#!/usr/bin/env python3
"""Run EngineBench GEPA using Harbor via unified task app interface.

Usage:
    # Step 1: Upload deployment (one-time)
    python examples/engine_bench/upload_harbor_deployment.py --name engine-bench-v1

    # Step 2: Create instances for seeds (one-time)
    python examples/engine_bench/create_harbor_instances.py \
        --deployment-id <id> \
        --count 5

    # Step 3: Run GEPA with Harbor backend
    python examples/engine_bench/run_harbor_gepa.py \
        --deployment-id <id> \
        --config enginebench_gepa.toml
"""

import argparse
import os
from pathlib import Path

from localapi_engine_bench import provide_task_instances, provide_taskset_description, run_rollout

from graftline.harbor import (
    HarborDeploymentRef,
    HarborInstanceProvider,
    LocalAPIConfig,
    PromptLearningConfig,
    PromptLearningJob,
    create_task_app_client,
)


def main() -> None:
    """Submit the job, and wait for it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--deployment-id", required=True)
    parser.add_argument("--config", default="enginebench_gepa.toml")
    parser.add_argument("--backend-url", default=os.environ.get("GRAFTLINE_HARBOR_URL", "http://127.0.0.1:8020"))
    args = parser.parse_args()

    api_key = os.environ.get("GRAFTLINE_HARBOR_KEY") or os.environ.get("SYNTH_API_KEY")
    if not api_key:
        raise ValueError("GRAFTLINE_HARBOR_KEY not set")

    # Create Harbor deployment reference
    harbor_ref = HarborDeploymentRef(
        deployment_id=args.deployment_id,
        backend_url=args.backend_url,
        api_key=api_key,
    )

    # Create Harbor instance provider (maps seeds to instance IDs)
    instance_provider = HarborInstanceProvider(
        deployment_ref=harbor_ref,
        # SDK queries backend to get instance IDs for seeds 0..N-1
    )

    # Create unified config with Harbor execution backend
    config = LocalAPIConfig(
        app_id="engine_bench",
        name="EngineBench - Trading Card Implementation",
        description="EngineBench evaluates coding agents on trading card implementations in Rust.",
        provide_taskset_description=provide_taskset_description,
        provide_task_instances=provide_task_instances,
        rollout=run_rollout,  # Still needed for local dev/debugging
        execution_backend="harbor",  # Use Harbor instead of local server
        harbor=harbor_ref,
        instance_provider=instance_provider,
    )

    # Create task app client (uses HarborExecutionBackend internally)
    task_app_client = create_task_app_client(config)
    print(f"Task app: {task_app_client.url}")

    # Load GEPA config
    config_path = Path(__file__).parent / args.config
    gepa_config = PromptLearningConfig.from_toml(config_path)

    # Update gepa_config to use Harbor task app
    gepa_config.task_app_url = None  # Not needed - using unified interface
    gepa_config.task_app_config = config  # Pass config object instead

    # Run GEPA (same as before, but uses HarborExecutionBackend)
    job = PromptLearningJob(config=gepa_config)
    job.submit()
    print(f"Job ID: {job.job_id}")

    result = job.poll_until_complete(progress=True)
    # 0.0 is a mean reward; None is none
    print(f"Mean reward: {result.mean_reward:.4f}" if result.mean_reward is not None else "N/A")
    if result.error:
        print(f"Ended early: {result.error}; job.resume() goes on")
    if result.best_prompt is None:
        raise SystemExit(1)
    print(f"Best prompt: {result.best_prompt['system']}")


if __name__ == "__main__":
    main()
