"""`rl_grpo`, `expert_iteration`, `srl` and `distill` from end to end: on the memory service all that is exact, on the backend what is real."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from graftline.astgrep.action import PatternAction, RuleAction
from graftline.astgrep.binding import Language
from graftline.core.errors import ConfigError, DataError, GraftlineError, SandboxError, TrainingError
from graftline.core.jsonl import write_lines
from graftline.core.paths import Paths
from graftline.sandbox.actions.memory import MemorySandbox
from graftline.sandbox.base import SandboxResult, Verdict
from graftline.training.answers import AnswerSampling, Questions, policy_datum
from graftline.training.loop import Interrupted
from graftline.training.memory import memory_tokenizer
from graftline.training.recipes.open import CONFIGS, load_recipe
from graftline.training.recipes.tasks import ExpertIteration, ExpertIterationConfig
from graftline.training.runs import Runs, StepMetrics
from graftline.training.tinker import TinkerSDKClient
from graftline.training.train import TinkerTrainingResult, train_on_tinker
from tests.repository_tasks import repository_task
from tests.unit.training.answering import ANSWERS, RIGHT, UNREADABLE, AnsweringTokenizer, task, write_tasks

pytest.importorskip("tinker", reason="pip install 'graftline[training]'")

FILES = {"rl_grpo": "tasks", "expert_iteration": "tasks", "srl": "srl", "distill": "sft", "sl_basic": "sft"}
BEYOND = json.dumps(
    {"rule": {"pattern": "old($A)"}, "fix": {"template": "new($A)", "expandEnd": {"field": "name", "regex": "x"}}}
)
"""What ast-grep's command line alone can do; the sandbox of these tests is without it."""


OUTPUT_LAYER = {"lora": {"train_unembed": True}}
"""Without it, a model as small as these cannot become certain of any token."""


class Room:
    """A root folder, a service, and runs of recipes."""

    def __init__(self, root: Path, service: TinkerSDKClient, tokenizer: Any = None) -> None:
        self.root = root
        self.service = service
        self.tokenizer = tokenizer or AnsweringTokenizer(memory_tokenizer())
        self.runs = Runs(root / "out")
        self.model = "memory"

    def config(self, recipe: str, **changes: Any) -> Any:
        values = {
            "model": self.model,
            "dataset": f"data/{FILES[recipe]}.jsonl",
            "held_out": f"data/{FILES[recipe]}_held_out.jsonl",
            "batch_size": 2,
            "max_steps": 5,
            "epochs": 3,
            "learning_rate": 0.1,
            "lr_schedule": "constant",
            "save_every": 2,
            "eval_every": 6,
        }
        if recipe != "sl_basic":
            values |= {"answer_tokens": 1, "group_size": 4}
        return CONFIGS[recipe](**{**values, **changes})

    def train(self, recipe: str, changes: Any = None, **options: Any) -> TinkerTrainingResult:
        given = {
            "root": self.root,
            "output_dir": self.runs.folder,
            "service": self.service,
            "tokenizer": self.tokenizer,
            "sandbox": MemorySandbox,
            **options,
        }
        return train_on_tinker(self.config(recipe, **(changes or {})), **given)

    def steps(self, run_id: str) -> list[dict[str, Any]]:
        """Return all that is known of the steps of a run but how long they took."""
        return [step.model_dump(exclude={"seconds"}) for step in self.runs.steps(run_id)]

    def teacher(self) -> str:
        """Return a checkpoint that was trained on the right answer."""
        plain = self.tokenizer._inner if isinstance(self.tokenizer, AnsweringTokenizer) else self.tokenizer
        changes = {"max_steps": 8, "learning_rate": 0.02, "held_out": "", "batch_size": 4}
        return self.train("sl_basic", changes, tokenizer=plain).run.sampler_path


@pytest.fixture
def room(tmp_path: Path, memory_service: Any) -> Room:
    write_tasks(tmp_path / "root")
    return Room(tmp_path / "root", memory_service)


