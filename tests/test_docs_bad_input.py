"""`docs/bad-input.md` against what is really said: a message for every reason, a sentence for every fault."""

import gzip
import json
import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from graftline.cli.main import main
from graftline.core.errors import RecordError, SandboxError
from graftline.core.parquet import read_parquet, write_parquet
from graftline.core.paths import Paths
from graftline.core.record import load_verified
from graftline.datasets.edit import RejectReason
from graftline.pipeline import load_manifest, open_lineage
from graftline.pipeline.stages.table import make
from graftline.sandbox.base import Isolation, SandboxResult, Verdict, ensure_decided
from tests.hub_server import HubServer
from tests.pages import CHECKOUT, codes, fences, pair_of, section, table, written_root

PAIR = pair_of("a", "python", "f(1)\n", "g(1)\n")
COMMIT = {
    "commit": "c" * 40, "old_file": "a.py", "new_file": "a.py", "old_contents": "f(1)\n", "new_contents": "g(1)\n",
    "subject": "", "message": "Signed-off-by: Ann", "lang": "Python", "license": "mit", "repos": "owner/name",
}  # fmt: skip
PATCH = {"agent": "claude", "repo": "owner/name", "sha": "d" * 40, "description": "Say it", "patch": "no patch"}
TWO_FILES = "diff --git a/a.py b/a.py\ndiff --git a/b.py b/b.py\n"
PROBLEM = "def problem(values):\n" + "".join(f"    values.append(step_{n}(values))\n" for n in range(9))


def line(row: Mapping[str, Any], **changes: Any) -> bytes:
    return json.dumps({**row, **changes}).encode()


RECORDED = {
    "task_id": "recorded:1",
    "language": "python",
    "instruction": "Call get.",
    "group": "recorded/1",
    "origin": "rule-1",
    "steps": [{"prompt": {"text": "fetch(1)"}, "sandbox_result": {"after": "get(1)"}}],
    "reward": {"value": None, "cause": "undecided"},
}
ACCEPTED = {"value": 1.0, "cause": "accepted"}
SECRET_STEP = {"prompt": {"text": "fetch('AKIA" + "Q3ZP7LXM2VTD9WKB')"}, "sandbox_result": {"after": "get(1)"}}
ROWS: Mapping[str, Sequence[bytes]] = {
    "release_pairs": [
        b"x" * ((2 << 20) + 1),
        b'{"id": "\xff"}',
        b"[1]",
        line(PAIR)[:-1] + b', "pre": "h(1)"}',
        json.dumps({key: value for key, value in PAIR.items() if key != "qual"}).encode(),
        line(PAIR, language="ruby"),
        line(PAIR, pre=" "),
        line(PAIR, post=""),
        line(PAIR, pre="a\0"),
        line(PAIR, post="f(1)\n\n"),
        line(PAIR, license="GPL-3.0-only"),
        line(PAIR, pre="x = 1\n" * 2000),
        line(PAIR, post="def ("),
        line(PAIR, pre=PROBLEM),
    ],
    "commitpackft": [line(COMMIT)],
    "recorded": [line(RECORDED), line(RECORDED, task_id="recorded:2", steps=[SECRET_STEP], reward=ACCEPTED)],
    "agentpack": [line(PATCH), line(PATCH, patch=TWO_FILES)],
}


def test_every_reason_for_leaving_a_row_out_is_documented_with_a_real_message(
    new_checkout: Callable[[Path], Any], tmp_path: Path
) -> None:
    small = new_checkout(tmp_path / "root")
    cut = gzip.compress(line(PAIR) * 99, mtime=0)[:-9]
    for name, rows in ROWS.items():
        folder = small.root / "rows" / name
        folder.mkdir(parents=True)
        (folder / "rows.jsonl").write_bytes(b"\n".join(rows))
        (folder / "rows.jsonl.gz").write_bytes(cut if name == "release_pairs" else gzip.compress(b"", mtime=0))
        entry = {"reader": name, "url": f"rows/{name}", "version": "1", "license": "MIT", "files": [{"path": "*"}]}
        changed(**{f"datasets__{name}": entry, "use": list(ROWS)})(small.root)
    (small.root / "configs" / "evals").mkdir()
    (small.root / "configs" / "evals" / "problems.jsonl").write_text(json.dumps({"text": PROBLEM}), "utf-8")
    with open_lineage(Paths(small.root), load_manifest(Paths(small.root), "local"), "docs") as lineage:
        details: dict[str, str] = {}
        for name in ROWS:
            make("raw", lineage, name)
            for row in read_parquet(make("normalized", lineage, name).folder / "dropped.parquet"):
                details.setdefault(row["reason"], row["detail"])
    rows_shown = table(section("docs/bad-input.md", "## Rows that are left out"))
    assert {codes(row[0])[0]: codes(row[2])[0] for row in rows_shown} == details
    assert details.keys() == set(RejectReason)


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
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(content, "utf-8")

    return apply


