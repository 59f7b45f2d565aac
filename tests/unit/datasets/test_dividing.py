"""The division into train, dev and test: complete, without leaks, and the same for the same edits."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable

import pytest

from graftline.datasets.catalogue import Splitting
from graftline.datasets.edit import Edit
from graftline.datasets.split import Division, divide, folded

MakeEdit = Callable[..., Edit]


def split_by_id(division: Division) -> dict[str, str]:
    return {edit.id: split for (_, split), edits in division.splits.items() for edit in edits}


def sizes(division: Division) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for (_, split), edits in division.splits.items():
        counts[split] += len(edits)
    return dict(counts)


@pytest.fixture
def many(edit: MakeEdit) -> list[Edit]:
    """Sixty edits in two languages and twenty groups, of which some hang together."""
    return [
        edit(
            f"e{number:02}",
            group=f"pypi:{number % 20}",
            language="java" if number % 20 >= 12 else "python",
            # e00 and e31, of groups 0 and 11, have the same text before but for blanks and case
            **({"pre": "def Shared( x ):\n  return old(x)\n"} if number == 31 else {}),
            **({"pre": "def shared(x):\n    return old(x)\n"} if number == 0 else {}),
        )
        for number in range(60)
    ]


def test_the_order_of_the_edits_does_not_matter(many: list[Edit], edit: MakeEdit) -> None:
    # with two edits of one id that are not equal, and two that make the same change
    edits = [*many, edit("e05", group="pypi:other"), edit("e99", pre=many[7].pre, post=many[7].post)]
    first = divide(edits, Splitting())
    for seed in range(5):
        shuffled = random.Random(seed).sample(edits, len(edits))
        assert divide(shuffled, Splitting()) == first


def test_the_same_edits_and_seed_give_the_same_division(many: list[Edit]) -> None:
    assert divide(many, Splitting(seed=3)) == divide(many, Splitting(seed=3))


def test_another_seed_gives_another_division(many: list[Edit]) -> None:
    assert split_by_id(divide(many, Splitting(seed=0))) != split_by_id(divide(many, Splitting(seed=1)))


def test_every_edit_is_in_exactly_one_split_of_its_language(many: list[Edit]) -> None:
    division = divide(many, Splitting())
    placed = [(language, edit) for (language, _), edits in division.splits.items() for edit in edits]
    assert sorted(edit.id for _, edit in placed) == [edit.id for edit in many]
    assert [edit.id for language, edit in placed if edit.language != language] == []


def test_the_edits_of_a_split_stand_in_the_order_of_their_ids(many: list[Edit]) -> None:
    for edits in divide(many[::-1], Splitting()).splits.values():
        assert [edit.id for edit in edits] == sorted(edit.id for edit in edits)


@pytest.mark.parametrize("seed", range(5))
def test_no_group_straddles_two_splits(many: list[Edit], seed: int) -> None:
    splits: dict[str, set[str]] = defaultdict(set)
    for (_, split), edits in divide(many, Splitting(seed=seed)).splits.items():
        for found in edits:
            splits[found.group].add(split)
    assert [group for group, found in splits.items() if len(found) > 1] == []


def test_texts_equal_but_for_blanks_and_case_keep_their_groups_together(many: list[Edit]) -> None:
    # without that the two groups are often apart: e01 and e31 have nothing in common
    together, unrelated = [], []
    for seed in range(20):
        where = split_by_id(divide(many, Splitting(seed=seed)))
        together.append(where["e00"] == where["e11"] == where["e31"])
        unrelated.append(where["e01"] == where["e31"])
    assert (all(together), all(unrelated)) == (True, False)


def test_what_hangs_together_through_a_third_goes_together(edit: MakeEdit) -> None:
    chain = [
        edit("a", group="one"),
        edit("b", group="two", pre="DEF a(x): return old(x)"),  # as `a`, folded
        edit("c", group="two"),
        edit("d", group="three", pre="def c( x ):\n\treturn OLD(x)"),  # as `c`, folded
    ]
    others = [edit(f"other{number}") for number in range(8)]
    for seed in range(10):
        where = split_by_id(divide([*chain, *others], Splitting(seed=seed)))
        assert len({where[name] for name in "abcd"}) == 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("groups", [3, 4, 7])
def test_every_split_gets_something_in_every_language_with_three_groups(edit: MakeEdit, groups: int, seed: int) -> None:
    edits = [
        edit(f"{language}{group}_{number}", group=f"{language}:{group}", language=language)
        for language in ("java", "javascript", "python")
        for group in range(groups)
        for number in range(1 + 3 * group)
    ]
    assert sorted(divide(edits, Splitting(seed=seed)).splits) == [
        (language, split) for language in ("java", "javascript", "python") for split in ("dev", "test", "train")
    ]


def test_many_equal_groups_meet_the_shares(edit: MakeEdit) -> None:
    # each group goes where filled / share is least: of every ten 8, 1 and 1
    division = divide([edit(f"e{number}") for number in range(100)], Splitting())
    assert sizes(division) == {"train": 80, "dev": 10, "test": 10}


def test_other_shares_are_met_too(edit: MakeEdit) -> None:
    division = divide([edit(f"e{number}") for number in range(100)], Splitting(train=0.5, dev=0.25, test=0.25))
    assert sizes(division) == {"train": 50, "dev": 25, "test": 25}


@pytest.mark.parametrize("seed", range(5))
def test_unequal_groups_exceed_no_share_by_more_than_the_largest_group(edit: MakeEdit, seed: int) -> None:
    # 20 groups each of 1, 2, 3, 4 and 5 make 300 edits, of which 80 % are 240 and 10 % are 30. The emptiest split for
    # its share has at most its share, and gets a group of at most 5 then.
    edits = [edit(f"e{group}_{number}", group=f"g{group}") for group in range(100) for number in range(1 + group % 5)]
    found = sizes(divide(edits, Splitting(seed=seed)))
    assert sum(found.values()) == 300
    assert (found["train"] <= 245, found["dev"] <= 35, found["test"] <= 35) == (True, True, True)


def test_a_group_of_two_languages_is_dealt_out_once(edit: MakeEdit) -> None:
    edits = [edit(f"e{number}", group="one", language="java" if number else "python") for number in range(3)]
    others = [edit(f"other{number}", language="java") for number in range(5)]
    where = split_by_id(divide([*edits, *others], Splitting()))
    assert len({where[found.id] for found in edits}) == 1


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        pytest.param("a", {"pre": "x = 1\n", "post": "x = 2\n"}, id="the same id"),
        pytest.param("b", {"instruction": "Change a.", "pre": "def a(x):\n    return old(x)\n"}, id="asked the same"),
        pytest.param(
            "b", {"pre": "DEF a(x):\n  return old(x)", "post": "def a(x): return new( x )"}, id="done the same"
        ),
    ],
)
def test_an_edit_that_repeats_another_is_counted_and_left_out(
    edit: MakeEdit, name: str, changes: dict[str, str]
) -> None:
    division = divide([edit("a", post="def a(x):\n    return new(x)\n"), edit(name, **changes), edit("c")], Splitting())
    assert (sum(map(len, division.splits.values())), division.duplicates) == (2, 1)


def test_what_repeats_only_a_left_out_edit_is_kept(edit: MakeEdit) -> None:
    kept = edit("a")
    repeats = edit("b", instruction=kept.instruction, pre=kept.pre, post="x = 1\n")
    third = edit("c", pre=kept.pre, post="x = 1\n")
    division = divide([kept, repeats, third], Splitting())
    assert (sorted(split_by_id(division)), division.duplicates) == (["a", "c"], 1)


def test_the_same_text_before_with_another_wish_is_no_duplicate(edit: MakeEdit) -> None:
    division = divide([edit("a"), edit("b", pre=edit("a").pre)], Splitting())
    assert (sorted(split_by_id(division)), division.duplicates) == (["a", "b"], 0)


def test_no_edits_make_an_empty_division() -> None:
    assert divide([], Splitting()) == Division({}, 0)


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        ("a b", "AB", True),
        ("a\n\tb ", "a\u00a0b", True),  # any white space of Unicode
        ("ab", "ac", False),
        ("", " \n", True),
    ],
)
def test_folding_does_not_see_blanks_and_case(one: str, other: str, is_equal: bool) -> None:
    assert (folded(one) == folded(other)) is is_equal
