"""Synthetic edits on the shipped sample: their gold actions make them, and they belong where their snippet does."""

import gzip
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import chain, islice
from pathlib import Path

import pytest

from graftline.astgrep.action import PatternAction
from graftline.astgrep.binding import Language, parse
from graftline.datasets.catalog import Cleaning
from graftline.datasets.edit import Edit
from graftline.datasets.ingest import CleanEdit, Ingest
from graftline.datasets.readers import source_of
from graftline.datasets.synthetic import synthesize
from graftline.datasets.synthetic.apply import MAX_PLACES
from graftline.datasets.synthetic.families import FAMILIES, HELD_OUT
from graftline.rollouts.task import validate_tasks
from graftline.sandbox.actions.memory import MemorySandbox
from graftline.sandbox.base import Verdict
from tests.unit.datasets.fixtures import dataset

SAMPLE = Path(__file__).resolve().parents[3] / "data" / "samples" / "release_pairs.jsonl.gz"
LANGUAGES: tuple[Language, ...] = ("java", "javascript", "python", "typescript")
ROWS = 200
SNIPPETS = 16
COUNT = 80
SNIPPET = Edit(
    instruction="Change f.",
    pre="def f():\n    return load()\n",
    post="def f():\n    return read()\n",
    language="python",
    tags=("release_pairs",),
    id="release_pairs:1",
    dataset="release_pairs",
    license="ISC",
    group="pypi:demo",
    aliases=("pypi:demo-fork",),
    commit="c0ffee",
    origin="demo.py",
)


def templates_of(edits: list[Edit]) -> set[str]:
    return {tag.removeprefix("template:") for edit in edits for tag in edit.tags if tag.startswith("template:")}


@pytest.fixture(scope="module")
def snippets() -> Mapping[Language, list[Edit]]:
    """The first usable edits of each language in the sample; for TypeScript, those of JavaScript."""
    by_language: dict[Language, list[Edit]] = defaultdict(list)
    ingest = Ingest("release_pairs", dataset("release_pairs"), source_of("release_pairs"), Cleaning())
    with gzip.open(SAMPLE) as stream:
        for outcome in chain.from_iterable(ingest.outcomes(list(islice(stream, ROWS)))):
            if isinstance(outcome, CleanEdit) and len(by_language[outcome.edit.language]) < SNIPPETS:
                by_language[outcome.edit.language].append(outcome.edit)
    return {**by_language, "typescript": by_language["javascript"]}