class Ailing(MemorySandbox):
    """A sandbox that says nothing about what comes after so many answers, for the machine is too busy."""

    def __init__(self, sound: int) -> None:
        self._sound = sound

    def apply_many(
        self, source: str, language: Language, actions: Sequence[PatternAction | RuleAction]
    ) -> list[SandboxResult]:
        self._sound -= 1
        if self._sound < 0:
            return [SandboxResult(Verdict.WALL_TIMEOUT, None, self.isolation) for _ in actions]
        return super().apply_many(source, language, actions)


class Broken(MemorySandbox):
    """A sandbox that is out of order."""

    def apply_many(self, *_: Any) -> list[SandboxResult]:
        raise SandboxError("the jail does not start")


@pytest.mark.parametrize(
    ("recipe", "loss"),
    [("rl_grpo", "importance_sampling"), ("expert_iteration", "importance_sampling"), ("srl", "ppo")],
)
def test_the_reward_rises(room: Room, recipe: str, loss: str) -> None:
    # what this model would say at first is wrong
    room.tokenizer = AnsweringTokenizer(memory_tokenizer(), [*ANSWERS[1:], RIGHT])
    changes = {"loss": loss, "batch_size": 4, "group_size": 16, "learning_rate": 0.02, "max_steps": 10, "epochs": 5}
    run = room.train(recipe, {**changes, **OUTPUT_LAYER}).run
    rewards = [step["metrics"]["reward"] for step in room.steps(run.run_id)]
    assert (run.status, len(rewards)) == ("done", 10)
    # an answer is one of four: of rl_grpo 1, 0.3, 0 and -1
    assert rewards[0] < 0.7
    assert rewards[-1] > 0.9
    assert run.base_held_out_loss is not None
    assert run.held_out_loss is not None
    assert run.held_out_loss <= 0.0 < run.base_held_out_loss


def test_a_model_learns_to_solve_problems(room: Room) -> None:
    for name in ("tasks", "tasks_held_out"):
        problems = [{"question": f"How many are {n} and {42 - n}?", "answer": "#### 42"} for n in range(4)]
        lines = [json.dumps(problem) + "\n" for problem in problems]
        (room.root / "data" / f"{name}.jsonl").write_text("".join(lines), "utf-8")
    room.tokenizer = AnsweringTokenizer(memory_tokenizer(), ["41", "Many.", "I say 6.", "It is 42."])
    changes = {
        "reward": "math",
        "batch_size": 4,
        "group_size": 16,
        "learning_rate": 0.02,
        "max_steps": 10,
        "epochs": 10,
    }
    run = room.train("rl_grpo", {**changes, **OUTPUT_LAYER}).run
    rewards = [step["metrics"]["reward"] for step in room.steps(run.run_id)]
    assert rewards[0] < 0.5 < 0.9 < rewards[-1]


def test_right_answers_are_learned_each_once_and_all_of_a_question_weigh_as_one() -> None:
    recipe = ExpertIteration(ExpertIterationConfig(model="m", dataset="d"), MemorySandbox)
    assert recipe.advantages(["a", "b", "a", "c", "d"], [1.0, 0.6, 1.0, 0.8, None]) == [0.5, None, None, 0.5, None]
    # that all are right is no reason to learn nothing
    assert recipe.advantages(["a", "a"], [1.0, 1.0]) == [1.0, None]
    assert recipe.advantages(["a", "b"], [0.6, None]) is None


def test_a_rule_is_rewarded_by_the_places_of_a_whole_repository(room: Room) -> None:
    for name in ("tasks", "tasks_held_out"):
        write_lines(room.root / "data" / f"{name}.jsonl", [repository_task(id=f"{name}@{n}") for n in range(4)])
    answer = json.dumps({"pattern": "$C.fetch($A, timeout=$B)", "rewrite": "$C.get($A, timeout=$B)"})
    room.tokenizer = AnsweringTokenizer(memory_tokenizer(), [answer])
    run = room.train("rl_grpo", {"max_steps": 1}).run
    # 3 of 3 places by 3 of 4 edits
    assert [step["metrics"]["reward"] for step in room.steps(run.run_id)] == [pytest.approx(6 / 7)]


