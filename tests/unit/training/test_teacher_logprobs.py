"""What teachers think of answers: models of the backend, and servers with vLLM's completions API."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from graftline.core.errors import ConfigError, TrainingError
from graftline.training.memory import memory_tokenizer
from graftline.training.recipes.distill import ActorTeacher, BackendTeacher
from tests.completions_server import CompletionsServer, Fault
from tests.unit.training.test_policy_recipes import Room, write_tasks

pytest.importorskip("tinker", reason="pip install 'graftline[training]'")

SEQUENCES = [[85, 115, 101, 114], [58, 32], [120, 121, 122, 120, 121]]


def write_fleet(root: Path, urls: Sequence[str], **changes: Any) -> None:
    """Write the fleet `teachers` of servers that somebody else runs, below `root`."""
    actors = [{"name": f"one-{number}", "url": url} for number, url in enumerate(urls)]
    fleet = {"engine": "service", "model": "big", "actors": actors, **changes}
    (root / "configs").mkdir(parents=True, exist_ok=True)
    (root / "configs" / "vllm_actors.yaml").write_text(json.dumps({"fleets": {"teachers": fleet}}), "utf-8")


@pytest.fixture
def service(memory_service: Any) -> Any:
    return memory_service


@pytest.fixture
def server(service: Any) -> Iterator[CompletionsServer]:
    """What the table of the memory service thinks."""
    teacher = BackendTeacher(service, None, "memory")
    tokenizer = memory_tokenizer()
    with CompletionsServer(lambda tokens: teacher.logprobs([tokens])[0], tokenizer.decode, len(tokenizer)) as found:
        yield found


def actor_teacher(root: Path, *servers: CompletionsServer, deadline_s: float = 20.0, **changes: Any) -> ActorTeacher:
    write_fleet(root, [server.url for server in servers], **changes)
    return ActorTeacher("teachers", root, memory_tokenizer(), deadline_s)


def test_a_server_says_what_the_backend_says_of_the_same_model(
    service: Any, server: CompletionsServer, tmp_path: Path
) -> None:
    found = actor_teacher(tmp_path, server).logprobs(SEQUENCES)
    assert [len(one) for one in found] == [3, 1, 4]
    assert found == BackendTeacher(service, None, "memory").logprobs(SEQUENCES)
    assert sorted(server.asked, key=str) == sorted(
        (
            {"model": "big", "prompt": sequence, "max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
            for sequence in SEQUENCES
        ),
        key=str,
    )


def test_sequences_are_dealt_out_and_come_back_in_order(server: CompletionsServer, tmp_path: Path) -> None:
    # the first server is slow
    server.faults = [Fault(silent_s=0.2)]
    with CompletionsServer(lambda tokens: [-1.0] * (len(tokens) - 1), memory_tokenizer().decode) as other:
        found = actor_teacher(tmp_path, server, other).logprobs(SEQUENCES)
    assert [one["prompt"] for one in other.asked] == [SEQUENCES[1]]
    assert (found[1], [len(one) for one in found]) == ([-1.0], [3, 1, 4])


def without_last(answer: dict[str, Any]) -> dict[str, Any]:
    answer["choices"][0]["prompt_logprobs"].pop()
    return answer


def of_chat_alone(answer: dict[str, Any]) -> dict[str, Any]:
    return {**answer, "choices": [{"index": 0, "text": "ok", "finish_reason": "length"}]}


def with_value(value: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def changed(answer: dict[str, Any]) -> dict[str, Any]:
        for one in answer["choices"][0]["prompt_logprobs"][1:]:
            for said in one.values():
                said["logprob"] = value
        return answer

    return changed


_NOT_SAID = "teacher one-0: does not say what it thinks of each token of a prompt; it has to be vLLM, with the tokenizer of the model"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            Fault(status=500),
            "teacher one-0: answers 500: the engine is dead; see `graftline model status`, and resume",
        ),
        (Fault(status=404), "teacher one-0: answers 404"),
        (Fault(silent_s=1.0), "teacher one-0: does not answer /v1/completions within 0.3 s"),
        (Fault(changed=without_last), _NOT_SAID),
        (Fault(changed=of_chat_alone), _NOT_SAID),
        (Fault(changed=lambda answer: ["text"]), _NOT_SAID),
        (Fault(changed=with_value("-1")), "teacher one-0: gives '-1' where a logprob was expected; see its log"),
        (Fault(changed=with_value(float("nan"))), "teacher one-0: gives nan where a logprob was expected"),
    ],
)
def test_a_server_that_does_not_say_is_an_error(
    server: CompletionsServer, tmp_path: Path, fault: Fault, said: str
) -> None:
    server.faults = [fault]
    with pytest.raises(TrainingError) as error:
        actor_teacher(tmp_path, server, deadline_s=0.3 if fault.silent_s else 20.0).logprobs([SEQUENCES[0]])
    assert said in str(error.value)


def test_a_server_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    write_fleet(tmp_path, ["http://127.0.0.1:9"])
    with pytest.raises(TrainingError, match="teacher one-0: cannot be reached: Connection refused"):
        ActorTeacher("teachers", tmp_path, memory_tokenizer(), 5.0).logprobs(SEQUENCES)


def test_a_server_with_another_tokenizer_is_an_error(server: CompletionsServer, tmp_path: Path) -> None:
    server.vocabulary = 100
    with pytest.raises(TrainingError, match="answers 400: Token id 115 is out of vocabulary"):
        actor_teacher(tmp_path, server).logprobs([SEQUENCES[0]])
    # it has tokens with these numbers, and they are others
    server.vocabulary, server.decode = 1000, lambda tokens: f" word{tokens[0]}"
    with pytest.raises(TrainingError) as error:
        actor_teacher(tmp_path, server).logprobs([SEQUENCES[0]])
    assert str(error.value) == (
        "teacher one-0: reads 'word115' where the model has 's'; it needs the tokenizer of the model"
    )


def test_blanks_and_parts_of_characters_do_not_tell_tokenizers_apart(server: CompletionsServer, tmp_path: Path) -> None:
    shown = {32: "\u2581", 195: "<0xC3>"}
    server.decode = lambda tokens: shown.get(tokens[0]) or memory_tokenizer().decode(tokens)
    [found] = actor_teacher(tmp_path, server).logprobs([[97, 32, 195, 169, 98, 99]])
    assert len(found) == 5


def test_the_key_of_a_fleet_is_sent(server: CompletionsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.key = "of-the-teacher"
    with pytest.raises(TrainingError, match="answers 401"):
        actor_teacher(tmp_path, server).logprobs(SEQUENCES)
    with pytest.raises(ConfigError, match="TEACHER_KEY"):
        actor_teacher(tmp_path, server, api_key="TEACHER_KEY")
    monkeypatch.setenv("TEACHER_KEY", server.key)
    assert len(actor_teacher(tmp_path, server, api_key="TEACHER_KEY").logprobs(SEQUENCES)) == 3


def test_a_fleet_teaches_as_the_same_model_of_the_backend_does(service: Any, tmp_path: Path) -> None:
    write_tasks(tmp_path / "root")
    room = Room(tmp_path / "root", service)
    path = room.teacher()
    teacher = BackendTeacher(room.service, path, None)
    changes = {"answer_tokens": 3, "max_steps": 3, "held_out": ""}
    tokenizer = memory_tokenizer()
    room.train("distill", {**changes, "teacher_path": path}, run_id="own", tokenizer=tokenizer)
    with CompletionsServer(lambda tokens: teacher.logprobs([tokens])[0], tokenizer.decode) as server:
        write_fleet(room.root, [server.url])
        given = {**changes, "teacher_fleet": "teachers"}
        room.train("distill", given, run_id="fleet", tokenizer=tokenizer)
        # a teacher that fails ends the run, which goes on when it is well
        server.faults = [*[Fault()] * 10, Fault(status=500)]
        with pytest.raises(TrainingError, match="answers 500"):
            room.train("distill", given, run_id="failed", tokenizer=tokenizer)
        assert room.runs.get("failed").status == "failed"
        room.train("distill", given, run_id="failed", tokenizer=tokenizer)
    assert room.steps("fleet") == room.steps("own") == room.steps("failed")
