"""`graftline data list|fetch|build`: what is made, what is said of it, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from graftline.cli.main import main
from graftline.pipeline.manifests import PORTS
from tests.unit.cli.shop import NAMES, PAIRS, TWINS, Shop

KNOWN = ", ".join(NAMES)
SOURCES = ", ".join(name for name in NAMES if name != "exam")


def became(output: Any) -> dict[str, str]:
    return {f"{entry['stage']} {entry['name']}": entry["reason"] for entry in output["artifacts"]}


def test_the_list_says_of_every_dataset_where_it_lives_and_on_what_terms(shop: Shop) -> None:
    datasets = {entry.pop("name"): entry for entry in shop.json("list")["datasets"]}

    local = {"reader": "release_pairs", "version": "1", "license": "MIT", "access": "open", "size_bytes": None}
    nothing = {"is_mirrored": False, "is_followed": False, "stored": None, "fault": ""}
    hub = "hf://datasets/owner"
    assert datasets == {
        "pairs": {**local, **nothing, "is_used": True, "url": "data/samples/pairs"},
        "twins": {
            **local, **nothing, "is_used": True, "url": "data/samples/twins",
            "size_bytes": sum(len(json.dumps(entry)) + 1 for entry in TWINS),
        },
        "far": {**local, **nothing, "is_used": False, "url": f"{hub}/far", "version": "a" * 40},
        "gated": {
            **local, **nothing, "is_used": False, "url": f"{hub}/gated", "reader": "agentpack", "version": "main",
            "is_followed": True, "license": "NOASSERTION", "access": "token missing",
        },
        "exam": {
            **local, **nothing, "is_used": False, "url": "data/samples/exam", "reader": "evaluation",
            "license": "Apache-2.0",
        },
    }  # fmt: skip


def test_the_list_says_what_is_stored_of_a_dataset(built_shop: Shop) -> None:
    datasets = {entry["name"]: entry["stored"] for entry in built_shop.json("list")["datasets"]}

    size_bytes = sum(len(json.dumps(entry)) + 1 for entry in PAIRS)
    assert datasets["pairs"].pop("downloaded_at")[:2] == "20"
    # of five rows, one has a license that is not allowed, and one cannot be parsed
    assert datasets["pairs"] == {
        **{"version": "1", "rows": 5, "files": 1, "size_bytes": size_bytes, "edits": 3, "labels": 0, "dropped": 2}
    }
    assert [name for name, stored in datasets.items() if stored] == ["pairs", "twins"]


def test_the_list_before_it_is_normalized_counts_rows_only(shop: Shop) -> None:
    shop.run("fetch", "pairs")
    stored = shop.json("list")["datasets"][0]["stored"]

    assert {name: stored[name] for name in ("rows", "edits", "labels", "dropped")} == {
        **{"rows": 5, "edits": None, "labels": None, "dropped": None}
    }


@pytest.mark.parametrize("address", ["environment", ".env"])
def test_the_list_says_whether_there_is_a_token_and_never_which(
    shop: Shop, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if address == ".env":
        (shop.root / ".env").write_text("HF_TOKEN=hf_very_secret\n", "utf-8")
    else:
        monkeypatch.setenv("HF_TOKEN", "hf_very_secret")
    result = shop.run("list", "--json")

    access = {entry["name"]: entry["access"] for entry in json.loads(result.stdout)["datasets"]}
    assert (access["gated"], access["far"], "hf_very" in result.output) == ("token set", "open", False)


def test_the_list_does_not_hang_on_vault(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_ADDR", "http://127.0.0.1:9")

    assert [entry["access"] for entry in shop.json("list")["datasets"] if entry["name"] == "gated"] == ["token unknown"]


def test_the_list_is_a_table_for_people(built_shop: Shop) -> None:
    code, out, err = built_shop.shown("list")

    lines = [line.split() for line in out.splitlines()]
    assert (code, err, lines[0], lines[2][:4]) == (0, "", ["Datasets"], ["dataset", "in", "use", "source"])
    assert [line[:2] for line in lines[4:9]] == [
        *(["pairs", "yes"], ["twins", "yes"], ["far", "no"], ["gated", "no"], ["exam", "no"])
    ]


def test_a_damaged_record_is_said_and_the_other_datasets_are_listed(built_shop: Shop) -> None:
    record = built_shop.raw / "twins" / "source" / "_meta.json"
    record.write_text("{", "utf-8")
    code, out, err = built_shop.shown("list")

    assert (code, "damaged" in out, err.startswith(f"error: {record}: is not a record"), err.count("\n")) == (
        *(1, True, True, 1),
    )


def test_what_a_mirror_holds_is_in_use_and_comes_from_there(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.write("far", PAIRS, top="mirror")
    monkeypatch.setenv("GRAFTLINE_DATASET_MIRROR", str(shop.root / "mirror"))
    listed = {entry["name"]: (entry["is_used"], entry["is_mirrored"]) for entry in shop.json("list")["datasets"]}
    fetched = shop.json("fetch")

    assert listed == {
        **{"pairs": (True, False), "twins": (True, False), "far": (True, True), "gated": (False, True)},
        "exam": (False, False),
    }
    assert list(became(fetched)) == ["raw pairs", "raw twins", "raw far"]
    # nobody says that it is the pinned revision
    assert [entry["version"].partition(".")[0] for entry in fetched["artifacts"]] == ["1", "1", f"{'a' * 40}+mirror"]
    assert (shop.raw / "far" / "source" / "rows.jsonl").read_bytes() == (
        shop.root / "mirror" / "far" / "rows.jsonl"
    ).read_bytes()


def test_a_mirror_that_is_not_there_is_one_message(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFTLINE_DATASET_MIRROR", str(shop.root / "nowhere"))
    code, out, err = shop.shown("list")

    assert (code, out, err.startswith("error: GRAFTLINE_DATASET_MIRROR: "), err.count("\n")) == (1, "", True, 1)


def test_each_stage_is_made_once_and_found_unchanged_by_a_run(shop: Shop) -> None:
    parts = [f"splits {language}/{split}" for language in ("java", "python") for split in ("train", "dev", "test")]
    commands = {
        "fetch": ["raw pairs", "raw twins"],
        "build": ["normalized pairs", "normalized twins", "division all", "repository_changes all", *parts],
    }
    for command, artifacts in commands.items():
        assert became(shop.json(command)) == dict.fromkeys(artifacts, "not there yet")
        assert became(shop.json(command)) == dict.fromkeys(artifacts, "")

    ran = CliRunner().invoke(main, ["--root", str(shop.root), "run", "--json", "--set", "sandbox=memory"])
    stages = json.loads(ran.stdout)["stages"]
    # a label task file is made although there is no label
    made_counts = {
        stage: counts["made"] for stage, counts in stages.items() if counts["unchanged"] or stage == "label_tasks"
    }
    assert made_counts == {
        "raw": 0,
        "normalized": 0,
        "division": 0,
        "splits": 0,
        "label_tasks": 1,
        "repository_changes": 0,
    }


def test_only_what_is_named_is_made(shop: Shop) -> None:
    assert list(became(shop.json("fetch", "twins", "twins"))) == ["raw twins"]
    assert list(became(shop.json("fetch", "exam"))) == ["raw exam"]
    assert list(became(shop.json("build", "twins"))) == ["normalized twins"]
    shop.make()
    assert list(became(shop.json("build", "--language", "java", "--split", "dev")))[2:] == [
        "division all",
        "repository_changes all",
        "splits java/dev",
    ]
    assert list(became(shop.json("build", "--split", "dev")))[2:] == [
        "division all",
        "repository_changes all",
        "splits java/dev",
        "splits python/dev",
    ]


def test_progress_goes_to_standard_error_and_a_table_to_standard_output(shop: Shop) -> None:
    code, out, err = shop.shown("fetch", "pairs")

    assert (code, err, out.splitlines()[0].split()) == (0, "raw pairs: made (not there yet)\n", ["Artifacts"])
    assert ["raw", "pairs", "made:", "not", "there", "yet", "1", "5"] in [line.split()[:8] for line in out.splitlines()]


def test_a_dataset_that_fails_stops_no_other(shop: Shop) -> None:
    (shop.root / "data" / "samples" / "pairs" / "rows.jsonl").unlink()
    result = shop.run("fetch", "gated", "pairs", "twins", "--json")

    output = json.loads(result.stdout)
    assert (result.exit_code, list(became(output)), len(output["faults"])) == (1, ["raw twins"], 2)
    assert "HF_TOKEN" in output["faults"][0]
    assert "https://example.invalid/terms" in output["faults"][0]
    assert result.stderr.splitlines()[:3] == [
        *("raw gated: failed", "raw pairs: failed", "raw twins: made (not there yet)")
    ]
    assert result.stderr.splitlines()[3:] == [f"error: {fault}" for fault in output["faults"]]


def test_no_jail_is_needed_for_datasets(shop: Shop) -> None:
    # no machine has such a jail, so whatever opens it fails
    port = ["--set", "sandbox.required_level=full"]
    ran = CliRunner().invoke(main, ["--root", str(shop.root), "run", *port])

    assert (ran.exit_code, shop.shown("fetch", "pairs", *port)[::2]) == (1, (0, "raw pairs: made (not there yet)\n"))


USAGE = [
    (["fetch", "--languag", "java"], "No such option '--languag'"),
    (["build", "pairs", "--split", "dev"], "--language and --split choose splits"),
    (["build", "--split", "training"], "'training' is not one of 'train', 'dev', 'test'"),
    (["show", "pairs", "twins"], "Got unexpected extra argument (twins)"),
    (["show", "-n", "0"], "0 is not in the range x>=1"),
    (["show", "-n", "many"], "'many' is not a valid integer range"),
    (["show", "--seed", "x"], "'x' is not a valid integer"),
    (["show", "--rejected", "license", "--split", "dev"], "--rejected goes with neither --language nor --split"),
    (["show", "--rejected", "all", "--language", "java"], "--rejected goes with neither --language nor --split"),
    (["fetch", "--set", "teacher"], "--set 'teacher': expected KEY=VALUE"),
    (["push", "wandb", "now"], "Got unexpected extra argument (now)"),
    (["fecth"], "No such command 'fecth'"),
]


@pytest.mark.parametrize(("arguments", "message"), USAGE)
def test_wrong_usage_is_exit_code_2(shop: Shop, arguments: list[str], message: str) -> None:
    code, out, err = shop.shown(*arguments)

    assert (code, out, err.splitlines()[0].partition(" graftline")[0], message in err) == (2, "", "Usage:", True), err


REFUSED = [
    (["fetch", "pears"], f"dataset 'pears' is unknown; known: {KNOWN}"),
    (["fetch", "pairs", "pears"], f"dataset 'pears' is unknown; known: {KNOWN}"),
    (["build", "pears"], f"dataset 'pears' is unknown; known: {KNOWN}"),
    (["build", "exam"], f"dataset 'exam' is an evaluation, no edit is made of it; known: {SOURCES}"),
    (["build", "pairs"], "dataset 'pairs': is not fetched yet; run 'graftline data fetch pairs' first"),
    (["build", "--language", "rust"], "language 'rust' is unknown; known: java, python"),
    (["stats"], "dataset 'pairs': is not normalized yet; run 'graftline data build pairs' first"),
    (["stats", "exam"], f"dataset 'exam' is an evaluation, no edit is made of it; known: {SOURCES}"),
    (["show"], "dataset 'pairs': is not normalized yet; run 'graftline data build pairs' first"),
    (["show", "pears"], f"dataset 'pears' is unknown; known: {KNOWN}"),
    (["show", "--split", "dev"], "splits java/dev: are not made yet; run 'graftline data build' first"),
    (["show", "--language", "rust"], "language 'rust' is unknown; known: java, python"),
    (["verify", "pears"], f"dataset 'pears' is unknown; known: {KNOWN}"),
    (["fetch", "--manifest", "staging"], "manifest 'staging' is unknown; known: default, local, dev, prod, test"),
    (["fetch", "--set", "trainer=x"], f"port 'trainer' is unknown; known: {', '.join(PORTS)}"),
    (["verify"], "{root}/data: holds no artifact of a dataset; run 'graftline data fetch' first"),
    (["push", "dvc"], "configs/governance.yaml: dvc.remote is not set; name a folder or a URL there or by --remote"),
    (["push", "wandb"], "configs/governance.yaml: wandb.mode is disabled; set it to offline or online to publish"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_cannot_be_done_is_one_message_and_nothing_is_made(shop: Shop, arguments: list[str], message: str) -> None:
    code, out, err = shop.shown(*arguments)

    expected = f"error: {message.format(root=shop.root)}\n"
    assert (code, out, err.removeprefix("normalized pairs: failed\n")) == (1, "", expected)
    assert not shop.raw.exists() or [path for path in shop.raw.rglob("*") if path.is_file()] == []


def test_datasets_of_the_environment_are_those_in_use(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAFTLINE_DATASETS", "twins")
    assert list(became(shop.json("fetch"))) == ["raw twins"]
    monkeypatch.setenv("GRAFTLINE_DATASETS", "pears")
    assert shop.shown("fetch") == (1, "", f"error: GRAFTLINE_DATASETS: dataset 'pears' is unknown; known: {KNOWN}\n")
    assert Path(shop.raw / "pairs").exists() is False