def test_a_step_without_contrast_changes_nothing(room: Room) -> None:
    same = AnsweringTokenizer(memory_tokenizer(), [UNREADABLE])
    run = room.train("rl_grpo", tokenizer=same).run
    steps = room.steps(run.run_id)
    assert {(step["loss"], step["grad_norm"], step["trained_tokens"]) for step in steps} == {(0.0, None, 0)}
    assert {step["metrics"]["reward"] for step in steps} == {-1.0}
    assert (run.status, run.trained_tokens, run.tokens > 0) == ("done", 0, True)
    sampler = room.service.sampling_client(model_path=run.sampler_path)
    base = room.service.sampling_client(base_model="memory")
    assert logprobs(room, sampler, [1, 2, 3]) == logprobs(room, base, [1, 2, 3])


def logprobs(room: Room, sampler: Any, tokens: Sequence[int]) -> list[float | None]:
    from tinker import types

    return room.service.result(sampler.compute_logprobs(types.ModelInput.from_ints([*tokens])), "logprobs")


def test_what_a_teacher_prefers_becomes_more_probable(room: Room) -> None:
    changes = {
        "teacher_path": room.teacher(),
        "answer_tokens": 3,
        "group_size": 16,
        "learning_rate": 0.01,
        "max_steps": 12,
        "epochs": 5,
    }
    run = room.train("distill", changes).run
    steps = room.steps(run.run_id)
    gaps = [step["metrics"]["reverse_kl"] for step in steps]
    # what is drawn has the ratio 1, so the loss is the divergence itself
    assert [step["loss"] for step in steps] == pytest.approx(gaps, rel=1e-4)
    assert run.base_held_out_loss is not None
    assert run.held_out_loss is not None
    # of the same questions and seeds; from step to step it goes up and down with what is drawn
    assert 0 < run.held_out_loss < 0.5 * run.base_held_out_loss


def test_a_teacher_that_is_the_model_itself_teaches_nothing(room: Room) -> None:
    run = room.train("distill", {"teacher_model": "memory", "max_steps": 1}).run
    assert (run.base_held_out_loss, run.first_loss) == (pytest.approx(0.0, abs=1e-6), pytest.approx(0.0, abs=1e-6))


def test_a_run_starts_from_the_weights_of_another(room: Room) -> None:
    first = room.train("rl_grpo").run
    second = room.train("rl_grpo", {"start_from": first.checkpoints[-1].path, "max_steps": 1}).run
    assert first.held_out_loss != first.base_held_out_loss
    assert second.base_held_out_loss == first.held_out_loss


@pytest.mark.parametrize(
    ("path", "error"), [("adapter", ConfigError), ("tinker://none/weights/step-000001", TrainingError)]
)
def test_a_start_that_is_not_there_ends_a_run(room: Room, path: str, error: type[GraftlineError]) -> None:
    with pytest.raises(error, match=path):
        room.train("rl_grpo", {"start_from": path})
    assert [run.status for run in room.runs.all()] == ["failed"]


def changes_of(room: Room, recipe: str) -> dict[str, Any]:
    return {"teacher_path": room.teacher(), "answer_tokens": 3} if recipe == "distill" else {}


