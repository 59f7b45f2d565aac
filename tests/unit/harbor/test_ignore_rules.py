"""Which files of a context are packed."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from graftline.core.errors import ConfigError
from graftline.harbor.ignore_rules import DEFAULT_EXCLUDES, DEFAULT_INCLUDES, IgnoreRules


def rules(
    folder: Path,
    docker: str = "",
    harbor: str = "",
    exclude: Sequence[str] = DEFAULT_EXCLUDES,
    include: Sequence[str] = DEFAULT_INCLUDES,
) -> IgnoreRules:
    (folder / ".dockerignore").write_text(docker)
    (folder / ".harborignore").write_text(harbor)
    return IgnoreRules(folder, include, exclude)


def packs(known: IgnoreRules, path: str) -> bool:
    """Return whether a file is packed, as a walk from the top finds it."""
    parts = path.split("/")
    folders = ["/".join(parts[:length]) for length in range(1, len(parts))]
    return all(map(known.enters, folders)) and known.packs(path)


@pytest.mark.parametrize(
    "path",
    [
        ".env", "a/.env", "a/.env.prod", "a/b/.ENV", "svc/node_modules/x/index.js", "sub/.venv/bin/python", "venv/a",
        "sub/.git/config", ".git", "id_rsa", "a/id_rsa.pub", "a/id_ed25519", ".aws/credentials", "a/.ssh/known_hosts",
        "a/server.pem", "a/Server.KEY", ".netrc", "a/.npmrc", ".pypirc", "a/.docker/config.json", "kubeconfig",
        ".kube/config", "target/debug/app", "a/target/release/app", "a/__pycache__/b.pyc", "a/b.pyc",
        "a.egg-info/PKG-INFO", ".pytest_cache/v", ".mypy_cache/v", "a/.ruff_cache/v",
    ],
)  # fmt: skip
def test_secrets_repositories_and_what_programs_make_are_left_out_at_any_depth(tmp_path: Path, path: str) -> None:
    assert not packs(rules(tmp_path), path)


@pytest.mark.parametrize(
    "path",
    ["Dockerfile", "run_rollout.py", "a/b/c.rs", "environment", "a/.envoy", "target/notes.md", "a/debug/x", ".gitignore",
     "monkey", ".docker/daemon.json", "keys/list.txt", ".dockerignore", "a b/ü.txt"],
)  # fmt: skip
def test_all_else_is_packed(tmp_path: Path, path: str) -> None:
    assert packs(rules(tmp_path), path)


@pytest.mark.parametrize("path", [".env", "a/.env", ".git/config", "a/id_rsa", ".aws/credentials", "a/x.pem"])
def test_no_rule_takes_back_what_is_denied(tmp_path: Path, path: str) -> None:
    back = "!.env\n!**/.env\n!.git\n!**\n!*\n"
    known = rules(tmp_path, back, back, exclude=["!*", "!.env"], include=["*", ".env", "**/*"])
    assert not packs(known, path)


@pytest.mark.parametrize(
    ("patterns", "kept", "left_out"),
    [
        ("logs", ["logs2/a", "a/log"], ["logs/a", "a/logs/b", "a/logs"]),
        ("/logs", ["a/logs/b"], ["logs/a"]),
        ("logs/", ["a/logs"], ["logs/a", "a/logs/b"]),
        ("a/logs", ["b/a/logs"], ["a/logs/b"]),
        ("*.log", ["a.txt"], ["a.log", "a/b.log"]),
        ("*.log\n!keep.log", ["a/keep.log"], ["a.log"]),
        # a file of a folder that is left out cannot be taken back
        ("logs/\n!logs/keep.log", [], ["logs/keep.log"]),
        ("# a comment\n\n\\#a", ["a"], ["#a"]),
        ("a/**/b", ["b"], ["a/b", "a/x/y/b"]),
    ],
)
def test_harborignore_and_globs_are_read_as_git_reads_them(
    tmp_path: Path, patterns: str, kept: list[str], left_out: list[str]
) -> None:
    for known in (rules(tmp_path, harbor=patterns), rules(tmp_path, exclude=patterns.split("\n"))):
        assert [path for path in (*kept, *left_out) if packs(known, path)] == kept


@pytest.mark.parametrize(
    ("patterns", "kept", "left_out"),
    [
        # a pattern begins at the top
        ("logs", ["a/logs"], ["logs", "logs/a"]),
        ("/logs", ["a/logs"], ["logs/a"]),
        ("./logs/", ["a/logs"], ["logs", "logs/a"]),
        ("*.log", ["a/b.log"], ["a.log"]),
        ("**/*.log", ["a.txt"], ["a.log", "a/b.log", "a/b/c.log"]),
        ("*/temp*", ["temporary", "a/b/temp"], ["a/temporary.txt", "a/temp"]),
        ("temp?", ["temp", "temp/a"], ["tempa", "tempb"]),
        ("a/../b", ["a/b"], ["b"]),
        ("[a-c]x", ["dx", "a/x"], ["ax", "cx"]),
        ("[^a]x", ["ax"], ["bx"]),
        ("a**b", ["ac"], ["ab", "ax/b"]),
        ("a/**", ["a", "b"], ["a/b", "a/b/c"]),
        ("**/**/x", ["y"], ["x", "a/x", "a/b/x"]),
        ("a.b\na+b", ["acb", "aab"], ["a.b", "a+b"]),
        ("\\!a", ["a"], ["!a"]),
        # the last one that fits counts
        ("*.md\n!README.md", ["README.md"], ["a.md"]),
        ("*.md\n!README*.md\nREADME-secret.md", ["README.md"], ["README-secret.md"]),
        ("!README.md\n*.md", [], ["README.md"]),
        # a file of a folder that is left out is taken back
        ("logs\n!logs/keep.log", ["logs/keep.log"], ["logs/a.log"]),
        ("*\n!src/**/*.py", ["src/a.py", "src/b/c.py"], ["a.py", "src/a.txt"]),
        ("# logs\n \n!\n  a  ", ["logs"], ["a"]),
        ("\ufefflogs", [], ["logs"]),
    ],
)
def test_dockerignore_is_read_as_docker_reads_it(
    tmp_path: Path, patterns: str, kept: list[str], left_out: list[str]
) -> None:
    known = rules(tmp_path, docker=patterns)
    assert [path for path in (*kept, *left_out) if packs(known, path)] == kept


def test_only_what_is_included_is_packed(tmp_path: Path) -> None:
    known = rules(tmp_path, include=["*.py", "/data/", "Dockerfile"])
    paths = ["a.py", "a/b.py", "Dockerfile", "a/Dockerfile", "data/x/y.json", "a/data/y.json", "README.md"]
    assert [path for path in paths if packs(known, path)] == paths[:5]


def test_excludes_of_a_spec_take_the_place_of_the_default_ones(tmp_path: Path) -> None:
    known = rules(tmp_path, exclude=["data/"])
    paths = ["venv/a", "a/node_modules/b", "data/a", ".env"]
    assert [path for path in paths if packs(known, path)] == paths[:2]


def test_what_one_set_of_rules_leaves_out_no_other_takes_back(tmp_path: Path) -> None:
    known = rules(tmp_path, docker="a", harbor="b\n!a\n!c", exclude=["c"])
    assert [packs(known, path) for path in ("a", "b", "c", "d")] == [False, False, False, True]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"[a", "is no pattern (a [ is not closed); mend it"),
        (b"\xff\xfe", "is not UTF-8; expected lines of patterns"),
        (b"a" * 1025, "has more than 2000 patterns, or one of more than 1024 characters; write fewer or shorter ones"),
        (
            b"a\n" * 2001,
            "has more than 2000 patterns, or one of more than 1024 characters; write fewer or shorter ones",
        ),
        (b"#" * ((1 << 20) + 1), "has more than 1048576 bytes; expected lines of patterns"),
    ],
    ids=["pattern", "utf-8", "long", "many", "large"],
)
def test_an_ignore_file_that_cannot_be_read_is_told_by_its_name(tmp_path: Path, content: bytes, fault: str) -> None:
    (tmp_path / ".dockerignore").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        IgnoreRules(tmp_path, DEFAULT_INCLUDES, DEFAULT_EXCLUDES)
    assert str(caught.value).startswith(f"{tmp_path}/.dockerignore: ")
    assert str(caught.value).endswith(fault)


def test_a_glob_that_git_does_not_take_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"exclude_globs: holds a pattern that git does not take"):
        rules(tmp_path, exclude=["!"])
