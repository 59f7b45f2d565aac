"""The benchmark of quality: rules written by hand solve all of its tasks, and what it counts is what was done."""

from pathlib import Path

import pytest

from benchmarks.teacher_quality import quality
from benchmarks.teacher_tasks import QUALITY_TASKS
from graftline.astgrep.action import PatternAction
from graftline.llm.base import ChatRequest
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.fleet import Actor, Fleet
from graftline.llm.memory import MemoryChatModel
from graftline.rollouts.state.state import StateUpdate
from graftline.rollouts.teachers.answer import Answer, format_answer
from graftline.rollouts.teachers.prompt import load_prompt

RULES = {
    "rename_call": ("fetch_data($$$A)", "load_data($$$A)"),
    "rename_method": ("$O.assertEquals($$$A)", "$O.assertEqual($$$A)"),
    "add_kwarg": ("open($A)", "open($A, encoding='utf-8')"),
    "swap_args": ("copy_file($A, $B)", "copy_file($B, $A)"),
    "drop_kwarg": ("run($A, debug=True)", "run($A)"),
    "print_to_log": ("print($A)", "logger.info($A)"),
    "wrap_call": ("json.loads($A)", "checked(json.loads($A))"),
    "np_float": ("np.float($A)", "float($A)"),
    "len_zero": ("len($A) == 0", "not $A"),
    "is_none": ("$A == None", "$A is None"),
    "isinstance": ("type($A) == $B", "isinstance($A, $B)"),
    "guard": ("send($A)", "if $A is not None:\n    send($A)"),
    "get_default": ("$D[$K] if $K in $D else $V", "$D.get($K, $V)"),
    "var_let": ("var $A = $B", "let $A = $B"),
    "console_log": ("console.log($A)", "logger.debug($A)"),
    "strict_eq": ("$A == $B", "$A === $B"),
    "new_buffer": ("new Buffer($$$A)", "Buffer.from($$$A)"),
    "promise": ("$A.done($B)", "$A.then($B)"),
    "println": ("System.out.println($A)", "log.info($A)"),
    "is_empty": ("$A.size() == 0", "$A.isEmpty()"),
}
FLEET = Fleet(engine="service", model="by hand", actors=(Actor(name="hand", url="http://127.0.0.1:9", slots=2),))


@pytest.fixture
def model() -> BlockingChatModel:
    """Says of every task first something useless, and then the rule for it."""

    async def answer(request: ChatRequest) -> str:
        asked = next(task for task in QUALITY_TASKS if any(task.before in one.content for one in request.messages))
        pattern, rewrite = RULES[asked.name] if "was wrong" in request.messages[-1].content else ("none", "some")
        action = PatternAction(pattern=pattern, rewrite=rewrite)
        return format_answer(Answer("So.", action, StateUpdate(history=["did it"], next_focus="done"), True), "json")

    return BlockingChatModel(MemoryChatModel(answer, "by hand"))


def test_the_tasks_are_solved_by_rules_that_hold_elsewhere_too(checkout: Path, model: BlockingChatModel) -> None:
    with model:
        figures = quality(model, load_prompt(checkout / "configs", "small"), FLEET, ways=["feedback"])
    names = [task.name for task in QUALITY_TASKS]
    found = figures["feedback"]
    assert (figures["tasks"], figures["one_step"]) == (20, {"verified": 0, "general": 0, "names": []})
    assert {name: found[name] for name in ("verified", "general", "names", "steps", "readable", "strict")} == {
        "verified": 20,
        "general": 20,
        "names": names,
        "steps": 40,
        "readable": 40,
        "strict": 40,
    }
