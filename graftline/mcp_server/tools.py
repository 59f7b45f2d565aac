"""What the tools do, each in a process of its own that `server.py` ends when it is canceled or takes too long.

Nothing here writes to files of the root: what is to be written is returned, and written by `server.py`, which is not ended
in the middle of it.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from graftline.agent.model import AgentModel, Limits, use_model
from graftline.agent.proposal import MEANINGS, Settings
from graftline.agent.refactor import refactor
from graftline.astgrep.binding import LANGUAGES, Language
from graftline.codemod.explain import explain, format_metadata, summarize
from graftline.codemod.history import History
from graftline.codemod.learn import REASONS, learn_rules
from graftline.codemod.migration.generalize import Question
from graftline.codemod.mine import mine_rules
from graftline.codemod.mining.pairs import collect_pairs
from graftline.codemod.mining.trial import MiningConfig
from graftline.codemod.review import PlaceGroup
from graftline.codemod.rule_file import FileRule, assign_ids, format_rules, read_rules
from graftline.codemod.source_files import SourceFile, source_of
from graftline.codemod.writes import FileWrite
from graftline.core.errors import DataError
from graftline.core.paths import Paths
from graftline.core.processes import default_workers, die_with
from graftline.core.secrets import open_secrets
from graftline.core.text_diff import pluralize, unified_diff
from graftline.datasets.language import language_of_path
from graftline.mcp_server.boundary import resolve_path
from graftline.mcp_server.results import (
    AppliedResult,
    ExampleInput,
    ExplainedResult,
    FileResult,
    FollowedResult,
    GroupResult,
    LearnedResult,
    MinedResult,
    PlaceResult,
    PreviewResult,
    QuestionResult,
    RefactoredResult,
    RuleInWords,
)
from graftline.repository import (
    Rewrite,
    as_examples,
    choose_places,
    follow,
    is_unsure,
    open_workers,
    read_changes,
    read_pairs,
    read_rule_file,
    read_unchanged,
    rewrite,
)
from graftline.sandbox.actions import SandboxConfig
from graftline.sandbox.jail.open import JailConfig
from graftline.sandbox.runner import LANGUAGE_OF

MAX_TOTAL_BYTES = 256 << 20
"""Of the source files that one call looks at."""
MAX_DIFF_CHARACTERS = 40_000
"""Of all differences in one result."""
MAX_FILES_SHOWN, MAX_GROUPS_SHOWN, MAX_FAULTS_SHOWN = 200, 40, 20
_MAX_PLACE_CHARACTERS = 1_500
_PROGRESS_BYTES = 200
_MODEL_SHARE = 0.8
"""Of the time of a call, for a language model."""
_ANSWERS = {"y": True, "n": False, "d": None}

ResultT = TypeVar("ResultT")
Planned = tuple[ResultT, list[FileWrite]]
"""A result, and what is to be written before it holds."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What whoever starts the server says of `refactor`; no client can."""

    model: str = ""
    """A fleet, or `FLEET:ADAPTER`; without one, instructions are read by rules alone."""
    root: Path | None = None
    """The folder with the configuration of the model, and its answers; needed with a model."""
    tests: str = ""
    """A command that has to pass with the change, in the jail."""
    jail: JailConfig = field(default_factory=JailConfig)


@dataclass(frozen=True, slots=True)
class Call:
    """What every tool is given."""

    root: Path
    """Resolved."""
    actions: SandboxConfig
    agent: AgentSettings
    seconds: float
    """That the call may take."""
    server: int
    """Process of the server."""
    progress: int
    """Descriptor of the server for a file in memory that says what is being done."""

    def report(self, message: str) -> None:
        """Say what is being done."""
        with suppress(OSError), Path(f"/proc/{self.server}/fd/{self.progress}").open("r+b", buffering=0) as stream:
            stream.write(message.encode()[:_PROGRESS_BYTES].ljust(_PROGRESS_BYTES))

    def relative(self, path: Path) -> str:
        """Return `path` as results have it, from the root."""
        return path.relative_to(self.root).as_posix() if path.is_absolute() else path.as_posix()

    def watch(self, files: Iterator[SourceFile]) -> Iterator[SourceFile]:
        """Pass on `files`, and report their number; DataError if they are too many bytes."""
        total = 0
        for number, file in enumerate(files, 1):
            total += len(file.text)
            if total > MAX_TOTAL_BYTES:
                raise DataError(
                    f"{self.root}: holds more than {MAX_TOTAL_BYTES} bytes of source files; name a part of it"
                )
            if number % 16 == 1:
                self.report(f"{pluralize(number, 'file')} read")
            yield file


