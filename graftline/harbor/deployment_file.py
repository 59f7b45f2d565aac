"""A file of `configs/harbor`: what a deployment is made of. `deployment_spec` makes it, its contexts included.

graftline env upload configs/harbor/engine_bench.yaml
"""

import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from graftline.core.config import Config, load_yaml
from graftline.core.errors import ConfigError
from graftline.harbor.contract import MAX_TIMEOUT_S, Finite, HarborLimits, Seed, Text
from graftline.harbor.messages import Budget
from graftline.rollouts.task import Instructions, describe_left_out, select_for_agents

if TYPE_CHECKING:
    from graftline.harbor.build_spec import HarborBuildSpec

Agent = Literal["codex", "opencode", "claude_code", "mini_swe_agent"]
IdleAgent = Literal["nop", "oracle"]
FilePath = Annotated[Text, Field(min_length=1)]
"""Relative to the root, or absolute."""
REFACTORING_ENTRYPOINT = (
    "python -m graftline.harbor.environments.run_rollout --input /tmp/rollout.json --output /tmp/result.json"
)
_TEACHERS: Mapping[IdleAgent, str] = {"nop": "nop", "oracle": "memory"}
FOLDER = Path("configs/harbor")
_SUFFIX = ".yaml"


class EngineBench(Config):
    """Cards that an agent implements in Rust."""

    kind: Literal["engine_bench"]
    tasks: FilePath
    """A folder of Harbor tasks."""
    crate: FilePath
    """The crate that every card is a file of."""
    dockerfile: FilePath
    include: tuple[Text, ...] = ("*",)
    """Globs of the tasks' names."""
    package: str = ""
    """Of a workspace, which member is built."""
    agent: Agent = "codex"
    verifier_timeout_s: int | None = Field(default=None, ge=10, le=MAX_TIMEOUT_S)
    """Of `cargo check` and `cargo test` together; the largest of the tasks' where it is not given."""

    def spec(self, file: "DeploymentFile", root: Path, staging: Path, agent: IdleAgent | None) -> "HarborBuildSpec":
        """Return the cards as a deployment."""
        from graftline.harbor.engine_bench.cards import read_cards, stage_cards
        from graftline.harbor.task_format.importing import build_spec

        staged = stage_cards(
            read_cards(_find(root, self.tasks, "tasks"), self.include),
            _find(root, self.crate, "crate"),
            _find(root, self.dockerfile, "dockerfile"),
            staging,
            agent=agent or self.agent,
            package=self.package,
            limits=file.limits,
            verifier_timeout_s=self.verifier_timeout_s,
        )
        metadata = {"agent_type": agent or self.agent, "benchmark": "engine-bench", "version": "1.0"}
        return build_spec(staged, file.calibration_name(agent), metadata)


class HarborTasks(Config):
    """Any Harbor tasks."""

    kind: Literal["harbor_tasks"]
    tasks: FilePath
    """A Harbor task, or a folder of them."""
    dockerfile: FilePath | None = None
    """Of one image for all of them."""
    has_image: bool = True
    """False for executors that build none."""
    agent: Agent = "codex"
    reward_key: Text = Field(default="reward", min_length=1)

    def spec(self, file: "DeploymentFile", root: Path, staging: Path, agent: IdleAgent | None) -> "HarborBuildSpec":
        """Return the tasks as a deployment."""
        from graftline.harbor.task_format.importing import import_harbor_tasks

        return import_harbor_tasks(
            _find(root, self.tasks, "tasks"),
            file.calibration_name(agent),
            staging,
            agent=agent or self.agent,
            dockerfile=_find(root, self.dockerfile, "dockerfile") if self.dockerfile else None,
            has_image=self.has_image,
            reward_key=self.reward_key,
            limits=file.limits,
        )


class Refactoring(Config):
    """Refactoring tasks of our own, graded by `graftline.harbor.environments`."""

    kind: Literal["refactoring"]
    tasks: FilePath
    """The `tasks.jsonl` of an artifact, or of a sample."""
    manifest: FilePath | None = None
    """What seeds stand for; the tasks by their ids where it is not given."""
    instructions: Instructions = "answerable"
    """Which tasks get a seed where no manifest is given: those that can be done from their instruction, or all that have one."""
    dockerfile: FilePath | None = None
    """Of an image with graftline in it, for executors that build one."""

    def spec(self, file: "DeploymentFile", root: Path, staging: Path, agent: IdleAgent | None) -> "HarborBuildSpec":
        """Return the tasks that seeds stand for as a deployment; whoever acts is for each rollout to say."""
        from graftline.harbor.build_spec import HarborBuildSpec
        from graftline.harbor.environments.manifest import SeedManifest, by_id, load_tasks, seed_tasks

        path = _find(root, self.tasks, "tasks")
        tasks, left_out = load_tasks(path), Counter[str]()
        manifest = (
            SeedManifest.of(select_for_agents(tasks, self.instructions, left_out))
            if self.manifest is None
            else SeedManifest.load(_find(root, self.manifest, "manifest"))
        )
        seeds = manifest.task_of(by_id(tasks))
        if not seeds:
            raise ConfigError(
                f"environment.tasks: {self.tasks!r} holds no task that a seed stands for"
                f" ({describe_left_out(left_out) or 'the manifest names others'}); name another file"
            )
        context = staging / "context"
        shutil.rmtree(context, ignore_errors=True)
        context.mkdir(parents=True)
        shutil.copyfile(path, context / "tasks.jsonl")
        manifest.write(context / "manifest.json")
        return HarborBuildSpec(
            name=file.name,
            dockerfile_path=_find(root, self.dockerfile, "dockerfile") if self.dockerfile else None,
            context_dir=context,
            entrypoint=REFACTORING_ENTRYPOINT,
            limits=file.limits or HarborLimits(),
            tasks=seed_tasks(seeds),
            metadata={"environment": "refactoring", "manifest_version": manifest.version},
        )


