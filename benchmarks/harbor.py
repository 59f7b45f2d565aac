"""What the Harbor service adds to a rollout, how many it runs, what it survives, what it refuses, and how fast contexts pack.

* `rollouts`: milliseconds of one after the other through the service, executor `local` and an entrypoint that reads its
  request and writes a reward; the same through the executor alone; the difference is what the service costs. And rollouts
  a second of an evaluation with as many at once as there are cores, and twice as many;
* `survival`: queued rollouts, while the service is killed by SIGKILL three times: how many ended, how many were rewarded
  twice, how many attempts were lost with their process;
* `instances`: seconds of one batch, and milliseconds of pages of a long list, on SQLite and on PostgreSQL where its server
  is installed;
* `packaging`: seconds for a context of 50 MB, and whether two processes and two runs give the same bytes;
* `refusals`: hostile archives and requests, and how many were not refused by a 4xx; requests made of the service's own
  document (schemathesis), and what they found.

Peer, in the same run: the entrypoint as a bare process of the same Python, one per core.

    python -m benchmarks.harbor [--quick]
"""

import argparse
import base64
import hashlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from benchmarks.machine import machine
from graftline.core.hashing import sha256_bytes
from graftline.harbor.build_spec import HarborBuildSpec
from graftline.harbor.contract import HarborLimits
from graftline.harbor.executors.base import BuildContext, RolloutSpec
from graftline.harbor.executors.local import LocalExecutor, LocalExecutorConfig
from graftline.harbor.packager import HarborPackager
from graftline.harbor.service.database import Database
from graftline.harbor.service.tables import attempts
from tests.harbor_parts import archive, deployed, deployment, service
from tests.hostile_requests import DEPLOYMENTS, hostile_requests
from tests.killed_service import REWARD, KilledService
from tests.postgres_server import new_database, postgres_programs, postgres_server
from tests.security.test_hostile_archives import HOSTILE

CORES = len(os.sched_getaffinity(0))
_PAGE = 100
_PACK = """
import sys
from pathlib import Path
from graftline.harbor.build_spec import HarborBuildSpec
from graftline.harbor.packager import HarborPackager
print(HarborPackager(HarborBuildSpec(name="packed", dockerfile_path=None, context_dir=sys.argv[1])).package_bytes().digest)
"""


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    singles: int
    rollouts: int
    queued: int
    instances: int
    listed: int
    pages: int
    context_mb: int
    repetitions: int
    examples: int


FULL = Sizes(300, 1500, 1000, 10_000, 100_000, 500, 50, 5, 50)
QUICK = Sizes(5, 20, 30, 100, 300, 5, 1, 1, 2)


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few of everything: shows that it runs, not how fast")
    figures, peers = measure(QUICK if parser.parse_args().quick else FULL)
    print(json.dumps({"name": "harbor", "figures": figures, "peers": peers, "machine": machine()}))


def measure(sizes: Sizes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the figures of the claims, and those of the peer."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures = {
            "rollouts": rollouts(sizes, folder / "rollouts"),
            "survival": survival(sizes, folder / "survival"),
            "instances": {kind: instances(sizes, url) for kind, url in databases(folder / "instances")},
            "packaging": packaging(sizes, folder / "context"),
            "refusals": refusals(sizes, folder / "refusals"),
        }
        return figures, {"bare processes": bare(sizes, folder / "bare")}


def rollouts(sizes: Sizes, folder: Path) -> dict[str, Any]:
    """Measure rollouts of the executor alone, of the service one by one, and of the service many at a time."""
    alone = [seconds for _, seconds in alone_in_the_executor(sizes.singles, folder / "executor")]
    found: dict[str, Any] = {"executor_alone_ms": milliseconds(alone)}
    through: list[float] = []
    for at_once in (CORES, 2 * CORES):
        settings = {"service": {"rollouts_at_once": at_once}}
        with KilledService(folder / f"service-{at_once}", settings) as server:
            known = ready(server.client)
            at = f"{DEPLOYMENTS}/{known}/rollout"
            for number in range(-2 * at_once, sizes.singles if at_once == CORES else 0):
                started = time.perf_counter()
                body = {"trace_correlation_id": f"single-{number}", "env": {"seed": 7}}
                answer = server.client.post(at, json=body).json()
                assert answer["reward_info"]["outcome_reward"] == 0.007
                if number >= 0:
                    through.append(time.perf_counter() - started)
            started = time.perf_counter()
            asked = {"deployment_id": known, "seeds": list(range(sizes.rollouts)), "max_concurrent": at_once}
            done = finished(server.client, server.client.post("/api/eval/jobs", json=asked).json()["job_id"])
            assert done["summary"]["n_valid"] == sizes.rollouts
            found[f"per_s_{at_once}_at_once"] = round(sizes.rollouts / (time.perf_counter() - started), 1)
    found["through_the_service_ms"] = milliseconds(through)
    found["overhead_p50_ms"] = round(1000 * (statistics.median(through) - statistics.median(alone)), 2)
    return found