@pytest.fixture(scope="module")
def synthetic(snippets: Mapping[Language, list[Edit]]) -> Mapping[Language, list[Edit]]:
    """What is made of them for a test split."""
    return {
        language: list(synthesize(snippets[language], language, COUNT, 0, MemorySandbox(), "test"))
        for language in LANGUAGES
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_gold_actions_make_the_text_after(language: Language, synthetic: Mapping[Language, list[Edit]]) -> None:
    sandbox = MemorySandbox()
    for edit in synthetic[language]:
        text = edit.pre
        assert edit.gold_action is not None
        for action in (edit.gold_action, *edit.gold_next):
            [result] = sandbox.apply_many(text, edit.language, [action])
            assert (result.verdict, 1 <= len(result.matches) <= MAX_PLACES) == (Verdict.OK, True)
            # no place is said to be rewritten that stays
            assert [match for match in result.matches if text[match.start : match.end] == match.replacement] == []
            assert result.after is not None
            text = result.after
        assert text == edit.post


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_edit_makes_a_sound_task_and_leaves_its_text_parsable(
    language: Language, synthetic: Mapping[Language, list[Edit]]
) -> None:
    edits = synthetic[language]
    assert validate_tasks(edits, MemorySandbox()).invalid == {}
    assert [edit.id for edit in edits if not parse(edit.post, edit.language).is_clean] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_there_are_as_many_as_asked_for_and_no_two_alike(
    language: Language, synthetic: Mapping[Language, list[Edit]]
) -> None:
    edits = synthetic[language]
    assert (len(edits), len({edit.id for edit in edits})) == (COUNT, COUNT)


def test_a_snippet_makes_no_more_than_its_share(snippets: Mapping[Language, list[Edit]]) -> None:
    edits = synthesize(snippets["python"][:4], "python", 100, 0, MemorySandbox(), per_snippet=3)
    assert set(Counter(edit.origin.partition(" on ")[2] for edit in edits).values()) == {3}


def test_the_snippets_take_turns_before_one_of_them_is_used_up(snippets: Mapping[Language, list[Edit]]) -> None:
    edits = list(synthesize(snippets["java"], "java", SNIPPETS, 0, MemorySandbox()))
    assert max(Counter(edit.origin.partition(" on ")[2] for edit in edits).values()) <= 2


@pytest.mark.parametrize("language", LANGUAGES)
def test_at_least_forty_families_fire(language: Language, synthetic: Mapping[Language, list[Edit]]) -> None:
    assert len(templates_of(synthetic[language])) >= 40


@pytest.mark.parametrize("language", LANGUAGES)
def test_where_an_edit_comes_from_is_that_of_the_snippet(
    language: Language, snippets: Mapping[Language, list[Edit]], synthetic: Mapping[Language, list[Edit]]
) -> None:
    sources = {f"{edit.id}, {edit.origin}": edit for edit in snippets[language]}
    for edit in synthetic[language]:
        source = sources[edit.origin.partition(" on ")[2]]
        assert (edit.group, edit.license, edit.commit) == (source.group, source.license, source.commit)
        assert (edit.language, f"license:{source.license}" in edit.tags) == (language, True)
        assert (f"source_language:{source.language}" in edit.tags) == (source.language != language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_instruction_never_quotes_the_action(language: Language, synthetic: Mapping[Language, list[Edit]]) -> None:
    for edit in synthetic[language]:
        quoted = [
            text
            for action in (edit.gold_action, *edit.gold_next)
            if isinstance(action, PatternAction)
            for text in (action.pattern, action.rewrite)
        ]
        assert [text for text in quoted if text in edit.instruction] == []
        assert ("$" in edit.instruction, "{" in edit.instruction) == (False, False)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_quarter_or_more_holds_a_look_alike_that_stays(
    language: Language, synthetic: Mapping[Language, list[Edit]]
) -> None:
    edits = synthetic[language]
    tagged = [edit for edit in edits if any(tag.startswith("hard_negative:") for tag in edit.tags)]
    assert len(tagged) >= COUNT / 4


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_held_out_family_is_in_train(language: Language, snippets: Mapping[Language, list[Edit]]) -> None:
    held_out = HELD_OUT | {family.inverse for family in FAMILIES if family.id in HELD_OUT}
    edits = list(synthesize(snippets[language][:6], language, COUNT, 0, MemorySandbox(), "train", per_snippet=20))
    assert templates_of(edits) & held_out == set()
    assert [edit.id for edit in edits if "templates:trained" not in edit.tags] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_held_out_families_are_tagged_and_in_the_other_splits(
    language: Language, synthetic: Mapping[Language, list[Edit]]
) -> None:
    held_out = HELD_OUT | {family.inverse for family in FAMILIES if family.id in HELD_OUT}
    tagged = [edit for edit in synthetic[language] if "templates:held_out" in edit.tags]
    assert tagged == [edit for edit in synthetic[language] if templates_of([edit]) & held_out]
    assert len(tagged) > 0


def test_the_same_seed_makes_the_same_edits(
    snippets: Mapping[Language, list[Edit]], synthetic: Mapping[Language, list[Edit]]
) -> None:
    again = list(synthesize(snippets["python"], "python", COUNT, 0, MemorySandbox(), "test"))
    assert again == synthetic["python"]


def test_a_whole_synthetic_edit() -> None:
    edits = synthesize([SNIPPET], "python", 20, 0, MemorySandbox(), per_snippet=20)
    edit = next(edit for edit in edits if "template:rename_function" in edit.tags)
    assert edit == Edit(
        instruction=edit.instruction,
        pre="def f():\n    return load()\n",
        # no other code is there to take a name from
        post="def f():\n    return load_v2()\n",
        language="python",
        tags=("synthetic", "template:rename_function", "templates:trained", "license:ISC", "seed:0"),
        id=edit.id,
        dataset="synthetic_rules",
        license="ISC",
        group="pypi:demo",
        aliases=("pypi:demo-fork",),
        commit="c0ffee",
        origin="rename_function on release_pairs:1, demo.py",
        gold_action=PatternAction(pattern="load($$$A)", rewrite="load_v2($$$A)"),
    )
    assert "`load`" in edit.instruction


def test_new_names_are_found_in_other_code_of_the_same_kind() -> None:
    other = SNIPPET.model_copy(update={"id": "2", "pre": "def g():\n    return fetch()\n"})
    edits = list(synthesize([SNIPPET, other], "python", 40, 0, MemorySandbox(), per_snippet=20))
    renamed = {edit.post for edit in edits if "template:rename_function" in edit.tags}
    assert renamed == {"def f():\n    return fetch()\n", "def g():\n    return load()\n"}


def test_a_look_alike_that_stays_is_named_by_its_tag() -> None:
    snippet = SNIPPET.model_copy(update={"pre": "x = load()\ny = store.load(1)\n"})
    edits = list(synthesize([snippet], "python", 60, 0, MemorySandbox(), per_snippet=60))
    tags = {edit.post: edit.tags[-1] for edit in edits if "template:rename_function" in edit.tags}
    assert tags == {"x = load_v2()\ny = store.load(1)\n": "hard_negative:same_name"}


@pytest.mark.parametrize(("places", "made"), [(12, True), (13, False)])
def test_an_action_that_changes_too_many_places_makes_no_edit(places: int, made: bool) -> None:
    snippet = SNIPPET.model_copy(update={"pre": "load()\n" * places})
    edits = list(synthesize([snippet], "python", 10, 0, MemorySandbox()))
    assert (len(edits) > 0) == made


def test_a_call_inside_another_of_its_kind_makes_no_edit() -> None:
    # ast-grep would rewrite the outer one alone, and "every call" would be untrue
    snippet = SNIPPET.model_copy(update={"pre": "load(load())\n"})
    edits = list(synthesize([snippet], "python", 20, 0, MemorySandbox(), per_snippet=20))
    assert "rename_function" not in templates_of(edits)


@pytest.mark.parametrize("pre", ["def f(:\n", "x = " + "(" * 400 + ")" * 400 + "\n"], ids=["broken", "deep"])
def test_a_text_that_is_not_parsed_makes_nothing(pre: str) -> None:
    snippet = SNIPPET.model_copy(update={"pre": pre})
    assert list(synthesize([snippet], "python", 10, 0, MemorySandbox())) == []


def test_no_snippets_make_nothing() -> None:
    assert list(synthesize([], "python", 10, 0, MemorySandbox())) == []


def test_an_import_and_its_uses_are_replaced_by_several_actions() -> None:
    pre = "from os import getcwd\n\n\ndef f():\n    return getcwd()\n"
    other = SNIPPET.model_copy(update={"id": "2", "pre": "from shutil import which\n"})
    snippet = SNIPPET.model_copy(update={"pre": pre})
    edits = list(synthesize([snippet, other], "python", 60, 0, MemorySandbox(), "test", per_snippet=60))
    [edit] = [edit for edit in edits if "template:replace_imported" in edit.tags]
    assert edit.post == "from shutil import which\n\n\ndef f():\n    return which()\n"
    assert edit.gold_action == PatternAction(pattern="from os import getcwd", rewrite="from shutil import which")
    assert edit.gold_next == (PatternAction(pattern="getcwd($$$A)", rewrite="which($$$A)"),)
