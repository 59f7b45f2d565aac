"""The documentation, executed: examples run, what they print is printed, and whatever is named exists."""

import gzip
import json
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from pydantic import BaseModel

from graftline.astgrep.action import PatternAction
from graftline.cli.main import main
from graftline.codemod.equality import Level
from graftline.core.hashing import sha256_file
from graftline.core.paths import Paths
from graftline.core.record import ArtifactRecord, NormalizedRecord, RawRecord
from graftline.core.telemetry import TelemetrySettings
from graftline.datasets.catalog import Catalog
from graftline.datasets.governance import Governance
from graftline.evals.evaluation_file import EvaluationFile
from graftline.harbor.deployment_file import DeploymentFile
from graftline.llm.fleet import Fleets
from graftline.llm.weights.catalog import ModelCatalog
from graftline.pipeline import load_manifest
from graftline.pipeline.exports import FORMATS, read_stored_attempts
from graftline.pipeline.manifests import Manifest
from graftline.pipeline.settings import TrajectorySettings
from graftline.pipeline.stages.optimized_prompt import PromptFile
from graftline.rollouts import trajectory as steps
from graftline.rollouts.exports.parquet import STEPS, TRAJECTORIES
from graftline.rollouts.reward import Reward, RewardWeights, reward
from graftline.rollouts.state import StateStore, StateUpdate
from graftline.rollouts.task_tests import CAUSES_OF_SILENCE
from graftline.rollouts.teachers.prompt import Prompts, load_prompt
from graftline.sandbox import CaseLimits, SandboxSettings, Verdict
from graftline.sandbox.base import LEVELS, Limits
from graftline.sandbox.file_names import WorkspaceLimits
from tests.pages import CHECKOUT, PAGES, Fence, codes, fences, keys_of, models_in, section, table, written_root
from tests.security.hostile.counter_cases import COUNTER_CASES
from tests.security.hostile.suite import JAIL_CASES, SANDBOX_CASES

# those need a backend or a service: tests/unit/training/test_train.py, tests/test_docs_harbor.py, tests/test_docs_mcp.py
OF_SERVICES = ("docs/training.md", "docs/harbor.md", "docs/mcp.md")
PYTHON = [fence for fence in fences() if fence.language == "python" and fence.page not in OF_SERVICES]
LINES = [line for fence in fences() if fence.language in ("console", "bash") for line in fence.body.splitlines()]
RULES = [fence for fence in fences() if fence.page in ("docs/rules.md", "docs/one-edit.md", "docs/refactor.md")]
APACHE_2_0 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


