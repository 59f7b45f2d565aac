"""The figures: what is counted, and how it is read."""

import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest
from prometheus_client.parser import text_string_to_metric_families

from graftline.core.errors import ConfigError
from graftline.core.metrics import Metrics, serve_metrics


def figures(text: str) -> dict[str, float]:
    """Return the samples that are ours, without times of creation and the buckets of histograms."""
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("graftline_") and not sample.name.endswith(("_created", "_bucket")):
                labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
                samples[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return samples


def nonzero(metrics: Metrics) -> dict[str, float]:
    return {name: value for name, value in figures(metrics.text()[0].decode()).items() if value}


def fetch(url: str) -> tuple[int, str, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def test_an_answer_counts_for_its_actor() -> None:
    metrics = Metrics()
    metrics.count_answer("a", 0.5, tries=1, prompt_tokens=100, completion_tokens=20, cached_tokens=60, cost_usd=0.25)
    metrics.count_answer("a", 1.5, tries=3, prompt_tokens=50, completion_tokens=10)
    metrics.count_unanswered()
    assert nonzero(metrics) == {
        "graftline_actor_latency_seconds_count{actor=a}": 2,
        "graftline_actor_latency_seconds_sum{actor=a}": 2,
        "graftline_actor_retries_total": 2,
        "graftline_actor_unanswered_total": 1,
        "graftline_actor_prompt_tokens_total{actor=a}": 150,
        "graftline_actor_cached_tokens_total{actor=a}": 60,
        "graftline_actor_completion_tokens_total{actor=a}": 30,
        "graftline_actor_cost_usd_total{actor=a}": 0.25,
    }


def test_what_a_pool_counts_is_told_as_totals_and_never_goes_back() -> None:
    metrics = Metrics()
    metrics.set_actor_state("a", True, 3, 64, {"stalled": 1, "limited": 2}, ejections=1)
    metrics.set_actor_state("a", False, 0, 8, {"stalled": 2, "limited": 2}, ejections=2)
    metrics.set_actor_state("a", True, 1, 64, {"stalled": 1}, ejections=0)  # by a pool that was opened anew
    metrics.set_waiting(9)
    metrics.set_waiting(5)
    assert nonzero(metrics) == {
        "graftline_actor_up{actor=a}": 1,
        "graftline_actor_in_flight{actor=a}": 1,
        "graftline_actor_slots{actor=a}": 64,
        "graftline_actor_faults_total{actor=a,fault=stalled}": 3,
        "graftline_actor_faults_total{actor=a,fault=limited}": 2,
        "graftline_actor_ejections_total{actor=a}": 2,
        "graftline_actor_waiting": 5,
    }


def test_every_verdict_but_ok_is_a_failure_of_the_sandbox() -> None:
    metrics = Metrics()
    for verdict in ("ok", "no_match", "no_match", "crash"):
        metrics.count_action(verdict, 0.25)
    assert nonzero(metrics) == {
        "graftline_sandbox_actions_total": 4,
        "graftline_sandbox_latency_seconds_count": 4,
        "graftline_sandbox_latency_seconds_sum": 1,
        "graftline_sandbox_failures_total{verdict=no_match}": 2,
        "graftline_sandbox_failures_total{verdict=crash}": 1,
    }


def test_the_verified_ratio_is_that_of_each_teacher() -> None:
    metrics = Metrics()
    for is_verified in (True, False, False, True, True):
        metrics.count_trajectory("openai/x", is_verified)
    metrics.count_trajectory("induction", False)
    for is_readable in (True, False):
        metrics.count_step("openai/x", is_readable)
    assert nonzero(metrics) == {
        "graftline_trajectories_total{teacher=openai/x,verified=true}": 3,
        "graftline_trajectories_total{teacher=openai/x,verified=false}": 2,
        "graftline_trajectories_total{teacher=induction,verified=false}": 1,
        "graftline_verified_ratio{teacher=openai/x}": 0.6,
        "graftline_steps_total{teacher=openai/x}": 2,
        "graftline_format_failures_total{teacher=openai/x}": 1,
    }


def test_jobs_are_counted_by_their_end() -> None:
    metrics = Metrics()
    metrics.set_queue_depth(waiting=7, in_flight=2, dead=1)
    metrics.set_queue_depth(waiting=6, in_flight=2, dead=0)
    metrics.count_job_start()
    metrics.count_job_start()
    metrics.count_job_end("finished", 2.5)
    metrics.set_draining(True)
    metrics.count_lost("log push", 3)
    assert nonzero(metrics) == {
        "graftline_queue_depth{state=waiting}": 6,
        "graftline_queue_depth{state=in_flight}": 2,
        "graftline_jobs_taken_total": 2,
        "graftline_jobs_ended_total{outcome=finished}": 1,
        "graftline_job_duration_seconds_count": 1,
        "graftline_job_duration_seconds_sum": 2.5,
        "graftline_draining": 1,
        "graftline_telemetry_lost_total{sink=log push}": 3,
    }


def test_the_server_tells_the_figures_and_whether_the_process_works() -> None:
    metrics, faults = Metrics(), [""]
    with serve_metrics(metrics, "127.0.0.1", 0, lambda: faults[-1]) as url:
        metrics.count_job_start()
        status, media_type, text = fetch(f"{url}/metrics?x=1")
        assert (status, media_type.partition(";")[0]) == (200, "text/plain")
        assert figures(text)["graftline_jobs_taken_total"] == 1
        assert fetch(f"{url}/healthz") == (200, "text/plain; charset=utf-8", "ok\n")
        faults.append("nothing was taken for 10 minutes")
        assert fetch(f"{url}/healthz") == (503, "text/plain; charset=utf-8", "nothing was taken for 10 minutes\n")
        assert fetch(f"{url}/")[0] == 404


def test_openmetrics_is_told_to_whom_asks_for_it() -> None:
    with serve_metrics(Metrics(), "127.0.0.1", 0, str) as url:
        request = urllib.request.Request(f"{url}/metrics", headers={"Accept": "application/openmetrics-text"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            assert answer.read().endswith(b"# EOF\n")


def test_the_server_ends_with_its_block_and_its_port_is_free_again() -> None:
    with serve_metrics(Metrics(), "127.0.0.1", 0, str) as url:
        port = int(url.rpartition(":")[2])
    with serve_metrics(Metrics(), "127.0.0.1", port, str) as again:
        assert again == url


def test_a_port_that_is_in_use_is_named() -> None:
    with serve_metrics(Metrics(), "127.0.0.1", 0, str) as url:
        port = int(url.rpartition(":")[2])
        with pytest.raises(ConfigError) as error, serve_metrics(Metrics(), "127.0.0.1", port, str):
            pass
    assert str(error.value) == (
        f"metrics: 127.0.0.1:{port} cannot be listened on (Address already in use); choose another port, or 0 for a free"
        " one"
    )


def test_a_snapshot_is_a_file_with_all_figures(tmp_path: Path) -> None:
    metrics = Metrics()
    metrics.count_job_start()
    metrics.write_snapshot(tmp_path / "textfiles" / "graftline.prom")
    assert figures((tmp_path / "textfiles" / "graftline.prom").read_text())["graftline_jobs_taken_total"] == 1
    assert [path.name for path in (tmp_path / "textfiles").iterdir()] == ["graftline.prom"]
