"""Synthetic edits on the shipped sample: their gold action makes them, and they belong where their snippet does."""

import gzip
from collections import defaultdict
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import pytest

from graftline.actions.action import PatternAction
from graftline.actions.astgrep import Language, parse
from graftline.datasets.catalogue import Cleaning
from graftline.datasets.edit import Edit
from graftline.datasets.ingest import CleanEdit, Ingest
from graftline.datasets.sources import source_of
from graftline.datasets.synthetic import MAX_PLACES, Call, calls_in, synthesize, templates
from graftline.sandbox.base import Verdict
from graftline.sandbox.memory import MemorySandbox
from tests.unit.datasets.fixtures import dataset

SAMPLE = Path(__file__).resolve().parents[3] / "data" / "samples" / "release_pairs.jsonl.gz"
LANGUAGES: tuple[Language, ...] = ("java", "javascript", "python")
SNIPPETS = 50
COUNT = 60
SNIPPET = Edit(
    instruction="Change f.",
    pre="def f():\n    return load()\n",
    post="def f():\n    return read()\n",
    language="python",
    tags=("release_pairs",),
    id="release_pairs:1",
    dataset="release_pairs",
    licence="ISC",
    group="pypi:demo",
    origin="demo.py",
)


@pytest.fixture(scope="module")
def snippets() -> Mapping[Language, list[Edit]]:
    """The first fifty usable edits of each language in the sample."""
    found: dict[Language, list[Edit]] = defaultdict(list)
    ingest = Ingest("release_pairs", dataset("release_pairs"), source_of("release_pairs"), Cleaning())
    with gzip.open(SAMPLE) as stream:
        for outcome in chain.from_iterable(ingest.outcomes(list(stream))):
            if isinstance(outcome, CleanEdit) and len(found[outcome.edit.language]) < SNIPPETS:
                found[outcome.edit.language].append(outcome.edit)
    return found


