"""What an attempt depends on beside its task: the lineage and the workers of a queue have to agree on it."""

from typing import TYPE_CHECKING, Any

from graftline.astgrep.binding import tool_version
from graftline.core.paths import Paths
from graftline.pipeline.manifests import Manifest
from graftline.pipeline.ports import Ports
from graftline.pipeline.settings import Settings
from graftline.rollouts.teachers.base import OpenAITeacherConfig

if TYPE_CHECKING:
    from graftline.rollouts.teachers.prompt import Prompt


def attempt_settings(paths: Paths, manifest: Manifest, settings: Settings, ports: Ports) -> dict[str, Any]:
    """Return the settings of attempts, whose digest is `made_by` of the trajectories.

    Raises:
        ConfigError: there is no such prompt.
    """
    teacher, isolation = manifest.teacher, ports.sandbox.isolation
    prompt = _prompt(paths, teacher).digest() if isinstance(teacher, OpenAITeacherConfig) else None
    return {
        "collecting": settings.trajectories.collecting.model_dump(mode="json"),
        "teacher": ports.teacher.name,
        **({} if prompt is None else {"prompt": prompt}),
        "isolation": f"{isolation.level}/{isolation.implementation}",
        **rewriter(manifest),
    }


def has_examples(paths: Paths, manifest: Manifest) -> bool:
    """Return whether prompts show verified steps of earlier attempts.

    Raises:
        ConfigError: there is no such prompt.
    """
    teacher = manifest.teacher
    return isinstance(teacher, OpenAITeacherConfig) and _prompt(paths, teacher).settings.few_shots.count > 0


def rewriter(manifest: Manifest) -> dict[str, Any]:
    """Return what the outcome of an action depends on beside the action."""
    return {"ast_grep": tool_version(), "sandbox": manifest.sandbox.model_dump(mode="json")}


def _prompt(paths: Paths, teacher: OpenAITeacherConfig) -> "Prompt":
    from graftline.rollouts.teachers.prompt import load_prompt  # loads what checks answers

    return load_prompt(paths.configs, teacher.prompt)
