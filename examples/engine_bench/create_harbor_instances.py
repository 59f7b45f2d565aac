#!/usr/bin/env python3
"""Create Harbor instances for EngineBench seeds.

Usage:
    python examples/engine_bench/create_harbor_instances.py \
        --deployment-id <id> \
        --count 5

There is one seed for each card: the five of this folder, or those of the tasks that were uploaded.
"""

import argparse
import os

from graftline.harbor import create_harbor_instances


def main() -> None:
    """Create the instances, and show the first of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--deployment-id", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--backend-url", default=os.environ.get("GRAFTLINE_HARBOR_URL", "http://127.0.0.1:8020"))
    args = parser.parse_args()

    api_key = os.environ.get("GRAFTLINE_HARBOR_KEY") or os.environ.get("SYNTH_API_KEY")
    if not api_key:
        raise ValueError("GRAFTLINE_HARBOR_KEY not set")

    print(f"Creating {args.count} instances for deployment {args.deployment_id}...")
    instances = create_harbor_instances(
        deployment_id=args.deployment_id,
        count=args.count,
        backend_url=args.backend_url,
        api_key=api_key,
    )

    print(f"✅ Created {len(instances)} instances:")
    for instance in instances[:10]:  # Show first 10
        print(f"   Seed {instance.seed}: {instance.id} ({instance.status})")
    if len(instances) > 10:
        print(f"   ... and {len(instances) - 10} more")


if __name__ == "__main__":
    main()
