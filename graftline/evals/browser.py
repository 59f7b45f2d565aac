"""A page of HTML to look at every attempt: one file, which asks nothing of any network.

What stands in it comes from datasets and models, and is not trusted: texts lie in a block of JSON that no markup ends, and
are shown as texts alone; the policy of the page lets no other script run, and nothing be loaded.
"""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from graftline.astgrep.action import ACTION
from graftline.core.text_diff import escape_controls, unified_diff
from graftline.evals.attempt import Attempt
from graftline.evals.cases import Case

_MOST_CHARACTERS = 20_000
"""Of a text that is shown."""
_OUTCOMES = ("solved", "over-applied", "not solved", "not readable", "nothing known")


def browser_page(name: str, cases: Sequence[Case], attempts: Sequence[Attempt]) -> str:
    """Return the page; `cases` are those of the attempts."""
    script, style, by_id = _source("browser.js"), _source("browser.css"), _by_id(cases)
    shown = {
        "tasks": {case.id: _task(case) for case in cases},
        "attempts": [_attempt(attempt, by_id[attempt.task_id]) for attempt in attempts],
        "outcomes": list(_OUTCOMES),
    }
    title = html.escape(f"Evaluation {name}")
    policy = f"default-src 'none'; script-src '{_sha(script)}'; style-src '{_sha(style)}'"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<form id="filters">
<label>Contestant <select id="contestant"></select></label>
<label>Class <select id="class"></select></label>
<label>Language <select id="language"></select></label>
<label>Outcome <select id="outcome"></select></label>
<label>Task <input id="task" type="search"></label>
<output id="count"></output>
</form>
<main id="attempts"><noscript>This page needs its own script, which the browser does not run.</noscript></main>
<button id="more" type="button" hidden>More</button>
<script type="application/json" id="data">{_embedded(shown)}</script>
<script>{script}</script>
</body>
</html>
"""


def outcome_of(attempt: Attempt) -> str:
    """Return in which of the outcomes that the page tells apart an attempt ended."""
    if attempt.is_infra:
        return "nothing known"
    if attempt.is_verified:
        return "solved"
    if not attempt.actions:
        return "not readable"
    return "over-applied" if attempt.over_application else "not solved"


def _task(case: Case) -> dict[str, Any]:
    task = case.task
    return {
        "class": case.edit_class,
        "language": task.language,
        "instruction": _shown(task.instruction),
        "before": _shown(task.before),
        "wanted": _diff(task.before, task.wanted),
        "origin": _shown(task.origin),
    }


def _attempt(attempt: Attempt, case: Case) -> dict[str, Any]:
    actions = [ACTION.dump_python(action, mode="json") for action in attempt.actions]
    return {
        "contestant": attempt.contestant,
        "task": attempt.task_id,
        "attempt": attempt.attempt,
        "outcome": outcome_of(attempt),
        "cause": _shown(attempt.cause),
        "reward": attempt.reward,
        "unseen": attempt.right_on_unseen,
        "said": _shown(attempt.text),
        "action": _shown("\n".join(json.dumps(action, ensure_ascii=False, indent=1) for action in actions)),
        "diff": None if attempt.after is None else _diff(case.task.before, attempt.after),
        "off": None if attempt.after is None or attempt.is_verified else _diff(case.task.wanted, attempt.after),
    }


def _diff(before: str, after: str) -> str:
    return _shown("".join([*unified_diff(before, after, "", "")][2:]))


def _shown(text: str) -> str:
    more = len(text) - _MOST_CHARACTERS
    return escape_controls(text[:_MOST_CHARACTERS]) + (f"\n… and {more} more characters" if more > 0 else "")


def _by_id(cases: Sequence[Case]) -> dict[str, Case]:
    return {case.id: case for case in cases}


def _embedded(values: Any) -> str:
    # half surrogate pairs are escaped as well, or the file could not be written
    text = json.dumps(values, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _source(name: str) -> str:
    return files("graftline.evals").joinpath(name).read_text("utf-8")


def _sha(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
