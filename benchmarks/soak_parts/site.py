"""The folder that the soak works in: a root with its configuration, a home for Dagster, and the environment of programs."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from benchmarks.soak_parts.wall_clock import WallClock
from graftline.core.paths import Paths
from tests.harbor_lineage import task, write_deployment
from tests.kept_fleet import free_port

CHECKOUT = Path(__file__).resolve().parents[2]
FLEET, ACTOR, MODEL, DEPLOYMENT = "soak", "small", "smollm2-135m", "soak"
DATASET, REPOSITORY = "published", "soak/published"
WORKERS_MANIFEST = "dev"
MARK = "GRAFTLINE_SOAK_SITE"
"""The variable by which a process of a soak is known, whoever its parent is."""
TASKS = 12
VISIBILITY_S = 5.0
_SHIPPED = ("governance.yaml", "teacher_prompts.yaml", "telemetry.yaml", "models.yaml", "sandbox.yaml")
_OF_THE_USER = ("GRAFTLINE_", "HF_", "DAGSTER_")


class Site:
    """Where everything lies: `disk` is what fills up, the rest of `folder` is not."""

    def __init__(self, folder: Path, disk: Path, clock: WallClock) -> None:
        self.folder, self.clock = folder, clock
        self.root, self.dagster_home = disk / "root", disk / "dagster"
        self.logs, self.temporary = folder / "logs", folder / "tmp"
        self.paths = Paths(self.root)
        self.harbor_port = free_port()

    @property
    def harbor_url(self) -> str:
        """Of the service."""
        return f"http://127.0.0.1:{self.harbor_port}"

    @property
    def tasks(self) -> list[Any]:
        """What the deployment has a seed for, in order of the seeds."""
        return sorted((task(number) for number in range(TASKS)), key=lambda one: str(one.id))

    def prepare(self, redis_url: str, hub_url: str, harbor_key: str) -> None:
        """Write configuration, tasks, secrets, and the instance of Dagster."""
        for folder in (self.root / "data" / "samples", self.dagster_home, self.logs, self.temporary):
            folder.mkdir(parents=True)
        self.temporary.chmod(0o1777)  # cases of jails run as users of their own
        shutil.copytree(CHECKOUT / "configs" / "manifests", self.root / "configs" / "manifests")
        for name in _SHIPPED:
            shutil.copy(CHECKOUT / "configs" / name, self.root / "configs" / name)
        for name, content in self._configuration(hub_url).items():
            # JSON is YAML
            (self.root / "configs" / name).write_text(json.dumps(content), "utf-8")
        tasks = "".join(f"{one.model_dump_json()}\n" for one in self.tasks)
        (self.root / "data" / "samples" / "tiny.jsonl").write_text(tasks, "utf-8")
        write_deployment(self.root, DEPLOYMENT, evaluation=None)
        secrets = {"GRAFTLINE_REDIS_URL": redis_url, "GRAFTLINE_HARBOR_KEY": harbor_key}
        (self.root / ".env").write_text("".join(f"{name}={value}\n" for name, value in secrets.items()), "utf-8")
        (self.dagster_home / "dagster.yaml").write_text(json.dumps(_instance()), "utf-8")
        (self.dagster_home / "workspace.yaml").write_text(json.dumps(_workspace()), "utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """What every program of the platform is started with."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(_OF_THE_USER)}
        own.pop("PYTHONDONTWRITEBYTECODE", None)  # each would compile all it imports, again
        return {
            **own,
            **self.clock.environment,
            MARK: str(self.folder),
            "TMPDIR": str(self.temporary),
            "GRAFTLINE_ROOT": str(self.root),
            "GRAFTLINE_MODELS": os.environ.get("GRAFTLINE_MODELS", str(CHECKOUT / "data" / "models")),
            "DAGSTER_HOME": str(self.dagster_home),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            "MALLOC_ARENA_MAX": "2",  # as in the image, and for `make ui`
            "PYTHONWARNINGS": "ignore",
        }

    def _configuration(self, hub_url: str) -> Mapping[str, Any]:
        patience = {"connect_s": 5.0, "read_s": 10.0, "deadline_s": 20.0}
        hub = {"kind": "sources", "huggingface": hub_url, "patience": patience}
        common = {"dataset_hub": hub, "sandbox": {"kind": "warm", "required_level": "compute"}}
        chat = {"kind": "actors", "fleet": FLEET, "pool": {"health_s": 2, "longest_pause_s": 5}}
        # faults come far closer together than where people run this, so that a job is tried far more often
        queue = {"kind": "redis", "visibility_s": VISIBILITY_S, "retry_s": 0.5, "max_tries": 100}
        actor = {"name": ACTOR, "url": f"http://127.0.0.1:{free_port()}", "slots": 2, "threads": 1}
        fleet = {"engine": "embedded", "model": MODEL, "context_tokens": 2048, "shutdown_s": 5, "actors": [actor]}
        dataset = {
            "reader": "release_pairs",
            "url": f"hf://datasets/{REPOSITORY}",
            "version": "main",
            "follow": True,
            "license": "MIT",
            "files": [{"path": "rows.jsonl"}],
        }
        return {
            "manifests/local.yaml": {**common, "teacher": {"kind": "induction"}, "chat_model": chat},
            f"manifests/{WORKERS_MANIFEST}.yaml": {
                **common,
                "teacher": {"kind": "openai", "prompt": "small"},
                "chat_model": chat,
                "queue": queue,
            },
            "vllm_actors.yaml": {"fleets": {FLEET: fleet}},
            "trajectories.yaml": {
                "collecting": {"max_steps": 2, "max_failed": 1},
                "least_verified_steps": 0,
                "workers": 1,
            },
            "datasets.yaml": {
                "languages": ["python"],
                "use": [DATASET],
                "datasets": {DATASET: dataset},
                "synthesis": {"per_partition": 0},
            },
        }


def _instance() -> dict[str, Any]:
    """Return that of the checkout, with runs that are made again where their process was killed."""
    instance: dict[str, Any] = YAML(typ="safe").load(CHECKOUT / "dagster.yaml")
    instance["run_retries"] = {"enabled": True, "max_retries": 10}
    return instance


def _workspace() -> dict[str, Any]:
    location = {"module_name": "benchmarks.soak_parts.location", "working_directory": str(CHECKOUT)}
    return {"load_from": [{"python_module": {**location, "location_name": "soak"}}]}
