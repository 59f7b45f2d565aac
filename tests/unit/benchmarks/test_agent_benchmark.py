"""The benchmark of the agent, on a small commit and with a server that answers from a script."""

import json
import lzma
from pathlib import Path

import pytest

from benchmarks import agent
from benchmarks.agent import main
from graftline.agent.model import AgentModel, Limits
from graftline.llm.base import ChatRequest
from graftline.llm.blocking import BlockingChatModel
from graftline.llm.memory import MemoryChatModel
from tests.unit.benchmarks.test_migration_benchmark import _ROW


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    row = {**_ROW, "subject": "Replace broker_link with link"}
    with lzma.open(tmp_path / "migrations_dev.jsonl.xz", "wt") as stream:
        stream.write(json.dumps(row) + "\n")

    async def answer(request: ChatRequest) -> str:
        question = request.messages[-1].content
        if request.json_schema is not None:
            action = {"pattern": "$A.broker_link($B)", "rewrite": "$A.link($B)"}
            return json.dumps({"think": "a", "action": action, "state_update": {"history": ["b"], "next_focus": "c"}})
        if question.endswith("Answer yes or no."):
            return "yes"
        code = question.split("```")[1].partition("\n")[2]
        return f"```\n{code.replace('broker_link', 'link')}```"

    def open_memory(*_: object) -> AgentModel:
        return AgentModel(BlockingChatModel(MemoryChatModel(answer)), 4_000, tmp_path / "answers", Limits())

    monkeypatch.setattr(agent, "open_model", open_memory)
    return ["--data", str(tmp_path), "--answers", str(tmp_path / "answers"), "--limit", "2"]


def test_whole_commits_come_out_by_every_arm(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["--part", "repositories", *arguments])
    figures = json.loads(capsys.readouterr().out)["figures"]
    precisions = {arm: figures[arm]["precision"] for arm in agent.REPOSITORY_ARMS}
    assert precisions == {"agent": 1.0, "example": 1.0, "write-rule": 1.0, "sed": 0.833, "gold": 1.0}
    assert {arm: figures[arm]["recall_at_p90"] for arm in precisions} == {**dict.fromkeys(precisions, 1.0), "sed": 0.0}


def test_single_places_are_right_or_not(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["--part", "places", *arguments, "--limit", "4"])  # of four places two may be in Python
    figures = json.loads(capsys.readouterr().out)["figures"]
    assert {arm: (figures[arm]["places"], figures[arm]["right"]) for arm in agent.PLACE_ARMS} == dict.fromkeys(
        agent.PLACE_ARMS, (2, 2)
    )
    assert figures["edit"]["agree_4"] == {"places": 2, "right": 2}


@pytest.mark.parametrize("shard", ["x", "1", "0/2", "3/2", "1/0"])
def test_a_shard_is_one_of_so_many(arguments: list[str], shard: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*arguments, "--shard", shard])
    assert f"{shard!r} is no shard; expected N/M" in capsys.readouterr().err
