"""The sensor on dataset versions, over sources on a loopback server that change and fail."""

import json
import shutil
from pathlib import Path
from time import sleep

import dagster as dg
import pytest

from tests.hub_server import Fault
from tests.shell.watched_sources import FOLLOWED, LOOKS, PINNED, PLAIN, WatchedSources, reason, run_key, selected, told

CHECKOUT = Path(__file__).resolve().parents[2]
APART = {"training", "harbor", "evaluations"}
"""Groups that are no part of the lineage, though their assets are always there."""
DOWNSTREAM = {"division", "label_tasks", "splits", "tasks", "trajectories", "reports/datasets", "stg_edits"}


def test_sources_that_were_never_fetched_request_one_run_over_everything(sources: WatchedSources) -> None:
    result = sources.tick()
    [request] = result.run_requests or []
    graph = sources.repository.asset_graph
    everything = {key for key in graph.materializable_asset_keys if graph.get(key).group_name not in APART}
    assert set(request.asset_selection or []) == everything
    assert {key: value for key, value in request.tags.items() if key.startswith("dagster/")} == {
        "dagster/asset_partition_range_start": "java|train",
        "dagster/asset_partition_range_end": "python|test",
    }
    assert request.tags["graftline/revision.pinned"] == sources.first_pin[:16]


def test_prompts_and_the_closed_loop_are_no_part_of_what_is_requested(sources: WatchedSources) -> None:
    shutil.copytree(CHECKOUT / "configs" / "prompts", sources.root / "configs" / "prompts")
    shutil.copy(CHECKOUT / "configs" / "closed_loop.yaml", sources.root / "configs")
    sources.configure()
    [request] = sources.tick().run_requests or []
    everything = {key.to_user_string() for key in sources.repository.asset_graph.materializable_asset_keys}
    requested = {key.to_user_string() for key in request.asset_selection or []}
    groups = {
        sources.repository.asset_graph.get(dg.AssetKey(key.split("/"))).group_name for key in everything - requested
    }
    assert groups == {*APART, "prompts", "closed_loop"}


def test_what_is_stored_already_requests_nothing(sources: WatchedSources) -> None:
    sources.fetch()
    assert reason(sources.tick()) == "3 of 3 sources hold nothing new to fetch"


def test_a_new_revision_requests_what_depends_on_it_and_nothing_else(sources: WatchedSources) -> None:
    sources.fetch()
    seen = sources.tick()
    newest = sources.server.put(FOLLOWED, {"rows.jsonl": sources.content(0, 1)})
    changed = sources.tick(seen.cursor, 300)
    keys = set(selected(changed))
    assert {key for key in keys if key.startswith(("raw_", "normalized_"))} == {"raw_followed", "normalized_followed"}
    assert keys >= DOWNSTREAM
    assert changed.run_requests[0].tags["graftline/revision.followed"] == newest[:16]
    assert reason(sources.tick(changed.cursor, 300)) == "3 of 3 sources hold nothing new to fetch"


def test_a_changed_file_of_a_web_server_requests_a_run(sources: WatchedSources) -> None:
    sources.fetch()
    seen = sources.tick()
    sources.server.files[PLAIN] = sources.content(1, 2)
    assert "raw_plain" in selected(sources.tick(seen.cursor, 300))


def test_all_that_changed_is_one_run(sources: WatchedSources) -> None:
    sources.fetch()
    seen = sources.tick()
    sources.server.put(FOLLOWED, {"rows.jsonl": b""})
    sources.server.files[PLAIN] = b""
    raw = {key for key in selected(sources.tick(seen.cursor, 300)) if key.startswith("raw_")}
    assert raw == {"raw_followed", "raw_plain"}


def test_a_source_that_did_not_change_is_asked_by_condition_and_answers_without_a_body(sources: WatchedSources) -> None:
    sources.fetch()
    seen = sources.tick()
    sources.server.seen.clear()
    again = sources.tick(seen.cursor, 300)
    asked = {path: condition != "" for _, path, condition in sources.server.asked("If-None-Match")}
    assert asked == dict.fromkeys(LOOKS.values(), True)
    assert (again.cursor, again.asset_events, reason(again)) == (
        seen.cursor, [], "3 of 3 sources hold nothing new to fetch",
    )  # fmt: skip


def test_a_newer_revision_than_the_pinned_one_is_shown_and_not_fetched(sources: WatchedSources) -> None:
    sources.fetch()
    seen = sources.tick()
    newest = sources.server.put(PINNED, {"rows.jsonl": b""})
    changed = sources.tick(seen.cursor, 300)
    assert reason(changed) == "3 of 3 sources hold nothing new to fetch"
    assert told(changed) == {
        "source/pinned": {
            "newest revision": newest,
            "pinned revision": sources.first_pin,
            "newer than pinned": "yes",
            "source": f"hf://datasets/{PINNED}",
            "looked at": sources.moment,
        }
    }
    assert told(sources.tick(changed.cursor, 300)) == {}