def run_call(function: Callable[..., ResultT], call: Call, arguments: dict[str, Any]) -> ResultT:
    """Return what `function` returns, in a process that ends with the server."""
    die_with(call.server)
    return function(call, **arguments)


def learn(
    call: Call, examples: Sequence[ExampleInput], from_diff: bool, path: str, language: Language | None, keep: Sequence[str]
) -> Planned[LearnedResult]:  # fmt: skip
    """Learn rules from examples, or from what differs from the current commit below `path`."""
    if from_diff == bool(examples):
        raise DataError("examples: give some, or from_diff for what differs from the current commit; not both")
    pairs = [pair for example in examples for pair in _read_example(call, example, language)]
    if from_diff:
        pairs += as_examples(read_changes(resolve_path(call.root, path), None, language))
    if not pairs:
        raise DataError("examples: the folders have no file of one name that differs; expected a change")
    first = pairs[0][0].language
    unchanged = [file for name in keep for file in read_unchanged(resolve_path(call.root, name), first, language)]
    call.report(f"rules from {pluralize(len(pairs), 'example')}")
    with open_workers(call.actions) as sandbox:
        learned = learn_rules(pairs, unchanged, sandbox)
    result = LearnedResult(
        solved=not learned.unsolved,
        reason=REASONS[learned.unsolved] if learned.unsolved else "",
        rules=_say_rules(learned.rules),
        yaml=format_rules(learned.rules) if learned.rules else "",
    )
    return result, []


def preview(call: Call, rules: str, rule_file: str, paths: Sequence[str]) -> Planned[PreviewResult]:
    """Group the places that rules would change."""
    result = _rewrite(call, _read_rules(call, rules, rule_file), paths)
    groups, hidden = _list_groups(call, result.groups)
    preview = PreviewResult(
        places=sum(len(group.places) for group in result.groups),
        files=sum(not file.fault for file in result.files),
        groups=groups,
        groups_not_shown=hidden,
        skipped=result.skipped,
        faults=_list_faults(call, result),
    )
    return preview, []


def apply(
    call: Call, rules: str, rule_file: str, paths: Sequence[str], reject: Sequence[str], write: bool
) -> Planned[AppliedResult]:
    """Return what rules make of files, to be written with `write`."""
    result = _rewrite(call, _read_rules(call, rules, rule_file), paths, reject)
    return AppliedResult.model_validate(_describe_rewrite(call, result, write)), result.writes if write else []


def follow_tree(
    call: Call, path: str, instruction: str, answers: str, reject: Sequence[str], write: bool
) -> Planned[FollowedResult]:
    """Return what the files below `path` become if they follow what differs from the current commit."""
    folder, letters = resolve_path(call.root, path), iter(answers)
    questions: list[Question] = []

    def ask(question: Question) -> bool | None:
        if letter := next(letters, ""):
            return _ANSWERS[letter]
        questions.append(question)
        return None

    call.report("reading the edit")
    changes = read_changes(folder, None)
    with open_workers(call.actions) as sandbox:
        followed, result = follow(
            folder, changes, sandbox, ask, instruction, len(answers) + 1, lambda groups: reject, call.watch,
            show=call.relative,
        )  # fmt: skip
    if write and followed.contradictions and not answers:
        raise DataError(
            f"{path}: {'; '.join(followed.contradictions)}; show one of them at a time; nothing was changed"
        )
    unsure = is_unsure(followed.rules) or bool(questions)
    if write and unsure and not answers:
        raise DataError(
            f"{path}: other rules make this edit, too; call without `write`, answer its question in `answers`, or edit one"
            " more place; nothing was changed"
        )
    fields = _describe_rewrite(call, result, write) | {
        "rules": _say_rules(followed.rules),
        "yaml": format_rules(chosen) if (chosen := result.rules_of(followed.rules)) else "",
        "unsure": unsure,
        "question": _describe_question(call, folder, questions[0]) if questions else None,
        "contradictions": list(followed.contradictions),
        "undone": [*followed.undone, *result.reach.describe("yaml", call.relative)],
    }
    return FollowedResult.model_validate(fields), result.writes if write else []