def another(reader: str, file: str, content: str, **entry: Any) -> Callable[[Path], None]:
    """Return what puts a dataset into use, with one file of the given content."""
    whole = {"reader": reader, "url": "rows", "version": "1", "license": "MIT", "files": [{"path": file}], **entry}

    def apply(root: Path) -> None:
        replaced(f"rows/{file}", content)(root)
        if file.endswith(".parquet"):
            write_parquet(root / "rows" / file, [], {content: "text"})
        changed(**{f"datasets__{reader}": whole, "use": [reader]})(root)

    return apply


@dataclass(frozen=True)
class Fault:
    """What is wrong, and the command that says so."""

    change: Callable[[Path], None]
    command: str
    environment: Mapping[str, str] = field(default_factory=dict)
    after_run: bool = False
    """Whether everything that a run wrote is there; else the sample is empty."""


PAIRS = "datasets__release_pairs__"
FILE = f"{PAIRS}files__0__"
TASKS = "data/tasks/java/dev"
COMMIT_ID = "0" * 40
HUB = "hf://datasets/owner/name"
WEB = "http://web.test"
ON_HUB = {f"{PAIRS}url": HUB, f"{PAIRS}version": COMMIT_ID}
TERMS = {f"{PAIRS}terms": "https://huggingface.co/datasets/owner/name"}
SHA256 = "c972bd792bc1f5e37552f9b40d0213c902fb103adb924c8c3055fe6c5a40def5"
OTHER_TOKEN = {"HF_TOKEN": "hf_of_another"}
SANDBOX_TEST = "sandbox test {root}/tests.json {root}/code"
LEARN = "learn {root}/before.py {root}/after.py"
APPLY = "apply {root}/rules.yml {root}/before.py"
RULE = "id: fetch\nlanguage: python\nrule: {pattern: get($A)}\nfix: fetch($A)\n"
PROMPT = "prompts: {mine: {system: s, state: $state, user: $instruction $cod, failed: $feedback, kept: k}}\n"
FLEET = "fleets: {mine: {engine: vllm-cpu, model: m, actors: [{name: a, url: 'http://127.0.0.1:8001'}]}}\n"
DEPLOYMENT = "configs/harbor/mine.yaml"
FOLDER = "name: mine\nenvironment: {kind: folder, context: configs"
MODELS = (CHECKOUT / "configs" / "models.yaml").read_text("utf-8")
FAULTS = [
    Fault(changed(splitting__seeed=1, synthesis__per_partition="40"), "check"),
    Fault(changed(splitting={"train": 0.9, "dev": 0.1, "test": 0.1}), "check"),
    Fault(changed(**{f"{PAIRS}reader": "commitpack"}), "check"),
    Fault(changed(use=["commitpack"]), "check"),
    Fault(changed(**{f"{FILE}path": "../rows.jsonl"}), "check"),
    Fault(changed(**{f"{FILE}path": "*.jsonl", f"{FILE}size_bytes": 1}), "check"),
    Fault(changed(**{f"{PAIRS}reader": "package_releases"}), "check"),
    Fault(replaced("configs/datasets.yaml", "a: &x 1\nb: *x\n"), "check"),
    Fault(replaced("configs/datasets.yaml", ""), "check"),
    Fault(replaced("configs/datasets.yaml", None), "check"),
    Fault(changed(), "config --manifest staging"),
    Fault(changed(), "config --set sandboxx=memory"),
    Fault(changed(), "config --set sandbox.limits.cpu_s=0"),
    Fault(changed(), "check", {"GRAFTLINE_DATASETS": "release_pairs,commitpack"}),
    Fault(changed(), "check", {"GRAFTLINE_DATASET_MIRROR": "nowhere"}),
    Fault(changed(), "run --set sandbox.required_level=full"),
    Fault(changed(**{f"{FILE}size_bytes": 375902}), "run"),
    Fault(changed(**{f"{FILE}sha256": SHA256}), "run"),
    Fault(replaced("data/samples/release_pairs.jsonl", None), "run"),
    Fault(changed(**{f"{PAIRS}url": None}), "run"),
    Fault(changed(**{f"{PAIRS}url": HUB}), "run"),
    Fault(changed(**ON_HUB), "run --set dataset_hub=local"),
    Fault(changed(**ON_HUB, **TERMS), "run"),
    Fault(changed(**ON_HUB), "run --hub"),
    Fault(changed(**ON_HUB, **TERMS), "run --hub", OTHER_TOKEN),
    Fault(changed(**{**ON_HUB, f"{PAIRS}url": f"{HUB}-closed"}), "run --hub", OTHER_TOKEN),
    Fault(changed(**{f"{PAIRS}url": f"{WEB}/files"}), "run"),
    Fault(changed(**{f"{PAIRS}url": f"{WEB}/files", f"{FILE}path": "*.jsonl"}), "run"),
    Fault(
        changed(**ON_HUB, **{f"{FILE}sha256": SHA256}), "run --manifest prod",
        {"GRAFTLINE_DATASET_MIRROR": "{root}/mirror"},
    ),
    Fault(another("marv", "MaRV.json", "[]"), "run"),
    Fault(another("marv", "MaRV.json", '{"Inline Method": []}'), "run"),
    Fault(another("editpackft", "rows.csv", ""), "run"),
    Fault(another("editpackft", "train.parquet", "commit", columns=["commit", "message"]), "run"),
    Fault(replaced("configs/evals/problems.jsonl", '{"text": '), "run", after_run=True),
    Fault(replaced(f"{TASKS}/tasks.jsonl", "{}\n"), "check", after_run=True),
    Fault(replaced(f"{TASKS}/tasks.jsonl", None), "check", after_run=True),
    Fault(replaced(f"{TASKS}/notes.txt", ""), "check", after_run=True),
    Fault(
        replaced("code/sgconfig.yml", "ruleDirs: []\n"), "sandbox apply {root}/code/sgconfig.yml --pattern a --rewrite b",
        after_run=True,
    ),
    Fault(replaced("rule.yml", "- a\n"), "sandbox apply {root}/code/m.py --rule {root}/rule.yml", after_run=True),
    Fault(replaced("tests.json", '{"kind": "pytests"}'), SANDBOX_TEST, after_run=True),
    Fault(replaced("configs/sandbox.yaml", "tests: {kind: namespaces, programs: [python]}\n"), SANDBOX_TEST, after_run=True),
    Fault(replaced("configs/sandbox.yaml", "tests: {kind: subprocess}\n"), SANDBOX_TEST, after_run=True),
    Fault(replaced("after.py", None), LEARN, after_run=True),
    Fault(replaced("after.py", "def load(path):\n    return 1\n\0"), LEARN, after_run=True),
    Fault(replaced("after.py", f"x = '{'a' * 20_000}'\n"), LEARN, after_run=True),
    Fault(changed(), "learn {root}/before.py {root}/before.py", after_run=True),
    Fault(changed(), "learn {root}/before.py {root}/code", after_run=True),
    Fault(replaced("after.js", "fetch(1);\n"), "learn {root}/before.py {root}/after.js", after_run=True),
    Fault(replaced("before.txt", "get(1)\n"), "learn {root}/before.txt {root}/after.py", after_run=True),
    Fault(changed(), APPLY),
    Fault(replaced("rules.yml", "# none yet\n"), APPLY),
    Fault(replaced("rules.yml", "rule: {pattern: get($A)}\nfix: fetch($A)\n"), APPLY),
    Fault(replaced("rules.yml", "language: python\nrule: {pattern: get($A)}\n"), APPLY),
    Fault(replaced("rules.yml", f"{RULE}files: [a.py]\n"), APPLY),
    Fault(replaced("rules.yml", f"{RULE}metadata: {{examples: [get(1)]}}\n"), APPLY),
    Fault(replaced("rules.yml", RULE.replace("pattern: get($A)", "kind: cal")), APPLY, after_run=True),
    Fault(replaced("rules.yml", RULE), "apply {root}/rules.yml {root}/cod", after_run=True),
    Fault(replaced("rules.yml", RULE), "test {root}/rules.yml --output {root}/code", after_run=True),
    Fault(changed(), "run --set teacher=openai --set teacher.prompt=huge"),
    Fault(replaced("configs/teacher_prompts.yaml", PROMPT), "run --set teacher=openai --set teacher.prompt=mine"),
    Fault(changed(), "model status --fleet big"),
    Fault(replaced("configs/vllm_actors.yaml", FLEET), "model status --fleet mine"),
    Fault(replaced("configs/vllm_actors.yaml", FLEET.replace("vllm-cpu", "service")), "model serve --fleet mine"),
    Fault(replaced("configs/models.yaml", MODELS), "model fetch big"),
    Fault(changed(), "worker run"),
    Fault(changed(), "worker queue --manifest prod", {"GRAFTLINE_REDIS_URL": "127.0.0.1:6379"}),
    Fault(changed(), "state dump release_pairs:a5c560eaa49a4921"),
    Fault(changed(), "data export sft {root}/sft.jsonl"),
    Fault(changed(), "env upload mine"),
    Fault(replaced(DEPLOYMENT, f"{FOLDER}, entrypint: ./run}}\n"), "env upload mine"),
    Fault(replaced(DEPLOYMENT, f"{FOLDER}}}\nlimits: {{timeout_s: 90000}}\n"), "env upload mine"),
    Fault(replaced(DEPLOYMENT, f"{FOLDER}, env_vars: {{OPENAI_API_KEY: a}}}}\n"), "env upload mine"),
    Fault(changed(), "env list"),
    Fault(changed(), "env list --url http://harbor.example.org"),
    Fault(changed(), "env serve --host 0.0.0.0"),
    Fault(changed(), "env serve --database postgresql://me:word@db.example.org/harbor"),
    Fault(changed(), "mine {root}/configs"),
    Fault(changed(), "mine {root}/shop --range v1..v2", after_run=True),
]  # fmt: skip


