"""The page of a change: what it has of the places, and what it says to type."""

from pathlib import Path

import pytest

from graftline.codemod.review import ChangedPlace, group_places
from graftline.codemod.review_page import MAX_OF_GROUP, MAX_PLACES, format_review


@pytest.mark.parametrize(("count", "shown"), [(MAX_PLACES, MAX_PLACES), (MAX_PLACES + 1, MAX_OF_GROUP)])
def test_a_page_has_all_places_up_to_a_number_and_says_how_many_it_has_not(count: int, shown: int) -> None:
    places = [ChangedPlace("r", Path(f"m{n}.py"), 1, f"get({n})", f"fetch({n})", "x") for n in range(count)]
    page = format_review(group_places(places, []), {"r": ["in words"]}, ["graftline", "apply"])
    assert page.count('class="place"') == shown
    assert (f"{count - shown} more are not on this page" in page) is (shown < count)


def test_a_page_of_nothing_says_so_and_has_nothing_to_type() -> None:
    page = format_review([], {}, ["graftline", "follow"], ["not done: why"])
    assert ("Nothing would change" in page, "not done: why" in page, "graftline" in page) == (True, True, False)