def refactor_tree(
    call: Call, instruction: str, path: str, examples: Sequence[ExampleInput], language: Language | None,
    keep: Sequence[str], attempts: int, reject: Sequence[str], write: bool,
) -> Planned[RefactoredResult]:  # fmt: skip
    """Return what the files below `path` become if `instruction` is done."""
    pairs = [pair for example in examples for pair in _read_example(call, example, language)]
    folder, keep_paths = resolve_path(call.root, path), [resolve_path(call.root, name) for name in keep]
    with open_workers(call.actions) as sandbox, _open_model(call) as model:
        proposal = refactor(
            instruction, folder, sandbox=sandbox, model=model, examples=pairs, keep=keep_paths, tests=call.agent.tests,
            jail=call.agent.jail, settings=Settings(attempts=attempts), report=call.report, show=call.relative,
        )  # fmt: skip
        tokens = model.spent.tokens if model else 0
    result = choose_places(proposal.files, proposal.rules, proposal.skipped, lambda groups: reject, proposal.reach)
    tests = proposal.tests
    if write and tests is not None and tests.passed is not True:
        raise DataError(f"{path}: the tests do not pass with the change; nothing was changed:\n{tests.output}")
    fields = _describe_rewrite(call, result, write) | {
        "outcome": proposal.outcome,
        "meaning": MEANINGS[proposal.outcome],
        "rules": _say_rules(proposal.rules),
        "yaml": format_rules(chosen) if (chosen := result.rules_of(proposal.rules)) else "",
        "undone": [*proposal.undone, *result.reach.describe("yaml", call.relative)],
        "contradictions": list(proposal.contradictions),
        "tests_passed": tests.passed if tests else None,
        "model_tokens": tokens,
    }
    return RefactoredResult.model_validate(fields), result.writes if write else []


@contextmanager
def _open_model(call: Call) -> Iterator[AgentModel | None]:
    """Open the language model of the server; None where it has none. What it answered in a call that was ended is kept."""
    agent = call.agent
    if not agent.model or agent.root is None:
        yield None
        return
    paths = Paths(agent.root)
    limits = Limits(seconds=_MODEL_SHARE * call.seconds)
    secrets = open_secrets(os.environ, agent.root)
    with use_model(agent.model, paths.configs, secrets, paths.data / "agent" / "answers", limits) as model:
        yield model


def mine(
    call: Call, path: str, commits: int, span: str, languages: Sequence[Language], min_support: int, max_rules: int
) -> Planned[MinedResult]:
    """Find the edits that the history of the repository at `path` repeats."""
    chosen = frozenset(languages or LANGUAGES)
    call.report("reading the history")
    history = History.read(resolve_path(call.root, path), span, commits)
    numbers = {commit: number for number, commit in enumerate(history.commits, 1)}
    collected = collect_pairs(
        history.changes(language_of_path, chosen),
        None,
        default_workers(),
        call.actions,
        lambda change: call.report(f"commit {numbers[change.commit]} of {len(numbers)}"),
        lambda done, total: call.report(f"group of changes {done} of {total}"),
    )
    newest = list(call.watch(history.newest_files(language_of_path, chosen))) if collected.pairs else []
    with open_workers(call.actions) as sandbox:
        config = MiningConfig(min_support=min_support)
        mined = mine_rules(
            collected,
            config,
            sandbox,
            newest,
            lambda done, total: call.report(f"tried on {done} of {total}"),
            call.seconds / 2,
        )
    rules = assign_ids(mined.rules)
    result = MinedResult(
        commits=len(history.commits),
        changes=mined.pairs,
        rules=_say_rules(rules[:max_rules]),
        rules_not_shown=max(0, len(rules) - max_rules),
        yaml=format_rules(rules[:max_rules]) if rules else "",
    )
    return result, []


def explain_rules(call: Call, rules: str, rule_file: str) -> Planned[ExplainedResult]:
    """Say rules in words."""
    return ExplainedResult(rules=_say_rules(_read_rules(call, rules, rule_file))), []


def _read_rules(call: Call, rules: str, rule_file: str) -> tuple[FileRule, ...]:
    """Return the rules of a text, or of a file below the root."""
    if bool(rules.strip()) == bool(rule_file):
        raise DataError("rules: give the text of a rule file, or `rule_file`, the path of one; not both")
    if rules.strip():
        return read_rules(rules, "rules")
    path = resolve_path(call.root, rule_file)
    if not path.is_file():  # a pipe would be waited for
        raise DataError(f"{rule_file}: is no file; expected a rule file")
    return read_rule_file(path)