def test_another_pin_requests_a_run(sources: WatchedSources) -> None:
    sources.fetch()
    second = sources.server.put(PINNED, {"rows.jsonl": sources.content(1, 2)})
    seen = sources.tick()
    sources.configure(pinned={"version": second})
    assert {key for key in selected(sources.tick(seen.cursor)) if key.startswith("raw_")} == {"raw_pinned"}


def test_a_version_that_is_no_commit_is_reported_beside_the_newest_commit(sources: WatchedSources) -> None:
    sources.configure(used=("followed", "pinned"), pinned={"version": "main"})
    result = sources.tick()
    facts = told(result)["source/pinned"]
    assert selected(result) == ["normalized_followed", "raw_followed"]
    assert (facts["newest revision"], facts["newer than pinned"]) == (sources.first_pin, "cannot be told")
    assert facts["pinned revision"].startswith("none: dataset 'pinned': version 'main' is not a commit")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (Fault(status=500), "answers 500 Internal Server Error"),
        (Fault(status=503), "answers 503 Service Unavailable"),
        (Fault(torn_at=4), "the connection broke"),
        (Fault(body=b"<html>"), "something else than JSON"),
        (Fault(body=b'{"sha": "main"}'), "names no commit as its newest"),
        (Fault(status=404), "no such file"),
    ],
)
def test_a_source_that_fails_is_reported_and_asked_again_after_a_pause(
    sources: WatchedSources, fault: Fault, says: str
) -> None:
    sources.fetch()
    seen = sources.tick()
    newest = sources.server.put(PINNED, {"rows.jsonl": b""})
    sources.server.faults[LOOKS["pinned"]] = [fault]
    failed = sources.tick(seen.cursor, 300)
    before, after = sources.known(seen)["pinned"], sources.known(failed)["pinned"]
    assert says in reason(failed).partition("pinned: ")[2]
    assert after == {**before, "etag": "", "failures": 1, "not_before": after["not_before"]}
    assert 300 <= after["not_before"] - sources.moment <= 600
    waiting = sources.tick(failed.cursor, 60)
    assert reason(waiting).startswith("2 of 3 sources hold nothing new to fetch; pinned: is asked again in ")
    recovered = sources.tick(waiting.cursor, 540)
    assert reason(recovered) == "3 of 3 sources hold nothing new to fetch"
    assert (told(recovered)["source/pinned"]["newest revision"], sources.known(recovered)["pinned"]["failures"]) == (
        newest,
        0,
    )


def test_a_source_that_says_nothing_is_reported(sources: WatchedSources) -> None:
    sources.fetch()
    seen = sources.tick()
    sources.wait_for_bytes(0.5)
    sources.configure()
    sources.server.faults[LOOKS["pinned"]] = [Fault(silent_s=20)]
    assert "pinned: " in (says := reason(sources.tick(seen.cursor, 300)))
    assert "silent for 0.5 s" in says.partition("pinned: ")[2]


def test_a_source_that_fails_never_keeps_the_others_from_a_run(sources: WatchedSources) -> None:
    sources.fetch()
    seen = sources.tick()
    sources.server.faults[LOOKS["pinned"]] = [Fault(status=500)]
    sources.server.put(FOLLOWED, {"rows.jsonl": b""})
    assert {"raw_followed", *DOWNSTREAM} <= set(selected(sources.tick(seen.cursor, 300)))


def test_a_source_that_wants_to_be_left_alone_is_left_alone_for_as_long(sources: WatchedSources) -> None:
    sources.fetch()
    seen = sources.tick()
    sources.server.faults[LOOKS["followed"]] = [Fault(status=429, retry_after="7200")]
    busy = sources.tick(seen.cursor)
    assert sources.known(busy)["followed"]["not_before"] == sources.moment + 7200
    sources.server.seen.clear()
    waiting = sources.tick(busy.cursor, 7199)
    assert {path for _, path in sources.server.asked()} == {LOOKS["pinned"], LOOKS["plain"]}
    sources.server.seen.clear()
    sources.tick(waiting.cursor, 1)
    assert LOOKS["followed"] in {path for _, path in sources.server.asked()}


