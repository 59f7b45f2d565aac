"""The documentation, executed: examples run, what they print is printed, and whatever is named exists."""

import gzip
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args, get_origin

import click
import dagster as dg
import pytest
from click.testing import CliRunner
from pydantic import BaseModel

from graftline.cli import main
from graftline.datasets.catalogue import Catalogue
from graftline.datasets.edit import DropReason
from graftline.errors import RecordError, SandboxError
from graftline.hashing import sha256_file
from graftline.paths import Paths
from graftline.progress import progress_bars
from graftline.record import RawRecord, Record, verified
from graftline.rules.equality import Level
from graftline.runtime import load_manifest, load_settings, open_lineage
from graftline.runtime.manifests import Manifest
from graftline.runtime.run import run_all
from graftline.runtime.settings import TrajectorySettings
from graftline.sandbox.base import Isolation, SandboxResult, Verdict, decided
from graftline.sandbox.limits import LEVELS, Limits
from graftline.trajectories import step as steps
from graftline.trajectories.export import STEPS, TRAJECTORIES
from graftline.trajectories.reward import Reward, RewardWeights, reward

CHECKOUT = Path(__file__).resolve().parents[1]
PAGES = {path.relative_to(CHECKOUT).as_posix(): path for path in [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/*.md")]}
APACHE_2_0 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


@dataclass(frozen=True)
class Fence:
    """A fenced block; `output` is the block of text that follows it with nothing between, for that is what it prints."""

    page: str
    line: int
    language: str
    body: str
    output: str | None


def fences() -> Iterator[Fence]:
    fence = re.compile(r"^```(\w+)\n((?:(?!```).*\n)*)```\n(?:\n```text\n((?:(?!```).*\n)*)```)?", re.M)
    for page, path in sorted(PAGES.items()):
        text = path.read_text("utf-8")
        for match in fence.finditer(text):
            yield Fence(page, text.count("\n", 0, match.start()) + 1, match[1], match[2], match[3])


PYTHON = [fence for fence in fences() if fence.language == "python"]
LINES = [line for fence in fences() if fence.language in ("console", "bash") for line in fence.body.splitlines()]


def section(page: str, heading: str) -> str:
    """Return what stands under `heading`, up to the next heading of its level or a higher one."""
    level = len(heading) - len(heading.lstrip("#"))
    _, _, rest = PAGES[page].read_text("utf-8").partition(f"{heading}\n")
    return re.split(rf"^#{{1,{level}}} ", rest, maxsplit=1, flags=re.M)[0]


def table(text: str) -> list[list[str]]:
    """Return the cells of the first table in `text`, without its head."""
    lines = text[text.index("\n|") :].lstrip().split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def codes(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


@pytest.fixture(scope="module")
def root(new_checkout: Callable[[Path], Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root folder with everything a run writes, and one row that was left out."""
    small = new_checkout(tmp_path_factory.mktemp("docs") / "root")
    call = {"python": "def f{n}(a):\n    return {name}(a, b{n})\n"}
    call |= {"javascript": "function f{n}(a) {{\n  return {name}(a, b{n});\n}}\n"}
    call |= {"java": "int f{n}(int a) {{\n    return {name}(a, b{n});\n}}\n"}
    rows = [
        pair_of(f"{language}{n}", language, text.format(n=n, name="old"), text.format(n=n, name="fresh"))
        for language, text in call.items()
        for n in range(3)
    ]
    small.write([*rows, pair_of("gone", "python", "f(1)\n", "")])
    with progress_bars() as bars:
        run_all(Paths(small.root), "local", {}, bars)
    return small.root


def pair_of(name: str, language: str, pre: str, post: str, **other: Any) -> dict[str, Any]:
    row = {"id": f"release:{name}", "source": f"pypi:{name} 1->2", "licence": "MIT", "language": language}
    row |= {"pre": pre, "post": post, "registry": "pypi", "pkg": name, "old": "1", "new": "2", "path": "a", "qual": "f"}
    return {**row, **other}


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
    shown = [line.removeprefix("$ ").removeprefix(".venv/bin/") for line in LINES]
    commands = list(dict.fromkeys(line for line in shown if line.startswith("graftline ")))
    results = {
        command: CliRunner().invoke(main, shlex.split(command)[1:], env={"GRAFTLINE_ROOT": str(root)})
        for command in commands
    }
    assert len(results) >= 10
    assert {command: result.output for command, result in results.items() if result.exit_code} == {}


def test_the_installed_command_is_the_one_that_is_documented(root: Path) -> None:
    command = [str(Path(sys.executable).with_name("graftline")), "--root", str(root), "wiring", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout).keys() == Manifest.model_fields.keys()


def test_every_command_and_option_of_graftline_is_in_the_docs_and_no_other() -> None:
    def options(command: click.Command) -> set[str]:
        return {option for parameter in command.params for option in parameter.opts if option.startswith("-")}

    page = PAGES["docs/cli.md"].read_text("utf-8")
    assert sorted(re.findall(r"^## `graftline (\w+)`$", page, re.M)) == sorted(main.commands)
    for name, command in main.commands.items():
        rows = table(section("docs/cli.md", f"## `graftline {name}`"))
        assert {option for row in rows for option in codes(row[0])} == options(command), name
    general = {option.split()[0] for row in table(page) for option in codes(row[0])}
    assert general == {*options(main), "-h", "--help"}


def test_every_make_target_that_is_named_exists_and_every_target_is_documented() -> None:
    targets = set(re.findall(r"^([a-z]+):.*##", (CHECKOUT / "Makefile").read_text("utf-8"), re.M))
    spans = [span for path in PAGES.values() for span in codes(path.read_text("utf-8"))] + LINES
    calls = [re.fullmatch(r"(?:\w+=\S+ )*make ((?:\w+=\S+ )*)([a-z ]+?) *(?:#.*)?", span) for span in spans]
    named = {target for call in calls if call for target in call[2].split()}
    documented = {
        codes(row[0])[0].removeprefix("make ") for row in table(section("docs/running.md", "## Make targets"))
    }
    assert named <= targets
    assert documented == targets


@pytest.mark.filterwarnings("ignore:Parameter `include_sources`")  # what the command of Dagster calls is in beta
def test_every_dagster_command_that_is_shown_selects_assets_and_partitions_that_exist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from assets.partitions import partitions_of, whole_range
    from orchestration.build import build_definitions

    monkeypatch.delenv("GRAFTLINE_ROOT", raising=False)
    graph = build_definitions().resolve_asset_graph()
    catalogue = load_settings(Paths(CHECKOUT)).catalogue
    partitions = set(partitions_of(catalogue).get_partition_keys())
    commands = [shlex.split(line) for line in LINES if "dagster asset materialize" in line]
    assert len(commands) >= 5
    for command in commands:
        given = dict(pairwise(command))
        assert given["-m"] == "orchestration.definitions"
        for selection in given["--select"].split(","):
            assert dg.AssetSelection.from_string(selection).resolve(graph), command
        keys = [given.get("--partition", ""), *given.get("--partition-range", "").split("...")]
        assert {*keys} - {""} <= partitions, command
    printed = next(fence.output for fence in fences() if "-m assets.partitions" in fence.body and fence.output)
    assert printed == "...".join(whole_range(catalogue)) + "\n"


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


def keys_of(model: type[BaseModel], prefix: str = "") -> dict[str, str]:
    """Return every dotted key of a configuration file with its default as JSON, or `needed`."""
    found: dict[str, str] = {}
    for name, field in model.model_fields.items():
        inner = list(models_in(field.annotation))
        shape = {dict: ".<name>", tuple: "[]"}.get(get_origin(field.annotation), "") if inner else ""
        key = f"{prefix}{name}{shape}"
        for member in inner:
            found |= {**keys_of(member, f"{key}."), **found}
        if not inner:
            # `kind` has a default in its class, but tells the members of a union apart in a file
            is_needed = field.is_required() or name == "kind"
            found[key] = "needed" if is_needed else f"`{json.dumps(field.get_default(call_default_factory=True))}`"
    return found


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from models_in(inner)


@pytest.mark.parametrize(
    ("file", "model"),
    [("datasets.yaml", Catalogue), ("trajectories.yaml", TrajectorySettings), ("manifests/*.yaml", Manifest)],
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
        for folder in ("src", "orchestration", "resources", "sensors", "assets")
        for path in (CHECKOUT / folder).rglob("*.py")
    ]
    read = {
        name for path in sources for name in re.findall(r'"((?:GRAFTLINE|VAULT)_[A-Z_]+)"', path.read_text("utf-8"))
    }
    assert {codes(row[0])[0] for row in table(section("docs/configuration.md", "## Environment"))} == read


def test_the_columns_of_the_parquet_files_are_the_documented_ones() -> None:
    for name, columns in (("steps", STEPS), ("trajectories", TRAJECTORIES)):
        rows = table(section("docs/trajectories.md", f"## `{name}.parquet`"))
        documented = [(codes(row[0])[0], row[1].replace(", may be missing", "?")) for row in rows]
        assert documented == list(columns.items())


def test_the_fields_of_the_json_lines_are_the_documented_ones() -> None:
    for heading, model in (("### Trajectory", steps.Trajectory), ("### Step", steps.TrajectoryStep)):
        rows = table(section("docs/trajectories.md", heading))
        assert {field for row in rows for field in codes(row[0])} == set(model.model_fields)
    parts = {codes(row[0])[0]: set(codes(row[1])) for row in table(section("docs/trajectories.md", "### Step"))}
    models: Mapping[str, type[BaseModel]] = {
        "prompt": steps.Prompt,
        "model_output": steps.ModelOutput,
        "sandbox_result": steps.SandboxOutcome,
        "reward": Reward,
    }
    assert {name: parts[name] for name in models} == {name: set(model.model_fields) for name, model in models.items()}


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
    expected = {one.cause: "missing" if one.value is None else str(one.value) for one in given}
    expected |= {"partial": f"{weights.progress} of progress", "gave_up": "0.0"}
    assert documented == expected


def test_verdicts_levels_and_limits_of_the_sandbox_are_the_documented_ones() -> None:
    names = {
        heading: [codes(row[0])[0] for row in table(section("docs/sandbox.md", heading))]
        for heading in ("## Verdicts", "## Levels")
    }
    assert names == {"## Verdicts": list(Verdict), "## Levels": list(LEVELS)}
    limits = table(section("docs/sandbox.md", "## Limits"))
    assert {codes(row[0])[0]: row[1] for row in limits} == keys_of(Limits)


def test_every_reason_for_leaving_a_row_out_is_documented_with_a_real_message(
    new_checkout: Callable[[Path], Any], tmp_path: Path
) -> None:
    good = pair_of("a", "python", "f(1)\n", "g(1)\n")
    lines = [
        b"x" * ((2 << 20) + 1),
        b'{"id": "\xff"}',
        b"[1]",
        json.dumps({key: value for key, value in good.items() if key != "qual"}).encode(),
        *(json.dumps({**good, **change}).encode() for change in (
            {"language": "ruby"}, {"pre": " "}, {"post": ""}, {"pre": "a\0"}, {"post": "f(1)\n\n"},
            {"licence": "GPL-3.0-only"}, {"pre": "x = 1\n" * 2000}, {"post": "def ("},
        )),
    ]  # fmt: skip
    cut = gzip.compress(json.dumps(good).encode() * 99)[:-9]
    details = {}
    for name, content in (("rows.jsonl", b"\n".join(lines)), ("rows.jsonl.gz", cut)):
        small = new_checkout(tmp_path / name)
        small.sample = small.sample.with_name(name)
        small.configure()
        small.sample.write_bytes(content)
        details |= {row["reason"]: row["detail"] for row in dropped(small.root)}
    rows = table(section("docs/bad-input.md", "## Rows that are left out"))
    assert {codes(row[0])[0]: codes(row[2])[0] for row in rows} == details
    assert details.keys() == set(DropReason)


def dropped(root: Path) -> list[dict[str, Any]]:
    from graftline.parquet import read_parquet

    paths = Paths(root)
    with open_lineage(paths, load_manifest(paths, "local"), "docs") as lineage:
        lineage.raw("release_pairs")
        return read_parquet(lineage.normalized("release_pairs").folder / "dropped.parquet")


def changed(**changes: Any) -> Callable[[Path], None]:
    """Return what changes keys of datasets.yaml; a dotted key is written with `__`."""

    def apply(root: Path) -> None:
        path = root / "configs" / "datasets.yaml"
        tree = json.loads(path.read_text("utf-8"))
        for key, value in changes.items():
            *above, last = key.split("__")
            inner = tree
            for name in above:
                inner = inner.setdefault(name, {}) if isinstance(inner, dict) else inner[int(name)]
            inner[last] = value
        path.write_text(json.dumps(tree), "utf-8")

    return apply


def replaced(name: str, content: str | None) -> Callable[[Path], None]:
    def apply(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        if content is not None:
            (root / name).write_text(content, "utf-8")

    return apply


FILE = "datasets__release_pairs__files__0__"
TASKS = "data/tasks/java/dev"
FAULTS: list[tuple[Callable[[Path], None], str]] = [
    (changed(splitting__seeed=1, synthesis__per_partition="40"), "check"),
    (changed(splitting={"train": 0.9, "dev": 0.1, "test": 0.1}), "check"),
    (changed(datasets__release_pairs__reader="commitpack"), "check"),
    (replaced("configs/datasets.yaml", "a: &x 1\nb: *x\n"), "check"),
    (replaced("configs/datasets.yaml", ""), "check"),
    (replaced("configs/datasets.yaml", None), "check"),
    (changed(), "wiring --manifest staging"),
    (changed(), "wiring --port sandboxx=memory"),
    (changed(), "wiring --port sandbox.limits.cpu_s=0"),
    (changed(), "run --port sandbox.required_level=full"),
    (changed(**{FILE + "size_bytes": 375891}), "run"),
    (changed(**{FILE + "sha256": "44db2c977d6f27a4f934c56a4c69553d30e2b0811fb612363787214f7ce4d33f"}), "run"),
    (replaced("data/samples/release_pairs.jsonl", None), "run"),
    (replaced(f"{TASKS}/tasks.jsonl", "{}\n"), "check"),
    (replaced(f"{TASKS}/tasks.jsonl", None), "check"),
    (replaced(f"{TASKS}/notes.txt", ""), "check"),
]


def test_the_messages_about_bad_input_are_the_real_ones(root: Path, tmp_path: Path) -> None:
    real = [message_of(root, tmp_path / str(number), *case) for number, case in enumerate(FAULTS)]
    shutil.copytree(root / TASKS, tmp_path / TASKS)
    record = tmp_path / TASKS / "_meta.json"
    for break_it in (lambda: record.write_text(record.read_text("utf-8").replace('"tasks"', '"other"')), record.unlink):
        break_it()
        with pytest.raises(RecordError) as raised:
            verified(tmp_path / TASKS, "tasks")
        real.append(str(raised.value).replace(f"{tmp_path}/", ""))
    with pytest.raises(SandboxError) as busy:
        decided(SandboxResult(Verdict.WALL_TIMEOUT, None, Isolation("none", "memory")))
    real.append(str(busy.value))
    result = CliRunner().invoke(main, ["check"], env={"GRAFTLINE_ROOT": "nowhere"})
    real.append(result.stderr.removeprefix("error: "))
    shown = [fence.body for fence in fences() if fence.page == "docs/bad-input.md" and fence.language == "text"]
    assert set("".join(shown).splitlines()) == set("\n".join(real).splitlines())


def message_of(root: Path, copy: Path, change: Callable[[Path], None], command: str) -> str:
    """Return what `command` says in a copy of `root` after `change`, with paths as they read from the copy."""
    shutil.copytree(root, copy)
    if command == "run":  # its cases are about a sample whose size and checksum are known
        (copy / "data" / "samples" / "release_pairs.jsonl").write_bytes(b"")
    change(copy)
    result = CliRunner().invoke(main, ["--root", str(copy), *shlex.split(command)])
    assert result.exit_code == 1
    return result.stderr.replace(f"{copy}/", "").removeprefix("error: ").rstrip("\n")


def test_the_tree_of_the_readme_is_the_checkout() -> None:
    tree = section("README.md", "## What is where").split("```")[1].splitlines()[1:]
    named = [line.split()[0].rstrip("/") for line in tree]
    areas = [line.split()[0].rstrip("/") for line in tree if line.startswith(" ")]
    listed = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    tracked = {name.partition("/")[0] for name in listed.stdout.splitlines()} - {".gitignore"}
    top = {name.partition("/")[0] for name in named if name not in areas}
    assert sorted(name for name in top if not (CHECKOUT / name).exists()) == []
    assert sorted(tracked - top) == []
    assert sorted(areas) == sorted(path.parent.name for path in (CHECKOUT / "src/graftline").glob("*/__init__.py"))


def test_the_tree_and_the_floors_of_the_architecture_are_the_real_ones() -> None:
    tree = section("ARCHITECTURE.md", "## The tree").split("```")[1].splitlines()[1:]
    named: dict[str, set[str]] = {}
    for line in tree:
        indent, words = line.startswith("  "), line.split()
        folder = (
            (f"src/graftline/{words[0]}" if indent else words[0]).rstrip("/")
            if words[0].endswith("/")
            else "src/graftline"
        )
        named[folder] = set(words[1:] if words[0].endswith("/") else words)
    tops = ("src/graftline", "orchestration", "sensors", "assets", "resources")
    real: dict[str, set[str]] = {}
    for path in (path for top in tops for path in (CHECKOUT / top).rglob("*.py") if path.name != "__init__.py"):
        real.setdefault(path.parent.relative_to(CHECKOUT).as_posix(), set()).add(path.stem)
    assert {folder: modules for folder, modules in named.items() if modules} == real
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
    assert {field for row in table(text) for field in codes(row[0])} == set(Record.model_fields)
    [sentence] = re.findall(r"The record of a raw dataset also has (.*?)\.\n", text, re.S)
    assert set(codes(sentence)) == set(RawRecord.model_fields) - set(Record.model_fields)


def test_every_extra_is_documented() -> None:
    extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert {name for row in table(section("README.md", "## Extras")) for name in codes(row[0])} == set(extras)


def test_the_table_of_the_readme_is_part_of_the_one_of_the_command() -> None:
    full = section("docs/cli.md", "## `graftline summary`")
    shown = next(fence.body for fence in fences() if fence.page == "README.md" and fence.language == "text")
    assert [line for line in shown.splitlines() if line not in full] == []


def test_the_notice_of_the_sample_counts_its_rows() -> None:
    folder = CHECKOUT / "data" / "samples"
    lines = re.split(r"^-.*\n", (folder / "NOTICE").read_text("utf-8"), flags=re.M)[1].splitlines()
    cells = [re.split(r" {2,}", line) for line in lines]
    with gzip.open(folder / "release_pairs.jsonl.gz", "rt", encoding="utf-8") as stream:
        rows = [json.loads(line) for line in stream]
    counted = Counter((row["pkg"], row["licence"], row["registry"]) for row in rows)
    assert {(name, licence, registry): int(count) for name, licence, registry, _, count in cells} == counted
    assert all(f"{row['old']} to {row['new']}" in "\n".join(lines) for row in rows)


def test_the_licence_is_the_unmodified_text() -> None:
    assert sha256_file(CHECKOUT / "LICENSE") == APACHE_2_0


def test_no_page_holds_an_address_of_mail() -> None:
    notices = [CHECKOUT / "NOTICE", CHECKOUT / "data/samples/NOTICE"]
    assert [
        str(path) for path in [*PAGES.values(), *notices] if re.search(r"\w@\w+\.\w", path.read_text("utf-8"))
    ] == []
