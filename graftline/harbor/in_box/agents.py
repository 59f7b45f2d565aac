"""Agents that implement a task: commands, and the files that tell them which model to ask and where.

All calls of a model go to `inference_url`; the key comes from the box's own variables and is written to no file. `nop`
and `oracle` do nothing: of `oracle` the verifier, which alone has the solution, grades that instead. An agent that its model's
provider refused has not failed, whatever status it ends with: `find_refusal` tells it from what was printed.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

IDLE = ("nop", "oracle")
API_KEYS = ("OPENAI_API_KEY", "SYNTH_API_KEY", "ANTHROPIC_API_KEY")
"""Variables that hold the key of the model, the first that is there."""
BUDGET_EXHAUSTED = "budget_exhausted"
"""In what an agent prints that was refused a further call of its model, for its budget is used up: what it has left is graded."""
_PROVIDER = "task_app"
_SHOWN = 200
_LAST_LINES = 5
_REFUSED = re.compile(
    r"\b40[13]\b.{0,40}(unauthorized|forbidden|authenti)|(unauthorized|forbidden).{0,40}\b40[13]\b"
    r"|(invalid|incorrect|missing|expired|no)[ _-]+(x-)?api[ _-]?key|api[ _-]?key\b.{0,40}(invalid|incorrect|missing|expired)"
    r"|authentication[ _-]?(error|failed|required)|please run /login|not logged in|credit balance is too low"
    r"|insufficient_quota",
    re.IGNORECASE,
)
"""That a provider does not know the key, or takes it no more."""
_UNAVAILABLE = re.compile(
    r"\b(401|429|5\d\d)\b.{0,40}(unauthorized|too many|rate|error|unavailable)|rate limit|connection refused"
    r"|could not resolve",
    re.IGNORECASE,
)
_IS_ERROR = re.compile(r"\W*(?:\S+\s+){0,3}\w*error\b|\W*unexpected status\b", re.IGNORECASE)
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}")


@dataclass(frozen=True)
class Agent:
    """How to start an agent."""

    command: tuple[str, ...]
    """`{model}` and `{instruction}` are filled in; the first word is its program."""
    files: Callable[[str, str], dict[str, str]] = field(default=lambda model, url: {})
    """Texts by path below the home folder, of model and address."""
    variables: Callable[[str, str], dict[str, str]] = field(default=lambda url, key: {})
    """Of address and key."""


def _codex_files(model: str, url: str) -> dict[str, str]:
    lines = [f"model = {json.dumps(model)}"]
    if url:
        lines += [
            f"model_provider = {json.dumps(_PROVIDER)}",
            f"[model_providers.{_PROVIDER}]",
            'name = "task app"',
            f"base_url = {json.dumps(url)}",
            'env_key = "OPENAI_API_KEY"',
            'wire_api = "responses"',
        ]
    return {".codex/config.toml": "\n".join(lines) + "\n"}


def _opencode_files(model: str, url: str) -> dict[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": url, "apiKey": "{env:OPENAI_API_KEY}"},
        "models": {model: {}},
    }
    settings = {"model": f"{_PROVIDER}/{model}", "provider": {_PROVIDER: provider}} if url else {"model": model}
    return {".config/opencode/opencode.json": json.dumps(settings, indent=2) + "\n"}


def _openai_variables(url: str, key: str) -> dict[str, str]:
    return {**({"OPENAI_BASE_URL": url} if url else {}), **({"OPENAI_API_KEY": key} if key else {})}


def _mini_swe_agent_variables(url: str, key: str) -> dict[str, str]:
    # it asks nobody how it is to be set up, and does not end for want of a price
    return {**_openai_variables(url, key), "MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors"}


def _anthropic_variables(url: str, key: str) -> dict[str, str]:
    if not url:
        return {"ANTHROPIC_API_KEY": key} if key else {}
    return {"ANTHROPIC_BASE_URL": url, **({"ANTHROPIC_AUTH_TOKEN": key} if key else {})}


AGENTS: Mapping[str, Agent] = {
    "codex": Agent(
        ("codex", "exec", "--yolo", "--skip-git-repo-check", "-m", "{model}", "{instruction}"),
        _codex_files,
        _openai_variables,
    ),
    "opencode": Agent(("opencode", "run", "{instruction}"), _opencode_files, _openai_variables),
    "claude_code": Agent(
        ("claude", "--print", "--dangerously-skip-permissions", "--model", "{model}", "{instruction}"),
        variables=_anthropic_variables,
    ),
    # its model is named as litellm does, which asks OPENAI_BASE_URL of all that is called so
    "mini_swe_agent": Agent(
        (
            "mini",
            "--yolo",
            "--exit-immediately",
            "--cost-limit",
            "0",
            "--model",
            "openai/{model}",
            "--task",
            "{instruction}",
        ),
        variables=_mini_swe_agent_variables,
    ),
}
NAMES = (*AGENTS, *IDLE)


def command_of(agent: Agent, model: str, instruction: str) -> list[str]:
    """Return the words of the agent's command. Raises ValueError where `model` is no name of a model."""
    if not _MODEL.fullmatch(model):
        raise ValueError(f"model {model[:80]!r} is no name of a model, such as 'gpt-4o-mini'")
    words = {"{model}": model, "openai/{model}": f"openai/{model}", "{instruction}": instruction}
    return [words.get(word, word) for word in agent.command]


def find_refusal(output: str, status: int, has_changed: bool) -> str:
    """Return the line that says that the provider refused an agent; empty where none does.

    Of an agent that ends well, and whose task may be about such errors, a line counts only where nothing in its working folder
    has changed, or where it is an error and among the last that were printed.
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if status != 0:
        matches = (line for line in reversed(lines) if _REFUSED.search(line) or _UNAVAILABLE.search(line))
    elif not has_changed:
        matches = (line for line in reversed(lines) if _REFUSED.search(line))
    else:
        last = reversed(lines[-_LAST_LINES:])
        matches = (line for line in last if _REFUSED.search(line) and _IS_ERROR.match(line))
    return next(matches, "")[:_SHOWN]
