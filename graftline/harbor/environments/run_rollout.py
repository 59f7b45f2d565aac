"""The refactoring environment as the entrypoint of a deployment: one rollout, from a request to its result.

    python -m graftline.harbor.environments.run_rollout --input /tmp/rollout.json --output /tmp/result.json
    python -m graftline.harbor.environments.run_rollout --stdio < rollout.json > result.json

Tasks are in `tasks.jsonl` of the working folder, what seeds stand for in `manifest.json` beside it, where there is one. The box
is the jail, so that the sandbox is the one of this process; models cannot be reached from there, so none is open.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from graftline.core.errors import DataError, GraftlineError
from graftline.harbor.contract import RolloutRequest, RolloutResponse
from graftline.harbor.environments.manifest import SeedManifest, load_tasks
from graftline.harbor.environments.refactoring import RefactoringEnvironment
from graftline.harbor.localapi.rollouts import failure_response
from graftline.harbor.refusal import RequestError
from graftline.sandbox.actions.memory import MemorySandbox

MAX_REQUEST_BYTES = 8 << 20
MANIFEST = "manifest.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one rollout; return 0 where the result says how it ended, 1 where nothing was run."""
    options = _parser().parse_args(arguments)
    try:
        raw = sys.stdin.buffer.read(MAX_REQUEST_BYTES + 1) if options.stdio else _read(options.input)
        content = _object(raw)
    except DataError as error:
        return _write(options.output, failure_response("", error), error)
    correlation_id = str(content.get("trace_correlation_id", ""))
    try:
        return _write(options.output, rollout(content, options.tasks))
    except (GraftlineError, RequestError) as error:
        refused = DataError(str(error)) if isinstance(error, RequestError) else error
        return _write(options.output, failure_response(correlation_id, refused), error)


def rollout(content: dict[str, Any], tasks: Path) -> RolloutResponse:
    """Return how the rollout that `found` asks for ended, with the tasks of a file.

    Raises:
        DataError: request, tasks or manifest do not fit.
        RequestError: the request names what there is not.
        BoundaryError: the sandbox cannot answer.
    """
    if "env" not in content and "seed" in content:
        # as the first runners asked
        content = {**content, "env": {"seed": content["seed"]}}
    try:
        request = RolloutRequest.model_validate(content)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        raise DataError(f"request: {'.'.join(map(str, fault['loc']))}: {fault['msg']}; send a RolloutRequest") from None
    manifest = tasks.with_name(MANIFEST)
    environment = RefactoringEnvironment(
        load_tasks(tasks), MemorySandbox(), manifest=SeedManifest.load(manifest) if manifest.is_file() else None
    )
    return environment.run_rollout(request)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="run_rollout", description="One rollout of the refactoring environment.")
    request = parser.add_mutually_exclusive_group(required=True)
    request.add_argument("--input", type=Path, help="the request, JSON")
    request.add_argument("--stdio", action="store_true", help="read the request from standard input")
    parser.add_argument("--output", type=Path, help="where the result goes, JSON; standard output where not given")
    parser.add_argument("--tasks", type=Path, default=Path("tasks.jsonl"), help="the tasks, one line of JSON for each")
    return parser


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_REQUEST_BYTES + 1)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); expected a request") from None


def _object(raw: bytes) -> dict[str, Any]:
    if len(raw) > MAX_REQUEST_BYTES:
        raise DataError(f"request: has more than {MAX_REQUEST_BYTES} bytes")
    try:
        content = from_json(raw, allow_inf_nan=False)
    except ValueError:
        raise DataError("request: is not JSON; send a RolloutRequest") from None
    if not isinstance(content, dict):
        raise DataError("request: is not an object of JSON; send a RolloutRequest")
    return content


def _write(output: Path | None, response: RolloutResponse, error: Exception | None = None) -> int:
    """Leave `response` where it is expected, and say of an `error` what it says."""
    text = json.dumps(response.model_dump(mode="json"), sort_keys=True)
    if output is None:
        sys.stdout.write(text + "\n")
    else:
        partial = output.with_name(f".{output.name}.partial")
        partial.write_text(text, "utf-8")
        partial.replace(output)
    if error is None:
        return 0
    sys.stderr.write(f"{error}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
