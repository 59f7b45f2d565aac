"""What the pages say of language models, actors, states and figures, against the code and the shipped files."""

from typing import Any, get_args

import dagster as dg
import pytest
from pydantic import BaseModel

from graftline.core.config import load_yaml, parse_yaml, validate
from graftline.core.metrics import Metrics
from graftline.datasets.catalog import Catalog
from graftline.evals.evaluation_file import EvaluationFile
from graftline.harbor.deployment_file import DeploymentFile
from graftline.llm.client import FaultKind
from graftline.llm.fleet import Engine, Fleets
from graftline.llm.servers.processes import Phase
from graftline.llm.weights.catalog import ModelCatalog
from graftline.llm.weights.catalog import State as ModelState
from graftline.pipeline.manifests import Manifest
from graftline.pipeline.settings import TrajectorySettings
from graftline.rollouts.state import State, state
from graftline.rollouts.teachers.prompt import Prompts
from tests.pages import CHECKOUT, PAGES, Fence, codes, fences, section, table

CONFIGS = CHECKOUT / "configs"
FILES: dict[str, type[BaseModel]] = {
    "fleets": Fleets, "models": ModelCatalog, "collecting": TrajectorySettings, "description": EvaluationFile, "use": Catalog,
}  # fmt: skip
EXAMPLES = [fence for fence in fences() if fence.language == "yaml" and fence.page != "docs/datasets.md"]


def firsts(page: str, heading: str, contains: str = "|") -> list[str]:
    """Return the first code of every row of the first table below `heading` that comes after `contains`."""
    text = section(page, heading)
    return [codes(row[0])[0] for row in table(text[text.index(contains) - 2 :])]


@pytest.mark.parametrize("fence", EXAMPLES, ids=lambda fence: f"{fence.page}:{fence.line}")
def test_an_example_of_configuration_fits(fence: Fence) -> None:
    given = parse_yaml(fence.body, fence.page)
    [first, *_] = given
    if "environment" in given:
        assert validate(given, DeploymentFile, f"{fence.page}:{fence.line}").name == given["name"]
        return
    if first == "resources":  # of a run
        from orchestration.build import build_definitions  # takes seconds

        job = build_definitions().resolve_implicit_global_asset_job_def()
        assert dg.validate_run_config(job, given)["resources"].keys() >= given["resources"].keys()
        return
    local: dict[str, Any] = parse_yaml((CONFIGS / "manifests" / "local.yaml").read_text("utf-8"), "local")
    if first == "use":  # what is changed of the catalog
        shipped = parse_yaml((CONFIGS / "datasets.yaml").read_text("utf-8"), "shipped")
        given = {**shipped, **given, "datasets": {**shipped["datasets"], **given["datasets"]}}
    tree, model = (given, FILES[first]) if first in FILES else ({**local, **given}, Manifest)
    loaded = validate(tree, model, f"{fence.page}:{fence.line}")
    assert given.keys() <= loaded.model_dump().keys()


def test_the_tables_of_engines_and_fleets_are_what_is_shipped() -> None:
    page = PAGES["docs/actors.md"].read_text("utf-8")
    assert [codes(row[0])[0] for row in table(page)] == ["embedded", "vllm", "vllm-cpu", "service"]
    assert {codes(row[0])[0] for row in table(page)} == set(get_args(Engine))
    rows = table(page[page.index("| fleet as shipped |") - 1 :])
    fleets = load_yaml(CONFIGS / "vllm_actors.yaml", Fleets).fleets
    assert {codes(row[0])[0]: (codes(row[1])[0], codes(row[2])[0]) for row in rows} == {
        name: (fleet.engine, fleet.model) for name, fleet in fleets.items()
    }


def test_phases_and_failures_of_actors_are_the_documented_ones() -> None:
    assert firsts("docs/actors.md", "## On one machine", "| phase |") == list(get_args(Phase))
    assert firsts("docs/actors.md", "## How actors are asked", "| failure |") == list(FaultKind)


def test_the_tables_of_models_are_the_catalog_and_its_states() -> None:
    rows = table(PAGES["docs/models.md"].read_text("utf-8"))
    catalog = load_yaml(CONFIGS / "models.yaml", ModelCatalog)
    assert {codes(row[0])[0]: row[3] for row in rows} == {name: one.license for name, one in catalog.models.items()}
    assert firsts("docs/models.md", "## What is stored", "| state |") == list(get_args(ModelState))


def test_the_table_of_prompts_is_what_is_shipped() -> None:
    rows = table(section("docs/language-models.md", "## Prompts"))
    prompts = load_yaml(CONFIGS / "teacher_prompts.yaml", Prompts).prompts
    assert {codes(row[0])[0]: codes(row[2])[0] for row in rows} == {
        name: prompt.answer.layout for name, prompt in prompts.items()
    }


def test_the_fields_and_limits_of_a_state_are_the_documented_ones() -> None:
    assert [codes(row[0])[0] for row in table(PAGES["docs/state.md"].read_text("utf-8"))] == list(State.model_fields)
    rows = table(section("docs/state.md", "## Limits"))
    assert [row[1] for row in rows] == [str(getattr(state, codes(row[0])[0])) for row in rows]


def test_every_figure_of_a_worker_is_documented_and_no_other() -> None:
    families = [family for family in Metrics().families() if family.name.startswith("graftline_")]
    names = [f"{family.name}_total" if family.type == "counter" else family.name for family in families]
    assert firsts("docs/observability.md", "## Figures") == names


def test_every_alert_is_documented_and_no_other() -> None:
    alerts = CHECKOUT / "deploy" / "prometheus" / "alerts.yaml"
    [group] = parse_yaml(alerts.read_text("utf-8"), str(alerts))["groups"]
    assert firsts("docs/observability.md", "## Prometheus and Grafana", "| alert |") == [
        rule["alert"] for rule in group["rules"]
    ]


def test_every_file_of_deploy_that_is_named_is_there() -> None:
    named = {span for path in PAGES.values() for span in codes(path.read_text("utf-8")) if span.startswith("deploy/")}
    assert sorted(name for name in named if not (CHECKOUT / name.rstrip("/")).exists()) == []
