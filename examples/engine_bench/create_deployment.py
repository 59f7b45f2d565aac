#!/usr/bin/env python3
"""Create a Harbor deployment by hand: a base64 tar.gz and one POST. The old way, which keeps working.

Usage:
    python examples/engine_bench/create_deployment.py --name engine-bench-v0 --agent codex --wait

`upload_harbor_deployment.py` does the same by the SDK, which also looks for secrets and makes the same bytes every time.
"""

import argparse
import base64
import io
import json
import os
import tarfile
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from context import stage

PAUSE_S = 1.0


def packed(folder: Path) -> str:
    """Return a folder as a base64 tar.gz."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(path, path.relative_to(folder).as_posix(), recursive=False)
    return base64.b64encode(archive.getvalue()).decode()


def asked(url: str, api_key: str, body: Any = None) -> Any:
    """Return what the service answers; a body makes it a POST."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as answer:
        return json.load(answer)


def main() -> None:
    """Package, send, and wait where that is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True, help="Deployment name")
    parser.add_argument("--agent", default="codex", choices=["codex", "opencode", "claude_code", "nop", "oracle"])
    parser.add_argument("--backend-url", default=os.environ.get("GRAFTLINE_HARBOR_URL", "http://127.0.0.1:8020"))
    parser.add_argument("--wait", action="store_true", help="Wait for build to complete")
    args = parser.parse_args()

    api_key = os.environ.get("GRAFTLINE_HARBOR_KEY") or os.environ.get("SYNTH_API_KEY")
    if not api_key:
        raise ValueError("GRAFTLINE_HARBOR_KEY not set")

    with tempfile.TemporaryDirectory() as folder:
        staged = stage(Path(folder), args.agent)
        body = {
            "name": args.name,
            "dockerfile": (staged.context / "Dockerfile").read_text(),
            "context_tar_base64": packed(staged.context),
            "entrypoint": staged.entrypoint,
            "entrypoint_mode": "file",
            "limits": {"timeout_s": 600, "cpu_cores": 4, "memory_mb": 8192, "disk_mb": 20480},
            "env_vars": {},
            "metadata": {"agent_type": args.agent, "benchmark": "engine-bench"},
            "tasks": [seed.model_dump() for seed in staged.seeds],
            "verifier": {**staged.verifier.model_dump(), "context_tar_base64": packed(staged.verifier_context)},
        }

    url = f"{args.backend_url}/api/harbor/deployments"
    deployment = asked(url, api_key, body)
    print(f"Deployment ID: {deployment['id']}")
    print(f"Status: {deployment['status']}")
    while args.wait and deployment["status"] in ("pending", "building"):
        time.sleep(PAUSE_S)
        deployment = asked(f"{url}/{deployment['id']}/status", api_key)
        print(f"Status: {deployment['status']}")


if __name__ == "__main__":
    main()
