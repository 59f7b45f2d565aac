"""The image of a machine with a GPU: the extra `vllm` and nothing else of ours, a user without rights, no secrets."""

import re

from tests.kubernetes_files import DEPLOY

TEXT = (DEPLOY / "gpu.Dockerfile").read_text("utf-8")


def test_it_installs_the_extra_of_servers_and_no_other() -> None:
    assert re.findall(r"\[([\w,]+)\]", TEXT) == ["vllm"]


def test_what_it_copies_is_let_through_to_it() -> None:
    ignored = (DEPLOY / "gpu.Dockerfile.dockerignore").read_text("utf-8").splitlines()
    copied = {name for line in re.findall(r"^COPY (.+)$", TEXT, re.M) for name in line.split()[:-1]}
    assert {f"!{name}" for name in copied} == {line for line in ignored if line.startswith("!")}
    assert {"*", ".env", "**/.env"} <= {*ignored}


def test_it_runs_as_the_user_of_the_pods_and_tells_no_address_of_packages() -> None:
    assert re.findall(r"^USER (.+)$", TEXT, re.M) == ["10001:10001"]
    assert re.findall(r"https?://\S+", TEXT) == []
    assert re.findall(r"^FROM (\S+)$", TEXT, re.M) == ["python:3.12.12-slim-bookworm"]
