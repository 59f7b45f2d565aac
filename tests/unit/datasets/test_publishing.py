"""Publishing to W&B with the real wandb: what the run on disk holds, and what is refused before one is begun."""

import json
import os
from collections.abc import Iterator
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from graftline.core.build import Contents, Request, build
from graftline.core.errors import BoundaryError, ConfigError, RecordError
from graftline.core.paths import Paths
from graftline.core.secrets import EnvironmentSecrets, Secrets
from graftline.datasets.governance import Wandb
from graftline.datasets.publishing import Published, publish
from tests.http_server import json_answer, serve_answers
from tests.wandb_files import records_of

needs_wandb = pytest.mark.skipif(find_spec("wandb") is None, reason="wandb is missing; pip install 'graftline[wandb]'")

LINES = [json.dumps({"id": f"small:{n}", "pre": f"secret text {n}"}) for n in range(3)]
CONTRACT = {
    "source": "small", "version": "v1", "license": "MIT", "downloaded_at": "2024-01-01T00:00:00+00:00",
    "sha256": "0" * 64, "num_records": 4,
}  # fmt: skip
KEY = "0123456789" * 4
NORMALIZED = {**CONTRACT, "licenses": {"ISC": 1, "MIT": 2}, "tokenizer": "characters/4"}


def store(folder: Path, kind: str, name: str, counts: dict[str, int], contract: dict[str, Any], text: str = "") -> None:
    def make(partial: Path) -> Contents:
        (partial / "edits.jsonl").write_text(text, "utf-8")
        return Contents(counts, contract)

    build(folder, Request(kind, name, "code"), make)


def made_paths(folder: Path) -> Paths:
    """Make a root with an artifact of each stage."""
    paths = Paths(folder / "root")
    store(paths.raw("small"), "raw", "small", {"rows": 4}, CONTRACT)
    store(paths.normalized("small"), "normalized", "small", {"rows": 3, "dropped.license": 1}, NORMALIZED)
    store(paths.division, "division", "all", {"rows": 3}, {})
    text = "".join(f"{line}\n" for line in LINES)
    store(paths.partition("processed", "python", "dev"), "splits", "python/dev", {"rows": 3, "rows.small": 3}, {}, text)
    return paths


def made_environment(folder: Path) -> dict[str, str]:
    """Return that of a user with an empty home folder, and with settings of wandb that must not count."""
    (folder / "home").mkdir()
    astray = {name: str(folder / "astray") for name in ("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR")}
    return {"PATH": os.environ["PATH"], "HOME": str(folder / "home"), **astray, "WANDB_MODE": "online"}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return made_paths(tmp_path)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return made_environment(tmp_path)


