"""Configuration files into models: what is accepted, and what the message says of everything else."""

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from graftline.core.config import MAX_BYTES, Config, load_yaml, read_tree
from graftline.core.errors import ConfigError


class Near(Config):
    kind: Literal["near"] = "near"
    metres: int = 1


class Far(Config):
    kind: Literal["far"] = "far"
    miles: float = 1.0
    name: str = ""


class Inner(Config):
    depth: int = 0
    names: tuple[str, ...] = ()


class Outer(Config):
    count: int = 0
    share: float = 0.0
    name: str = ""
    is_on: bool = False
    level: Literal["low", "high"] = "low"
    inner: Inner = Inner()
    many: tuple[Inner, ...] = ()
    by_name: dict[str, Inner] = Field(default_factory=dict)
    place: Annotated[Near | Far, Field(discriminator="kind")] = Near()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.yaml"


def loaded(path: Path, text: str, overrides: dict[str, Any] | None = None) -> Outer:
    path.write_text(text, "utf-8")
    return load_yaml(path, Outer, overrides)


def refusal(path: Path, text: str) -> str:
    """Return the message without the path, which has to stand before every line."""
    with pytest.raises(ConfigError) as raised:
        loaded(path, text)
    lines = str(raised.value).splitlines()
    assert [line for line in lines if not line.startswith(f"{path}: ")] == []
    return "\n".join(line.removeprefix(f"{path}: ") for line in lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", Outer()),
        ("count: 3", Outer(count=3)),
        ("share: 3", Outer(share=3.0)),
        ("share: 1e-3", Outer(share=0.001)),
        ("is_on: true", Outer(is_on=True)),
        # in YAML 1.1 these are False, True, 8 and 5400
        ("name: no", Outer(name="no")),
        ("name: On", Outer(name="On")),
        ("count: 010", Outer(count=10)),
        ("name: 1:30:00", Outer(name="1:30:00")),
        ("name: '2026-01-02'", Outer(name="2026-01-02")),
        ("level: high", Outer(level="high")),
        ("inner: {names: [a, b]}", Outer(inner=Inner(names=("a", "b")))),
        ("many:\n- depth: 1\n- {}\n", Outer(many=(Inner(depth=1), Inner()))),
        ("by_name:\n  x: {depth: 2}\n", Outer(by_name={"x": Inner(depth=2)})),
        ("place: {kind: far, miles: 2}", Outer(place=Far(miles=2.0))),
        ('{"count": 1, "inner": {"depth": 2}}', Outer(count=1, inner=Inner(depth=2))),
        ("name: 'é \U0001f600'", Outer(name="é \U0001f600")),
        ("\ufeffcount: 3", Outer(count=3)),
        ("count: 3\r\nname: a\r\n", Outer(count=3, name="a")),
    ],
)
def test_a_file_that_fits_is_read(path: Path, text: str, expected: Outer) -> None:
    path.write_bytes(text.encode())
    assert load_yaml(path, Outer) == expected


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("count: '3'", "count: input should be a valid integer (got '3')"),
        ("count: true", "count: input should be a valid integer (got True)"),
        ("name: 3", "name: input should be a valid string (got 3)"),
        ("name:", "name: input should be a valid string (got None)"),
        ("share: '1'", "share: input should be a valid number (got '1')"),
        ("is_on: yes", "is_on: input should be a valid boolean (got 'yes')"),
        ("level: middle", "level: input should be 'low' or 'high' (got 'middle')"),
        ("inner: {depth: a}", "inner.depth: input should be a valid integer (got 'a')"),
        ("inner: [1]", "inner: input should be an object (got [1])"),
        ("[1]", "(whole file): input should be an object (got [1])"),
        ("", "(whole file): input should be an object (got None)"),
    ],
)
def test_values_are_not_converted(path: Path, text: str, fault: str) -> None:
    assert refusal(path, text) == fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (
            "cuont: 3",
            "cuont: unknown key; known here: by_name, count, inner, is_on, level, many, name, place, share",
        ),
        ("inner: {detph: 1}", "inner.detph: unknown key; known here: depth, names"),
        ("1: 2", "1: unknown key; known here: by_name, count, inner, is_on, level, many, name, place, share"),
    ],
)
def test_an_unknown_key_is_named_with_the_known_ones(path: Path, text: str, fault: str) -> None:
    assert refusal(path, text) == fault


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("place: {kind: near, miles: 1}", "place.near.miles: unknown key; known here: kind, metres"),
        ("place: {kind: far, metres: 1}", "place.far.metres: unknown key; known here: kind, miles, name"),
        (
            "place: {kind: there}",
            "place: input tag 'there' found using 'kind' does not match any of the expected tags: 'near', 'far'"
            " (got {'kind': 'there'})",
        ),
        (
            "place: {metres: 1}",
            "place: unable to extract tag using discriminator 'kind' (got {'metres': 1})",
        ),
    ],
)
def test_a_union_is_judged_by_the_member_its_kind_names(path: Path, text: str, fault: str) -> None:
    assert refusal(path, text) == fault