def _read_example(call: Call, example: ExampleInput, language: Language | None) -> list[tuple[SourceFile, SourceFile]]:
    if bool(example.before_file) != bool(example.after_file) or bool(example.before or example.after) == bool(
        example.before_file
    ):
        raise DataError("examples: an example has the texts `before` and `after`, or `before_file` and `after_file`")
    if example.before_file:
        return read_pairs(
            resolve_path(call.root, example.before_file), resolve_path(call.root, example.after_file), language
        )
    if language is None:
        raise DataError(f"language: is needed with texts; expected one of {', '.join(LANGUAGES)}")
    suffix = next(suffix for suffix, own_language in LANGUAGE_OF.items() if own_language == language)
    sides = [
        source_of(text.encode("utf-8", "surrogatepass"), Path(f"example{suffix}"), language)
        for text in (example.before, example.after)
    ]
    return [(sides[0], sides[1])]


def _rewrite(call: Call, rules: Sequence[FileRule], paths: Sequence[str], reject: Sequence[str] = ()) -> Rewrite:
    resolved = [resolve_path(call.root, name) for name in paths]
    with open_workers(call.actions) as sandbox:
        return rewrite(rules, resolved, sandbox, lambda groups: reject, call.watch)


def _describe_rewrite(call: Call, result: Rewrite, write: bool) -> dict[str, Any]:
    """Return the fields of an `AppliedResult`."""
    changed = [file for file in result.files if not file.fault]
    files, characters, hidden = list[FileResult](), 0, max(0, len(changed) - MAX_FILES_SHOWN)
    for file in changed[:MAX_FILES_SHOWN]:
        name = call.relative(file.file.path)
        diff = "".join(unified_diff(file.file.text, file.text, f"a/{name}", f"b/{name}"))
        if characters + len(diff) > MAX_DIFF_CHARACTERS:
            diff, hidden = "", hidden + 1
        characters += len(diff)
        files.append(FileResult(path=name, places=len(file.places), diff=diff))
    groups, groups_hidden = _list_groups(call, result.groups)
    return {
        "written": write and bool(result.writes),
        "places": sum(len(file.places) for file in changed),
        "files": files,
        "files_not_shown": hidden,
        "groups": groups,
        "groups_not_shown": groups_hidden,
        "skipped": result.skipped,
        "faults": _list_faults(call, result),
    }


def _list_groups(call: Call, groups: Sequence[PlaceGroup]) -> tuple[list[GroupResult], int]:
    shown = [
        GroupResult(
            id=group.id,
            rule=group.rule,
            shape=group.edit,
            places=len(group.places),
            rare=group.is_rare,
            typical=[
                PlaceResult(
                    path=call.relative(place.path), line=place.line, diff="".join(place.diff)[:_MAX_PLACE_CHARACTERS]
                )
                for place in group.typical
            ],
        )
        for group in groups[:MAX_GROUPS_SHOWN]
    ]
    return shown, max(0, len(groups) - MAX_GROUPS_SHOWN)


def _list_faults(call: Call, result: Rewrite) -> list[str]:
    faults = [file.fault.replace(f"{call.root}{os.sep}", "") for file in result.files if file.fault]
    more = [f"and {len(faults) - MAX_FAULTS_SHOWN} more files"] if len(faults) > MAX_FAULTS_SHOWN else []
    return faults[:MAX_FAULTS_SHOWN] + more


def _describe_question(call: Call, folder: Path, question: Question) -> QuestionResult:
    text = question.text
    start = text.rfind("\n", 0, question.start) + 1
    end = text.find("\n", question.end)
    end = len(text) if end < 0 else end
    after = text[start : question.start] + question.replacement + text[question.end : end]
    return QuestionResult(
        path=call.relative(folder / question.path),
        line=text.count("\n", 0, question.start) + 1,
        before=text[start:end],
        after=after,
    )


def _say_rules(rules: Sequence[FileRule]) -> list[RuleInWords]:
    return [
        RuleInWords(
            id=rule.id,
            language=rule.language,
            summary=rule.message or summarize(rule.action),
            lines=explain(rule.action),
            facts={key: format_metadata(value) for key, value in rule.facts.items()},
        )
        for rule in assign_ids(rules)
    ]