def published(paths: Paths, environment: dict[str, str], **settings: Any) -> Published:
    wandb = Wandb.model_validate({"mode": "offline", "samples": 2, **settings})
    return publish(paths, wandb, Secrets([EnvironmentSecrets(environment)]), environment)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a user who has published once, offline."""
    return tmp_path_factory.mktemp("user")


@pytest.fixture(scope="module")
def offline(home: Path) -> tuple[Paths, dict[str, str], Published]:
    """A root whose artifacts were published offline, with the environment of that, and what became of it."""
    paths, environment = made_paths(home), made_environment(home)
    return paths, environment, published(paths, environment)


@needs_wandb
def test_an_offline_run_holds_one_artifact_with_figures_and_checksums_and_no_text(
    offline: tuple[Paths, dict[str, str], Published],
) -> None:
    paths, _, done = offline
    records = records_of(paths.root / done.run)
    [run] = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    [artifact] = [record.artifact for record in records if record.WhichOneof("record_type") == "artifact"]
    assert (artifact.type, artifact.name, artifact.digest) == ("dataset", "graftline-datasets", done.digest)
    assert sorted(run.tags) == sorted(done.identities.values())
    assert json.loads(artifact.metadata) == {"identities": done.identities}
    assert (run.project, run.host, run.job_type) == ("graftline", "graftline", "datasets")
    contents = {entry.path: Path(entry.local_path) for entry in artifact.manifest.contents}
    assert contents == {Path(name).name: paths.root / name for name in done.files}
    stats, samples = (json.loads(contents[name].read_text("utf-8")) for name in ("stats.json", "samples.json"))
    from_home = {"version": "v1", "license": "MIT", "sha256": "0" * 64}
    identity = done.identities
    assert stats == {
        "schema_version": 1,
        "raw": {"small": {"identity": identity["raw/small"], "counts": {"rows": 4}, **from_home}},
        "normalized": {
            "small": {
                "identity": identity["normalized/small"],
                "counts": {"rows": 3, "dropped.license": 1},
                **from_home,
                "licenses": {"ISC": 1, "MIT": 2},
                "tokenizer": "characters/4",
            }
        },
        "division": {"all": {"identity": identity["division/all"], "counts": {"rows": 3}}},
        "splits": {"python/dev": {"identity": identity["splits/python/dev"], "counts": {"rows": 3, "rows.small": 3}}},
    }
    assert samples == {
        "python/dev": [
            {"id": sha256(f"small:{n}".encode()).hexdigest(), "edit": sha256(LINES[n].encode()).hexdigest()}
            for n in range(2)
        ]
    }
    written = [path.read_bytes() for path in paths.logs.rglob("*") if path.is_file()]
    assert [content for content in written if b"secret text" in content or b"small:" in content] == []


@needs_wandb
def test_equal_artifacts_have_one_digest_and_nothing_is_written_but_below_logs(
    offline: tuple[Paths, dict[str, str], Published], home: Path
) -> None:
    paths, environment, first = offline
    second = published(paths, environment, samples=2)
    assert (second.digest, second.files) == (first.digest, first.files)
    assert published(paths, environment, samples=3).digest != first.digest
    assert sorted(path.name for path in home.iterdir()) == ["home", "root"]
    assert list((home / "home").iterdir()) == []
    assert sorted(path.name for path in paths.root.iterdir()) == ["data", "logs"]


@pytest.fixture
def refusing_server() -> Iterator[str]:
    """A server in the place of W&B that knows no key."""
    refusal = {"errors": [{"message": f"the key {KEY} is unknown"}]}
    with serve_answers(lambda request: json_answer(refusal, 401)) as url:
        yield url


@needs_wandb
def test_a_key_that_the_server_refuses_is_told_and_kept_secret(
    paths: Paths, environment: dict[str, str], refusing_server: str
) -> None:
    key = {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": refusing_server}
    with pytest.raises(BoundaryError) as caught:
        published(paths, environment | key, mode="online")
    assert str(caught.value) == (
        "wandb online: CommError: the key [secret] is unknown; check WANDB_API_KEY, WANDB_BASE_URL,"
        " wandb.project and wandb.entity, then publish again"
    )


@needs_wandb
def test_without_a_key_nothing_is_sent_anywhere(paths: Paths, environment: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        published(paths, environment, mode="online")
    assert str(caught.value) == ("WANDB_API_KEY: is not set, but wandb.mode online needs it; put it into .env or Vault")
    assert not paths.logs.exists()


def test_publishing_is_off_until_it_is_switched_on(paths: Paths, environment: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        publish(paths, Wandb(), Secrets([]), environment)
    assert str(caught.value) == (
        "configs/governance.yaml: wandb.mode is disabled; set it to offline or online to publish"
    )
    assert not paths.logs.exists()


@needs_wandb
def test_an_altered_artifact_stops_publishing(paths: Paths, environment: dict[str, str]) -> None:
    (paths.division / "edits.jsonl").write_text("{}\n", "utf-8")
    with pytest.raises(RecordError) as caught:
        published(paths, environment)
    assert str(caught.value) == (
        f"{paths.division}: file 'edits.jsonl' was altered after it was written; materialize its asset again"
    )
    assert not paths.logs.exists()
