"""From edits that were made in a few places to the rest of the repository.

    1  the edits shown become small units, and the differences of each unit sites       (`migration.units`, `codemod.diff`)
    2  a site gives rules, from broad to narrow                                                    (`migration.options`)
    3  rules that change something else in a unit, or what is already edited, are left out          (`migration.evidence`)
    4  the others are run over the repository; those that change the same places are one choice     (`migration.places`)
    5  which choice is meant is told by what speaks for each, and by answers about places       (`migration.selection`)
    6  the choice is applied, to the units as well; then again, until the units are as they were shown
    7  changed statements are laid out as the repository's are (`migration.layout`), and imports follow (`migration.import_edits`)

Everything happens in memory, on a mapping of paths to texts; nothing is written. The rules are plain ast-grep rules.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from graftline.astgrep.binding import Language
from graftline.codemod.canonical import words_of
from graftline.codemod.diff import Site
from graftline.codemod.migration.aliases import Alias, Imported, find_aliases, follow_aliases
from graftline.codemod.migration.annotations import quote_annotations
from graftline.codemod.migration.evidence import weigh_evidence
from graftline.codemod.migration.import_edits import follow_imports
from graftline.codemod.migration.imports import NameChanges, Source, Sources, compare_names, is_defined
from graftline.codemod.migration.layout import lay_out, realign, styles_of
from graftline.codemod.migration.option import KEYWORD_WORDS, Option, Rule
from graftline.codemod.migration.options import generate_options
from graftline.codemod.migration.places import OptionPlaces, Place, Repository, apply_rules, has_word, parses
from graftline.codemod.migration.renamings import drop_qualifiers, read_renaming, rename_everywhere
from graftline.codemod.migration.selection import NOTHING, Choice, Selection, select, weigh_choices
from graftline.codemod.migration.units import Demonstration, Unit, is_import, read_units
from graftline.codemod.source_files import VENDORED
from graftline.core.errors import DataError
from graftline.core.text_diff import pluralize
from graftline.sandbox.base import Sandbox
from graftline.sandbox.runner import language_of

ADVICE = "answer questions, or edit one more place"
"""For whoever edits by hand, where it is not clear what an edit means."""
_MAX_STEPS, _MAX_SITES_TRIED, _MAX_OPTIONS = 12, 3, 60
_INCIDENTAL = 0.8
"""How likely an edit that one of several demonstrations shows beside what others show is meant for it alone."""


@dataclass(frozen=True, slots=True)
class Question:
    """A place of the repository: is it to be changed so?"""

    path: str
    start: int
    end: int
    replacement: str
    text: str
    """Of the file, in which `start` and `end` count characters."""


Ask = Callable[[Question], bool | None]
"""Answers yes, no, or None for one who does not know."""


@dataclass(frozen=True, slots=True)
class ProposedRule:
    """A rule with what speaks for it."""

    actions: tuple[Rule, ...]
    language: Language
    places: int
    """Places of the repository that it changes, those shown aside."""
    files: int
    confidence: float
    """From 0 to 1: how likely it is that this choice, of those that explain the edit, is the one that was meant."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """What the repository would become."""

    rules: tuple[ProposedRule, ...]
    texts: Mapping[str, str]
    """Files that change, by path."""
    undone: tuple[str, ...]
    """What was not done, and why: a sentence each."""
    questions: int


def generalize(
    demonstrations: Sequence[Demonstration],
    files: Mapping[str, str],
    sandbox: Sandbox,
    ask: Ask | None = None,
    instruction: str = "",
    max_questions: int = 5,
    negatives: Mapping[str, str] | None = None,
    show: Callable[[str], str] = str,
) -> Proposal:
    """Return what becomes of `files` if what `demonstrations` show is done everywhere.

    `files` are as they are with the edits shown; those in folders of others (`VENDORED`) stay. `instruction` is what
    somebody says of the change, such as the subject of its commit. `ask` is called at most `max_questions` times. Of
    rules that make the edit elsewhere, those that leave the texts of `negatives` as they are go before the others. `show`
    is how sentences have a path.

    DataError if nothing is shown, or a file shown is in no known language.
    """
    units, followers = read_units(demonstrations, show)
    own_files = {path: text for path, text in files.items() if not VENDORED & set(PurePosixPath(path).parts[:-1])}
    repository = _make_repository(own_files, sandbox)
    to_stay = _make_repository(negatives or {}, sandbox)
    shown_before = {shown.path: shown.before for shown in demonstrations}
    edited_files = _make_repository(shown_before, sandbox)
    originals = dict(repository.texts)
    rules: list[ProposedRule] = []
    options: list[Option] = []
    undone: list[str] = []
    shared = frozenset[str]()
    interview = _Interview(repository, ask, max_questions)
    for unit in [unit for unit in units if is_import(unit)]:
        members = list(drop_qualifiers(unit.before, unit.after, unit.language))
        if selection := _choose_without_edit(members, unit.language, repository, interview):
            units.remove(unit)
            rules.append(_apply(selection, unit.language, repository))
            options.append(selection.choice.options[0])
    for step in range(_MAX_STEPS + 1):
        focus = next((unit for unit in units if unit.before != unit.after and unit.sites), None)
        if focus is None:
            break
        if step == _MAX_STEPS:
            undone.append(
                f"{show(focus.path)}: only {_MAX_STEPS} rules are made of one edit; commit, and show what is left"
            )
            break
        selection, support = _choose(focus, units, repository, to_stay, instruction, interview, shared)
        if selection is None:
            undone.append(f"{show(focus.path)}: no rule makes the edit that is left; do it by hand where it is wanted")
            units.remove(focus)
            continue
        option, edited = selection.choice.options[0], _words_of(focus, focus.sites[0])
        _advance([*units, *followers], focus, selection, sandbox)
        if not selection.is_sure:
            if selection.considered:
                reason = f"{pluralize(selection.considered, 'place')} may be meant, and it is not clear which"
                undone.append(f"{show(focus.path)}: {reason}; {ADVICE}")
            else:
                undone.append(f"{show(focus.path)}: no other place looks like the edit")
            continue
        shared |= edited if support > 1 else frozenset()
        rules.append(_apply(selection, focus.language, repository, [edited_files]))
        options.append(option)
        if selection.broader is not None:
            options.append(selection.broader)
            rules += _apply_answers(selection.broader, selection.confidence, focus.language, repository, interview)
        if selection.refused:
            places = pluralize(len(selection.refused), "place")
            undone.append(f"{show(focus.path)}: {places} like the edit not changed; edit one of them if they are meant")
    renaming = read_renaming(instruction)
    if renaming is not None and renaming not in [option.renamed for option in options]:
        for language in sorted({unit.language for unit in units}):
            ways = list(rename_everywhere(*renaming, language))[: 2 if ask else 1]
            if selection := _choose_without_edit(ways, language, repository, interview):
                rules.append(_apply(selection, language, repository))
                options.append(selection.choice.options[0])
    rules += _follow(followers, repository, originals, instruction)
    if options:
        names: dict[str, NameChanges] = {}
        undone += _repair_files(repository, originals, demonstrations, options, names, show)
        undone += _follow_imports(repository, names, shown_before, options)
        undone += _list_old_definitions(repository, options)
        undone += _restore_broken(repository, originals, show)
    changed = {path: text for path, text in repository.texts.items() if text != originals[path]}
    return Proposal(tuple(rules), changed, tuple(undone), interview.questions)


def _make_repository(texts: Mapping[str, str], sandbox: Sandbox) -> Repository:
    """Return those of the files that are in a known language."""
    languages = {path: language for path in texts if (language := language_of(path)) is not None}
    return Repository(dict(texts), languages, sandbox)


def _advance(units: Sequence[Unit], focus: Unit, selection: Selection, sandbox: Sandbox) -> None:
    """Make in the units what was chosen; where it is not done, give up what stands in the same lines of the edit."""
    option, change = selection.choice.options[0], focus.change
    for unit in units:
        if unit.language == focus.language:
            unit.before = apply_rules(unit.before, unit.language, option.actions, sandbox)
            if selection.follows_shown:
                unit.after = apply_rules(unit.after, unit.language, option.actions, sandbox)
    if not selection.is_sure and selection.considered and change is not None:
        focus.give_up_line(focus.after.count("\n", 0, change.code_sites[0].new_start))


def _follow(
    followers: Sequence[Unit], repository: Repository, originals: Mapping[str, str], instruction: str
) -> Iterator[ProposedRule]:
    """Make in the files that rules changed what the units show that follow them."""
    for unit in followers:
        texts = {path: text for path, text in repository.texts.items() if text != originals[path]}
        if texts and unit.before != unit.after and unit.sites:
            changed = Repository(texts, repository.languages, repository.sandbox)
            nothing = Repository({}, {}, repository.sandbox)
            interview = _Interview(changed, None, 0)
            selection, _ = _choose(unit, [unit], changed, nothing, instruction, interview, frozenset())
            if selection is not None and selection.is_sure:
                yield _apply(selection, unit.language, changed)
                repository.texts.update(changed.texts)


def _drop_idle_rules(option: Option, language: Language, repositories: Sequence[Repository]) -> Option:
    """Return a rule for a condition without those for its opposites that change nothing in any of `repositories`."""
    if option.kind != "condition":
        return option
    single = [replace(option, actions=(action,)) for action in option.actions]
    places = zip(*(repository.find_places(single, language) for repository in repositories), strict=True)
    used = [any(own.places for own in row) for row in places]
    return replace(option, actions=tuple(a for a, is_used in zip(option.actions, used, strict=True) if is_used))


def _apply(
    selection: Selection, language: Language, repository: Repository, shown: Sequence[Repository] = ()
) -> ProposedRule:
    """Do what is chosen, and return its rule; of one for a condition, also what changes only `shown` stays."""
    option = _drop_idle_rules(selection.choice.options[0], language, (repository, *shown))
    files = repository.apply(option, language, selection.refused, selection.choice.broken)
    places = len(selection.choice.places - selection.refused)
    return ProposedRule(option.actions, language, places, files, selection.confidence)


def _apply_answers(
    option: Option, confidence: float, language: Language, repository: Repository, interview: "_Interview"
) -> Iterator[ProposedRule]:
    """Do of an option what somebody said yes to, though another one is taken; yield its rules."""
    for action in option.actions:
        single = replace(option, actions=(action,))
        [matched] = repository.find_places([single], language)
        refused = matched.places - interview.list_right(matched.places)
        if refused != matched.places:
            choice = Choice((single,), matched.places, matched.broken)
            yield _apply(Selection(choice, confidence, refused), language, repository)


def _repair_files(
    repository: Repository,
    originals: Mapping[str, str],
    demonstrations: Sequence[Demonstration],
    options: Sequence[Option],
    names: dict[str, NameChanges],
    show: Callable[[str], str],
) -> Iterator[str]:
    """Repair what no rule can see, or take it back: layout, aliases, strings in types. Yield what is not done, as sentences.

    What became of the names of each file is put into `names`. Each file is finished before the next, so that its texts are
    parsed once.
    """
    faults: dict[tuple[str, str], list[int]] = {}
    for (path, line), fault in sorted(repository.faults.items()):
        faults.setdefault((path, fault), []).append(line)
    for (path, fault), (line, *further) in faults.items():
        more = f" and {pluralize(len(further), 'place')} more" if further else ""
        yield f"{show(path)}:{line}{more}: {fault}; change {'them' if further else 'it'} by hand"
    shown = {edit.path: edit.before for edit in demonstrations}
    aliases: dict[Language, dict[Imported, Alias]] = {}
    for edit in demonstrations:
        if (language := language_of(edit.path)) is not None:
            aliases.setdefault(language, {}).update(find_aliases(edit.before, edit.after, language))
    changed = {path: text for path, text in originals.items() if repository.texts[path] != text}
    styles = styles_of(changed, {path: repository.languages[path] for path in changed})
    for path, text in list(repository.texts.items()):
        language, before = repository.languages[path], shown.get(path, originals[path])
        if path in changed:
            text = realign(originals[path], text)
            text = lay_out(originals[path], text, styles[language]) if language in styles else text
        repository.texts[path] = text
        if text == before:
            continue
        if own := aliases.get(language, {}):
            # which names are meant is told by imports, and not by rules
            is_alias = all(_writes_alias(option, alias) for option in options for alias in own.values())
            aliased = follow_aliases(before, originals[path] if is_alias else text, own, language)
            if aliased is None:
                yield f"{show(path)}: gives the new name, or the old one, another meaning; change it by hand"
            text = originals[path] if aliased is None else aliased
        if language == "python":
            text, count = quote_annotations(originals[path], text)
            if count:
                yield f"{show(path)}: a string beside `|` fails when it is run; change {count} of its places by hand"
        repository.texts[path] = text
        if text != before:
            with suppress(DataError):
                names[path] = compare_names(before, text, language)


def _writes_alias(option: Option, alias: Alias) -> bool:
    return option.written - option.words - KEYWORD_WORDS <= {alias.new} and option.words - option.written <= {alias.old}


def _follow_imports(
    repository: Repository, names: Mapping[str, NameChanges], shown: Iterable[str], options: Sequence[Option]
) -> list[str]:
    """Write the imports of the files whose names changed; return what they lack whose module is not told."""
    written = frozenset(word for option in options for word in option.written)
    renamed = dict(option.renamed for option in options if option.renamed is not None)
    texts = [(text, repository.languages[path]) for path, text in repository.texts.items()]
    edited = [(repository.texts[path], repository.languages[path]) for path in shown if path in repository.texts]
    statements = {
        (repository.texts[path], repository.languages[path]): changes.statements for path, changes in names.items()
    }
    of_repository, of_edit = Sources(texts, statements), Sources(edited, statements)

    def find_source(name: str) -> Source | None:
        return (of_edit.find(name) or of_repository.find(name)) if name in written else None

    lacking: set[str] = set()
    for path, changes in names.items():
        text, language = repository.texts[path], repository.languages[path]
        repository.texts[path], missing = follow_imports(changes, text, path, language, find_source, renamed)
        lacking |= missing & written
    return [f"{name}: no file tells where it is imported from; add its imports by hand" for name in sorted(lacking)]


def _restore_broken(repository: Repository, originals: Mapping[str, str], show: Callable[[str], str]) -> Iterator[str]:
    """Leave files as they were that would not parse any more; yield a sentence for each."""
    for path, text in repository.texts.items():
        before, language = originals[path], repository.languages[path]
        if text != before and not parses(text, language) and parses(before, language):
            repository.texts[path] = before
            yield f"{show(path)}: would not parse any more; change it by hand"


def _list_old_definitions(repository: Repository, options: Sequence[Option]) -> list[str]:
    """Return, as sentences, the names that rules write and that the repository defines by their old names alone."""
    old_names = []
    for old, new in dict(option.renamed for option in options if option.renamed is not None).items():
        texts = [text for path, text in repository.texts.items() if any(has_word(name, text) for name in (old, new))]
        if any(is_defined(old, text) for text in texts) and not any(is_defined(new, text) for text in texts):
            old_names.append(f"{new}: its definition is called {old} as before; rename it as well")
    return old_names


def _choose(
    focus: Unit,
    units: Sequence[Unit],
    repository: Repository,
    negatives: Repository,
    instruction: str,
    interview: "_Interview",
    shared: frozenset[str],
) -> tuple[Selection | None, int]:
    """Return the choice for the first site of `focus` that has one, and how many units show it.

    What is not edited beside an edit stays. Where by that nothing else in the repository is meant, it may follow as well;
    elsewhere only if somebody is asked, for it speaks against the edit. `shared` are words that several units
    edit alike: what one shows beside that, and has none of them, is likely to be meant there alone.
    """
    pairs = [(unit, change) for unit in units if unit.language == focus.language and (change := unit.change)]
    change = next(change for unit, change in pairs if unit is focus)
    answer, questions = interview.answer if interview.remaining else None, interview.remaining
    selection, support = None, 0
    sites = [(site, follows) for follows in (False, True) for site in change.code_sites[:_MAX_SITES_TRIED]]
    for site, follows_shown in sites:
        options = list(generate_options(change, site, instruction))[:_MAX_OPTIONS]
        evidence = weigh_evidence(options, site, focus, pairs, repository.sandbox, follows_shown)
        choices = _list_choices(evidence.options, focus.language, repository, negatives)
        if choices and (selection is None or any(choice.places for choice in choices)):
            selection = select(
                choices,
                weigh_choices(choices, change, site, instruction),
                repository.traits_of(place for choice in choices for place in choice.places),
                evidence.traits,
                answer,
                -(-questions * evidence.units // (evidence.units + evidence.further)),  # others are for other edits
                _INCIDENTAL
                if evidence.units == 1 and shared and not shared & _words_of(focus, site)
                else NOTHING / evidence.units,
                interview.recall(choices),
                is_last=not evidence.further,
            )
            support = evidence.units
            if follows_shown:
                places = selection.choice.places
                refused = selection.refused | {place for place in places if not answer and place.path != focus.path}
                is_sure = selection.is_sure and not places <= refused
                selection = replace(selection, follows_shown=True, refused=refused, is_sure=is_sure)
            if selection.considered:
                break
    return selection, support


def _words_of(unit: Unit, site: Site) -> frozenset[str]:
    return words_of(unit.before[site.start : site.end]) ^ words_of(site.text)


@dataclass
class _Interview:
    """Asks, and remembers the answers by their lines: what was refused once is refused in later steps."""

    repository: Repository
    ask: Ask | None
    max_questions: int
    questions: int = 0
    answers: dict[tuple[str, ...], bool] = field(default_factory=dict)

    @property
    def remaining(self) -> int:
        """How many questions may still be asked."""
        return self.max_questions - self.questions if self.ask else 0

    def answer(self, place: Place) -> bool | None:
        assert self.ask is not None
        self.questions += 1
        is_right = self.ask(Question(*place, self.repository.texts[place.path]))
        if is_right is not None:
            self.answers[self._line_of(place)] = is_right
        return is_right

    def list_right(self, places: Iterable[Place]) -> set[Place]:
        """Return those of `places` that were answered with yes."""
        return {place for place in places if self.answers.get(self._line_of(place))}

    def recall(self, choices: Sequence[Choice]) -> dict[Place, bool]:
        """Return the answers about places of the choices."""
        paths = {path for path, *_ in self.answers}
        places = {place for choice in choices for place in choice.places if place.path in paths}
        return {place: self.answers[key] for place in places if (key := self._line_of(place)) in self.answers}

    def _line_of(self, place: Place) -> tuple[str, ...]:
        text = self.repository.texts[place.path]
        head, tail = text[: place.start].rpartition("\n")[2], text[place.end :].partition("\n")[0]
        return place.path, head, place.text, tail


def _choose_without_edit(
    options: Sequence[Option], language: Language, repository: Repository, interview: _Interview
) -> Selection | None:
    """Return the choice among options of which no edit of code is shown; None where it is not sure."""
    choices = [choice for choice in _group(options, repository.find_places(options, language)) if choice.places]
    if not choices:
        return None
    answer = interview.answer if interview.remaining else None
    traits = repository.traits_of(place for choice in choices for place in choice.places)
    priors, memory = [1 / len(choices)] * len(choices), interview.recall(choices)
    selection = select(choices, priors, traits, [], answer, interview.remaining, memory=memory)
    return selection if selection.is_sure else None


def _list_choices(
    options: Sequence[Option], language: Language, repository: Repository, negatives: Repository
) -> list[Choice]:
    """Return the options by their places; only those that leave `negatives` alone, if one of them has places."""
    choices = _group(options, repository.find_places(options, language))
    if not negatives.texts:
        return choices
    matches = zip(options, negatives.find_places(options, language), strict=True)
    careful = [option for option, places in matches if not places.places and not places.broken]
    narrowed = [replace(c, options=own) for c in choices if (own := tuple(o for o in c.options if o in careful))]
    return narrowed if any(choice.places for choice in narrowed) else choices


def _group(options: Sequence[Option], places: Sequence[OptionPlaces]) -> list[Choice]:
    """Return the options by the places that they change, the most places first."""
    groups: dict[OptionPlaces, list[Option]] = {}
    for option, own in zip(options, places, strict=True):
        groups.setdefault(own, []).append(option)
    for own, group in groups.items():
        # that the opposite is nowhere says nothing for a rule, and without its other half it is shorter
        groups[own] = [option for option in group if option.kind != "condition"] or group
    ranked = sorted(groups.items(), key=lambda pair: -len(pair[0].places))
    return [Choice(tuple(group), own.places, own.broken) for own, group in ranked]