def test_every_fault_of_a_file_is_in_one_message(path: Path) -> None:
    assert refusal(path, "count: a\nnmae: b\ninner: {depth: c}\nplace: {kind: far, miles: d}\n").splitlines() == [
        "count: input should be a valid integer (got 'a')",
        "inner.depth: input should be a valid integer (got 'c')",
        "place.far.miles: input should be a valid number (got 'd')",
        "nmae: unknown key; known here: by_name, count, inner, is_on, level, many, name, place, share",
    ]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("count: 1\ncount: 2\n", 'line 2, column 1: not valid YAML: found duplicate key "count" with value "2"'),
        ("count: 1\n\nname: [a\n", "line 4, column 1: not valid YAML: expected ',' or ']'"),
        ("count: 1\nname: 'a\n", "line 3, column 1: not valid YAML: found unexpected end of stream"),
        ("count: 1\n\tname: a\n", "line 2, column 1: not valid YAML: found character '\\t'"),
        ("count: 1\n---\ncount: 2\n", "line 2, column 1: not valid YAML: but found another document"),
        ("name: !!python/name:os.system a", "uses a YAML tag (tag:yaml.org,2002:python/name:os.system)"),
        ("name: !secret a", "uses a YAML tag (!secret); write the value without it"),
        ("[{a: b}]: c", "not valid YAML: unhashable type: 'dict'"),
        ("name: a\0b", "not valid YAML: unacceptable character #x0000"),
        ("inner: &a {depth: 1}\nmany: [*a, *a]\n", "uses a YAML anchor or alias (&name, *name); write the value out"),
        ("name: *nowhere", "uses a YAML anchor or alias (&name, *name); write the value out"),
        ("%YAML 1.1\n---\nname: a", "asks for another version of YAML than 1.2; take the %YAML line out"),
        ("count: " + "9" * 5000, "not valid YAML: Exceeds the limit"),
    ],
)
def test_what_is_not_one_plain_yaml_document_is_refused_at_its_place(path: Path, text: str, fault: str) -> None:
    message = refusal(path, text)
    assert (message[: len(fault)], "\n" in message) == (fault, False)


def test_a_file_that_is_nested_without_end_is_refused(path: Path) -> None:
    assert refusal(path, "[" * 100_000) == "is nested deeper than 64 levels"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name: 2026-01-02", "Object of type date is not JSON serializable"),
        ("name: 2026-01-02T03:04:05Z", "Object of type datetime is not JSON serializable"),
        ("share: .nan", "Out of range float values are not JSON compliant"),
        ("share: -.inf", "Out of range float values are not JSON compliant"),
    ],
)
def test_a_value_json_cannot_say_is_to_be_quoted(path: Path, text: str, reason: str) -> None:
    message = refusal(path, text)
    # newer interpreters add the value to the reason
    assert message.startswith(f"a value is neither text, number, list nor mapping ({reason}")
    assert message.endswith("); quote it")


