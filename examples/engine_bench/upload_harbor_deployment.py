#!/usr/bin/env python3
"""Upload EngineBench deployment to Harbor using HarborBuildSpec.

Usage:
    python examples/engine_bench/upload_harbor_deployment.py \
        --name engine-bench-v1 \
        --agent codex
"""

import argparse
import os
import tempfile
from pathlib import Path

from context import stage

from graftline.harbor import HarborBuildSpec, upload_harbor_deployment
from graftline.harbor.build_spec import HarborVerifier, TaskSeed


def main() -> None:
    """Stage the contexts, upload them, and say what became of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True, help="Deployment name")
    parser.add_argument("--agent", default="codex", choices=["codex", "opencode", "claude_code", "nop", "oracle"])
    parser.add_argument("--backend-url", default=os.environ.get("GRAFTLINE_HARBOR_URL", "http://127.0.0.1:8020"))
    args = parser.parse_args()

    api_key = os.environ.get("GRAFTLINE_HARBOR_KEY") or os.environ.get("SYNTH_API_KEY")
    if not api_key:
        raise ValueError("GRAFTLINE_HARBOR_KEY not set")

    with tempfile.TemporaryDirectory() as folder:
        staged = stage(Path(folder), args.agent)
        spec = HarborBuildSpec(
            name=args.name,
            dockerfile_path=staged.dockerfile,
            context_dir=staged.context,
            entrypoint=staged.entrypoint,
            entrypoint_mode="file",
            limits={
                "timeout_s": 600,
                "cpu_cores": 4,
                "memory_mb": 8192,
                "disk_mb": 20480,
            },
            metadata={
                "agent_type": args.agent,
                "benchmark": "engine-bench",
                "version": "1.0",
            },
            # which card each seed is, and who grades it: a second box, which the agent never sees
            tasks=[TaskSeed(**seed.model_dump()) for seed in staged.seeds],
            verifier=HarborVerifier(context_dir=staged.verifier_context, **staged.verifier.model_dump()),
        )

        print(f"Uploading deployment '{args.name}'...")
        deployment = upload_harbor_deployment(
            spec=spec,
            backend_url=args.backend_url,
            api_key=api_key,
        )

    print(f"✅ Deployment created: {deployment.id}")
    print(f"   Status: {deployment.status}")
    print(f"   Build ID: {deployment.build_id}")

    if deployment.status == "ready":
        print(f"   Snapshot: {deployment.snapshot_id}")
    else:
        print(f"   Waiting for build... (check status with: graftline env status {deployment.id})")


if __name__ == "__main__":
    main()
