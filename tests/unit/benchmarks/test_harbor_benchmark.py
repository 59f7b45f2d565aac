"""The benchmark of Harbor, at sizes that show that it runs and measures what it says; no clock is judged."""

from pathlib import Path

from benchmarks import harbor

TINY = harbor.Sizes(
    singles=2, rollouts=4, queued=10, instances=20, listed=150, pages=3, context_mb=1, repetitions=1, examples=1
)


def test_rollouts_are_rewarded_as_their_entrypoint_says(tmp_path: Path) -> None:
    assert [reward for reward, _ in harbor.alone_in_the_executor(2, tmp_path)] == [0.007, 0.007]


def test_a_context_has_one_digest_in_all_processes(tmp_path: Path) -> None:
    found = harbor.packaging(TINY, tmp_path)
    assert [found[kind]["different_digests"] for kind in ("text", "random")] == [1, 1]


def test_pages_are_of_all_instances(tmp_path: Path) -> None:
    found = harbor.instances(TINY, f"sqlite:///{tmp_path / 'harbor.sqlite'}")
    assert set(found) == {"batch_of_20_s", "page_of_100_among_150_ms"}


def test_bare_processes_are_timed(tmp_path: Path) -> None:
    assert set(harbor.bare(TINY, tmp_path / "bare")) == {"ms", f"per_s_{harbor.CORES}_at_once"}
