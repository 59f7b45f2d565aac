"""Finding the floor and the ceiling of a deployment: what `nop` and `oracle` earn, by rollouts of the service."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from graftline.core.errors import ConfigError
from graftline.harbor.calibration import Calibration, calibrated
from graftline.harbor.configured import ConfiguredDeployment
from graftline.harbor.deployment_file import CalibrationRun, calibration_run
from graftline.harbor.deployment_ref import deployment_path
from graftline.harbor.known_service import KnownService
from graftline.harbor.rollout_batch import EndedRollout, run_rollouts

AGENTS = ("nop", "oracle")


def calibrate(
    deployment: ConfiguredDeployment,
    service: KnownService,
    seeds: Sequence[int] | None = None,
    at_once: int = 8,
    on_ended: Callable[[str, int, EndedRollout], None] = lambda agent, total, ended: None,
) -> Calibration:
    """Return the calibration of `deployment`, after it was written to its place.

    Args:
        deployment: What is configured.
        service: Where it runs; it gets the deployments that are asked.
        seeds: Which of its tasks; all of them where they are not given.
        at_once: Rollouts at the same time.
        on_ended: Gets each rollout as it ends, with its agent and how many there are of that.

    Raises:
        ConfigError, DataError: the deployment cannot be made, or a seed stands for no task.
        HarborError: its build fails, or the service refuses a rollout.
    """
    rewards: dict[str, dict[str, float | None]] = {}
    digests: list[str] = []
    for agent in AGENTS:
        with tempfile.TemporaryDirectory() as folder:
            run = _run(deployment, agent, Path(folder))
            wanted = _wanted(run, seeds, deployment)
            made = service.uploader.create_deployment(run.spec)
        ready = service.uploader.wait_for_build(made.id)
        view = service.client.request("GET", deployment_path(ready.id))
        digests.append(str(view["digest"]))

        def ended(one: EndedRollout, agent: str = agent, total: int = len(wanted)) -> None:
            on_ended(agent, total, one)

        found = run_rollouts(service.deployment(ready.id), wanted, run.policy, at_once, ended)
        tasks = {task.seed: task.task_id for task in run.spec.tasks}
        rewards[agent] = {
            tasks.get(one.seed) or one.task_id or str(one.seed): one.reward if one.reward_valid else None
            for one in found
        }
    calibration = calibrated(rewards["nop"], rewards["oracle"], deployment.file.name, tuple(dict.fromkeys(digests)))
    calibration.write(deployment.calibration_path)
    return calibration


def _run(deployment: ConfiguredDeployment, agent: str, folder: Path) -> CalibrationRun:
    try:
        return calibration_run(deployment.file, "nop" if agent == "nop" else "oracle", deployment.root, folder)
    except ValueError as error:
        raise ConfigError(f"{deployment.path}: {error}") from None


def _wanted(run: CalibrationRun, seeds: Sequence[int] | None, deployment: ConfiguredDeployment) -> list[int]:
    known = {task.seed for task in run.spec.tasks}
    if seeds is None and not known:
        raise ConfigError(f"{deployment.path}: does not say which seeds stand for its tasks; name them")
    wanted = sorted(known) if seeds is None else list(seeds)
    if known and (missing := [seed for seed in wanted if seed not in known]):
        raise ConfigError(
            f"{deployment.path}: seed {missing[0]} stands for no task; known: {min(known)} to {max(known)}"
        )
    return wanted
