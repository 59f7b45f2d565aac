"""Every configuration file loads into its model, and the shipped sample is the pinned one, whole and clean."""

import gzip
import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from graftline.core.config import load_yaml
from graftline.core.telemetry import TelemetrySettings
from graftline.datasets.catalog import Catalog
from graftline.datasets.governance import Governance
from graftline.evals.evaluation_file import EvaluationFile
from graftline.harbor.deployment_file import DeploymentFile
from graftline.llm.fleet import Fleets
from graftline.llm.weights.catalog import ModelCatalog
from graftline.pipeline.manifests import Manifest
from graftline.pipeline.settings import TrajectorySettings
from graftline.pipeline.stages.closed_loop import ClosedLoopFile
from graftline.pipeline.stages.optimized_prompt import PromptFile
from graftline.rollouts.teachers.prompt import Prompts
from graftline.sandbox import SandboxSettings
from graftline.training.recipes.distill import DistillConfig
from graftline.training.recipes.dpo import DpoConfig
from graftline.training.recipes.sl_basic import SlBasicConfig
from graftline.training.recipes.srl import SrlConfig
from graftline.training.recipes.tasks import RlGrpoConfig

CHECKOUT = Path(__file__).resolve().parents[1]
CONFIGS = CHECKOUT / "configs"
FILES = sorted(path.relative_to(CONFIGS).as_posix() for path in CONFIGS.rglob("*.yaml"))
MODELS: dict[str, type[BaseModel]] = {
    "datasets.yaml": Catalog,
    "closed_loop.yaml": ClosedLoopFile,
    "evaluations/canitedit.yaml": EvaluationFile,
    "evaluations/edits_commits.yaml": EvaluationFile,
    "evaluations/edits_real.yaml": EvaluationFile,
    "evaluations/edits_unseen_families.yaml": EvaluationFile,
    "evaluations/first_adapter.yaml": EvaluationFile,
    "evaluations/induction_on_test.yaml": EvaluationFile,
    "evaluations/rules_real_edits.yaml": EvaluationFile,
    "evaluations/rules_trained_families.yaml": EvaluationFile,
    "evaluations/rules_twenty_tasks.yaml": EvaluationFile,
    "evaluations/rules_unseen_families.yaml": EvaluationFile,
    "governance.yaml": Governance,
    "harbor/engine_bench.yaml": DeploymentFile,
    "harbor/refactoring.yaml": DeploymentFile,
    "models.yaml": ModelCatalog,
    "prompts/small_python.yaml": PromptFile,
    "recipes/distill.yaml": DistillConfig,
    "recipes/dpo.yaml": DpoConfig,
    "recipes/edits.yaml": SlBasicConfig,
    "recipes/edits_improved.yaml": RlGrpoConfig,
    "recipes/first_adapter.yaml": SlBasicConfig,
    "recipes/rl_grpo.yaml": RlGrpoConfig,
    "recipes/rules.yaml": SlBasicConfig,
    "recipes/rules_reinforced.yaml": RlGrpoConfig,
    "recipes/sl_basic.yaml": SlBasicConfig,
    "recipes/srl.yaml": SrlConfig,
    "sandbox.yaml": SandboxSettings,
    "teacher_prompts.yaml": Prompts,
    "telemetry.yaml": TelemetrySettings,
    "trajectories.yaml": TrajectorySettings,
    "vllm_actors.yaml": Fleets,
    "manifests/dev.yaml": Manifest,
    "manifests/local.yaml": Manifest,
    "manifests/prod.yaml": Manifest,
    "manifests/test.yaml": Manifest,
}
SAMPLE = CHECKOUT / "data" / "samples" / "release_pairs.jsonl.gz"
ADDRESS = re.compile(r"[\w.+%-]+@[\w-]+(?:\.[\w-]+)+")


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    with gzip.open(SAMPLE) as stream:
        return [json.loads(line) for line in stream]


def test_every_file_of_configuration_has_a_model_and_every_model_its_file() -> None:
    assert sorted(MODELS) == FILES


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_configuration_loads(name: str) -> None:
    assert isinstance(load_yaml(CONFIGS / name, MODELS[name]), MODELS[name])


def test_the_pinned_size_and_checksum_are_those_of_the_sample() -> None:
    [pinned] = load_yaml(CONFIGS / "datasets.yaml", Catalog).datasets["release_pairs"].files
    content = SAMPLE.read_bytes()
    assert (pinned.path, pinned.size_bytes, pinned.sha256) == (
        SAMPLE.name,
        len(content),
        hashlib.sha256(content).hexdigest(),
    )


def test_the_sample_has_enough_rows_of_every_language(rows: list[dict[str, Any]]) -> None:
    by_language = Counter(row["language"] for row in rows)
    assert (len(rows) >= 600, sorted(by_language), min(by_language.values()) >= 200) == (
        True,
        ["java", "javascript", "python"],
        True,
    )


@pytest.mark.parametrize("field", ["license", "registry", "pkg", "old", "new", "path"])
def test_every_row_of_the_sample_says_where_it_comes_from(rows: list[dict[str, Any]], field: str) -> None:
    assert [row["id"] for row in rows if not str(row.get(field, "")).strip()] == []


def test_every_row_of_the_sample_has_two_versions_and_an_id_of_its_own(rows: list[dict[str, Any]]) -> None:
    assert [row["id"] for row in rows if row["old"] == row["new"]] == []
    assert len({row["id"] for row in rows}) == len(rows)


def test_the_licenses_of_the_sample_are_allowed_and_are_those_it_is_shipped_under(rows: list[dict[str, Any]]) -> None:
    catalog = load_yaml(CONFIGS / "datasets.yaml", Catalog)
    found = {row["license"] for row in rows}
    assert found <= set(catalog.cleaning.licenses)
    assert found == set(catalog.datasets["release_pairs"].license.split(" AND "))


def test_no_row_of_the_sample_holds_an_address_of_electronic_mail(rows: list[dict[str, Any]]) -> None:
    texts = [(row["id"], value) for row in rows for value in row.values() if isinstance(value, str)]
    assert [(id, match) for id, text in texts for match in ADDRESS.findall(text)] == []
    assert ADDRESS.findall("by A. Author <a.author+x@mail.example.org>") == ["a.author+x@mail.example.org"]
