"""Every command of every page: what is typed can be typed, and what it names exists. Nothing of it is run here.

Those that other tests run too are looked at all the same, for it costs nothing. What is said of each program is in
`tests.page_commands`.
"""

import re
from itertools import pairwise

import dagster as dg
import pytest
from dagster._core.definitions.partitions.context import partition_loading_context

from assets.partitions import load_partitions
from graftline.core.paths import Paths
from graftline.pipeline import load_settings
from graftline.pipeline.stages.sft_dataset import lineage_recipes
from tests.page_commands import (
    CLICK_PROGRAMS,
    Command,
    fault,
    make_targets,
    shown_commands,
    simple_commands,
    unknown_extras,
)
from tests.pages import CHECKOUT, PAGES, codes, fences, section, table

COMMANDS = list(shown_commands())
OF_DAGSTER = [command for command in COMMANDS if command.program == "dagster"]
# what the commands of Dagster call is in beta
pytestmark = pytest.mark.filterwarnings("ignore:Parameter `include_sources`", "ignore:Function `")


def test_every_line_of_a_shell_can_be_typed() -> None:
    found = [f"{one.page}:{one.line}: {said}" for one in COMMANDS if (said := fault(one.words))]
    assert found == []
    assert len(COMMANDS) > 300
    indented = [one for one in COMMANDS if one.page == "docs/kubernetes.md"]
    assert {"docker", "kubectl", "helm"} <= {one.program for one in indented}


def test_every_command_that_a_sentence_mentions_can_be_typed() -> None:
    found = []
    for page, path in PAGES.items():
        for span in codes(" ".join(path.read_text("utf-8").split())):
            if span.removeprefix(".venv/bin/").startswith(("graftline ", "dagster ", "make ", "python -m ")):
                faults = (fault(words, is_mention=True) for words in simple_commands(span))
                found += [f"{page}: {span}: {said}" for said in faults if said]
    assert found == []


def test_every_command_that_a_message_a_comment_or_a_docstring_mentions_can_be_typed() -> None:
    found, mentioned = [], 0
    for folder in (
        "graftline",
        "orchestration",
        "sensors",
        "assets",
        "resources",
        "benchmarks",
        "configs",
        "deploy",
        "examples",
    ):
        for path in (CHECKOUT / folder).rglob("*"):
            if path.suffix not in (".py", ".yaml", ".conf", ".sh", ".service", ".toml") or not path.is_file():
                continue
            # a sentence goes on in the next line of a comment, and in the next part of a text
            text = re.sub(r'"\s*\n\s*f?"|\n\s*#', " ", path.read_text("utf-8"))
            for span in re.findall(r"`(graftline [^`{}…]*)`", " ".join(text.split())):
                mentioned += 1
                faults = (fault(words, is_mention=True) for words in simple_commands(span))
                found += [f"{path.relative_to(CHECKOUT)}: {span}: {said}" for said in faults if said]
    assert found == []
    assert mentioned > 100


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("graftline runn", "No such command 'runn'"),
        ("graftline rules learn a.py b.py", "No such command 'rules'"),
        ("graftline datasets fetch", "`graftline datasets` is now `graftline data`"),
        ("graftline run --port teacher=openai", "`--port` of `graftline run` is now `--set`"),
        ("graftline eval compares a b c", "No such command 'compares'"),
        ("graftline run --mainfest dev", "--mainfest"),
        ("graftline data build --split training", "'training' is not one of 'train', 'dev', 'test'"),
        ("graftline data show -n many", "'many' is not a valid integer"),
        ("graftline eval compare mine several", "Missing argument 'AGAINST'"),
        ("graftline check nothing", "Got unexpected extra argument (nothing)"),
        ("graftline state", "Usage: graftline state"),
        ("make tests", "make: no target tests"),
        ("GRAFTLINE_MANIFEST=dev make runs", "make: no target runs"),
        (".venv/bin/python -m benchmarks.chat_pools", "No module named 'benchmarks.chat_pools'"),
        ("python -m benchmarks.chat_pool --fast", "unrecognized arguments: --fast"),
        ("python -m orchestration.screens", "the following arguments are required: folder"),
        ("python -m asset.partitions", "no module 'asset.partitions'"),
        (".venv/bin/dagster asset materialise --select tasks", "No such command 'materialise'"),
        (".venv/bin/dagster asset materialize --partitions a", "--partitions"),
        ("pip install -c constraints.txt -e '.[clusters,dev]'", "pip: no extra clusters"),
        ("podman run graftline", "podman: no program that the documentation may show"),
        ("A=$(graftline wirings) graftline check && graftline check", "No such command 'wirings'"),
    ],
)
def test_a_command_that_cannot_be_typed_is_found(line: str, said: str) -> None:
    [found] = [found for words in simple_commands(line) if (found := fault(words))]
    assert said in found