# `srl` goes on as `rl_grpo` does
@pytest.mark.parametrize(
    "recipe", ["rl_grpo", "expert_iteration", "distill", pytest.param("srl", marks=pytest.mark.long)]
)
def test_a_run_that_was_disturbed_has_the_steps_of_one_that_was_not(room: Room, recipe: str) -> None:
    changes = changes_of(room, recipe)
    whole = room.train(recipe, changes, run_id="whole").run
    asked: list[int] = []

    def is_stopped() -> bool:
        asked.append(0)
        return len(asked) > 3

    with pytest.raises(Interrupted):
        room.train(recipe, changes, run_id="parts", is_stopped=is_stopped)

    def killed(step: StepMetrics, total: int) -> None:
        if step.step == 4:
            raise SystemExit

    # after the checkpoint of the interruption, and in the middle of what comes after it
    with pytest.raises(SystemExit):
        room.train(recipe, changes, run_id="parts", on_step=killed)
    run = room.train(recipe, changes, run_id="parts").run
    assert [attempt.from_step for attempt in run.attempts] == [0, 3, 4]
    parts, steps = room.steps("parts"), room.steps("whole")
    # answers are compared side by side, and how many go into one pass depends on when they arrive
    last_of_parts, last = parts[-1].pop("held_out_loss"), steps[-1].pop("held_out_loss")
    assert (parts, last_of_parts) == (steps, pytest.approx(last, rel=1e-6))
    assert (run.held_out_loss, whole.held_out_loss) == (last_of_parts, last)


def test_what_the_sandbox_cannot_say_is_no_reward(room: Room) -> None:
    tokenizer = AnsweringTokenizer(room.tokenizer, [*ANSWERS, BEYOND])
    run = room.train("rl_grpo", {"max_steps": 1, "group_size": 32}, tokenizer=tokenizer).run
    [step] = room.steps(run.run_id)
    found = {name.partition(".")[2]: value for name, value in step["metrics"].items() if name.startswith("answers.")}
    assert found["needs_cli"] > 0
    assert sum(found.values()) == 64
    # no answer that nothing is known of was sent
    assert step["trained_tokens"] == 64 - found["needs_cli"]
    known = found["verified"] * 1.0 + found["partial"] * 0.3 - found["bad_format"]
    assert step["metrics"]["reward"] == pytest.approx(known / (64 - found["needs_cli"]))


@pytest.mark.parametrize(
    ("sandbox", "error", "said"),
    [
        (lambda: Ailing(10), TrainingError, "nothing is known of any answer ("),
        (Broken, SandboxError, "the jail does not start"),
    ],
)
def test_a_machine_that_is_out_of_order_ends_the_run_until_it_is_mended(
    room: Room, sandbox: Callable[[], MemorySandbox], error: type[GraftlineError], said: str
) -> None:
    room.train("rl_grpo", {"held_out": "", "max_steps": 4}, run_id="whole")
    with pytest.raises(error) as raised:
        room.train("rl_grpo", {"held_out": "", "max_steps": 4}, run_id="parts", sandbox=sandbox)
    assert said in str(raised.value)
    run = room.runs.get("parts")
    assert (run.status, run.error) == ("failed", str(raised.value))
    run = room.train("rl_grpo", {"held_out": "", "max_steps": 4}, run_id="parts").run
    assert run.status == "done"
    # what was learned before the machine failed is kept
    assert run.attempts[1].from_step == (2 if error is TrainingError else 0)
    assert [step["metrics"] for step in room.steps("parts")] == [step["metrics"] for step in room.steps("whole")]


# bad input


@pytest.mark.parametrize(
    ("recipe", "lines", "said"),
    [
        ("rl_grpo", "", "data/tasks.jsonl: no example is left to train on: the file is empty"),
        ("rl_grpo", '{"messages": []}\n', "line 1: is no task (id: Field required); tasks are below data/tasks"),
        ("srl", '{"messages": []}\n', "line 1: has no prompt; `graftline data export srl` writes such files"),
        ("srl", '{"prompt": [], "expert_action": {"patern": "a"}}\n', "line 1: expert_action is no action"),
        ("srl", '{"prompt": [7], "expert_action": {"pattern": "a", "rewrite": "b"}}\n', "1 without a list of messages"),
        ("distill", '{"text": "a"}\n', "line 1: has neither prompt nor messages; `graftline data export sft`"),
        ("distill", '{"messages": [{"role": "assistant", "content": "a"}]}\n', "1 without a list of messages"),
    ],
)
def test_files_of_another_form_are_refused(room: Room, recipe: str, lines: str, said: str) -> None:
    (room.root / "data" / f"{FILES[recipe]}.jsonl").write_text(lines, "utf-8")
    with pytest.raises(DataError) as error:
        room.train(recipe, {"teacher_model": "memory"} if recipe == "distill" else {})
    assert said in str(error.value)


