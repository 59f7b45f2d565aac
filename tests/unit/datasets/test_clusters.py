"""What must not straddle two splits: groups, their other names, commits, equal and near texts before."""

import random
from collections import defaultdict
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.unit.datasets.shards import Divided, Row, change

EXTENSIONS = ("py", "js", "java")
WORDS = [f"word_{number}" for number in range(400)]


def text(rng: random.Random) -> str:
    return "\n".join(f"    {rng.choice(WORDS)}({rng.choice(WORDS)}, {rng.choice(WORDS)})" for _ in range(18))


def varied(rng: random.Random, whole: str) -> str:
    """Return a near text: another word in a line or two, other blanks and other case."""
    lines = whole.split("\n")
    for _ in range(rng.randrange(3)):
        lines[rng.randrange(len(lines))] += f"  # {rng.choice(WORDS)}"
    near = "\n".join(lines)
    return rng.choice([near, near.upper(), near.replace("    ", "\t")])


def cased(rng: random.Random, name: str) -> str:
    return rng.choice([name, name.upper(), name.title()])


def rows(seed: int, count: int) -> dict[str, dict[str, Row]]:
    """Return three datasets of edits that share repositories, forks, commits and texts at random."""
    rng = random.Random(seed)
    texts = [text(rng) for _ in range(count // 8)]
    result: dict[str, dict[str, Row]] = {"one": {}, "two": {}, "three": {}}
    for number in range(count):
        name = f"e{number}"
        repositories = [cased(rng, f"owner/r{rng.randrange(4 * count)}") for _ in range(rng.choice([1, 1, 3]))]
        old = varied(rng, rng.choice(texts)) if rng.random() < 0.2 else text(rng)
        changes = {
            "old_contents": old,
            "new_contents": f"{old}\n    done_{rng.randrange(3)}()",
            "repos": ",".join(repositories),
            "commit": f"commit {rng.randrange(count)}" if rng.random() < 0.2 else f"commit of {name}",
            "message": f"Wish {rng.randrange(count)}",
        }
        file = f"{name}.{rng.choice(EXTENSIONS)}"
        result[rng.choice(list(result))][name] = change(name, old_file=file, new_file=file, **changes)
    return result


def near(rows: Mapping[str, Row]) -> list[set[str]]:
    """Return pairs whose texts before are so near that the signatures cannot miss it."""
    folded = {name: "".join(row["old_contents"].split()).lower() for name, row in rows.items()}
    runs = {name: {whole[at : at + 16] for at in range(len(whole))} for name, whole in folded.items()}
    # 0.85 of what both hold together is 0.92 of one
    return [
        {first, second}
        for first, second in combinations(rows, 2)
        if len(runs[first] & runs[second]) > 0.92 * max(len(runs[first]), len(runs[second]))
    ]


def holders(rows: Mapping[str, Row]) -> list[set[str]]:
    """Return the edits that hold each repository, in any case of letters, and each commit."""
    result: dict[str, set[str]] = defaultdict(set)
    for name, row in rows.items():
        for thing in (*row["repos"].lower().split(","), row["commit"]):
            result[thing].add(name)
    return [names for names in result.values() if len(names) > 1]


@pytest.mark.parametrize("seed", range(4))
def test_nothing_that_hangs_together_straddles_two_splits(tmp_path: Path, seed: int) -> None:
    datasets = rows(seed, 160)
    result = Divided(tmp_path, datasets, seed=seed)
    every = {name: row for of in datasets.values() for name, row in of.items()}
    pairs, held = near(every), holders(every)
    # there is something to be seen: pairs of both kinds, duplicates, and many clusters
    assert min(len(pairs), len(held), len(result.reasons)) >= 2
    assert len(set(result.clusters.values())) >= 40
    assert set(result.splits.values()) == {"train", "dev", "test"}
    for names in (*pairs, *held):
        assert (names, len({result.clusters[name] for name in names})) == (names, 1)
        assert (names, len({result.splits[name] for name in names if name in result.splits}) <= 1) == (names, True)
    for names in result.kept.items():
        assert (names, len({result.clusters[name] for name in names})) == (names, 1)
    assert sorted([*result.splits, *result.reasons]) == sorted(every)


@pytest.mark.parametrize("seed", range(3))
def test_clusters_are_no_larger_than_what_hangs_together(tmp_path: Path, seed: int) -> None:
    # joined pair by pair, with nothing that could be near by chance
    rng = random.Random(seed)
    edits = {
        f"e{number}": change(
            f"e{number}",
            old_contents=text(rng),
            repos=",".join(f"owner/r{rng.randrange(80)}" for _ in range(2)),
        )
        for number in range(60)
    }
    result = Divided(tmp_path, {"one": edits})
    group = {name: {name} for name in edits}
    for first in edits:
        for second in edits:
            shared = set(edits[first]["repos"].split(",")) & set(edits[second]["repos"].split(","))
            if shared and group[first] is not group[second]:
                joined = group[first] | group[second]
                group.update(dict.fromkeys(joined, joined))
    for first in edits:
        assert {second for second in edits if result.clusters[second] == result.clusters[first]} == group[first]


@pytest.mark.parametrize(
    ("first", "second", "is_joined"),
    [
        pytest.param({}, {}, False, id="nothing in common"),
        pytest.param({"repos": "owner/x"}, {"repos": "Owner/X"}, True, id="a repository in another case"),
        pytest.param({"repos": "a/a,owner/x"}, {"repos": "b/b,OWNER/x"}, True, id="a fork of both"),
        pytest.param({"repos": "a/a,b/b"}, {"repos": "b/b"}, True, id="a fork of one is the other's repository"),
        pytest.param({"repos": "owner/x"}, {"repos": "owner/xy"}, False, id="a name that only begins alike"),
        pytest.param({"commit": "c0ffee"}, {"commit": "c0ffee"}, True, id="a commit"),
        pytest.param({"commit": "c0ffee"}, {"commit": "C0FFEE"}, False, id="a commit in another case is another"),
        pytest.param({"commit": "owner/x"}, {"repos": "owner/x"}, False, id="a commit named like a repository"),
        pytest.param({"old_contents": "A = 1\n"}, {"old_contents": "a=1"}, True, id="a text but for blanks and case"),
        pytest.param({"new_contents": "a = 1\n"}, {"new_contents": "a = 1\n"}, False, id="a text after"),
        pytest.param({"message": "Tidy up"}, {"message": "Tidy up"}, False, id="a wish"),
        pytest.param({"old_file": "a.py"}, {"old_file": "a.py"}, False, id="a path"),
    ],
)
def test_edits_hang_together_by(tmp_path: Path, first: dict[str, Any], second: dict[str, Any], is_joined: bool) -> None:
    result = Divided(tmp_path, {"one": {"a": change("a", **first), "b": change("b", **second)}})
    assert (result.clusters["a"] == result.clusters["b"]) is is_joined


def test_a_duplicate_that_falls_out_still_joins_what_it_hangs_together_with(tmp_path: Path) -> None:
    # `b` says what `a` says, in a repository that `c` is of
    twin = change("a", repos="owner/two", commit="another")
    rows = {"a": change("a", repos="owner/one"), "b": twin, "c": change("c", repos="owner/two")}
    result = Divided(tmp_path, {"one": rows})
    assert (result.reasons, result.splits["a"] == result.splits["c"]) == ({"b": "duplicate_row"}, True)
    assert len(set(result.clusters.values())) == 1