def test_a_file_that_is_not_utf8_is_refused_at_its_byte(path: Path) -> None:
    path.write_bytes(b"name: caf\xe9\n")
    with pytest.raises(ConfigError) as raised:
        load_yaml(path, Outer)
    assert str(raised.value) == f"{path}: byte 9 is not UTF-8; save the file as UTF-8"


@pytest.mark.parametrize(("name", "reason"), [("a.yaml", "No such file or directory"), (".", "Is a directory")])
def test_what_is_no_file_is_named(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_yaml(tmp_path / name, Outer)
    assert str(raised.value) == f"{tmp_path / name}: cannot be read ({reason}); expected a YAML file"


def test_nobody_is_given_what_another_one_changed(path: Path) -> None:
    path.write_text("a: {b: [1]}\n", "utf-8")
    read_tree(path, {"a.c": 2})["a"]["b"].append(3)
    assert read_tree(path) == {"a": {"b": [1]}}


def test_a_file_that_is_too_large_is_refused(path: Path) -> None:
    assert refusal(path, "#" * (MAX_BYTES + 1)) == "is larger than 1048576 bytes; expected a hand-written file"


@pytest.mark.parametrize(
    ("text", "overrides", "expected"),
    [
        ("count: 1", {"count": 2}, Outer(count=2)),
        ("inner: {depth: 1, names: [a]}", {"inner.depth": 2}, Outer(inner=Inner(depth=2, names=("a",)))),
        ("{}", {"by_name.x.depth": 2}, Outer(by_name={"x": Inner(depth=2)})),
        ("inner: {depth: 1, names: [a]}", {"inner": {"depth": 2}}, Outer(inner=Inner(depth=2))),
        ("place: {kind: near, metres: 2}", {"place": {"kind": "far"}}, Outer(place=Far())),
        ("{}", {"inner": {"names": ["a"]}, "inner.depth": 2}, Outer(inner=Inner(depth=2, names=("a",)))),
    ],
)
def test_an_override_replaces_the_value_at_its_dotted_key(
    path: Path, text: str, overrides: dict[str, Any], expected: Outer
) -> None:
    assert loaded(path, text, overrides) == expected


@pytest.mark.parametrize(
    ("text", "key", "fault"),
    [
        ("name: a", "name.first", "name.first: cannot be set, 'name' is not a mapping"),
        ("many: [{}]", "many.0", "many.0: cannot be set, 'many' is not a mapping"),
        ("[1]", "inner.depth", "inner.depth: cannot be set, the file is not a mapping"),
    ],
)
def test_an_override_needs_mappings_on_its_way(path: Path, text: str, key: str, fault: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(path, text, {key: 1})
    assert str(raised.value) == f"--set {fault}"


@pytest.mark.parametrize(
    ("overrides", "fault"),
    [
        ({"count": "a"}, "--set count: input should be a valid integer (got 'a')"),
        ({"inner.deep": 1}, "--set inner.deep: unknown key; known here: depth, names"),
        # the first part of what was typed is no key; a union's `kind` is none that anybody typed
        ({"place.yards.whole": 1}, "--set place.yards: unknown key; known here: kind, metres"),
        ({"place": {"kind": "off"}}, "--set place: input tag 'off' found using 'kind' does not match any"),
        # what the file says wrong is the fault of the file
        ({"inner.depth": 1}, "{path}: share: input should be a valid number (got 'b')"),
    ],
)
def test_a_fault_of_an_override_names_the_option(path: Path, overrides: dict[str, Any], fault: str) -> None:
    text = "place: {kind: near}\n" + ("share: b\n" if "{path}" in fault else "")
    with pytest.raises(ConfigError) as raised:
        loaded(path, text, overrides)
    [line] = str(raised.value).splitlines()
    assert line.startswith(fault.format(path=path))
