"""When an actor goes out of service, and when it is back."""

from dataclasses import replace

import pytest

from graftline.llm.load import Health, Load, Progress

BUSY = Load(
    running=2, waiting=0, waiting_for_room=0, kv_use=0.1, preemptions=0, prompt_tokens=9, completion_tokens=1, steps=10
)
IDLE = replace(BUSY, running=0)


def health() -> Health:
    return Health(most_failures=3, first_pause_s=1.0, longest_pause_s=5.0)


def test_an_answer_between_failures_starts_the_count_again() -> None:
    one = health()
    said = [one.record_failure(), one.record_failure()]
    one.record_success()
    assert [*said, one.record_failure(), one.record_failure()] == [False, False, False, False]


def test_pauses_between_probes_double_up_to_the_longest() -> None:
    one = health()
    one.eject()
    pauses = [one.pause_s]
    for _ in range(4):
        one.record_probe(False)
        pauses.append(one.pause_s)
    assert (pauses, one.is_in_service) == ([1.0, 2.0, 4.0, 5.0, 5.0], False)


def test_an_actor_that_answers_nothing_but_probes_is_probed_less_and_less() -> None:
    one = health()
    one.eject()
    one.record_probe(True)
    one.eject()
    paused = one.pause_s
    one.record_probe(True)
    one.record_success()
    assert (paused, one.pause_s) == (2.0, 1.0)


LOOKS = {
    "work without a step": ([(BUSY, True, 0.0), (BUSY, True, 9.0), (BUSY, True, 10.0)], [False, False, True]),
    "a step in time": (
        [(BUSY, True, 0.0), (replace(BUSY, steps=11), True, 9.0), (replace(BUSY, steps=11), True, 18.0)],
        [False, False, False],
    ),
    "a server that was started again and counts from zero": (
        [(BUSY, True, 0.0), (replace(BUSY, steps=0), True, 11.0)],
        [False, False],
    ),
    "nothing to do": ([(IDLE, True, 0.0), (IDLE, True, 100.0), (BUSY, True, 101.0)], [False, False, False]),
    # the gauge stays where the last step left it
    "nothing of ours to do": ([(BUSY, False, 0.0), (BUSY, False, 100.0), (BUSY, True, 101.0)], [False, False, False]),
    "work that waits and is never begun": (
        [(replace(IDLE, waiting=2), True, 0.0), (replace(IDLE, waiting=2), True, 10.0)],
        [False, True],
    ),
}


@pytest.mark.parametrize(("looks", "expected"), LOOKS.values(), ids=LOOKS)
def test_a_stall_is_work_without_a_step(looks: list[tuple[Load, bool, float]], expected: list[bool]) -> None:
    progress = Progress(stall_s=10.0)
    assert [progress.is_stalled(*look) for look in looks] == expected
