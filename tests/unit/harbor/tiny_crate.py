"""A crate of one card, as texts: what EngineBench is made of, without its engine."""

from pathlib import Path

CRATE = {
    "Cargo.toml": '[package]\nname = "tiny"\nversion = "0.1.0"\nedition = "2021"\n\n[workspace]\n',
    "src/lib.rs": "pub mod cards;\n",
    "src/cards/mod.rs": "",
}
STUB = "pub const DAMAGE: u32 = 30;\npub fn damage(delta: u32) -> u32 {\n    let _ = delta;\n    0\n}\n"
# without the constant: reference solutions leave out what the stub has already
GOLD = "pub fn damage(delta: u32) -> u32 {\n    30 + 10 * delta\n}\n"
HALF = "pub const DAMAGE: u32 = 30;\npub fn damage(_: u32) -> u32 {\n    DAMAGE\n}\n"
BROKEN = "pub fn damage(delta: u32) -> u32 {\n    delta +\n}\n"
LACKING = "pub fn strength(delta: u32) -> u32 {\n    delta\n}\n"
TESTS = """\
#[cfg(test)]
mod eval_tests {
    use super::*;

    #[test]
    fn without_delta() {
        assert_eq!(damage(0), DAMAGE);
    }

    #[test]
    fn with_delta() {
        assert_eq!(damage(2), 50);
    }
}
"""
TASK_TOML = """\
version = "1.0"

[metadata]
set = "DF"
difficulty = "easy"

[agent]
timeout_sec = 600

[verifier]
timeout_sec = 300

[environment]
cpus = 2
memory_mb = 8192
storage_mb = 10240
"""


def write_card(folder: Path, name: str = "df-001-fox") -> Path:
    """Write the task of the card to a folder in `folder`."""
    module = name.replace("-", "_")
    return write(
        folder / name,
        {
            "task.toml": TASK_TOML,
            "instruction.md": f"Edit the file `/app/src/cards/{module}.rs`.\n",
            "environment/Dockerfile": "FROM rust:1.82-bookworm\n",
            f"environment/stubs/{module}.rs": STUB,
            f"tests/{module}_eval.rs": TESTS,
            "tests/test.sh": "#!/bin/sh\nexit 1\n",
            f"solution/{module}.rs": GOLD,
        },
    )


def write_crate(folder: Path) -> Path:
    """Write the crate to `folder`."""
    return write(folder, CRATE)


def write(folder: Path, texts: dict[str, str]) -> Path:
    """Write texts below `folder`."""
    for path, text in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    return folder
