"""The commands below `graftline sandbox`: parse, load configuration, call one function, print."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.main import json_option, paths_of, print_table
from graftline.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from graftline.sandbox import SandboxRunner

_MAX_INPUT_BYTES = 1 << 20


@click.command()
@json_option
@click.pass_obj
def probe(root: Path | None, as_json: bool) -> None:
    """Try what isolation this machine gives. Fails if the configuration requires more."""
    from graftline.sandbox.probe import probe as probe_all
    from graftline.sandbox.probe import tiers
    from graftline.sandbox.runner import load_sandbox_settings

    probes = probe_all()
    required = tiers(load_sandbox_settings(_root(root)), probes)
    if as_json:
        click.echo(json.dumps({"found": [*map(asdict, probes)], "required": [*map(asdict, required)]}))
    else:
        rows = [
            (row.tier, row.implementation, row.level or "not here", ", ".join(row.features), "; ".join(row.missing))
            for row in probes
        ]
        print_table("This machine", ["tier", "implementation", "level", "features", "for the next level"], rows)
        rows = [
            (tier.name, tier.implementation, tier.required, "yes" if tier.is_met else "NO", tier.reason)
            for tier in required
        ]
        print_table("Required by configs/sandbox.yaml", ["tier", "implementation", "level", "met", "missing"], rows)
    if not all(tier.is_met for tier in required):
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--pattern", help="Pattern of what is replaced.")
@click.option("--rewrite", help="What it is replaced by.")
@click.option(
    "--rule", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="An ast-grep rule with a fix."
)
@click.option("--write", is_flag=True, help="Change the files; without it, the difference is shown only.")
@json_option
@click.pass_obj
def apply(
    root: Path | None,
    files: tuple[Path, ...],
    pattern: str | None,
    rewrite: str | None,
    rule: Path | None,
    write: bool,
    as_json: bool,
) -> None:
    """Apply an action to copies of FILES, in the jail, and show what it changes."""
    action = _action(pattern, rewrite, rule)
    names = _names(files)
    with _runner(root) as runner:
        workspace = runner.prepare_workspace("apply", {name: _content(path) for name, path in names.items()})
        result = runner.apply_action(workspace, action)
        changed = {name: (workspace / name).read_bytes() for name in result.changed_files}
    if write:
        for name, content in changed.items():
            names[name].write_bytes(content)
    if as_json:
        click.echo(json.dumps(_plain(result)))
    else:
        click.echo(result.diff, nl=False)
        click.echo(f"{result.verdict}{': ' + result.error if result.error else ''}", err=True)
    if result.verdict not in ("ok", "no_match"):
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("spec", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@json_option
@click.pass_obj
def test(root: Path | None, spec: Path, folder: Path, as_json: bool) -> None:
    """Run the tests that SPEC (JSON or YAML) says on a copy of FOLDER, in the jail. Fails unless they pass."""
    from graftline.core.config import parse_yaml

    tree = parse_yaml(_content(spec).decode("utf-8", "replace"), str(spec))
    if not isinstance(tree, dict):
        raise DataError(f"{spec}: expected a mapping with `kind`")
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    with _runner(root) as runner:
        files = {path.relative_to(folder).as_posix(): _content(path) for path in paths}
        result = runner.run_tests(runner.prepare_workspace("test", files), tree)
    if as_json:
        click.echo(json.dumps(_plain(result)))
    else:
        rows = [(test.name, test.outcome, test.error) for test in result.tests]
        print_table(
            f"{spec.name} in {result.isolation.implementation} ({result.isolation.level})",
            ["test", "outcome", "error"],
            rows,
        )
        click.echo(
            f"{'passed' if result.passed else 'not known' if result.passed is None else 'failed'} ({result.verdict}) {result.error}"
        )
    if not result.passed:
        raise click.exceptions.Exit(1)


def _runner(root: Path | None) -> "SandboxRunner":
    from graftline.sandbox import SandboxRunner

    return SandboxRunner.open(_root(root))


def _root(root: Path | None) -> Path:
    try:
        return paths_of(root).root
    except ConfigError:
        return Path.cwd()


def _action(pattern: str | None, rewrite: str | None, rule: Path | None) -> dict[str, Any] | str:
    if rule is not None and pattern is None and rewrite is None:
        return _content(rule).decode("utf-8", "replace")
    if rule is None and pattern is not None and rewrite is not None:
        return {"pattern": pattern, "rewrite": rewrite}
    raise click.UsageError("give --pattern and --rewrite, or --rule")


def _names(files: tuple[Path, ...]) -> dict[str, Path]:
    """Return the files by the names that they have in a workspace: their paths from the current folder, or bare ones."""
    paths: dict[str, Path] = {}
    for path in files:
        inside = path.resolve()
        name = inside.relative_to(Path.cwd()).as_posix() if inside.is_relative_to(Path.cwd()) else inside.name
        if name in paths:
            raise click.UsageError(f"two files would have the name {name!r}; name them in two calls")
        paths[name] = path
    return paths


def _content(path: Path) -> bytes:
    with path.open("rb") as stream:
        content = stream.read(_MAX_INPUT_BYTES + 1)
    if len(content) > _MAX_INPUT_BYTES:
        raise DataError(f"{path}: is larger than {_MAX_INPUT_BYTES} bytes; leave it out")
    return content


def _plain(result: Any) -> dict[str, Any]:
    names = ("stdout", "stderr", "exit_code")
    return {**asdict(result), **{name: getattr(result, name) for name in names}, "tools": dict(result.tools)}


COMMANDS = (probe, apply, test)
