"""Single places of a change: which there are, and whether its words say what becomes of them."""

import pytest

from graftline.agent.single_places import is_told, list_places_of_text, list_single_places, says_enough, shares_words
from graftline.codemod.change_places import MultiFileChange
from tests.tasks import make_task

BEFORE = "import a\n\n\ndef first():\n    get(1)\n\n\ndef second():\n    get(2)\n"


def test_places_are_blocks_at_the_left_margin_and_none_where_blanks_alone_change() -> None:
    after = BEFORE.replace("import a\n\n\n", "import a\n\n").replace("get(2)", "fetch(2)")
    change = MultiFileChange([("a.py", BEFORE, after)], {}, "k")
    [place] = list_single_places(change)
    assert (place.code, place.target) == ("def second():\n    get(2)\n", "def second():\n    fetch(2)\n")


def test_places_of_a_long_text_are_tasks_of_their_own_in_its_order() -> None:
    task = make_task(BEFORE, BEFORE.replace("get", "fetch"), instruction="Call fetch")
    first, second = list_places_of_text(task)
    assert [one.id for one in (first, second)] == ["d:1#4", "d:1#8"]
    assert (first.before, second.target) == ("def first():\n    get(1)\n", "def second():\n    fetch(2)\n")
    assert {one.instruction for one in (first, second)} == {"Call fetch"}


@pytest.mark.parametrize(
    ("instruction", "before", "target", "told", "shared"),
    [
        ("Use fetch", "get(1)\n", "fetch(1)\n", True, True),
        # a part of a name is a word, and so is one that stands in the lines before
        ("Use the http client", "client = get(pool)\n", "http_client = get(pool)\n", True, True),
        ("Ask the pool first", "get(1, pool)\n", "pool.get(1)\n", True, True),
        # what comes of the language itself need not be told
        ("Compare by identity with none", "a == None\n", "a is not None\n", True, True),
        ("Use something better", "get(1)\n", "fetch(1)\n", False, False),
        ("Remove the old thing", "a()\nold()\n", "a()\n", True, True),
        ("Make it faster", "a()\nold()\n", "a()\n", True, False),
    ],
)
def test_words_are_told_or_not(instruction: str, before: str, target: str, told: bool, shared: bool) -> None:
    assert is_told(instruction, before, target, "python") == told
    assert shares_words(instruction, before, target) == shared
    task = make_task(before, target, instruction=instruction)
    assert says_enough(task.model_copy(update={"answerable": None})) == (told and shared)
    assert says_enough(task.model_copy(update={"answerable": True}))
    assert not says_enough(task.model_copy(update={"answerable": False}))
