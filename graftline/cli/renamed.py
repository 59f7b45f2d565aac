"""Names of commands and options of version 0.1.0: 0.2 understands them, with a notice on standard error."""

from collections.abc import Mapping

import click

COMMANDS: Mapping[str, str] = {
    "actor": "worker",
    "actor revive": "worker retry",
    "actors": "model",
    "actors down": "model stop",
    "actors up": "model serve",
    "datasets": "data",
    "datasets export-dvc": "data push dvc",
    "datasets normalize": "data build",
    "datasets publish": "data push wandb",
    "datasets sample": "data show",
    "datasets split": "data build",
    "eval deploy": "eval promote",
    "licences": "licenses",
    "models": "model",
    "models adapter": "model convert-adapter",
    "prompts": "prompt",
    "recipes": "train",
    "rules apply": "apply",
    "rules explain": "explain",
    "rules induce": "learn",
    "rules mine": "mine",
    "rules test": "test",
    "summary": "status",
    "train --status": "train status",
    "train upload": "train estimate",
    "trajectories": "data",
    "trajectories upload": "data push bucket",
    "wiring": "config",
}
"""By what was typed: what is typed now. The longest one that fits counts."""
OPTIONS: Mapping[str, str] = {
    "--at-once": "--concurrency",
    "--backend-url": "--url",
    "--base-url": "--url",
    "--drops": "--rejected",
    "--export": "--output",
    "--into": "--output",
    "--out": "--output",
    "--port": "--set",
    "--rollouts": "--concurrency",
    "--wait": "--timeout",
    "--workers": "--concurrency",
    "tinker serve --root": "--store",
    "train status --output": "--folder",
}
"""By their old names, of one command where it is named; what a command has under the old name stays that."""
ALIASES: Mapping[str, str] = {"harbor": "env"}
"""Second names that stay."""


def update_names(group: click.Group, context: click.Context, words: list[str]) -> tuple[list[str], list[str]]:
    """Return what is to be typed for `words`, and a notice for each name in it that is not the present one."""
    notices = []
    words = [ALIASES.get(words[0], words[0]), *words[1:]] if words else []
    for length in (2, 1):
        typed = " ".join(words[:length])
        if typed in COMMANDS:
            notices.append(f"`graftline {typed}` is now `graftline {COMMANDS[typed]}`")
            words = [*COMMANDS[typed].split(), *words[length:]]
            break
    name, command, depth = _find_command(group, context, words)
    if command is None:
        return words, notices
    present = {spelling for param in command.params for spelling in (*param.opts, *param.secondary_opts)}
    for place, word in enumerate(words):
        if word == "--":
            break
        option, equals, value = word.partition("=")
        renamed = OPTIONS.get(f"{name} {option}") or OPTIONS.get(option)
        if place >= depth and renamed in present and option not in present:
            notices.append(f"`{option}` of `graftline {name}` is now `{renamed}`")
            words[place] = f"{renamed}{equals}{value}"
    return words, notices


def _find_command(
    group: click.Group, context: click.Context, words: list[str]
) -> tuple[str, click.Command | None, int]:
    """Return the name of the command that `words` call, the command itself, and where what it is given begins."""
    command: click.Command | None = group
    names = list[str]()
    for word in words:
        if not isinstance(command, click.Group):
            break
        command = command.get_command(context, word)
        names.append(word)
    return " ".join(names), None if isinstance(command, click.Group) else command, len(names)