class RepositoryRefactoring(Config):
    """Changes of whole repositories, which agents make by editing files; graded by places, and by tests where there are some."""

    kind: Literal["repository_refactoring"]
    changes: FilePath
    """A file of `data/repository_changes`, or one of the same form, with `tests` perhaps."""
    instructions: Instructions = "answerable"
    """Which changes get a seed: those that can be made from their instruction, or all that have one."""
    dockerfile: FilePath | None = None
    """Of one image for all of them; without it, Python's."""
    has_image: bool = True
    """False for executors that build none."""
    agent: Agent = "codex"
    agent_timeout_s: int = Field(default=1800, ge=10, le=MAX_TIMEOUT_S)

    def spec(self, file: "DeploymentFile", root: Path, staging: Path, agent: IdleAgent | None) -> "HarborBuildSpec":
        """Return the changes as a deployment, a seed each, by their ids."""
        from graftline.harbor.task_format.importing import build_spec, place_task, stage_tasks
        from graftline.harbor.task_format.repository_tasks import image_of, repository_harbor_task
        from graftline.harbor.task_format.task_folder import read_dockerfile
        from graftline.rollouts.repository_task import load_repository_tasks

        left_out = Counter[str]()
        tasks = select_for_agents(
            load_repository_tasks(_find(root, self.changes, "changes")), self.instructions, left_out
        )
        if not tasks:
            raise ConfigError(
                f"environment.changes: {self.changes!r} holds no change for an agent"
                f" ({describe_left_out(left_out, 'changes') or 'it is empty'}); name another file"
            )
        image = read_dockerfile(_find(root, self.dockerfile, "dockerfile")) if self.dockerfile else image_of(tasks)
        placed = [
            place_task(repository_harbor_task(task, float(self.agent_timeout_s)))
            for task in sorted(tasks, key=lambda task: task.id)
        ]
        staged = stage_tasks(
            placed,
            staging,
            agent=agent or self.agent,
            dockerfile=image if self.has_image else "",
            limits=file.limits,
        )
        metadata = {"agent_type": agent or self.agent, "environment": "repository_refactoring"}
        return build_spec(staged, file.calibration_name(agent), metadata)


class Folder(Config):
    """A folder with a program of one's own that answers rollouts."""

    kind: Literal["folder"]
    context: FilePath
    """What is packed; `.dockerignore` and `.harborignore` in it are heeded, and secrets are refused."""
    dockerfile: FilePath | None = None
    """For executors that build images; the `Dockerfile` of the context where it is not given."""
    entrypoint: Text = Field(
        default="python run_rollout.py --input /tmp/rollout.json --output /tmp/result.json", min_length=1
    )
    entrypoint_mode: Literal["file", "stdio"] = "file"
    """Whether request and result are files, or standard input and output."""
    env_vars: dict[str, Text] = Field(default={})
    """Variables of the program; no secrets."""

    def spec(self, file: "DeploymentFile", root: Path, staging: Path, agent: IdleAgent | None) -> "HarborBuildSpec":
        """Return the folder as a deployment; its program is told who acts by each rollout."""
        from graftline.harbor.build_spec import HarborBuildSpec

        context = _find(root, self.context, "context")
        dockerfile = _find(root, self.dockerfile, "dockerfile") if self.dockerfile else context / "Dockerfile"
        return HarborBuildSpec(
            name=file.name,
            context_dir=context,
            dockerfile_path=dockerfile if dockerfile.is_file() else None,
            entrypoint=self.entrypoint,
            entrypoint_mode=self.entrypoint_mode,
            env_vars=self.env_vars,
            limits=file.limits or HarborLimits(),
        )


class CalibrationSettings(Config):
    """Whether the deployment is to be trusted only with a floor and a ceiling."""

    is_required: bool = True
    path: FilePath | None = None
    """Where it is kept; below `data/harbor/calibration/` by the name of the deployment where it is not given."""