@pytest.fixture(scope="module")
def root(new_checkout: Callable[[Path], Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = written_root(new_checkout(tmp_path_factory.mktemp("docs") / "root"))
    shutil.copy(CHECKOUT / "configs" / "models.yaml", root / "configs")
    shutil.copytree(CHECKOUT / "configs" / "recipes", root / "configs" / "recipes", dirs_exist_ok=True)
    with (root / "configs" / "recipes" / "first_adapter.yaml").open("a") as recipe:
        recipe.write("is_on_demand: true\n")  # or `graftline run` would train it for minutes
    with StateStore(root / "kept" / "states.sqlite") as states:
        states.update("mine:1#1", StateUpdate(goals=["Log through the logger."]))
        states.update("mine:1#1", StateUpdate(history=["renamed `show`"]))
    return root


@pytest.mark.parametrize("fence", PYTHON, ids=lambda fence: f"{fence.page}:{fence.line}")
def test_every_python_example_runs_and_prints_what_is_shown(
    fence: Fence, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root)
    monkeypatch.delenv("GRAFTLINE_ROOT", raising=False)
    exec(compile(fence.body, f"{fence.page}:{fence.line}", "exec"), {"__name__": "example"})
    printed = capsys.readouterr().out
    assert printed.strip() != ""
    if fence.output is not None:
        assert printed == fence.output


def test_every_graftline_command_that_is_shown_succeeds(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_STATE_HOME", str(root / "user-state"))
    ping = root / "shop" / "ping.py"
    ping.write_text(ping.read_text("utf-8").replace("client.fetch", "client.load"), "utf-8")
    of_rules = {
        line for fence in RULES for line in fence.body.splitlines()
    }  # `test_docs_rules`, `test_docs_one_edit` and `test_docs_refactor` type them in their order
    shown = [line.removeprefix("$ ").removeprefix(".venv/bin/") for line in LINES if line not in of_rules]
    commands = list(dict.fromkeys(line for line in shown if line.startswith("graftline ")))
    results = {
        command: CliRunner().invoke(main, shlex.split(command)[1:], env={"GRAFTLINE_ROOT": str(root)})
        for command in commands
    }
    assert len(results) >= 10
    assert {command: result.output for command, result in results.items() if result.exit_code} == {}


def test_the_installed_command_is_the_one_that_is_documented(root: Path) -> None:
    command = [str(Path(sys.executable).with_name("graftline")), "--root", str(root), "config", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout).keys() == Manifest.model_fields.keys()


def commands_of(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield the commands below `group`, those of groups in it included, by what is typed."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands_of(command, f"{prefix}{name} ")
        elif command is not None:
            yield f"{prefix}{name}", command


def test_every_command_and_option_of_graftline_is_in_the_docs_and_no_other() -> None:
    def options(command: click.Command) -> set[str]:
        return {option for parameter in command.params for option in parameter.opts if option.startswith("-")}

    page = PAGES["docs/cli.md"].read_text("utf-8")
    common = {option for row in table(page.partition("These options")[2]) for option in codes(row[0])}
    headings = {
        name: f"{marks} `graftline {name}`" for marks, name in re.findall(r"^(##+) `graftline ([\w -]+)`$", page, re.M)
    }
    commands = dict(commands_of(main))
    groups = {name.rpartition(" ")[0] for name in commands} - {""}
    assert sorted(headings.keys() - groups) == sorted(commands)
    for name, command in commands.items():
        own = section("docs/cli.md", headings[name])
        rows = table(own) if "\n|" in own else []
        documented = {option for row in rows for option in codes(row[0])}
        assert documented <= options(command) <= documented | common, name
    general = {option.split()[0] for row in table(page) for option in codes(row[0])}
    assert general == {*options(main), "-h", "--help"}


def test_every_relative_link_leads_to_a_file_and_a_heading_that_exist() -> None:
    def slugs(path: Path) -> set[str]:
        headings = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.M)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    broken = []
    for page, path in PAGES.items():
        for link in re.findall(r"\]\(([^)]+)\)", path.read_text("utf-8")):
            name, _, anchor = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            if not link.startswith("https://") and not (target.exists() and (not anchor or anchor in slugs(target))):
                broken.append(f"{page}: {link}")
    assert broken == []


@pytest.mark.parametrize(
    ("file", "model"),
    [
        ("datasets.yaml", Catalog),
        ("evaluations/*.yaml", EvaluationFile),
        ("governance.yaml", Governance),
        ("harbor/*.yaml", DeploymentFile),
        ("models.yaml", ModelCatalog),
        ("prompts/*.yaml", PromptFile),
        ("sandbox.yaml", SandboxSettings),
        ("teacher_prompts.yaml", Prompts),
        ("telemetry.yaml", TelemetrySettings),
        ("trajectories.yaml", TrajectorySettings),
        ("vllm_actors.yaml", Fleets),
        ("manifests/*.yaml", Manifest),
    ],
)
def test_every_configuration_key_is_documented_with_its_default_and_no_other(file: str, model: type[BaseModel]) -> None:
    rows = table(section("docs/configuration.md", f"## `configs/{file}`"))
    assert {codes(row[0])[0]: row[1] for row in rows} == keys_of(model)


def test_the_table_of_manifests_is_what_they_wire() -> None:
    text = section("docs/configuration.md", "## `configs/manifests/*.yaml`")
    rows = table(text[text.index("| manifest |") - 1 :])
    kinds = {codes(row[0])[0]: [codes(cell)[0] for cell in row[1:]] for row in rows}
    loaded = {name: load_manifest(Paths(CHECKOUT), name) for name in kinds}
    assert kinds == {name: [port.kind for _, port in manifest] for name, manifest in loaded.items()}


def test_every_environment_variable_that_is_read_is_documented() -> None:
    sources = [
        path
        for folder in ("graftline", "orchestration", "resources", "sensors", "assets")
        for path in (CHECKOUT / folder).rglob("*.py")
        if path.name != "secret_finds.py"  # names that are refused, whatever they hold
    ]
    name_of_one = re.compile(r'"((?:GRAFTLINE|VAULT)_[A-Z_]+|[A-Z_]+_(?:TOKEN|KEY))"')
    read = {name for path in sources for name in name_of_one.findall(path.read_text("utf-8"))}
    # those that a manifest or an instance of Dagster names, and a program of another project reads
    files = [*CHECKOUT.glob("configs/**/*.yaml"), *CHECKOUT.glob("*.yaml"), *(CHECKOUT / "deploy").rglob("*")]
    texts = [path.read_text("utf-8") for path in files if path.is_file()]
    read |= {name for text in texts for name in re.findall(r"\bapi_key: ([A-Z_]+)", text)}
    read |= {name for text in texts for name in re.findall(r"\b(?:GRAFTLINE|DAGSTER)_[A-Z_]+", text)}
    assert {codes(row[0])[0] for row in table(section("docs/configuration.md", "## Environment"))} == read


def test_the_columns_of_the_parquet_files_are_the_documented_ones() -> None:
    for name, columns in (("steps", STEPS), ("trajectories", TRAJECTORIES)):
        rows = table(section("docs/trajectories.md", f"## `{name}.parquet`"))
        documented = [(codes(row[0])[0], row[1].replace(", may be missing", "?")) for row in rows]
        assert documented == list(columns.items())


def test_the_fields_of_the_json_lines_are_the_documented_ones() -> None:
    for heading, model in (("### Trajectory", steps.Trajectory), ("### Step", steps.TrajectoryStep)):
        rows = table(section("docs/trajectories.md", heading))
        assert {field for row in rows for field in codes(row[0])} == {
            info.serialization_alias or name for name, info in model.model_fields.items()
        }
    [version] = [
        row[1] for row in table(section("docs/trajectories.md", "### Trajectory")) if row[0] == "`schema_version`"
    ]
    assert version.startswith(f"{steps.Trajectory.model_fields['schema_version'].default}; ")
    parts = {codes(row[0])[0]: set(codes(row[1])) for row in table(section("docs/trajectories.md", "### Step"))}
    models: Mapping[str, type[BaseModel]] = {
        "prompt": steps.Prompt,
        "model_output": steps.ModelOutput,
        "sandbox_result": steps.SandboxOutcome,
        "reward": Reward,
    }
    assert {name: parts[name] for name in models} == {name: set(model.model_fields) for name, model in models.items()}


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "atif"])
def test_the_fields_of_rows_for_training_are_the_documented_ones(name: str, root: Path) -> None:
    attempts = list(read_stored_attempts(Paths(root), "train"))
    right = next(attempt for attempt in attempts if attempt.is_verified)
    other = PatternAction(pattern="of_no_use($A)", rewrite="$A")
    output = right.steps[0].model_output.model_copy(update={"action": other})
    wrong = right.steps[0].model_copy(update={"model_output": output, "is_kept": False})
    rows = FORMATS[name](
        [*attempts, right.model_copy(update={"steps": (wrong,)})], load_prompt(CHECKOUT / "configs", "large")
    )
    row = next(rows)
    text = section("docs/trajectories.md", "## Files for training")
    assert [codes(cells[0])[0] for cells in table(text)] == list(FORMATS)
    documented = table(text[text.index("| field |") - 1 :])
    fields = {
        field for cells in documented for field in codes(cells[0]) if cells[1] == "all" or name in codes(cells[1])
    }
    assert fields == row.keys()


def test_levels_and_rewards_are_the_documented_ones() -> None:
    levels = table(section("docs/trajectories.md", "## Levels"))
    assert [(codes(row[0])[0], row[2]) for row in levels] == [
        (level, "yes" if level.is_verified else "no") for level in Level
    ]
    rows = table(section("docs/trajectories.md", "## Rewards"))
    documented = {cause: row[1] for row in rows for cause in codes(row[0])}
    weights = RewardWeights()
    given = [reward(verdict, Level.NONE, 0.0, True, weights) for verdict in Verdict]
    given += [reward(Verdict.OK, Level.EXACT, 1.0, is_general, weights) for is_general in (True, False)]
    given.append(reward(Verdict.OK, Level.EXACT, 1.0, True, weights, is_broad=True))
    expected = {one.cause: "missing" if one.value is None else str(one.value) for one in given}
    expected |= {"partial": f"{weights.progress} of progress", "gave_up": "0.0", "bad_format": "0.0"}
    expected |= dict.fromkeys(CAUSES_OF_SILENCE, "missing")
    assert documented == expected


def test_verdicts_levels_and_limits_of_the_sandbox_are_the_documented_ones() -> None:
    names = {
        heading: [codes(row[0])[0] for row in table(section("docs/sandbox.md", heading))]
        for heading in ("## Verdicts", "## Levels")
    }
    assert names == {"## Verdicts": list(Verdict), "## Levels": list(LEVELS)}
    limits = {"### Limits of an action": Limits, "## Limits of a case": CaseLimits, "## Workspaces": WorkspaceLimits}
    for heading, model in limits.items():
        rows = table(section("docs/sandbox.md", heading))
        assert {codes(row[0])[0]: row[1] for row in rows} == keys_of(model)


def test_the_tree_of_the_readme_is_the_checkout() -> None:
    tree = section("README.md", "## What is where").split("```")[1].splitlines()[1:]
    named = [line.split()[0].rstrip("/") for line in tree]
    areas = [line.split()[0].rstrip("/") for line in tree if line.startswith(" ")]
    listed = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    tracked = {name.partition("/")[0] for name in listed.stdout.splitlines()} - {".gitignore"}
    top = {name.partition("/")[0] for name in named if name not in areas}
    assert sorted(name for name in top if not (CHECKOUT / name).exists()) == []
    assert sorted(tracked - top) == []
    assert sorted(areas) == sorted(path.parent.name for path in (CHECKOUT / "graftline").glob("*/__init__.py"))


def test_the_tree_and_the_floors_of_the_architecture_are_the_real_ones() -> None:
    tree = section("ARCHITECTURE.md", "## The tree").split("```")[1].splitlines()[1:]
    named = [("graftline/" * line.startswith("  ") + line.split()[0]).rstrip("/") for line in tree]
    tops = ("graftline", "orchestration", "sensors", "assets", "resources")
    folders = {path.parent for top in tops for path in (CHECKOUT / top).rglob("*.py") if path.name != "__init__.py"}
    missing = {folder.relative_to(CHECKOUT).as_posix() for folder in folders} - set(named)
    assert missing == set()
    assert [folder for folder in named if not (CHECKOUT / folder).is_dir()] == []
    contracts = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    floors = [
        fence.body.splitlines() for fence in fences() if fence.page == "ARCHITECTURE.md" and fence.language == "text"
    ]
    assert floors[:2] == [contract["layers"] for contract in contracts if contract["type"] == "layers"]


def test_ports_and_records_of_the_architecture_are_the_real_ones() -> None:
    rows = table(section("ARCHITECTURE.md", "## Ports"))
    kinds = {codes(row[0])[0]: codes(row[2]) for row in rows}
    unions = {name: list(models_in(field.annotation)) for name, field in Manifest.model_fields.items()}
    expected = {
        name: [member.model_fields["kind"].default for member in members if "kind" in member.model_fields]
        for name, members in unions.items()
    }
    assert kinds == expected
    text = section("ARCHITECTURE.md", "## Records")
    assert {field for row in table(text) for field in codes(row[0])} == set(ArtifactRecord.model_fields)
    [version] = [row[1] for row in table(text) if row[0] == "`schema_version`"]
    assert version.startswith(f"{ArtifactRecord.model_fields['schema_version'].default}; ")
    [of_raw] = re.findall(r"The record of a raw dataset also has (.*?)\.\s", text, re.S)
    [more] = re.findall(r"record of a normalized one has these too, and (.*?)\.\s", text, re.S)
    assert set(codes(of_raw)) == set(RawRecord.model_fields) - set(ArtifactRecord.model_fields)
    assert set(codes(more)) == set(NormalizedRecord.model_fields) - set(RawRecord.model_fields)


def test_every_extra_is_documented() -> None:
    extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert {name for row in table(section("README.md", "## Extras")) for name in codes(row[0])} == set(extras)


def test_the_table_of_the_readme_is_part_of_the_one_of_the_command() -> None:
    full = section("docs/cli.md", "## `graftline status`")
    shown = next(fence.body for fence in fences() if fence.page == "README.md" and fence.language == "text")
    assert [line for line in shown.splitlines() if line not in full] == []


def test_the_table_of_duckdb_has_the_sums_of_the_summary() -> None:
    summary = section("docs/cli.md", "## `graftline status`")
    rows = re.findall(r"^  (\w+)/(\w+) +\S+ +\S+ +\S+ +([1-9]\d*) +(\d+) ", summary, re.M)
    [shown] = [fence.output for fence in fences() if "count(*) as tried" in fence.body]
    printed = PAGES["docs/trajectories.md"].read_text("utf-8")
    assert shown is None  # a table of the shipped sample, which nothing here makes
    assert re.findall(r"^│ (\w+) +│ (\w+) +│ +(\d+) │ +(\d+) │$", printed, re.M) == rows


def of_columns(text: str) -> list[list[str]]:
    """Return the heads of the tables that a command prints."""
    lines = text.splitlines()
    return [re.split(r" {2,}", lines[at - 1].strip()) for at, line in enumerate(lines) if line.startswith(" ───")]


def test_tables_of_commands_have_the_columns_that_are_shown(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    other, looked_at = {}, 0
    for fence in fences():
        if fence.language != "console" or not (shown := of_columns(fence.output or "")):
            continue
        typed = [
            line.removeprefix("$ graftline ") for line in fence.body.splitlines() if line.startswith("$ graftline ")
        ]
        printed: list[list[str]] = []
        for line in typed:
            done = CliRunner().invoke(main, shlex.split(line), env={"GRAFTLINE_ROOT": str(root)})
            printed += of_columns(done.output)
        # some show a part of what is printed; no adapter was trained in this root
        if missing := [head for head in shown if head not in printed and head[0] != "recipe"]:
            other[f"{fence.page}:{fence.line}"] = missing
        looked_at += 1
    assert other == {}
    assert looked_at >= 5


def test_the_wiring_that_is_shown_is_that_of_the_manifest() -> None:
    text = section("docs/cli.md", "## `graftline config`")
    shown = re.findall(r"^  ([a-z_]+) +([a-z_]+)(?: |$)", text.partition("───\n")[2], re.M)
    assert dict(shown) == {name: port.kind for name, port in load_manifest(Paths(CHECKOUT), "local")}
    assert [name for name, _ in shown] == list(Manifest.model_fields)


def test_the_readme_counts_the_hostile_suite() -> None:
    [number] = re.findall(r"(\d+) hostile programs and actions", PAGES["README.md"].read_text("utf-8"))
    assert int(number) == len(JAIL_CASES) + len(SANDBOX_CASES)


def test_whatever_the_kernel_counts_for_all_has_a_bound_and_hostile_cases() -> None:
    rows = table(section("docs/sandbox.md", "## What the kernel counts for all"))
    cases = [name for row in rows for name in codes(row[2])]
    assert [name for name in cases if name not in {case.name for case in JAIL_CASES}] == []
    assert [row for row in rows if not row[1] or not codes(row[2])] == []
    assert {case.name for case in COUNTER_CASES} <= {*cases}
    limits = {name for name in dir(resource) if name.startswith("RLIMIT_")} - {"RLIMIT_OFILE"}  # another name of NOFILE
    assert limits - {*codes(" ".join(row[0] for row in rows))} == set()


def test_the_readme_says_what_the_results_say() -> None:
    """Percentages are those of the table of results, of the trained adapter and the larger model."""
    text = section("docs/results.md", "## Told what to do")
    head = [cell.strip() for cell in text[text.index("\n|") :].splitlines()[1].strip("|").split("|")]
    counts = [int(re.findall(r"\((\d+)\)", cell)[0]) for cell in head[1:]]
    rows = {row[0]: [int(cell) for cell in row[1:]] for row in table(text) if row[1].isdigit()}
    small, larger = rows["qwen2.5-coder-0.5b, `edits`"], rows["qwen2.5-coder-1.5b, not trained"]
    results = [[round(100 * one / count) for one in both] for *both, count in zip(small, larger, counts, strict=True)]
    found = table(section("README.md", "## Does it work?"))
    assert [[int(cell.rstrip(" %")) for cell in row[1:]] for row in found] == results
    words = " ".join(PAGES["README.md"].read_text("utf-8").partition("## Why")[0].split())
    said = [int(number) for number in re.findall(r"(\d+) %", words)]
    # real edits first, then families and places
    assert said == [*results[1], *results[0], *results[2]]


def test_the_notice_of_the_sample_counts_its_rows() -> None:
    folder = CHECKOUT / "data" / "samples"
    lines = re.split(r"^-.*\n", (folder / "NOTICE").read_text("utf-8"), flags=re.M)[1].splitlines()
    cells = [re.split(r" {2,}", line) for line in lines]
    with gzip.open(folder / "release_pairs.jsonl.gz", "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    counted = Counter((row["pkg"], row["license"], row["registry"]) for row in rows)
    assert {(name, license, registry): int(count) for name, license, registry, _, count in cells} == counted
    assert all(f"{row['old']} to {row['new']}" in "\n".join(lines) for row in rows)


def test_the_license_is_the_unmodified_text() -> None:
    assert sha256_file(CHECKOUT / "LICENSE") == APACHE_2_0


def test_no_page_holds_an_address_of_mail() -> None:
    notices = [CHECKOUT / "NOTICE", CHECKOUT / "data/samples/NOTICE"]
    assert [
        str(path) for path in [*PAGES.values(), *notices] if re.search(r"\w@\w+\.\w", path.read_text("utf-8"))
    ] == []
