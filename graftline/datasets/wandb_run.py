"""One run of wandb, in a process of its own: a request as JSON on standard input, the answer as last line of output.

Nothing about the machine, the user, the code or its repository goes into the run. What is told of datasets is in
`datasets.publishing`, of training in `training.tracking`; both begin their run by `begin_run`, in the environment of
`environment_of`.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

KEY, SERVER = "WANDB_API_KEY", "WANDB_BASE_URL"
_PATIENCE, _PATIENCE_S = "WANDB_INIT_TIMEOUT", 30.0
_PASSED_ON = (SERVER, _PATIENCE)


def main() -> None:
    """Answer the request on standard input: `run` and `digest`, or `error`."""
    request = json.load(sys.stdin)
    try:
        answer = _log(request)
    except Exception as error:  # wandb raises its own errors, those of its clients, and plain ones
        answer = {"error": failure(error)}
    print(f"\n{json.dumps(answer)}")


def environment_of(folder: Path, environment: Mapping[str, str], key: str | None) -> dict[str, str]:
    """Return the environment of a run: it writes below `folder` and not to the home folder, and takes no other setting."""
    settings = {
        name: value for name, value in environment.items() if not name.startswith("WANDB_") or name in _PASSED_ON
    }
    settings |= {"WANDB_CACHE_DIR": str(folder / "cache"), "WANDB_DATA_DIR": str(folder / "data")}
    settings |= {"WANDB_CONFIG_DIR": str(folder / "config"), "WANDB_ERROR_REPORTING": "false"}
    return settings | ({KEY: key} if key else {})


def begin_run(mode: str, folder: str, **about: Any) -> Any:
    """Return a run that writes to `folder`; `about` is what `wandb.init` takes."""
    import wandb

    settings = wandb.Settings(
        mode=mode,
        root_dir=folder,
        console="off",
        silent=True,
        disable_code=True,
        disable_git=True,
        host="graftline",
        init_timeout=float(os.environ.get(_PATIENCE, _PATIENCE_S)),
        x_disable_meta=True,
        x_disable_machine_info=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
    return wandb.init(settings=settings, **about)


def failure(error: Exception) -> str:
    """Return the first line of what went wrong."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0].rstrip('.')}"


def _log(request: dict[str, Any]) -> dict[str, str]:
    import wandb

    is_online = request["mode"] == "online"
    run = begin_run(
        request["mode"],
        request["folder"],
        project=request["project"],
        entity=request["entity"],
        job_type="datasets",
        tags=sorted(request["identities"].values()),
        config={"identities": request["identities"]},
    )
    artifact = wandb.Artifact(request["artifact"], type="dataset", metadata={"identities": request["identities"]})
    for name, path in request["files"].items():
        # as it lies there: `wandb sync` reads it where it was when it was logged
        artifact.add_file(path, name, skip_cache=True, policy="immutable")
    logged = run.log_artifact(artifact)
    if is_online:
        logged.wait()
    place = run.url if is_online else run.dir.removesuffix("/files")
    run.finish()
    return {"run": place or run.id, "digest": artifact.digest}


if __name__ == "__main__":
    main()