class EvaluationSettings(Config):
    """How the lineage evaluates the deployment."""

    policy: dict[str, Any] | None = None
    """Who acts. Where it is not given: the teacher `induction` at tasks of our own, else the agent `nop`, which costs nothing."""
    seeds: tuple[Seed, ...] | None = Field(default=None, min_length=1)
    """All that stand for a task where they are not given."""
    at_once: int = Field(default=4, ge=1, le=1000)
    """Rollouts at the same time."""
    budget: Budget = Budget()
    """What is not given is not bounded."""
    min_coverage: float = Field(default=0.95, ge=0, le=1)
    """Share of the seeds with a reward that counts below which the asset check fails."""
    least_mean_reward: Finite | None = None
    """The asset check fails below it; without it, the mean is only shown."""


class DeploymentFile(Config):
    """The whole file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,119}$")
    description: Text | None = None
    environment: Annotated[
        EngineBench | HarborTasks | Refactoring | RepositoryRefactoring | Folder, Field(discriminator="kind")
    ]
    limits: HarborLimits | None = None
    """The largest of the tasks' where they are not given."""
    metadata: dict[str, Any] = Field(default={})
    calibration: CalibrationSettings = CalibrationSettings()
    evaluation: EvaluationSettings | None = None
    """Without it the lineage evaluates nothing."""

    @property
    def calibration_path(self) -> Path:
        """Where the calibration is kept, relative to the root."""
        return Path(self.calibration.path or f"data/harbor/calibration/{self.name}.json")

    def calibration_name(self, agent: IdleAgent | None) -> str:
        """Return the name of a deployment in which `agent` acts."""
        return self.name if agent is None else f"{self.name}-{agent}"


def load_deployment(path: Path) -> DeploymentFile:
    """Return the deployment that a file describes.

    Raises:
        ConfigError: it cannot be read or does not fit; one line per fault.
    """
    return load_yaml(path, DeploymentFile)


def deployment_spec(
    file: DeploymentFile, root: Path, staging: Path, agent: IdleAgent | None = None
) -> "HarborBuildSpec":
    """Return the deployment of `file`; its contexts are written below `staging`, which stays until the upload.

    With `agent` it is what the floor (`nop`) or the ceiling (`oracle`) is found by, asked with `calibration_policy`. Where
    agents act it is a deployment of its own: what is graded instead of the submission is for no rollout to say.

    Raises:
        ConfigError: what the file names is not there.
        DataError: it is there and cannot be used.
    """
    spec = file.environment.spec(file, root, staging, agent)
    return spec.model_copy(update={"metadata": {**spec.metadata, **file.metadata}, "description": file.description})


def calibration_policy(file: DeploymentFile, agent: IdleAgent) -> dict[str, Any]:
    """Return the policy that has `agent` act: a teacher in our own environment, an agent that a folder's program is told."""
    match file.environment:
        case Refactoring():
            return {"teacher": _TEACHERS[agent]}
        case Folder():
            return {"agent": agent}
    return {}


def _find(root: Path, path: str, key: str) -> Path:
    target = root / path
    if not target.exists():
        raise ConfigError(f"environment.{key}: {path!r} is not there; name a path relative to {root}")
    return target


@dataclass(frozen=True, slots=True)
class ConfiguredDeployment:
    """One file, and what it says."""

    path: Path
    root: Path
    file: DeploymentFile

    @property
    def calibration_path(self) -> Path:
        """Where its floor and ceiling are kept."""
        return self.root / self.file.calibration_path

    def spec(self, staging: Path, name: str | None = None, agent: IdleAgent | None = None) -> "HarborBuildSpec":
        """Return the deployment as `deployment_spec` does; `name` takes the place of its own."""
        file = self.file if name is None else self.file.model_copy(update={"name": name})
        try:
            return deployment_spec(file, self.root, staging, agent)
        except ValueError as error:
            raise ConfigError(f"{self.path}: {error}") from None


def deployment_names(root: Path) -> list[str]:
    """Return the names of the files, in order."""
    return sorted(path.stem for path in (root / FOLDER).glob(f"*{_SUFFIX}"))


def find_deployment(name_or_path: str, root: Path) -> ConfiguredDeployment:
    """Return the deployment of a file, or of a name.

    Raises:
        ConfigError: there is none, or its file does not fit.
    """
    if name_or_path.endswith((_SUFFIX, ".yml")):
        path = Path(name_or_path) if Path(name_or_path).exists() else root / name_or_path
        return ConfiguredDeployment(path, root, load_deployment(path))
    names = deployment_names(root)
    for name in [name_or_path] if name_or_path in names else names:
        path = root / FOLDER / f"{name}{_SUFFIX}"
        file = load_deployment(path)
        if name_or_path in (name, file.name):
            return ConfiguredDeployment(path, root, file)
    raise ConfigError(
        f"deployment {name_or_path!r} is not configured; known: {', '.join(names) or 'none'}; name one of them, or a file that"
        f" ends in {_SUFFIX}"
    )
