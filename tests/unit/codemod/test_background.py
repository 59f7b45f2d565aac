"""The frozen corpus: where it is from, that no example is in it, and that its index of words loses no match."""

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from graftline.astgrep.action import PatternAction, rule_of
from graftline.astgrep.binding import LANGUAGES, Language, parse
from graftline.codemod import background
from graftline.codemod.candidates import generate_candidates
from graftline.codemod.change import Change
from graftline.sandbox.actions.memory import MemorySandbox

CHECKOUT = Path(__file__).resolve().parents[3]
PERMISSIVE = {"MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "0BSD"}


def test_every_row_says_where_it_is_from_and_under_which_license() -> None:
    for row in background.rows():
        assert re.fullmatch(r"(pypi|npm|debian):\S+ \S+->\S+", row.source), row.id
        assert row.license in PERMISSIVE, row.id
        assert not Path(row.path).is_absolute(), row.id
        assert row.text.strip(), row.id


def test_no_function_is_there_twice() -> None:
    rows = background.rows()
    assert len({row.id for row in rows}) == len({row.text for row in rows}) == len(rows)


def test_no_text_of_the_sample_is_in_it() -> None:
    with gzip.open(CHECKOUT / "data" / "samples" / "release_pairs.jsonl.gz", "rt", encoding="utf-8") as stream:
        sample = [json.loads(line) for line in stream]
    texts = {"".join(row[side].split()) for row in sample for side in ("pre", "post")}
    assert [row.id for row in background.rows() if "".join(row.text.split()) in texts] == []


def test_the_notice_names_every_package_with_its_license_and_number_of_functions() -> None:
    notice = (CHECKOUT / "graftline" / "codemod" / "background.NOTICE").read_text("utf-8")
    listed = re.findall(r"^(\S+) +(\S+) +(pypi|npm|debian) +(\d+)$", notice, re.M)
    counted: Counter[tuple[str, str, str]] = Counter()
    for row in background.rows():
        registry, package = row.source.partition(" ")[0].split(":", 1)
        counted[package, row.license, registry] += 1
    assert sorted(listed) == sorted((*key, str(number)) for key, number in counted.items())


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_parses_in_every_language_it_serves(language: Language) -> None:
    texts = background.texts(language)
    assert [number for number, text in enumerate(texts) if not parse(text, language).is_clean] == []
    assert background.size(language) == sum(map(len, texts)) > 50_000


def test_places_are_counted_that_a_rule_changes() -> None:
    found = sum(len(re.findall(r"(?<![\w.])isinstance\(", text)) for text in background.texts("python"))
    assert background.hits({"rule": {"pattern": "isinstance($$$A)"}, "fix": "x"}, "python") <= found
    assert background.hits({"rule": {"pattern": "isinstance($A, $B)"}, "fix": "isinstance($A, $B)"}, "python") == 0
    assert background.hits({"rule": {"pattern": "isinstance($A, $B)"}, "fix": "check($A, $B)"}, "python") > 0


def test_a_rule_that_is_refused_changes_nothing() -> None:
    assert background.hits({"rule": {"pattern": "f($A"}, "fix": "$B"}, "python") == 0


def test_the_counts_are_those_of_a_sandbox() -> None:
    rule = {"rule": {"pattern": "$A is None"}, "fix": "$A == None"}
    action = PatternAction(pattern="$A is None", rewrite="$A == None")
    applied = [
        len(result.matches)
        for text in background.texts("python")
        for result in MemorySandbox().apply_many(text, "python", [action])
    ]
    assert background.hits(rule, "python") == sum(applied)


def test_the_words_that_a_candidate_needs_hide_none_of_its_matches(
    sample_pairs: Callable[[int, int], list[tuple[str, str, Language]]],
) -> None:
    for before, after, language in sample_pairs(12, 8):
        change = Change.between(before, after, language)
        for candidate in [one for site in change.code_sites[:1] for one in generate_candidates(change, site)][:12]:
            rule = rule_of(candidate.action)
            counted = background.hits(rule, language, candidate.words)
            assert counted == background.hits(rule, language), candidate.action
