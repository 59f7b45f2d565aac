"""The claims about actors, queue, states and teachers: each part is a benchmark of its own, run one after the other.

* `chat_pool`: requests a second over three actors, also with one killed and one slowed, and what a request costs;
* `job_queue`: jobs a second through Redis, and what killed workers lose;
* `state_store`: merges a second by several processes, and what concurrent ones lose;
* `actor_overhead`: what the loop of a worker adds to the wall time of a model's server;
* `teacher_quality`: tasks that a language model solves in one step, and in three with feedback and examples.

The last two are left out where no actor of the fleet `embedded` is up (`graftline model serve`), or with `--quick`.

    python -m benchmarks.actors [--quick]
"""

import argparse
import json
import sys

from benchmarks.commands import CHECKOUT, said
from benchmarks.machine import machine
from graftline.core.paths import Paths
from graftline.llm.fleet import load_fleet
from graftline.llm.servers.processes import fleet_status

PARTS = ("chat_pool", "job_queue", "state_store")
SERVED = ("actor_overhead", "teacher_quality")
"""Ask a real model."""


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="little of each: shows that it runs, not how well")
    options = ["--quick"] if parser.parse_args().quick else []
    parts = {part: said([sys.executable, "-m", f"benchmarks.{part}", *options]) for part in PARTS}
    if not options and _is_up():
        parts |= {part: said([sys.executable, "-m", f"benchmarks.{part}"]) for part in SERVED}
    figures = {part: made["figures"] for part, made in parts.items()}
    peers = {part: made["peers"] for part, made in parts.items() if made.get("peers")}
    print(json.dumps({"name": "actors", "figures": figures, "peers": peers, "machine": machine()}))


def _is_up() -> bool:
    fleet = load_fleet(CHECKOUT / "configs", "embedded")
    return all(actor.phase == "up" for actor in fleet_status(Paths(CHECKOUT), "embedded", fleet))


if __name__ == "__main__":
    main()