def alone_in_the_executor(count: int, folder: Path) -> Iterator[tuple[float | None, float]]:
    """Yield the reward and the seconds of rollouts that no service stands before."""
    packed = archive({"run_rollout.py": REWARD})
    executor = LocalExecutor(folder, LocalExecutorConfig())
    try:
        snapshot = executor.build(BuildContext(sha256_bytes(packed), lambda: packed, "")).snapshot_id
        entrypoint = "run_rollout --input /tmp/rollout.json --output /tmp/result.json"
        for number in range(-2, count):
            box = RolloutSpec(f"box-{number}", 1, snapshot, entrypoint, "file", {"seed": 7}, HarborLimits())
            started = time.perf_counter()
            reward = executor.run(box, lambda: False).reward
            if number >= 0:
                yield reward, time.perf_counter() - started
    finally:
        executor.close()


def survival(sizes: Sizes, folder: Path) -> dict[str, Any]:
    """Kill a service three times while it works through a queue."""
    url = f"sqlite:///{folder / 'harbor.sqlite'}"
    chance = random.Random(8)
    kills_after = sorted(chance.sample(range(sizes.queued // 10, sizes.queued * 9 // 10), 3))
    with KilledService(folder, {"service": {"rollouts_at_once": CORES}}, url) as server:
        known = ready(server.client)
        asked = {"deployment_id": known, "seeds": list(range(sizes.queued)), "max_concurrent": CORES}
        job_id = server.client.post("/api/eval/jobs", json=asked).json()["job_id"]
        for count in kills_after:
            while server.client.get(f"/api/eval/jobs/{job_id}").json()["num_completed"] < count:
                time.sleep(0.05)
            server.kill()
            server.start()
        done = finished(server.client, job_id)
        results = server.client.get(f"/api/eval/jobs/{job_id}/results").json()["results"]
    with Database(url) as database, database.reading() as connection:
        rewarded = select(attempts.c.rollout_id).where(attempts.c.reward.is_not(None)).group_by(attempts.c.rollout_id)
        twice = len(connection.execute(rewarded.having(func.count() > 1)).all())
        query = select(func.count()).select_from(attempts).where(attempts.c.reward.is_(None))
        lost = connection.execute(query).scalar_one()
    return {
        "queued": sizes.queued,
        "ended": done["num_completed"],
        "right": sum(one["reward"] == one["seed"] / 1000 for one in results),
        "rewarded_twice": twice,
        "attempts_lost": lost,
        "kills": len(kills_after),
    }


def databases(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the databases there are, by name."""
    folder.mkdir()
    yield "sqlite", f"sqlite:///{folder / 'harbor.sqlite'}"
    try:
        postgres_programs()
    except pytest.skip.Exception:
        return
    with postgres_server() as server:
        yield "postgresql", new_database(server)


def instances(sizes: Sizes, url: str) -> dict[str, Any]:
    """Measure one batch of instances, and pages of many."""
    with service(url) as client:
        known = deployed(client)
        at = f"{DEPLOYMENTS}/{known}/instances"
        started = time.perf_counter()
        assert client.post(f"{at}/batch", json={"count": sizes.instances}).json()["created"] == sizes.instances
        batch_s = time.perf_counter() - started
        client.post(f"{at}/batch", json={"count": sizes.listed})
        chance, seconds = random.Random(8), []
        for _ in range(sizes.pages):
            after = chance.randrange(sizes.listed - _PAGE)
            started = time.perf_counter()
            page = client.get(at, params={"limit": _PAGE, "cursor": str(after)}).json()
            seconds.append(time.perf_counter() - started)
            assert (page["total"], len(page["instances"])) == (sizes.listed, _PAGE)
    return {
        f"batch_of_{sizes.instances}_s": round(batch_s, 3),
        f"page_of_{_PAGE}_among_{sizes.listed}_ms": milliseconds(seconds),
    }


def packaging(sizes: Sizes, folder: Path) -> dict[str, Any]:
    """Measure contexts that compress and one that does not, and compare bytes between processes and runs."""
    found: dict[str, Any] = {"context_mb": sizes.context_mb}
    for kind, content in (("text", text_of), ("random", random_of)):
        context = folder / kind
        for number in range(sizes.context_mb):
            file = context / f"part-{number % 7}" / f"file-{number}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content(number))
        spec = HarborBuildSpec(name="packed", dockerfile_path=None, context_dir=context)
        seconds, digests = [], set()
        for _ in range(sizes.repetitions):
            started = time.perf_counter()
            digests.add(HarborPackager(spec).package_bytes().digest)
            seconds.append(time.perf_counter() - started)
        for seed in ("1", "2"):
            environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": f"UTC+{seed}"}
            command = [sys.executable, "-c", _PACK, str(context)]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            digests.add(done.stdout.strip())
        found[kind] = {"s": round(statistics.median(seconds), 3), "different_digests": len(digests)}
    return found


def text_of(number: int) -> bytes:
    """Return a megabyte of text that compresses as programs do."""
    chance = random.Random(number)
    words = [hashlib.sha256(str(chance.randrange(4000)).encode()).hexdigest()[:7] for _ in range(140_000)]
    return " ".join(words).encode()[: 1 << 20]


def random_of(number: int) -> bytes:
    """Return a megabyte that does not compress."""
    return random.Random(number).randbytes(1 << 20)


def refusals(sizes: Sizes, folder: Path) -> dict[str, Any]:
    """Send what is hostile, and what the document of the service allows."""
    from tests.allowed_requests import send_allowed

    folder.mkdir()
    with service(f"sqlite:///{folder / 'harbor.sqlite'}") as client:
        known = deployed(client)
        before = sorted(path.name for path in folder.iterdir())
        requests = hostile_requests(known)
        statuses = [
            client.request(one.method, one.path, content=one.content, headers=dict(one.headers)).status_code
            for one in requests.values()
        ]
        statuses += [
            client.post(
                DEPLOYMENTS, json=deployment(context_tar_base64=base64.b64encode(data).decode() or "=")
            ).status_code
            for data in HOSTILE.values()
        ]
        sent = send_allowed(str(client.base_url), sizes.examples)
        left = sorted(path.name for path in folder.iterdir())
    return {
        "hostile": len(statuses),
        "not_refused": sum(not 400 <= status < 500 for status in statuses),
        "written_elsewhere": left != before,
        "schemathesis_requests": sent.count,
        "schemathesis_failures": sum(len(group.exceptions) for group in sent.failures.values()),
    }


def bare(sizes: Sizes, folder: Path) -> dict[str, Any]:
    """Run the entrypoint as processes without a jail, a service or a record."""
    folder.mkdir()
    (folder / "run_rollout.py").write_text(REWARD, "utf-8")

    def run(number: int) -> float:
        asked, result = folder / f"{number}.json", folder / f"{number}.result"
        asked.write_text('{"seed": 7}', "utf-8")
        started = time.perf_counter()
        command = [sys.executable, "-I", str(folder / "run_rollout.py"), "--input", str(asked), "--output", str(result)]
        subprocess.run(command, check=True)
        return time.perf_counter() - started

    singles = [run(number) for number in range(sizes.singles)]
    started = time.perf_counter()
    with ThreadPoolExecutor(CORES) as threads:
        list(threads.map(run, range(sizes.rollouts)))
    rate = sizes.rollouts / (time.perf_counter() - started)
    return {"ms": milliseconds(singles), f"per_s_{CORES}_at_once": round(rate, 1)}


def ready(client: httpx.Client) -> str:
    """Return a deployment of the entrypoint, built."""
    return deployed(client, text=REWARD)


def finished(client: httpx.Client, job_id: str) -> dict[str, Any]:
    """Return an evaluation once it has ended."""
    while True:
        found: dict[str, Any] = client.get(f"/api/eval/jobs/{job_id}").json()
        if found["status"] not in ("pending", "running"):
            return found
        time.sleep(0.05)


def milliseconds(seconds: list[float]) -> dict[str, float]:
    """Return median and 99th percentile."""
    ordered = sorted(seconds)
    return {
        "p50": round(1000 * statistics.median(ordered), 2),
        "p99": round(1000 * ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 2),
    }


if __name__ == "__main__":
    main()
