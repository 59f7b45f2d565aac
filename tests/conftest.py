"""What every test shares: no network but loopback, and a small checkout to run stages in."""

import gc
import json
import logging
import os
import signal
import socket
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# no generated example fails by the clock
settings.register_profile("graftline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("graftline")
# what the modules of tests import stays: looking for garbage among it takes a third of the time to collect them
gc.disable()
pytest.register_assert_rewrite("tests.jails")  # it asserts for the tests that import it

CHECKOUT = Path(__file__).resolve().parents[1]
OF_THE_USER = ("GRAFTLINE_", "HF_")
"""Variables by which whoever runs the tests chooses datasets and sources for runs of their own."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal the tests out by folders where `--dist loadfile` asks for whole files."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.distribution import FolderScheduling

    return FolderScheduling(config, log)


def pytest_collection_finish() -> None:
    gc.freeze()
    # and what the tests themselves import: the default looks through it a few times in every test
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # libraries in C++ look for what is left of theirs at the end, and call it a leak


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """What tests marked `anyio` run in."""
    return "asyncio"


@pytest.fixture(autouse=True, scope="session")
def _without_settings_of_the_user() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(OF_THE_USER)]:
            patch.delenv(name)
        yield


@pytest.fixture(autouse=True, scope="session")
def _without_amx() -> Iterator[None]:
    # some virtual machines name it and end who uses it, and what multiplied before cannot change its mind
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
        yield


@pytest.fixture(autouse=True, scope="session")
def _interruptions_arrive() -> None:
    # what is started in the background of a shell ignores them, and so do all that it starts
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"a test wanted to connect to {address!r}; only loopback is allowed")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(autouse=True)
def _logs_of_a_new_process() -> None:
    # libraries and commands that an earlier test ran in this process may have silenced what this one listens to; each of
    # these calls has every logger forget what it has looked up, which takes milliseconds where there are a thousand
    root = logging.getLogger()
    if root.manager.disable != logging.NOTSET:
        logging.disable(logging.NOTSET)
    if root.level != logging.WARNING:
        root.setLevel(logging.WARNING)
    for name, logger in [*root.manager.loggerDict.items()]:
        if name.partition(".")[0] == "graftline" and isinstance(logger, logging.Logger):
            logger.disabled, logger.propagate = False, True
            if logger.level != logging.NOTSET:
                logger.setLevel(logging.NOTSET)


@pytest.fixture
def checkout() -> Path:
    """The real checkout: its configuration and its sample, not to be written to."""
    return CHECKOUT


@pytest.fixture(scope="session")
def pair() -> Mapping[str, Any]:
    """A row of `release_pairs`, to be varied."""
    return {
        "id": "release:1",
        "source": "pypi:demo 1.0->2.0",
        "license": "MIT",
        "language": "python",
        "pre": "def first(x):\n    return old(x)\n",
        "post": "def first(x):\n    return new(x)\n",
        "registry": "pypi",
        "pkg": "demo",
        "old": "1.0",
        "new": "2.0",
        "path": "demo.py",
        "qual": "first",
        "changed": 2,
    }


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write what was captured so that it can be sent between processes: half surrogate pairs cannot."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


class SmallCheckout:
    """A root folder with configuration and a dataset of given rows, in a temporary folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sample = root / "data" / "samples" / "release_pairs.jsonl"
        manifests = root / "configs" / "manifests"
        manifests.mkdir(parents=True)
        self.sample.parent.mkdir(parents=True)
        shipped = CHECKOUT / "configs"
        names = ("governance.yaml", "teacher_prompts.yaml", "telemetry.yaml", "vllm_actors.yaml")
        alone = [shipped / name for name in names]
        for source in (*(shipped / "manifests").glob("*.yaml"), *alone):
            (root / source.relative_to(CHECKOUT)).write_text(source.read_text("utf-8"), "utf-8")
        self.configure()
        self.write([])

    def configure(
        self,
        per_partition: int = 2,
        least_verified_steps: int = 0,
        workers: int = 1,
        languages: Sequence[str] = ("java", "javascript", "python"),
    ) -> None:
        """Write datasets.yaml and trajectories.yaml."""
        datasets = {
            "languages": [*languages],
            "use": ["release_pairs"],
            "datasets": {
                "release_pairs": {
                    "reader": "release_pairs",
                    "url": "data/samples",
                    "version": "1",
                    "license": "MIT",
                    "files": [{"path": self.sample.name}],
                }
            },
            "synthesis": {"per_partition": per_partition},
        }
        trajectories = {"least_verified_steps": least_verified_steps, "workers": workers}
        # JSON is YAML
        (self.root / "configs" / "datasets.yaml").write_text(json.dumps(datasets), "utf-8")
        (self.root / "configs" / "trajectories.yaml").write_text(json.dumps(trajectories), "utf-8")

    def write(self, rows: Sequence[Mapping[str, Any] | str | bytes]) -> None:
        """Write the dataset: rows as objects, or lines as they are."""
        lines = [
            row if isinstance(row, bytes) else (row if isinstance(row, str) else json.dumps(row)).encode()
            for row in rows
        ]
        self.sample.write_bytes(b"".join(line + b"\n" for line in lines))


@pytest.fixture(scope="session")
def new_checkout() -> type[SmallCheckout]:
    """What makes small root folders, for fixtures that outlive a test."""
    return SmallCheckout


@pytest.fixture
def small_checkout(tmp_path: Path) -> SmallCheckout:
    """A small root folder of its own, with an empty dataset."""
    return SmallCheckout(tmp_path / "checkout")


@pytest.fixture(scope="session")
def varied_pairs(pair: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Nine rows of three languages and three packages each, all solvable by induction."""
    texts = {
        "python": ("def f{n}(a, b):\n    return old(a, b{n})\n", "def f{n}(a, b):\n    return new(a, b{n})\n"),
        "javascript": (
            "function f{n}(a) {{\n  return old(a, b{n});\n}}\n",
            "function f{n}(a) {{\n  return fresh(a, b{n});\n}}\n",
        ),
        "java": (
            "int f{n}(int a) {{\n    return old(a, b{n});\n}}\n",
            "int f{n}(int a) {{\n    return fresh(a, b{n});\n}}\n",
        ),
    }
    rows = []
    for language, (pre, post) in texts.items():
        for number in range(3):
            filled = {"pre": pre.format(n=number), "post": post.format(n=number)}
            name = f"{language}{number}"
            rows.append(
                {**pair, **filled, "id": f"release:{name}", "language": language, "pkg": name, "qual": f"f{number}"}
            )
    return rows
