"""One run of wandb, in a process of its own: a request as JSON on standard input, the answer as last line of output.

Nothing about the machine, the user, the code or its repository goes into the run. What is told, and the environment
this wants, is in `datasets.publishing`.
"""

import json
import sys
from typing import Any


def main() -> None:
    """Answer the request on standard input: `run` and `digest`, or `error`."""
    request = json.load(sys.stdin)
    try:
        answer = _log(request)
    except Exception as error:  # wandb raises its own errors, those of its clients, and plain ones
        answer = {"error": f"{type(error).__name__}: {str(error).partition(chr(10))[0].rstrip('.')}"}
    print(f"\n{json.dumps(answer)}")


def _log(request: dict[str, Any]) -> dict[str, str]:
    import wandb

    is_online = request["mode"] == "online"
    settings = wandb.Settings(
        mode=request["mode"],
        root_dir=request["folder"],
        console="off",
        silent=True,
        disable_code=True,
        disable_git=True,
        host="graftline",
        init_timeout=30,
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
    run = wandb.init(
        project=request["project"],
        entity=request["entity"],
        job_type="datasets",
        tags=sorted(request["identities"].values()),
        config={"identities": request["identities"]},
        settings=settings,
    )
    artifact = wandb.Artifact(request["artifact"], type="dataset", metadata={"identities": request["identities"]})
    for name, path in request["files"].items():
        # as it lies there: `wandb sync` reads it where it was when it was logged
        artifact.add_file(path, name, skip_cache=True, policy="immutable")
    logged = run.log_artifact(artifact)
    if is_online:
        logged.wait()
    where = run.url if is_online else run.dir.removesuffix("/files")
    run.finish()
    return {"run": where or run.id, "digest": artifact.digest}


if __name__ == "__main__":
    main()