def test_a_source_that_fails_again_is_left_alone_for_longer(sources: WatchedSources) -> None:
    sources.fetch()
    sources.server.faults[PLAIN] = [Fault(status=500)] * 3
    cursor, pauses = sources.tick().cursor, []
    for _ in range(2):
        result = sources.tick(cursor, 20_000)
        cursor = result.cursor
        pauses.append(sources.known(result)["plain"]["not_before"] - sources.moment)
    # the second and the third failure in a row: half to all of 20 and of 40 minutes
    assert 600 <= pauses[0] <= 1200 <= pauses[1] <= 2400


def test_a_slow_source_costs_a_tick_its_limit_and_is_learnt_of_later(sources: WatchedSources) -> None:
    sources.fetch()
    seen = sources.tick()
    sources.within_s = 2.0
    sources.configure()
    sources.server.put(FOLLOWED, {"rows.jsonl": b""})
    sources.server.files[PLAIN] = b""
    sources.server.faults[LOOKS["followed"]] = [Fault(drip_s=0.04)]
    asked = len(sources.server.seen)
    first = sources.tick(seen.cursor)
    assert {key for key in selected(first) if key.startswith("raw_")} == {"raw_plain"}
    assert sources.known(first)["followed"] == sources.known(seen)["followed"]
    cursor, requested = first.cursor, []
    for _ in range(200):
        later = sources.tick(cursor, 300)
        cursor = later.cursor
        if later.run_requests:
            requested.append({key for key in selected(later) if key.startswith("raw_")})
            break
        sleep(0.05)
    assert requested == [{"raw_followed"}]
    # one look, however many ticks there were meanwhile, and then which revision a run would fetch
    assert [path for _, path in sources.server.asked()[asked:]].count(LOOKS["followed"]) == 2


def test_what_needs_a_dataset_that_was_never_fetched_waits_for_it(sources: WatchedSources) -> None:
    sources.server.faults[LOOKS["followed"]] = [Fault(status=500)]
    first = sources.tick()
    assert selected(first) == ["normalized_pinned", "normalized_plain", "raw_pinned", "raw_plain"]
    sources.configure(used=("pinned", "plain"))
    sources.fetch()
    sources.configure(used=("followed", "pinned", "plain"))
    then = selected(sources.tick(first.cursor, 600))
    assert {"raw_followed", *DOWNSTREAM} <= set(then)


def test_a_tick_that_is_repeated_asks_for_the_same_run(sources: WatchedSources) -> None:
    sources.fetch()
    seen = sources.tick()
    sources.server.put(FOLLOWED, {"rows.jsonl": b""})
    asked = sources.tick(seen.cursor, 300)
    # the daemon died before it stored the cursor; meanwhile the run went on, and another source fails
    sources.fetch()
    sources.server.faults[PLAIN] = [Fault(status=500)]
    sources.configure()
    repeated = sources.tick(seen.cursor, 300)
    assert run_key(repeated) == run_key(asked)


def test_a_source_that_returns_to_a_former_revision_asks_for_another_run_each_time(sources: WatchedSources) -> None:
    sources.fetch()
    repository = sources.server.repositories[FOLLOWED]
    first = repository.newest
    second = sources.server.put(FOLLOWED, {"rows.jsonl": b""})
    cursor, keys = None, []
    for newest in (first, second, first, second):
        repository.newest = newest
        result = sources.tick(cursor, 300)
        cursor = result.cursor
        keys.append(run_key(result) if result.run_requests else "")
    assert keys[0] == ""  # it is what is stored
    assert len(set(keys)) == 4


@pytest.mark.parametrize(
    "cursor",
    [
        "{",
        "[]",
        "null",
        '{"release_pairs": "0123"}',  # that of an earlier version of the sensor
        '{"version": 99, "datasets": {}}',
        '{"version": 1, "datasets": {"plain": {"entry": "x", "failures": -1}}}',
        '{"version": 1, "datasets": {"plain": {"entry": "x", "not_before": NaN}}}',
        "\ud800",
    ],
)
def test_a_cursor_that_cannot_be_read_is_begun_anew(sources: WatchedSources, cursor: str) -> None:
    sources.fetch()
    fresh, result = sources.tick(), sources.tick(cursor)
    assert (reason(result), result.cursor) == ("3 of 3 sources hold nothing new to fetch", fresh.cursor)


def test_an_etag_that_no_server_could_have_sent_costs_one_look(sources: WatchedSources) -> None:
    sources.fetch()
    tree = json.loads(sources.tick().cursor or "")
    good = json.dumps(tree)
    tree["datasets"]["followed"]["etag"] = "a\r\nHost: b\u2028"
    failed = sources.tick(json.dumps(tree))
    assert sources.known(failed)["followed"]["failures"] == 1
    assert sources.known(sources.tick(failed.cursor, 600)) == json.loads(good)["datasets"]
