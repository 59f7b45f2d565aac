"""Loads, read from pages of metrics."""

import pytest

from graftline.llm.load import Load, read_load

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 5.0
vllm:num_requests_waiting{engine="1",model_name="m"} 0.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} 3.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} 1.0
# TYPE vllm:num_preemptions_created gauge
vllm:num_preemptions_created{engine="0",model_name="m"} 1.7e+09
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="m"} 100.0
vllm:prompt_tokens_total{engine="1",model_name="m"} 10.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 20.0
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 7.0
# TYPE vllm:engine_sleep_state gauge
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"} 1.0
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="weights_offloaded"} 0.0
"""
LLAMACPP = """\
# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 40
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 6
# TYPE llamacpp:n_decode_total counter
llamacpp:n_decode_total 9
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 1
"""


def test_the_engines_of_vllm_are_one_load() -> None:
    assert read_load(VLLM) == Load(
        running=7,
        waiting=5,
        waiting_for_room=2,
        kv_use=0.5,
        preemptions=1,
        prompt_tokens=110,
        completion_tokens=20,
        steps=130,
        is_asleep=False,
    )


def test_one_engine_that_sleeps_makes_the_server_asleep() -> None:
    load = read_load(VLLM + 'vllm:engine_sleep_state{engine="1",sleep_state="awake"} 0.0\n')
    assert load is not None
    assert load.is_asleep


def test_without_reasons_all_that_wait_wait_for_room() -> None:
    lines = [line for line in VLLM.splitlines() if "by_reason" not in line]
    load = read_load("\n".join(lines))
    assert load is not None
    assert load.waiting_for_room == 5


def test_llamacpp_moves_before_it_counts_tokens() -> None:
    assert read_load(LLAMACPP) == Load(
        running=2,
        waiting=1,
        waiting_for_room=1,
        kv_use=None,
        preemptions=0,
        prompt_tokens=40,
        completion_tokens=6,
        # 40 + 6 + 9
        steps=55,
    )


def test_a_number_that_is_none_is_left_out() -> None:
    load = read_load('vllm:num_requests_running{engine="0"} 1.0\nvllm:kv_cache_usage_perc{engine="0"} NaN\n')
    assert load is not None
    assert (load.running, load.kv_use) == (1, None)


NONE = {
    "nothing": "",
    "other metrics": "# TYPE process_open_fds gauge\nprocess_open_fds 12\n",
    "a page": "<html>404</html>",
    "a broken line": 'vllm:num_requests_running{engine="0} 1.0\n',
    "a value that is no number": "vllm:num_requests_running many\n",
}


@pytest.mark.parametrize("page", NONE.values(), ids=NONE)
def test_other_pages_have_no_load(page: str) -> None:
    assert read_load(page) is None