def test_steps_that_nothing_can_be_compared_with_are_dropped_and_counted(room: Room) -> None:
    path = room.root / "data" / "srl.jsonl"
    chat = [{"role": "user", "content": "a"}]
    row = {"prompt": chat, "expert_action": {"pattern": "a", "rewrite": f"b({'c, ' * 2000})"}}
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row) + "\n" + json.dumps({**row, "prompt": [7]}) + "\n")
    run = room.train("srl", {"max_steps": 1}).run
    assert (run.examples, run.dropped) == (8, {"not_comparable": 2})


@pytest.mark.parametrize(
    ("path", "error", "said"),
    [
        ("data/adapter", ConfigError, "'data/adapter' is no path of a checkpoint; expected tinker://RUN/KIND/NAME"),
        ("tinker://none/sampler_weights/final", TrainingError, "tinker://none/sampler_weights/final"),
    ],
)
def test_a_teacher_that_is_not_there_ends_a_run_before_its_first_step(
    room: Room, path: str, error: type[GraftlineError], said: str
) -> None:
    with pytest.raises(error) as raised:
        room.train("distill", {"teacher_path": path})
    assert said in str(raised.value)
    [run] = room.runs.all()
    assert (run.status, run.error, room.steps(run.run_id)) == ("failed", str(raised.value), [])


@pytest.mark.parametrize(
    "teachers",
    [{}, {"teacher_model": "m", "teacher_fleet": "f"}, {"teacher_path": "tinker://a/b/c", "teacher_recipe": "r"}],
)
def test_one_teacher_is_needed_and_no_more(tmp_path: Path, teachers: dict[str, str]) -> None:
    folder = tmp_path / "configs" / "recipes"
    folder.mkdir(parents=True)
    values = {"recipe": "distill", "model": "m", "dataset": "d", **teachers}
    (folder / "learn.yaml").write_text(json.dumps(values), "utf-8")
    with pytest.raises(ConfigError) as error:
        load_recipe(Paths(tmp_path), "learn")
    said = "one of teacher_recipe, teacher_path, teacher_model, teacher_fleet says who teaches; give exactly one"
    assert said in str(error.value)


def test_answers_have_the_logprobs_that_the_model_is_trained_by(room: Room) -> None:
    trainer = room.service.create_training_client(room.model, 8, 0)
    path = room.service.result(trainer.save_weights_for_sampler("start"), "weights").path
    questions = Questions("qwen3_instruct", memory_tokenizer())
    prompts = [questions.tokens([{"role": "user", "content": text}]) for text in ("Rename `old`.", task(0).before)]
    drawing = AnswerSampling(max_tokens=6, temperature=0.7, count=3)
    asked = questions.ask(room.service.sampling_client(model_path=path), prompts, drawing, [1, 2])
    drawn = questions.wait(room.service, asked, "answers")
    pairs = [(prompt, one) for prompt, some in zip(prompts, drawn, strict=True) for one in some]
    datums = [policy_datum(prompt, one, [1.0] * len(one.tokens)) for prompt, one in pairs]
    found = room.service.result(trainer.forward(datums, "importance_sampling"), "loss")
    for (_, one), output in zip(pairs, found.loss_fn_outputs, strict=True):
        assert output["logprobs"].data[-len(one.tokens) :] == pytest.approx(one.logprobs, abs=1e-4)
    assert found.metrics["loss:sum"] == pytest.approx(-sum(len(one.tokens) for _, one in pairs), rel=1e-4)