@pytest.fixture(scope="module")
def synthetic(snippets: Mapping[Language, list[Edit]]) -> Mapping[Language, list[Edit]]:
    """What is made of them."""
    return {
        language: list(synthesize(snippets[language], language, COUNT, 0, MemorySandbox())) for language in LANGUAGES
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_gold_action_makes_the_text_after(language: Language, synthetic: Mapping[Language, list[Edit]]) -> None:
    sandbox = MemorySandbox()
    for edit in synthetic[language]:
        assert edit.gold_action is not None
        [result] = sandbox.apply_many(edit.pre, edit.language, [edit.gold_action])
        assert (result.verdict, result.after) == (Verdict.OK, edit.post)
        assert 1 <= len(result.matches) <= MAX_PLACES


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_edit_changes_its_text_and_leaves_it_parsable(
    language: Language, synthetic: Mapping[Language, list[Edit]]
) -> None:
    edits = synthetic[language]
    assert [edit.id for edit in edits if edit.pre == edit.post] == []
    assert [edit.id for edit in edits if not parse(edit.post, edit.language).is_clean] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_there_are_as_many_as_asked_for_and_no_two_alike(
    language: Language, synthetic: Mapping[Language, list[Edit]]
) -> None:
    edits = synthetic[language]
    assert (len(edits), len({edit.id for edit in edits})) == (COUNT, COUNT)


@pytest.mark.parametrize("count", [0, 1, 7])
def test_there_are_never_more_than_asked_for(snippets: Mapping[Language, list[Edit]], count: int) -> None:
    assert len(list(synthesize(snippets["python"], "python", count, 0, MemorySandbox()))) == count


def test_few_snippets_make_fewer_than_asked_for() -> None:
    edits = synthesize([SNIPPET], "python", 10, 0, MemorySandbox())
    # its one call has no arguments and is no method: it can be renamed and wrapped
    assert sorted(edit.post for edit in edits) == [
        "def f():\n    return load_v2()\n",
        "def f():\n    return traced(load())\n",
    ]


@pytest.mark.parametrize(("places", "made"), [(12, 2), (13, 0)])
def test_an_action_that_changes_too_many_places_makes_no_edit(places: int, made: int) -> None:
    # the one name called can be renamed and wrapped
    snippet = SNIPPET.model_copy(update={"pre": "load()\n" * places})
    assert len(list(synthesize([snippet], "python", 10, 0, MemorySandbox()))) == made


def test_no_snippets_make_nothing() -> None:
    assert list(synthesize([], "python", 10, 0, MemorySandbox())) == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_at_least_eight_families_fire(language: Language, synthetic: Mapping[Language, list[Edit]]) -> None:
    families = {tag for edit in synthetic[language] for tag in edit.tags if tag.startswith("template:")}
    assert len(families) >= 8


@pytest.mark.parametrize("language", LANGUAGES)
def test_group_licence_and_language_are_those_of_the_snippet(
    language: Language, snippets: Mapping[Language, list[Edit]], synthetic: Mapping[Language, list[Edit]]
) -> None:
    sources = {edit.id: edit for edit in snippets[language]}
    for edit in synthetic[language]:
        source = sources[edit.origin.partition(" on ")[2]]
        assert (edit.pre, edit.group, edit.licence, edit.language) == (
            source.pre,
            source.group,
            source.licence,
            source.language,
        )
        assert f"licence:{source.licence}" in edit.tags


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_instruction_never_quotes_the_action(language: Language, synthetic: Mapping[Language, list[Edit]]) -> None:
    for edit in synthetic[language]:
        assert edit.gold_action is not None
        assert edit.gold_action.pattern not in edit.instruction
        assert edit.gold_action.rewrite not in edit.instruction
        assert "$" not in edit.instruction


def test_the_same_seed_makes_the_same_edits(
    snippets: Mapping[Language, list[Edit]], synthetic: Mapping[Language, list[Edit]]
) -> None:
    again = list(synthesize(snippets["python"], "python", COUNT, 0, MemorySandbox()))
    assert again == synthetic["python"]


def test_another_seed_makes_others(
    snippets: Mapping[Language, list[Edit]], synthetic: Mapping[Language, list[Edit]]
) -> None:
    others = list(synthesize(snippets["python"], "python", COUNT, 1, MemorySandbox()))
    assert {edit.id for edit in others} != {edit.id for edit in synthetic["python"]}


def test_a_whole_synthetic_edit() -> None:
    # the first family renames, and there is one call
    [edit] = synthesize([SNIPPET], "python", 1, 0, MemorySandbox())
    assert edit == Edit(
        instruction="Rename calls of `load` to `load_v2`.",
        pre="def f():\n    return load()\n",
        post="def f():\n    return load_v2()\n",
        language="python",
        tags=("synthetic", "template:rename_function", "licence:ISC"),
        id=edit.id,
        dataset="synthetic_rules",
        licence="ISC",
        group="pypi:demo",
        origin="rename_function on release_pairs:1",
        gold_action=PatternAction(pattern="load($$$A)", rewrite="load_v2($$$A)"),
    )


def test_a_snippet_without_calls_still_gets_the_families_that_need_none() -> None:
    snippet = SNIPPET.model_copy(update={"id": "1", "pre": "x = a is None\n"})
    edits = list(synthesize([snippet], "python", 5, 0, MemorySandbox()))
    assert [(edit.origin, edit.post) for edit in edits] == [("none_by_equality on 1", "x = a == None\n")]


@pytest.mark.parametrize("language", ["python", "javascript", "typescript", "tsx", "java"])
def test_the_families_of_a_language_have_different_names(language: Language) -> None:
    names = [template.id for template in templates(language)]
    assert len(names) == len(set(names)) >= 8


@pytest.mark.parametrize(
    ("language", "text", "calls"),
    [
        pytest.param("python", "f(1, 2)\n", [Call("f", False, 2, True)], id="a function"),
        pytest.param("python", "x = f()\n", [Call("f", False, 0, False)], id="no statement of its own"),
        pytest.param("python", "a.b.f(x, k=1)\n", [Call("f", True, 2, True)], id="a method"),
        pytest.param(
            "python",
            "f(g(1))\n",
            [Call("f", False, 1, True), Call("g", False, 1, False)],
            id="calls in the order of the text",
        ),
        pytest.param("python", "f()()\nt[0]()\n", [Call("f", False, 0, False)], id="what has no plain name"),
        pytest.param(
            "python",
            "f(a, *b, **c)\nf(x for x in y)\n",
            # the generator is the argument list itself, and holds an expression and a clause
            [Call("f", False, 3, True), Call("f", False, 2, True)],
            id="unusual arguments",
        ),
        pytest.param("javascript", "f(1);", [Call("f", False, 1, True)], id="javascript function"),
        pytest.param("javascript", "a.f(1, 2);", [Call("f", True, 2, True)], id="javascript method"),
        pytest.param("javascript", "a.#f(); a['g']();", [], id="javascript names that are no words"),
        pytest.param("javascript", "const x = a?.f();", [Call("f", True, 0, False)], id="javascript optional chain"),
        pytest.param("javascript", "new F(1);", [], id="javascript constructor"),
        pytest.param("typescript", "this.f<T>(x);", [Call("f", True, 1, True)], id="typescript method"),
        pytest.param("java", "int x() { return f(1); }", [Call("f", False, 1, False)], id="java function"),
        pytest.param("java", "void x() { a.b().f(1, 2); }", [Call("f", True, 2, True), Call("b", True, 0, False)], id="java method"),
        pytest.param("java", "void x() { new F(1); }", [], id="java constructor"),
    ],
)  # fmt: skip
def test_calls_are_found_by_their_plain_names(language: Language, text: str, calls: list[Call]) -> None:
    assert calls_in(parse(text, language)) == calls
