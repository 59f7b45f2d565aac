"""The benchmark of the sandbox, at sizes that show that it runs and measures what it says; no clock is judged."""

from benchmarks import sandbox
from graftline.actions.astgrep import LANGUAGES, parse

TINY = sandbox.Sizes(actions=32, repetitions=1, singles=3, agreement=16)


def test_programs_are_as_long_as_said_and_all_different() -> None:
    found = sandbox.programs(12, 1)
    assert len({text for _, text in found}) == 12
    assert all(sandbox.LINES <= text.count("\n") < 2 * sandbox.LINES for _, text in found)
    assert {language for language, _ in found} <= set(LANGUAGES)
    assert all(parse(text, language).root.children for language, text in found)


def test_the_same_is_measured_in_every_run() -> None:
    assert sandbox.requests(4, 3) == sandbox.requests(4, 3)


def test_every_figure_is_there_and_no_difference_is_found() -> None:
    figures, peers = sandbox.measure(TINY)
    assert set(figures) == {"actions_per_s", "latency_ms", "agreement", "source_lines"}
    assert (figures["agreement"]["actions"], figures["agreement"]["differences"]) == (16, 0)
    assert (
        {"ast-grep", "process sandbox"} <= peers.keys() <= {*("ast-grep", "bubblewrap and ast-grep", "process sandbox")}
    )
