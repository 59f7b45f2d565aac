"""What is said before an action: from the text, the action and its matches, in many ways, always the same one."""

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import parse
from graftline.rollouts.teachers.thoughts import Failure, StepView, write_attempt_thoughts, write_thought
from graftline.rollouts.teachers.wording import Voice
from graftline.sandbox.actions.memory import MemorySandbox

TEXT = """\
class Store:
    def load(self, path):
        rows = read(path, 1)
        return rows

    def size(self):
        return len(self.rows)
"""
ACTION = PatternAction(pattern="read($A, $B)", rewrite="read($A)")


def sight(
    seed: str,
    action: PatternAction | RuleAction = ACTION,
    failures: tuple[Failure, ...] = (),
    done: str = "",
    text: str = TEXT,
) -> StepView:
    [result] = MemorySandbox().apply_many(text, "python", [action])
    tree = parse(text, "python")
    return StepView("Drop the number.", tree, done, failures, action, result.matches, Voice(seed))


FAILURE = Failure(RuleAction(rule={"kind": "identifier", "regex": "^rows$"}, fix="x"), 4, "`return rows`")


def test_the_same_seed_says_the_same() -> None:
    assert write_thought(sight("a")) == write_thought(sight("a"))


def test_task_place_choice_and_reach_are_all_there() -> None:
    for number in range(30):
        said = write_thought(sight(str(number)))
        assert "Drop the number." in said
        assert "line 3 in `Store.load`" in said.replace("Line", "line")
        assert "`rows = read(path, 1)`" in said
        assert "`read($A, $B)`" in said
        assert "$A (here `path`) and $B (here `1`)" in said


def test_many_tasks_are_told_in_many_ways() -> None:
    said = {write_thought(sight(str(number))) for number in range(200)}
    assert len(said) > 100


def test_a_failure_is_told_before_what_comes_after_it() -> None:
    for number in range(30):
        shown = sight(str(number), failures=(FAILURE, FAILURE))
        first, second = write_attempt_thoughts(shown)
        assert "Drop the number." in first
        assert "very identifier `rows`" in first
        assert "line 4" not in first
        assert "line 4, `return rows`" in second
        assert "line 4, `return rows`" in write_thought(shown)


def test_look_alikes_are_the_lines_that_the_rule_leaves_alone() -> None:
    text = "read(a)\nx = 1\nread(b)\nprint(read)\n"
    said = {
        write_thought(sight(str(number), PatternAction(pattern="read(a)", rewrite="a"), text=text))
        for number in range(60)
    }
    assert all("lines 3 and 4" in one for one in said)


def test_matches_on_several_lines_are_counted_as_the_sandbox_found_them() -> None:
    text = "read(a, 1)\nx = 1\nread(b, 2)\n"
    said = {write_thought(sight(str(number), text=text)) for number in range(60)}
    assert all("lines 1 and 3" in one for one in said)


def test_what_was_done_before_is_taken_up() -> None:
    said = {write_thought(sight(str(number), done="removed `x` (line 9)")) for number in range(60)}
    assert any("So far: removed `x` (line 9)." in one for one in said)
    assert not any(one.startswith("Asked for") for one in said)


def test_a_variable_that_is_the_place_itself_is_not_free() -> None:
    action = RuleAction(rule={"pattern": "$A", "kind": "return_statement"}, fix="$A")
    assert sight("a", action).free == []
