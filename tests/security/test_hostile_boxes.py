"""Entrypoints that want more than their box: other results, other boxes' files, the verifier's, the machine's."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from graftline.harbor.contract import FailureCause, VerifierSettings
from graftline.harbor.executors.local import LocalExecutor
from tests.rollout_specs import CONTEXT, DOES_WHAT_IS_SAID, VERIFIER, a_local, graded, on_local, packed_context, ran

pytestmark = on_local


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalExecutor]:
    opened = a_local(tmp_path_factory.mktemp("local"))
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _the_next_rollout_is_sound(local: LocalExecutor) -> Iterator[None]:
    yield
    assert ran(local).reward == 0.5


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("os.symlink('/etc/passwd', output)", "is a symbolic link, and links are not followed"),
        ("open('r', 'w').write('{}'); os.symlink(os.getcwd() + '/r', output)", "is a symbolic link"),
        ("os.mkfifo(output)", "is a pipe"),
        ("os.makedirs(output + '/a')", ""),
    ],
    ids=["link to the machine", "link to its own", "pipe", "folder"],
)
def test_a_result_that_is_no_file_is_not_read(local: LocalExecutor, way: str, reason: str) -> None:
    end = ran(local, way)
    assert (end.reward, end.failure_cause, dict(end.result)) == (None, FailureCause.UNCLASSIFIED, {})
    assert end.error.startswith("the entrypoint's result is not there")
    assert reason in end.error


@pytest.mark.parametrize("size", [5 << 20, 1 << 29], ids=["large", "without content"])
def test_a_result_that_is_too_large_is_not_read(local: LocalExecutor, size: int) -> None:
    end = ran(local, f"open(output, 'w').truncate({size})")
    assert (end.reward, end.failure_cause) == (None, FailureCause.UNCLASSIFIED)
    assert end.error == "the entrypoint's result has 4194305 bytes; at most 4194304 are read"


def test_a_result_of_many_levels_is_not_read(local: LocalExecutor) -> None:
    end = ran(local, "say('[' * 100_000)")
    assert (end.reward, end.failure_cause) == (None, FailureCause.UNCLASSIFIED)


@pytest.mark.parametrize("link", ["/etc", "/case", "..", "/proc/self/root", "/logs"])
def test_artifacts_are_not_followed_to_elsewhere(local: LocalExecutor, link: str) -> None:
    code = f"os.symlink({link!r}, 'made'); os.symlink('/etc/passwd', 'score.txt')"
    shows = VerifierSettings(
        entrypoint="bash -c 'ls; echo 0 > /logs/verifier/reward.txt'", artifacts=("made", "score.txt")
    )
    end = graded(local, code, shows)
    assert (end.reward, end.log) == (0.0, "secret.txt\nverify.py\n")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "os.mkdir('made'); [open(f'made/{n}', 'w').close() for n in range(6000)]",
            "holds more files than may come back",
        ),
        ("os.mkdir('made'); open('made/a', 'w').truncate(80 << 20)", "is more than may come back"),
    ],
    ids=["number", "size"],
)
def test_artifacts_that_are_too_much_are_not_graded(local: LocalExecutor, code: str, message: str) -> None:
    end = graded(local, f"open('score.txt', 'w').write('1'); {code}")
    assert (end.reward, end.failure_cause) == (None, FailureCause.VERIFIER_FAILED)
    assert message in end.error


def test_artifacts_do_not_take_the_place_of_what_grades_them(local: LocalExecutor) -> None:
    code = """
open("verify.py", "w").write("open('/logs/verifier/reward.txt', 'w').write('1')")
open("score.txt", "w").write("0.125")
"""
    settings = VERIFIER.model_copy(update={"artifacts": ("score.txt", "verify.py")})
    assert graded(local, code, settings).reward == 0.125


def test_compiled_files_of_an_agent_do_not_travel(local: LocalExecutor) -> None:
    code = "os.makedirs('made/__pycache__'); open('made/__pycache__/verify.cpython-311.pyc', 'w'); open('made/a', 'w')"
    shows = VERIFIER.model_copy(update={"entrypoint": "bash -c 'ls -R made; echo 0 > /logs/verifier/reward.txt'"})
    assert graded(local, code, shows).log == "made:\na\n"


def test_processes_that_stay_do_not_change_what_comes_after_them(local: LocalExecutor) -> None:
    # each of them forks on, and writes another reward to all places it knows of, for as long as it lives
    code = """
reward(0.5)
def write():
    while True:
        for path in ("/logs/verifier/reward.txt", "score.txt", "/app/score.txt"):
            try: open(path, "w").write("1")
            except OSError: pass
        try:
            if os.fork() == 0: os.setsid()
        except OSError: pass
open("score.txt", "w").write("1")
for _ in range(4):
    if os.fork() == 0:
        os.close(0), os.close(1), os.close(2), os.setsid(), write()
"""
    verifier = VERIFIER.model_copy(
        update={
            "entrypoint": "bash -c 'sleep 0.2; ls / /logs/verifier 2>/dev/null; echo 0.25 > /logs/verifier/reward.txt'"
        }
    )
    end = graded(local, code, verifier)
    assert (end.reward, end.failure_cause) == (0.25, None)


def test_nothing_of_a_verifier_is_in_the_box_of_the_agent(local: LocalExecutor) -> None:
    code = """