@pytest.fixture(scope="module")
def root(new_checkout: Callable[[Path], Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_root(new_checkout(tmp_path_factory.mktemp("docs") / "root"))


def test_the_messages_about_bad_input_are_the_real_ones(root: Path, tmp_path: Path) -> None:
    with HubServer() as hub:
        for name in ("owner/name", "owner/name-closed"):
            commit = hub.put(name, {"release_pairs.jsonl": b""})
        hub.repositories["owner/name"].token = "hf_of_ours"
        hub.repositories["owner/name-closed"].is_closed = True
        real = [message_of(root, tmp_path / str(number), fault, hub.url, commit) for number, fault in enumerate(FAULTS)]
    shutil.copytree(root / TASKS, tmp_path / TASKS)
    record = tmp_path / TASKS / "_meta.json"
    content = record.read_text("utf-8")
    for before, after in (
        ('"tasks"', '"other"'), ('"counts"', '"count"'), ('"schema_version": 2', '"schema_version": 3'), (content, "")
    ):  # fmt: skip
        record.write_text(content.replace(before, after), "utf-8")
        if not after:
            record.unlink()
        with pytest.raises(RecordError) as raised:
            load_verified(tmp_path / TASKS, "tasks")
        real.append(str(raised.value).replace(f"{tmp_path}/", ""))
    with pytest.raises(SandboxError) as busy:
        ensure_decided(SandboxResult(Verdict.WALL_TIMEOUT, None, Isolation("none", "memory")))
    real.append(str(busy.value))
    result = CliRunner().invoke(main, ["check"], env={"GRAFTLINE_ROOT": "nowhere"})
    real.append(result.stderr.removeprefix("error: "))
    shown = [fence.body for fence in fences() if fence.page == "docs/bad-input.md" and fence.language == "text"]
    assert set("".join(shown).splitlines()) == set("\n".join(real).splitlines())


def message_of(root: Path, copy: Path, fault: Fault, hub: str, commit: str) -> str:
    """Return what a command says in a copy of `root` after a change, as it would where everything has its usual name."""
    if fault.after_run:
        shutil.copytree(root, copy)
    else:
        shutil.copytree(root / "configs", copy / "configs")
        for name in ("data/samples/release_pairs.jsonl", "mirror/release_pairs/release_pairs.jsonl"):
            replaced(name, "")(copy)
    fault.change(copy)
    settings = copy / "configs" / "datasets.yaml"
    if settings.exists():
        settings.write_text(settings.read_text("utf-8").replace(WEB, hub).replace(COMMIT_ID, commit), "utf-8")
    command = fault.command.replace("{root}", shlex.quote(str(copy))).replace(
        "--hub", f"--set dataset_hub.huggingface={hub}"
    )
    environment = {name: value.format(root=copy) for name, value in fault.environment.items()}
    result = CliRunner().invoke(main, ["--root", str(copy), *shlex.split(command)], env=environment)
    assert result.exit_code == 1, (fault, result.output)
    said = result.stderr.rpartition("error: ")[2].rstrip("\n").replace(f"{copy}/", "").replace(f"{Path.cwd()}/", "")
    said = re.sub(r"\.partial-\w+", ".partial-…", said)
    return said.replace(hub, "https://huggingface.co" if "--hub" in fault.command else "https://example.org")
