"""The benchmark of the proxy, at sizes that show that it runs and measures what it says; no clock is judged."""

import asyncio

from benchmarks import model_proxy


def test_streams_are_whole_and_recorded() -> None:
    figures = asyncio.run(model_proxy.streams(3, 2, 0.0))
    assert (figures["at_once"], figures["whole"], figures["recorded"]) == (3, 3, 3)


def test_calls_are_timed_with_the_proxy_and_without() -> None:
    assert set(asyncio.run(model_proxy.overhead(2))) == {"p50", "p95", "cpu"}