def test_lines_are_taken_apart_as_a_shell_does() -> None:
    line = "A=1 graftline check > 'said.txt' || echo 'a && b' | sort  # and then && graftline"
    assert [*simple_commands(line)] == [("graftline", "check"), ("echo", "a && b"), ("sort",)]
    assert [*simple_commands('key=$(openssl rand -hex "$(cat size)") B=2')] == [
        ("cat", "size"), ("openssl", "rand", "-hex", "-"),
    ]  # fmt: skip
    shown = {(one.page, one.words[:3]) for one in COMMANDS}
    assert ("docs/kubernetes.md", ("kubectl", "apply", "-k")) in shown
    # what stands in a document for a file is no command
    assert not {one.words[0] for one in COMMANDS if one.page == "docs/add-a-recipe.md"} & {"recipe:", "data:"}
    [upgrade, _] = [one.words for one in COMMANDS if one.words[:2] in (("helm", "upgrade"),)]
    assert upgrade[-2:] == ("--values", "deploy/helm/values.yaml")


def test_every_make_target_that_is_named_exists_and_every_target_is_documented() -> None:
    spans = [span for path in PAGES.values() for span in codes(path.read_text("utf-8"))]
    calls = [re.fullmatch(r"(?:\w+=\S+ )*make ((?:\w+=\S+ )*)([a-z -]+?) *(?:#.*)?", span) for span in spans]
    named = {target for call in calls if call for target in call[2].split()}
    documented = {
        codes(row[0])[0].removeprefix("make ") for row in table(section("docs/running.md", "## Make targets"))
    }
    assert named <= make_targets()
    assert documented == make_targets()


def test_every_extra_that_is_named_exists() -> None:
    found = {page: said for page, path in PAGES.items() if (said := unknown_extras(path.read_text("utf-8")))}
    assert found == {}


@pytest.fixture(scope="module")
def repository() -> dg.RepositoryDefinition:
    from orchestration.build import build_definitions

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GRAFTLINE_ROOT", raising=False)
        patch.delenv("GRAFTLINE_DATASETS", raising=False)
        return build_definitions().get_repository_def()


