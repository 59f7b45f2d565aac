"""The image, read the way linters of Dockerfiles read it, for there may be nobody here who builds one."""

import re
import shlex
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatch

from tests.kubernetes_files import CHECKOUT, DEPLOY, OVERLAY, documents

DOCKERFILE = DEPLOY / "Dockerfile"


@dataclass(frozen=True)
class Instruction:
    """One instruction, with its lines put together."""

    name: str
    text: str
    stage: int


def instructions() -> list[Instruction]:
    lines = [line for line in DOCKERFILE.read_text("utf-8").splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()
    found, stage = [], -1
    for line in joined:
        name, _, text = line.partition(" ")
        stage += name == "FROM"
        found.append(Instruction(name, text.strip(), stage))
    return found


FOUND = instructions()
LAST = FOUND[-1].stage


def of(name: str) -> list[str]:
    return [one.text for one in FOUND if one.name == name]


def test_only_instructions_that_are_known_are_used() -> None:
    assert {one.name for one in FOUND} == {"FROM", "ENV", "WORKDIR", "RUN", "COPY", "USER", "CMD"}


def test_images_it_starts_from_are_pinned_to_a_release_that_the_library_supports() -> None:
    names = [text.split()[0] for text in of("FROM")]
    assert all(re.fullmatch(r"python:3\.1[1-3]\.\d+-slim-\w+", name) for name in names)
    assert len(set(names)) == 1


def test_the_last_stage_ends_as_a_user_by_number_who_is_not_root() -> None:
    users = [one.text for one in FOUND if one.name == "USER"]
    assert [(one.text, one.stage) for one in FOUND if one.name == "USER"] == [("10001:10001", LAST)]
    assert users == ["10001:10001"]
    assert [one.name for one in FOUND[-2:]] == ["USER", "CMD"]


def test_pods_run_as_the_user_of_the_image() -> None:
    user, group = map(int, of("USER")[0].split(":"))
    for name in ("harbor.yaml", "workers.yaml", "actors.yaml"):
        for found in documents(OVERLAY.parents[1] / "base" / name):
            if found["kind"] in ("Deployment", "StatefulSet", "Job"):
                own = found["spec"]["template"]["spec"]["securityContext"]
                assert (own["runAsUser"], own["runAsGroup"]) == (user, group)


def test_every_package_is_held_by_the_constraints_and_leaves_no_cache() -> None:
    installs = [
        shlex.split(part) for text in of("RUN") for part in re.split(r"&&", text) if re.search(r"\bpip install\b", part)
    ]
    assert len(installs) == 2
    for words in installs:
        assert words[words.index("--constraint") + 1] == "constraints.txt"
    assert "PIP_NO_CACHE_DIR=1" in " ".join(of("ENV"))
    assert not [text for text in of("RUN") if "apt-get" in text or "curl" in text or "wget" in text]


NOT_FOR_A_CLUSTER = {
    "daytona": "boxes are in pods, which reach nothing but their database",
    "dev": "the tools of a checkout",
    "mcp": "coding agents start it where the code is that they change",
    "ui": "pictures are taken where there is a browser",
    "vllm": "servers of models have an image of their own",
}


def test_every_extra_is_installed_but_those_that_are_of_no_use_there() -> None:
    [extras] = re.findall(r"\.\[([\w,]+)\]", " ".join(of("RUN")))
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    installed, waiting = set[str](), extras.split(",")
    while waiting:
        name = waiting.pop()
        installed.add(name)
        brought = [found for need in project[name] for found in re.findall(r"^graftline\[([\w,]+)\]$", need)]
        waiting += ",".join(brought).split(",") if brought else []
    assert project.keys() - installed == NOT_FOR_A_CLUSTER.keys()


def test_every_extra_that_a_door_asks_for_exists() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    sources = [path for part in ("graftline", "orchestration", "assets") for path in (CHECKOUT / part).rglob("*.py")]
    asked = {extra for path in sources for extra in re.findall(r"install_command\([\"'](\w+)", path.read_text("utf-8"))}
    assert "optimization" in asked
    assert asked <= project.keys()


def test_torch_is_of_the_version_that_is_tested() -> None:
    [installed] = re.findall(r"torch==(\S+)", " ".join(of("RUN")))
    assert f"torch=={installed}" in (CHECKOUT / "constraints.txt").read_text("utf-8").splitlines()


def test_there_is_no_secret_in_it_and_no_address_packages_come_from() -> None:
    text = DOCKERFILE.read_text("utf-8")
    assert re.findall(r"https?://\S+", text) == []
    assert not re.search(r"(?i)(password|token|secret|api_?key)\s*=", text)
    assert "ARG" not in {one.name for one in FOUND}
    # where they come from is mounted while it is needed, and in no layer
    assert of("RUN")[1].startswith("--mount=type=secret,")


def test_everything_that_is_copied_exists_and_is_let_into_the_build() -> None:
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    let_in = [line[1:] for line in ignored if line.startswith("!")]
    assert ignored[1] == "*"
    copied = [
        source
        for one in FOUND
        if one.name == "COPY" and not one.text.startswith("--from=")
        for source in one.text.split()[:-1]
    ]
    assert [source for source in copied if not (CHECKOUT / source).exists()] == []
    assert [
        source for source in copied if not any(source == name or fnmatch(source, f"{name}/*") for name in let_in)
    ] == []
    assert ".env" in ignored


def test_folders_that_are_written_to_are_those_that_pods_mount() -> None:
    made = re.findall(r"/opt/graftline/(\S+)", " ".join(text for text in of("RUN") if text.startswith("install ")))
    [worker] = [one for one in documents(OVERLAY.parents[1] / "base" / "workers.yaml") if one["kind"] == "Deployment"]
    [container] = worker["spec"]["template"]["spec"]["containers"]
    mounted = [mount["mountPath"].removeprefix("/opt/graftline/") for mount in container["volumeMounts"]]
    folders = {name for name in mounted if not name.startswith(("/", "configs"))}
    assert folders <= set(made)
