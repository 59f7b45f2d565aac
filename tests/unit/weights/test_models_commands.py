"""The commands below `graftline model`: what they print, and what they end with."""

import json

import click
import pytest
from click.testing import CliRunner, Result

from graftline.cli.main import main
from graftline.cli.model import COMMANDS
from tests.unit.weights.places import CONTENT, FILE, Places


@pytest.fixture
def run(places: Places, monkeypatch: pytest.MonkeyPatch) -> "Run":
    """The commands over a root whose one model is on the hub."""
    for name, value in places.environment.items():
        monkeypatch.setenv(name, value)
    places.configure(places.hub())
    places.publish_on_hub()
    return Run(places)


class Run:
    def __init__(self, places: Places) -> None:
        self.places = places

    def __call__(self, *arguments: str) -> Result:
        group = click.Group("model", commands=list(COMMANDS))
        # a command keeps the option for help that it was first asked with, which is that of the whole command line
        return CliRunner().invoke(
            group, arguments, obj=self.places.paths.root, catch_exceptions=False, **main.context_settings
        )


def test_fetch_says_where_a_model_came_from_and_lies(run: Run) -> None:
    target = str(run.places.target)
    said = run("fetch", "demo", "--json")
    assert (said.exit_code, said.stderr) == (0, "model demo: made (from hub owner/demo-GGUF)\n")
    found = {"name": "demo", "path": target, "place": "hub owner/demo-GGUF", "fault": ""}
    assert json.loads(said.stdout) == {"models": [found]}
    again = run("fetch", "demo", "demo")
    assert (again.exit_code, again.stderr, target in again.stdout) == (0, "model demo: unchanged\n", True)


def test_fetch_goes_on_after_a_model_that_cannot_be_had(run: Run) -> None:
    said = run("fetch", "other", "demo")
    assert said.exit_code == 1
    assert said.stderr == (
        "model other: failed\nmodel demo: made (from hub owner/demo-GGUF)\n"
        "error: model 'other' is unknown; known in configs/models.yaml: demo\n"
    )
    assert run.places.target.read_bytes() == CONTENT


def test_fetch_wants_a_name(run: Run) -> None:
    assert run("fetch").exit_code == 2


def test_list_shows_what_is_there(run: Run) -> None:
    assert "missing" in run("list").stdout
    run("fetch", "demo")
    said = run("list")
    assert (said.exit_code, said.stderr) == (0, "")
    assert all(word in said.stdout for word in ("demo", "owner/demo", "Apache-2.0", "307,200", "verified", FILE))
    [found] = json.loads(run("list", "--json").stdout)["models"]
    assert (found["state"], found["path"], found["converted"]) == ("verified", str(run.places.target), None)


def test_verify_fails_for_what_is_faulty_and_for_what_is_not_there(run: Run) -> None:
    missing = f"{run.places.target} is not there; run `graftline model fetch demo`"
    nothing, named = run("verify", "--json"), run("verify", "demo")
    assert (nothing.exit_code, json.loads(nothing.stdout)) == (0, {"checked": []})
    assert (named.exit_code, named.stderr) == (1, f"error: model 'demo': {missing}\n")
    run("fetch", "demo")
    assert (run("verify").exit_code, run("verify", "demo").exit_code) == (0, 0)
    run.places.target.write_bytes(b"altered")
    faulty = run("verify", "--json")
    fault = f"{run.places.target} is not the pinned file; run `graftline model fetch demo`"
    checked = [{"name": "demo", "path": str(run.places.target), "fault": fault}]
    assert (faulty.exit_code, json.loads(faulty.stdout)) == (1, {"checked": checked})


def test_convert_prints_the_folder(run: Run) -> None:
    run("fetch", "demo")
    python = run.places.paths.root / "python"
    python.write_text(
        "#!/bin/sh\nif [ $3 = packages ]\n"
        'then echo \'{"accelerate": "2.0", "gguf": "1.0", "torch": "3.0", "transformers": "6.0"}\'\n'
        "else cp $4 $5/model.safetensors; echo '{\"parameters\": 1}'; fi\n"
    )
    python.chmod(0o755)
    folder = str(run.places.folder / "demo-safetensors")
    assert run("convert", "demo", "--python", str(python)).stdout == f"{folder}\n"
    said = run("convert", "demo", "--python", str(python), "--json")
    assert json.loads(said.stdout) == {"name": "demo", "path": folder}
    assert json.loads(run("list", "--json").stdout)["models"][0]["converted"] == folder