def materialized(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the selection of a command that materializes, and the keys of partitions it names."""
    given = dict(pairwise(words))
    keys = (given.get("--partition", ""), *given.get("--partition-range", "").split("..."))
    return given["--select"], tuple(key for key in keys if key)


def validate(repository: dg.RepositoryDefinition, select: str, keys: tuple[str, ...]) -> None:
    """Do what the command does before it starts a run: `dagster._cli.asset.execute_materialize_command`."""
    selected = dg.AssetSelection.from_coercible(select.split(",")).resolve(repository.asset_graph)
    job = repository.get_implicit_job_def_for_assets(selected)
    assert job is not None
    assert selected
    if not keys:
        assert all(job.asset_layer.get(key).partitions_def is None for key in selected)
    with dg.DagsterInstance.ephemeral() as instance:
        # as the sensor adds them, and `python -m assets.partitions <name>` those on demand
        for definition, names in load_partitions(Paths(CHECKOUT)):
            instance.add_dynamic_partitions(definition.name, names)
        instance.add_dynamic_partitions("recipes", lineage_recipes(Paths(CHECKOUT)))
        with partition_loading_context(dynamic_partitions_store=instance) as loading:
            for key in keys:
                job.validate_partition_key(key, selected_asset_keys=selected, context=loading)


@pytest.mark.parametrize(
    "command",
    [one for one in OF_DAGSTER if one.words[1:3] == ("asset", "materialize")],
    ids=lambda one: f"{one.page}:{one.line}",
)
def test_what_is_materialized_is_of_partitions_of_one_kind(
    command: Command, repository: dg.RepositoryDefinition
) -> None:
    assert dict(pairwise(command.words))["-m"] == "orchestration.definitions"
    validate(repository, *materialized(command.words))


@pytest.mark.parametrize(
    ("select", "keys"),
    [
        ("not (group:training or group:harbor or group:evaluations)", ("java|train", "typescript|test")),
        ("tasks", ("python|training",)),
        ("tasks", ()),
        ("group:training", ("java|train",)),
        ("tasks,no_asset", ("java|train",)),
    ],
)
def test_what_cannot_be_materialized_is_found(
    select: str, keys: tuple[str, ...], repository: dg.RepositoryDefinition
) -> None:
    with pytest.raises((AssertionError, dg.DagsterError, dg._check.CheckError)):
        validate(repository, select, keys)


def test_everything_is_what_make_materializes(repository: dg.RepositoryDefinition) -> None:
    ours = [one for one in OF_DAGSTER if "not (" in " ".join(one.words)]
    assert {one.page for one in ours} >= {"docs/running.md", "docs/cluster.md"}
    [everything] = {materialized(one.words)[0] for one in ours}
    validate(repository, everything, ("java|train",))
    assert everything in (CHECKOUT / ".github/workflows/lineage.yml").read_text("utf-8")
    assert "orchestration.run_jobs lineage training" in (CHECKOUT / "Makefile").read_text("utf-8")
    assert everything in (CHECKOUT / "tests/integration/test_cluster.py").read_text("utf-8")
    # the job that a run of the UI and the schedule is of
    graph = repository.asset_graph
    job = repository.get_job("lineage").asset_layer.executable_asset_keys
    assert dg.AssetSelection.from_string(everything).resolve(graph) == job


def test_everything_is_over_the_whole_range() -> None:
    from assets.partitions import whole_range

    whole = whole_range(load_settings(Paths(CHECKOUT)).catalog)
    ours = [one for one in OF_DAGSTER if "not (" in " ".join(one.words)]
    assert {materialized(one.words)[1] for one in ours} == {whole}
    printed = next(fence.output for fence in fences() if "-m assets.partitions" in fence.body and fence.output)
    assert printed == "...".join(whole) + "\n"


def test_jobs_and_sensors_that_are_named_exist(repository: dg.RepositoryDefinition) -> None:
    spans = [span for path in PAGES.values() for span in codes(" ".join(path.read_text("utf-8").split()))]
    mentioned = [words for span in spans if "dagster " in span for words in simple_commands(span)]
    named: dict[str, set[str]] = {"sensor": set(), "job": set()}
    for words in [*mentioned, *(one.words for one in OF_DAGSTER)]:
        if words[1:2] == ("sensor",):
            named["sensor"].add(words[3])
        if words[1:2] == ("job",):
            named["job"].add(dict(pairwise(words))["-j"])
    makefile = (CHECKOUT / "Makefile").read_text("utf-8")
    named["job"].update(*(line.split() for line in re.findall(r"orchestration\.run_jobs (.*)", makefile)))
    assert named["sensor"] - {sensor.name for sensor in repository.sensor_defs} == set()
    assert named["job"] - set(repository.job_names) == set()
    assert "dataset_versions" in named["sensor"]
    assert "training" in named["job"]


def test_programs_that_are_parsed_are_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[str]()
    for program in CLICK_PROGRAMS.values():
        monkeypatch.setattr(program(), "invoke", lambda context: started.append(context.info_name or ""))
    assert fault(("graftline", "check")) is None
    assert fault(("dagster", "asset", "list")) is None
    assert started == []