found = [os.path.join(top, name) for root in ("/case", "/app", "/tmp", "/logs", "/var", "/home", "/work", "/root")
         for top, folders, files in os.walk(root) for name in files if name in ("secret.txt", "verify.py")]
print(found, os.path.exists("/case/snapshot"))
open("score.txt", "w").write("1")
"""
    end = graded(local, code)
    assert (end.reward, end.log) == (1.0, "[] False\n")


def test_the_parts_of_a_context_that_are_for_the_verifier_are_not_seen(local: LocalExecutor) -> None:
    files = {"agent/run_rollout.py": DOES_WHAT_IS_SAID, "tests/verify.py": "secret"}
    snapshot = local.build(packed_context(files)).snapshot_id
    folder = local._snapshots.path(snapshot.removeprefix("local-"))
    code = f"""
seen = []
for path in ({str(folder)!r}, {str(folder)!r} + "/tests/verify.py", "../tests/verify.py", "/proc/self/cwd/../tests"):
    try: seen.append(os.listdir(path) if os.path.isdir(path) else open(path).read())
    except OSError: pass
for number in range(3, 1024):
    try: seen.append(os.readlink(f"/proc/self/fd/{{number}}"))
    except OSError: pass
    try: seen.append(os.listdir(f"/proc/1/fd/{{number}}"))
    except OSError: pass
print(seen)
reward(0.5)
"""
    end = ran(local, code, snapshot_id=snapshot, agent_files=("agent",), verifier_files=("tests",))
    assert (end.reward, end.log) == (0.5, "[]\n")


def test_what_is_changed_is_a_copy(local: LocalExecutor) -> None:
    folder = local._snapshots.path(CONTEXT.digest)
    assert folder is not None
    code = f"""
for path in ("run_rollout", "task/words.txt", {str(folder / "run_rollout")!r}):
    try:
        os.chmod(path, 0o777); open(path, "w").write("changed")
    except OSError: pass
reward(0.5)
"""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert ran(local, code).reward == 0.5
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_nothing_of_the_machine_is_in_the_environment(local: LocalExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-machine")
    end = ran(local, "print(sorted(os.environ)); reward(0.5)")
    names = ["HOME", "LANG", "LOGS_DIR", "OPENSSL_CONF", "PATH", "PYTHONHASHSEED", "TMPDIR", "TZ"]
    assert (end.reward, end.log) == (0.5, f"{names}\n")


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"])
def test_no_socket_can_be_opened(local: LocalExecutor, family: str) -> None:
    code = f"""
import socket
try: socket.socket(socket.{family})
except PermissionError: reward(0.5)
"""
    assert ran(local, code).reward == 0.5


@pytest.mark.parametrize(
    "path", ["/etc/shadow", "/root/.ssh", "/proc/1/environ", "/sys/kernel", "/home", "/var/lib", "/dev/mem", "/run"]
)
def test_nothing_of_the_machine_can_be_read(local: LocalExecutor, path: str) -> None:
    code = f"""
try: found = os.listdir({path!r}) if os.path.isdir({path!r}) else open({path!r}, "rb").read()
except OSError: reward(0.5)
"""
    assert ran(local, code).reward == 0.5


def test_processes_of_other_boxes_are_not_seen(local: LocalExecutor) -> None:
    assert (
        ran(local, "print([n for n in os.listdir('/proc') if n.isdigit() and int(n) > 9]); reward(0.5)").log == "[]\n"
    )


def test_links_of_a_context_do_not_lead_files_out_of_the_box(tmp_path: Path) -> None:
    # without namespaces, and with links that no archive can bring
    outside = tmp_path / "outside"
    outside.mkdir()
    executor = a_local(tmp_path / "snapshots", jail="subprocess", required_level="none")
    folder = executor._snapshots.add(CONTEXT.digest, CONTEXT.archive)
    (folder / "led").symlink_to(outside)
    (folder / "file").symlink_to(outside / "file")
    files = {"led/a": "1", "file": "2"}
    end = ran(executor, "print(open('led/a').read(), open('file').read()); reward(0.5)", files=files)
    executor.close()
    assert (end.reward, end.log) == (0.5, "1 2\n")
    assert os.listdir(outside) == []  # noqa: PTH208


@pytest.mark.parametrize("value", ["0123456789", 'with "quotes" and \\', "línea larga"])
def test_secrets_do_not_come_back_in_any_form_of_a_result(local: LocalExecutor, value: str) -> None:
    code = """
key = os.environ["KEY"]
say({"reward_info": {"outcome_reward": 0.5, "details": {"a": [{key: key}]}}, key: f"x{key}x"})
print(key, file=sys.stderr); print(key)
"""
    end = ran(local, code, secrets={"KEY": value})
    assert end.reward == 0.5
    assert value not in f"{end.log}{end.error}{end.details!s}{end.result!s}"
    assert repr(value)[1:-1] not in f"{end.details!s}{end.result!s}"
