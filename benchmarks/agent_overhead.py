"""What `graftline refactor` takes beside the model: seconds and memory, and how long it goes on after Ctrl-C.

The repository is that of `benchmarks.follow_speed`. The model is a program here that answers at once, and edits the code that
it is shown as a person would, so that what is measured is the agent: finding places, comparing attempts, rules, the rest
of the repository, the review page. `interrupt_s` is the longest that a run went on after Ctrl-C at four of its moments.

Peer: `graftline follow` with the same edit made by hand, without questions.

    python -m benchmarks.agent_overhead [--files 500,5000]
"""

import json
import os
import re
import sysconfig
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.commands import watched
from benchmarks.follow_speed import EDITS, Edit, interrupt, read_cpu_s, report, show

_INSTRUCTIONS = {
    "getLogger": "Get loggers with logging.get_logger where logging.getLogger is called",
    "isinstance": "Test isinstance for str by the helper is_text",
}
_MOMENTS = (0.1, 0.3, 0.6, 0.9)


class _Server(ThreadingHTTPServer):
    edit: Edit


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer({"object": "list", "data": [{"id": "model", "object": "model"}]})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        code = re.search(r"```\w+\n(.*?)```", request["messages"][-1]["content"], re.DOTALL)
        edit = self.server.edit
        edited = re.sub(edit.pattern, edit.replacement, code[1]) if code else ""
        message = {"role": "assistant", "content": f"```\n{edited}```" if code else "yes"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        self._answer({"id": "1", "object": "chat.completion", "model": "model", "choices": choices, "usage": usage})

    def _answer(self, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serve(edit: Edit) -> Iterator[str]:
    """Run a model that makes `edit` wherever it is shown code; yield its address."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.edit = edit
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def measure(folder: Path, name: str, parts: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what refactoring by an instruction took, and what `graftline follow` took after the edit was made by hand."""
    with serve(EDITS[name]) as url:
        (parts / "configs" / "manifests").mkdir(parents=True)
        actors = f"[{{name: a, url: '{url}'}}]"
        fleets = f"fleets: {{near: {{engine: vllm, model: model, actors: {actors}}}}}\n"
        (parts / "configs" / "vllm_actors.yaml").write_text(fleets)
        command = [sysconfig.get_path("scripts") + "/graftline", "--root", str(parts), "refactor", _INSTRUCTIONS[name]]
        command += [str(folder), "--model", "near", "--json"]
        before, start = read_cpu_s(), time.monotonic()
        proposal, memory_mb = watched(command)
        wall, cpu = time.monotonic() - start, read_cpu_s() - before
        figures = {"wall_s": round(wall, 2), "cpu_s": round(cpu, 2), "memory_mb": memory_mb}
        figures |= {
            "load": round(os.getloadavg()[0], 1),
            "places": sum(group["places"] for group in proposal["groups"]),
        }
        figures |= {"outcome": proposal["outcome"], "questions": proposal["model"]["questions"]}
        figures["interrupt_s"] = round(max(interrupt(command, wall * moment) for moment in _MOMENTS), 2)
    show(folder, EDITS[name])
    return figures, follow(folder, parts)


def follow(folder: Path, parts: Path) -> dict[str, Any]:
    """Return what `graftline follow` takes in the same repository, by an edit made by hand."""
    command = [sysconfig.get_path("scripts") + "/graftline", "follow", str(folder), "--questions", "0", "--json"]
    start = time.monotonic()
    _, memory_mb = watched([*command, "--review", str(parts / "page.html"), "--output", str(parts / "rules.yml")])
    return {"wall_s": round(time.monotonic() - start, 2), "memory_mb": memory_mb}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line of JSON."""
    report("agent_overhead", __doc__, "500,5000", _INSTRUCTIONS, measure, arguments)


if __name__ == "__main__":
    main()
