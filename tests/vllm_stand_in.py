"""A small server with the command line, the environment and the addresses of `vllm serve`, and no model.

Tests put it where `vllm` is looked for. Arguments that vLLM does not have say what it does wrong.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shlex import quote

METRICS = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 1200.0
# TYPE vllm:generation_tokens counter
vllm:generation_tokens_total{engine="0",model_name="m"} 345.0
"""


def install(folder: Path) -> Path:
    """Make `folder` an environment that holds this program as `bin/vllm`."""
    program = folder / "bin" / "vllm"
    program.parent.mkdir(parents=True)
    program.write_text(
        f'#!/bin/sh\nexec {quote(sys.executable)} -S -E {quote(str(Path(__file__).resolve()))} "$@"\n', "utf-8"
    )
    program.chmod(0o755)
    return folder


class Handler(BaseHTTPRequestHandler):
    answer_s = 0.0
    ready_at = 0.0

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(200 if time.monotonic() >= self.ready_at else 503, "")
        else:
            self._answer(200 if self.path in ("/metrics", "/v1/models") else 404, METRICS)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        print("asked", flush=True)
        time.sleep(self.answer_s)
        self._answer(200, "answered")

    def _answer(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = False  # what is in flight is finished when the server is closed


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--load-s", type=float, default=0.0)
    parser.add_argument("--answer-s", type=float, default=0.0)
    parser.add_argument("--record", type=Path, help="gets the command line and the environment")
    parser.add_argument("--says", default="", help="text for the log, in which {key} is the API key")
    parser.add_argument("--fails", type=int, help="ends at once with this status")
    parser.add_argument("--ignores-sigterm", action="store_true")
    parser.add_argument("--with-child", action="store_true", help="has another process, as vLLM's engine is")
    settings, _ = parser.parse_known_args()
    if settings.record:
        settings.record.write_text(json.dumps({"command": sys.argv[1:], "environment": dict(os.environ)}), "utf-8")
    if settings.says:
        print(settings.says.replace("{key}", os.environ.get("VLLM_API_KEY", "")), flush=True)
    if settings.fails is not None:
        sys.exit(settings.fails)
    if settings.with_child:
        subprocess.Popen(["/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done"])
    Handler.answer_s, Handler.ready_at = settings.answer_s, time.monotonic() + settings.load_s
    # before it listens, by which tests know that it does not end by a signal any more
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    server = Server((settings.host, settings.port), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}).start()
    while signal.sigwait({signal.SIGTERM}) and settings.ignores_sigterm:
        pass
    server.shutdown()
    server.server_close()


if __name__ == "__main__":
    main()
