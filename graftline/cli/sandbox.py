"""The commands below `graftline sandbox`: parse, load configuration, call one function, print."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graftline.cli.options import FILE, Output, Table, find_paths, json_option, output_option, print_json
from graftline.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from graftline.sandbox import SandboxRunner

_MAX_INPUT_BYTES = 1 << 20


@click.command()
@output_option
@click.pass_obj
def probe(root: Path | None) -> Output:
    """Try what isolation this machine gives. Fails if the configuration requires more."""
    from graftline.sandbox.probe import probe as probe_machine
    from graftline.sandbox.probe import tiers
    from graftline.sandbox.runner import load_sandbox_settings

    available = probe_machine()
    required = tiers(load_sandbox_settings(_find_root(root)), available)
    machine = [
        (tier.tier, tier.implementation, tier.level or "not here", ", ".join(tier.features), "; ".join(tier.missing))
        for tier in available
    ]
    needs = [
        (tier.name, tier.implementation, tier.required, "yes" if tier.is_met else "NO", tier.reason)
        for tier in required
    ]
    tables: list[Table] = [
        ("This machine", ["tier", "implementation", "level", "features", "for the next level"], machine),
        ("Required by configs/sandbox.yaml", ["tier", "implementation", "level", "met", "missing"], needs),
    ]
    value = {"found": [asdict(tier) for tier in available], "required": [asdict(tier) for tier in required]}
    return Output(value, tables, is_failure=not all(tier.is_met for tier in required))


@click.command()
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--pattern", help="Pattern of what is replaced.")
@click.option("--rewrite", help="What it is replaced by.")
@click.option("--rule", type=FILE, help="An ast-grep rule with a fix.")
@click.option("--write", is_flag=True, help="Change the files; without it, the difference is shown only.")
@json_option
@click.pass_obj
def apply(
    root: Path | None, files: tuple[Path, ...], pattern: str | None, rewrite: str | None, rule: Path | None,
    write: bool, as_json: bool,
) -> None:  # fmt: skip
    """Apply an action to copies of FILES, in the jail, and show what it changes."""
    action = _read_action(pattern, rewrite, rule)
    paths = _name_files(files)
    with _open_runner(root) as runner:
        workspace = runner.prepare_workspace("apply", {name: _read(path) for name, path in paths.items()})
        result = runner.apply_action(workspace, action)
        changed = {name: (workspace / name).read_bytes() for name in result.changed_files}
    if write:
        for name, content in changed.items():
            paths[name].write_bytes(content)
    if as_json:
        print_json(_as_dict(result))
    else:
        click.echo(result.diff, nl=False)
        click.echo(f"{result.verdict}{': ' + result.error if result.error else ''}", err=True)
    if result.verdict not in ("ok", "no_match"):
        raise click.exceptions.Exit(1)


@click.command()
@click.argument("spec", type=FILE)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@output_option
@click.pass_obj
def test(root: Path | None, spec: Path, folder: Path) -> Output:
    """Run the tests that SPEC (JSON or YAML) says on a copy of FOLDER, in the jail. Fails unless they pass."""
    from graftline.core.config import parse_yaml

    tree = parse_yaml(_read(spec).decode("utf-8", "replace"), str(spec))
    if not isinstance(tree, dict):
        raise DataError(f"{spec}: expected a mapping with `kind`")
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    with _open_runner(root) as runner:
        files = {path.relative_to(folder).as_posix(): _read(path) for path in paths}
        result = runner.run_tests(runner.prepare_workspace("test", files), tree)
    title = f"{spec.name} in {result.isolation.implementation} ({result.isolation.level})"
    rows = [(test.name, test.outcome, test.error) for test in result.tests]
    outcome = {True: "passed", False: "failed", None: "not known"}[result.passed]
    table = (title, ["test", "outcome", "error"], rows)
    text = f"{outcome} ({result.verdict}) {result.error}"
    return Output(_as_dict(result), [table], text, is_failure=not result.passed)


COMMANDS = (probe, apply, test)


def _open_runner(root: Path | None) -> "SandboxRunner":
    from graftline.sandbox import SandboxRunner

    return SandboxRunner.open(_find_root(root))


def _find_root(root: Path | None) -> Path:
    try:
        return find_paths(root).root
    except ConfigError:
        return Path.cwd()


def _read_action(pattern: str | None, rewrite: str | None, rule: Path | None) -> dict[str, Any] | str:
    if rule is not None and pattern is None and rewrite is None:
        return _read(rule).decode("utf-8", "replace")
    if rule is None and pattern is not None and rewrite is not None:
        return {"pattern": pattern, "rewrite": rewrite}
    raise click.UsageError("give --pattern and --rewrite, or --rule")


def _name_files(files: tuple[Path, ...]) -> dict[str, Path]:
    """Return the files by the names that they have in a workspace: their paths from the current folder, or bare ones."""
    paths: dict[str, Path] = {}
    for path in files:
        resolved = path.resolve()
        is_inside = resolved.is_relative_to(Path.cwd())
        name = resolved.relative_to(Path.cwd()).as_posix() if is_inside else resolved.name
        if name in paths:
            raise click.UsageError(f"two files would have the name {name!r}; name them in two calls")
        paths[name] = path
    return paths


def _read(path: Path) -> bytes:
    with path.open("rb") as stream:
        content = stream.read(_MAX_INPUT_BYTES + 1)
    if len(content) > _MAX_INPUT_BYTES:
        raise DataError(f"{path}: is larger than {_MAX_INPUT_BYTES} bytes; leave it out")
    return content


def _as_dict(result: Any) -> dict[str, Any]:
    """Return the fields of a result, and what it works out of them."""
    extra = {name: getattr(result, name) for name in ("stdout", "stderr", "exit_code")}
    return {**asdict(result), **extra, "tools": dict(result.tools)}
