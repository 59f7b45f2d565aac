"""The way of one Harbor task through its boxes, as the format says it, on any executor that gives a `Box`.

The image is the task's own, untouched. The instruction, `/solution` and `/tests` come from outside, each when its time has come:
an agent never sees the tests. With `shared` verification, the format's default, the tests run in the agent's box, with all that
still runs there; with `separate`, in a box of their own, to which the artifacts alone travel. Scripts are run by their first line.

What a box cannot give is found before anything runs, and the rollout says all of it (`find_lacks`). A script that failed for want of
something of the machine has no reward, whatever it wrote.
"""

import fnmatch
import io
import math
import re
import shlex
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Literal, Protocol

from graftline.core.errors import DataError, HarborError
from graftline.core.secrets import Secrets
from graftline.harbor.contract import FailureCause, HarborLimits, SuccessStatus
from graftline.harbor.executors.archives import MAX_ARTIFACT_BYTES, MAX_ARTIFACTS
from graftline.harbor.executors.base import LOG_BYTES, Execution, RolloutSpec
from graftline.harbor.executors.containers import VERIFIER_FOLDER, redact
from graftline.harbor.in_box.agents import AGENTS, API_KEYS, BUDGET_EXHAUSTED, IDLE, command_of, find_refusal
from graftline.harbor.in_box.needs import find_missing
from graftline.harbor.in_box.run_rollout import Request, read_request
from graftline.harbor.results import MAX_REWARD_BYTES, failure, read_reward
from graftline.harbor.task_format.importing import limits_of
from graftline.harbor.task_format.task_folder import HarborTask, TaskFile, scripts_of
from graftline.harbor.task_format.task_toml import Healthcheck
from graftline.sandbox.containers import CommandEnd

Role = Literal["agent", "verifier"]
_LOGS = ("agent", "verifier", "artifacts")
_REWARDS = (f"{VERIFIER_FOLDER}/reward.json", f"{VERIFIER_FOLDER}/reward.txt")
_TAIL = 4000
_SETTING_UP_S = 60.0
_ROOT = "0"
_VARIABLE = re.compile(r"\$\{(\w+)(:-([^}]*))?\}")
_STARTED = "/logs/agent/.started"


class Box(Protocol):
    """A container of a task's image in which commands are run, one after the other; what they leave running goes on.

    Whatever of it fails raises HarborError. The check whether the rollout is still wanted is the executor's: what it
    raises ends the box.
    """

    @property
    def limits_enforced(self) -> Mapping[str, Any]:
        """What it holds its processes to, as achieved."""

    @property
    def workdir(self) -> str:
        """The working folder that the image names."""

    def run(
        self, words: Sequence[str], env: Mapping[str, str], folder: str, user: str, timeout_s: float, output: str = ""
    ) -> CommandEnd:
        """Run words with variables over those of the image; what they print goes to the file `output` of the box."""

    def put(self, folder: str, archive: bytes) -> None:
        """Unpack a tar into a folder, which is made where it is not there."""

    def get(self, path: str, limit: int) -> bytes:
        """Return a tar of the regular files at or below a path, named relative to it; empty where there is nothing.

        Raises:
            DataError: they are more than `limit` bytes.
        """

    def set_network(self, is_public: bool) -> None:
        """Have the commands that follow reach others, or not."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What boxes of an executor can give."""

    has_network: bool
    """Whether the operator lets boxes out."""
    switches_network: bool
    """Whether commands of one box can be let out, and others not."""
    variables: frozenset[str] = frozenset()
    """Names of the secrets of the operator that a task may ask for."""


class CancelledError(Exception):
    """A rollout that nobody wants any more."""


OpenBox = Callable[[Role, HarborTask, bool], AbstractContextManager[Box]]
"""Makes the box of a role, on a public network or not, and removes it in the end."""


def find_lacks(task: HarborTask, abilities: Abilities, agent: str) -> list[str]:
    """Return all that `task` asks for and boxes cannot give, for `agent` to act and the result to be judged."""
    toml, environment = task.toml, task.toml.environment
    lacks: list[str] = []
    modes = {"environment": environment.network_mode, "agent": toml.agent.network_mode}
    for name, mode in {**modes, "verifier": toml.verifier.network_mode}.items():
        if mode == "allowlist":
            lacks.append(f"{name}.network_mode = allowlist: boxes have the network or none")
    if environment.gpus or environment.tpu:
        lacks.append("environment.gpus: boxes have none")
    acts = agent not in IDLE
    if acts and environment.mcp_servers:
        lacks.append("environment.mcp_servers: no agent here is told of them")
    if acts and environment.skills_dir:
        lacks.append("environment.skills_dir: no agent here is told of it")
    if agent == "oracle" and "solution/solve.sh" not in task.files:
        lacks.append("solution/solve.sh: the task has no reference solution")
    if (
        not toml.is_separate
        and not abilities.switches_network
        and is_public(task, "agent") != is_public(task, "verifier")
    ):
        lacks.append("agent and verifier of one box have different networks, which this executor cannot give")
    if not abilities.has_network:
        parts = {"tests": True, "solution": agent == "oracle"}
        for part in (part for part, is_run in parts.items() if is_run):
            if place := task.find_fetch(part):
                lacks.append(f"needs network: {place}, and the operator lets no box out")
    needed = {"environment.env": environment.env, "verifier.env": toml.verifier.env}
    needed |= {"solution.env": toml.solution.env} if agent == "oracle" else {}
    for name, variables in needed.items():
        missing = sorted(set(_find_unresolved(variables)) - abilities.variables)
        lacks += [f"{name}: {variable} is for the operator to pass on, and is not" for variable in missing]
    return lacks


def is_public(task: HarborTask, role: Role) -> bool:
    """Return whether a task lets a role reach others: by its own section, else by that of its box."""
    toml = task.toml
    own = toml.agent if role == "agent" else toml.verifier
    box = toml.verifier.environment if role == "verifier" and toml.verifier.environment else toml.environment
    return (own.network_mode or box.network_mode) == "public"


def is_public_ever(task: HarborTask) -> bool:
    """Return whether a task lets any of its roles reach others."""
    return is_public(task, "agent") or is_public(task, "verifier")


def limits_of_box(task: HarborTask, limits: HarborLimits) -> HarborLimits:
    """Return what a box of a task may use: what the task asks for, and `limits` where it does not say."""
    environment = task.toml.environment
    own = {
        "cpu_cores": math.ceil(environment.cpus) if environment.cpus else None,
        "memory_mb": environment.memory_mb,
        "disk_mb": environment.storage_mb,
    }
    return limits.model_copy(update={name: value for name, value in own.items() if value is not None})


def run_trial(
    rollout: RolloutSpec, task: HarborTask, abilities: Abilities, open_box: OpenBox, reward_key: str = "reward"
) -> Execution:
    """Run one rollout of a task to its end.

    Raises:
        HarborError: its first box could not be made; nothing was run.
        DataError: its image cannot be made, or it asks for more than a box may have.
    """
    # whoever has written the context may have imported nothing
    limits_of(task)
    secrets = Secrets([], rollout.secrets.values())
    try:
        request = _read(rollout)
    except ValueError as error:
        return replace(failure(FailureCause.UNCLASSIFIED, str(error)), success_status=SuccessStatus.APPLY_FAILED)
    if lacks := find_lacks(task, abilities, request.agent):
        # before an agent is paid for what nobody can grade
        lack = f"nothing can be graded: {'; '.join(lacks)}"
        return replace(failure(FailureCause.VERIFIER_FAILED, lack), success_status=SuccessStatus.APPLY_FAILED)
    trial = _Trial(rollout, task, request, abilities, open_box, reward_key)
    try:
        execution = trial.run()
    except HarborError as error:
        fault = HarborError(secrets.redact(str(error)))
        fault.status = error.status
        raise fault from None
    return replace(
        execution,
        error=secrets.redact(execution.error),
        details=redact(dict(execution.details), secrets),
        result=redact(dict(execution.result), secrets),
        log=secrets.redact("\n".join(trial.logs))[-LOG_BYTES:],
    )


def _read(rollout: RolloutSpec) -> Request:
    params = rollout.request.get("params") or {}
    policy = (rollout.request.get("policy") or {}).get("config") or {}
    agent = policy.get("agent") or policy.get("agent_type") or params.get("agent") or params.get("agent_type")
    return read_request(rollout.request, {"agent": agent or "nop"})


@dataclass(slots=True)
class _Trial:
    """One run of a task."""

    rollout: RolloutSpec
    task: HarborTask
    request: Request
    abilities: Abilities
    open_box: OpenBox
    reward_key: str
    logs: list[str] = field(default_factory=list)
    doubt: str = ""
    """Why the reference solution may have failed, though the box has a network: a host that it asks was not reached."""

    def run(self) -> Execution:
        toml = self.task.toml
        with self.open_box("agent", self.task, self._is_out("agent")) as box:
            enforced = box.limits_enforced
            try:
                acted = self._act(box)
                if acted.failure_cause not in (None, FailureCause.AGENT_EXHAUSTED_BUDGET):
                    return replace(acted, limits_enforced=enforced)
                if not toml.is_separate:
                    verdict = self._verify(box)
                    return replace(_join(acted, verdict), limits_enforced=enforced)
                artifacts = self._collect(box)
            except DataError as error:
                return replace(failure(FailureCause.UNCLASSIFIED, str(error)), limits_enforced=enforced)
            except HarborError as error:
                return replace(failure(FailureCause.SANDBOX_FAILED, str(error)), limits_enforced=enforced)
        try:
            with self.open_box("verifier", self.task, self._is_out("verifier")) as box:
                self._set_up(box)
                for folder, archive in artifacts:
                    box.put(folder, archive)
                return replace(_join(acted, self._verify(box)), limits_enforced=enforced)
        except (HarborError, DataError) as error:
            outcome = failure(FailureCause.SANDBOX_FAILED, f"the verifier's box: {error}")
            return replace(outcome, agent_s=acted.agent_s, limits_enforced=enforced)

    def _is_out(self, role: Role) -> bool:
        return is_public(self.task, role) and self.abilities.has_network

    def _folder(self, box: Box) -> str:
        return self.task.toml.environment.workdir or box.workdir

    def _set_up(self, box: Box) -> None:
        folders = " ".join(f"/logs/{name}" for name in _LOGS)
        end = box.run(["sh", "-c", f"mkdir -p {folders} && chmod 777 {folders}"], {}, "/", _ROOT, _SETTING_UP_S)
        if end.status != 0:
            raise DataError(f"the image cannot be worked in: {_words(end)}")

    def _act(self, box: Box) -> Execution:
        """Have the agent act, and return how that ended, without a reward."""
        self._set_up(box)
        if self.task.toml.environment.healthcheck and (fault := self._wait_healthy(box)):
            return failure(FailureCause.SANDBOX_FAILED, fault)
        agent, task = self.request.agent, self.task
        details: dict[str, Any] = {"task_id": task.id, "agent": agent, "seed": self.request.seed}
        if agent == "nop":
            return Execution(SuccessStatus.SUCCESS, details=details)
        box.set_network(self._is_out("agent"))
        env = self._resolve(task.toml.environment.env) | dict(self.rollout.overriding_vars)
        user = task.toml.agent.user
        limit_s = min(task.toml.agent.timeout_sec or self.rollout.limits.timeout_s, self.rollout.limits.timeout_s)
        if agent == "oracle":
            box.put("/solution", tar_of(task.part("solution")))
            env |= {"DEBIAN_FRONTEND": "noninteractive", **self._resolve(task.toml.solution.env)}
            end = box.run(
                ["sh", "-c", "/solution/solve.sh"], env, self._folder(box), user, limit_s, "/logs/agent/oracle.txt"
            )
            self._log("solution/solve.sh", end)
            details |= {"agent_duration_s": round(end.seconds, 3), "agent_status": end.status}
            if lack := self._lack(box, end, "solution"):
                return failure(FailureCause.VERIFIER_FAILED, f"the solution cannot be run: {lack}")
            self.doubt = self._lack(box, end, "solution", has_network=False)
            return self._end_of_agent(end, limit_s, "", details)
        entry = AGENTS[agent]
        key = next((self.rollout.secrets[name] for name in API_KEYS if self.rollout.secrets.get(name)), "")
        home = "/root" if user in ("", "root", "0") else f"/home/{user}"
        files = entry.files(self.request.model, self.request.inference_url)
        box.put(home, tar_of({path: TaskFile(text.encode()) for path, text in files.items()}))
        env |= entry.variables(self.request.inference_url, key)
        try:
            prompt = "\n\n".join(filter(None, (self.request.prompt, task.instruction)))
            words = command_of(entry, self.request.model, prompt)
        except ValueError as error:
            return replace(failure(FailureCause.UNCLASSIFIED, str(error)), success_status=SuccessStatus.APPLY_FAILED)
        box.run(["sh", "-c", f": > {_STARTED}"], {}, "/", _ROOT, _SETTING_UP_S)
        end = box.run(words, env, self._folder(box), user, limit_s, "/logs/agent/output.txt")
        self._log(agent, end)
        details |= {"agent_duration_s": round(end.seconds, 3), "agent_status": end.status}
        printed = _words(end)
        details["agent_output_tail"] = printed[-_TAIL:]
        refusal = ""
        if end.status is not None:
            look = f"find . -xdev -type f -newer {_STARTED} 2>/dev/null | head -n 1"
            changed = box.run(["sh", "-c", look], {}, self._folder(box), "", _SETTING_UP_S)
            refusal = find_refusal(printed[-_TAIL:], end.status, bool(changed.output.strip()))
        return self._end_of_agent(end, limit_s, refusal, details)

    def _end_of_agent(self, end: CommandEnd, limit_s: float, refusal: str, details: dict[str, Any]) -> Execution:
        agent = self.request.agent
        if end.is_out_of_memory:
            outcome = failure(FailureCause.SANDBOX_FAILED, self._out_of_memory())
        elif end.status is None:
            error = f"the agent was ended after {limit_s:g} s"
            outcome = Execution(SuccessStatus.TIMEOUT, None, FailureCause.AGENT_EXHAUSTED_BUDGET, error)
        elif end.status != 0 and BUDGET_EXHAUSTED in _words(end)[-_TAIL:]:
            error = f"the agent ended with status {end.status}, and the budget of its model is used up"
            outcome = Execution(SuccessStatus.TIMEOUT, None, FailureCause.AGENT_EXHAUSTED_BUDGET, error)
        elif refusal:
            error = f"the agent ended with status {end.status}, and its provider refused it: {refusal}"
            outcome = Execution(SuccessStatus.NETWORK_ERROR, None, FailureCause.MODEL_PROVIDER_FAILED, error)
        elif end.status in (126, 127) and agent != "oracle":
            error = f"the agent {agent} cannot be started: the image has no {AGENTS[agent].command[0]}"
            outcome = Execution(SuccessStatus.APPLY_FAILED, None, FailureCause.UNCLASSIFIED, error)
        elif end.status != 0 and agent != "oracle":
            outcome = failure(FailureCause.UNCLASSIFIED, f"the agent ended with status {end.status}")
        else:
            # of a solution the tests say whether it is one
            outcome = Execution(SuccessStatus.SUCCESS)
        return replace(outcome, details=details, agent_s=end.seconds)

    def _verify(self, box: Box) -> Execution:
        """Run the tests in `box`, and return the verdict."""
        toml = self.task.toml
        for hook in () if toml.is_separate else toml.verifier.collect:
            box.run(["sh", "-c", hook.command], {}, self._folder(box), hook.user, hook.timeout_sec)
        # what an agent left there is no verdict
        box.run(["sh", "-c", f"rm -rf -- {' '.join(_REWARDS)}"], {}, "/", _ROOT, _SETTING_UP_S)
        box.set_network(self._is_out("verifier"))
        if not (toml.is_separate and self.task.bundles_tests):
            box.put("/tests", tar_of(self.task.part("tests")))
        env = self._resolve(toml.environment.env) | self._resolve(toml.verifier.env)
        limit_s = toml.verifier.timeout_sec
        log = f"{VERIFIER_FOLDER}/test-stdout.txt"
        end = box.run(["sh", "-c", "/tests/test.sh"], env, self._folder(box), toml.verifier.user, limit_s, log)
        self._log("tests/test.sh", end)
        if end.is_out_of_memory:
            outcome = failure(FailureCause.SANDBOX_FAILED, self._out_of_memory())
        elif end.status is None:
            outcome = failure(FailureCause.VERIFIER_FAILED, f"tests/test.sh was ended after {limit_s:g} s")
        elif lack := self._lack(box, end, "tests"):
            outcome = failure(FailureCause.VERIFIER_FAILED, f"nothing can be graded: {lack}")
        else:
            json_file, text_file = (_only_file(box.get(path, MAX_REWARD_BYTES)) for path in _REWARDS)
            outcome = read_reward(json_file, text_file, self.reward_key)
            if outcome.reward == 0 and self.doubt:
                outcome = failure(FailureCause.VERIFIER_FAILED, f"the solution cannot be run: {self.doubt}")
            elif json_file is None and text_file is None:
                outcome = replace(outcome, error=f"{outcome.error}; it ended with code {end.status}, see the log")
        return replace(outcome, verify_s=end.seconds)

    def _lack(self, box: Box, end: CommandEnd, part: str, has_network: bool | None = None) -> str:
        """Return for want of what of the machine a script failed; empty where it is not known."""

        def has(words: list[str]) -> bool:
            return box.run(words, {}, "/", _ROOT, _SETTING_UP_S).status == 0

        def has_module(python: str, name: str) -> bool:
            return has([python, "-I", "-c", f"import importlib.util as u, sys; sys.exit(not u.find_spec({name!r}))"])

        def which(name: str) -> bool:
            return has(["sh", "-c", f"command -v {shlex.quote(name)}"])

        if has_network is None:
            has_network = self._is_out("agent" if part == "solution" else "verifier")
        return find_missing(_words(end), [*scripts_of(self.task, part).values()], has_network, which, has_module)

    def _collect(self, box: Box) -> list[tuple[str, bytes]]:
        """Return what travels to the verifier's box: tars with the folders that they are put into, of which two may be one."""
        for hook in self.task.toml.verifier.collect:
            box.run(["sh", "-c", hook.command], {}, self._folder(box), hook.user, hook.timeout_sec)
        remaining, collected = MAX_ARTIFACT_BYTES, list[tuple[str, bytes]]()
        for artifact in (*self.task.toml.artifacts, None):
            source, exclude = ("/logs/artifacts", ()) if artifact is None else (artifact.source, artifact.exclude)
            path = PurePosixPath(self._folder(box)) / source
            archive = _filter(box.get(str(path), remaining), exclude)
            remaining -= len(archive)
            is_file = _names(archive) == [path.name]
            if archive:
                collected.append((str(path.parent if is_file else path), archive))
        return collected

    def _wait_healthy(self, box: Box) -> str:
        check = self.task.toml.environment.healthcheck or Healthcheck(command="true")
        script = (
            f"n=0; sleep {check.start_period_sec:g}; until sh -c {shlex.quote(check.command)}; do"
            f" n=$((n + 1)); [ $n -ge {check.retries} ] && exit 1; sleep {check.interval_sec:g}; done"
        )
        longest_s = check.start_period_sec + check.retries * (check.interval_sec + check.timeout_sec)
        end = box.run(
            ["sh", "-c", script], self._resolve(self.task.toml.environment.env), self._folder(box), "", longest_s
        )
        return (
            "" if end.status == 0 else f"environment.healthcheck: the box did not become healthy: {_words(end)[-500:]}"
        )

    def _resolve(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return a task's variables: with those of the operator, else with their defaults."""
        secrets = self.rollout.secrets
        return {
            name: _VARIABLE.sub(lambda match: secrets.get(match[1], match[3] or ""), value)
            for name, value in variables.items()
        }

    def _out_of_memory(self) -> str:
        memory_mb = limits_of_box(self.task, self.rollout.limits).memory_mb
        return f"the box ran out of memory; raise memory_mb, which is {memory_mb}"

    def _log(self, name: str, end: CommandEnd) -> None:
        self.logs.append(
            f"--- {name} ({end.seconds:.1f} s, {'no end' if end.status is None else end.status}) ---\n{_words(end)}"
        )


def _find_unresolved(variables: Mapping[str, str]) -> Iterator[str]:
    for value in variables.values():
        yield from (match[1] for match in _VARIABLE.finditer(value) if match[2] is None)


def _join(acted: Execution, verdict: Execution) -> Execution:
    """Return how a rollout ended, of how its agent did and what the verifier said."""
    if verdict.failure_cause is None:
        verdict = replace(verdict, success_status=acted.success_status, failure_cause=acted.failure_cause)
    error = "; ".join(filter(None, (acted.error, verdict.error)))
    return replace(verdict, error=error, details={**acted.details, **verdict.details}, agent_s=acted.agent_s)


def _words(end: CommandEnd) -> str:
    return end.output.decode("utf-8", "replace")


def tar_of(files: Mapping[str, TaskFile]) -> bytes:
    """Return a tar of files of a task; its scripts can be run, whatever their modes were."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path, file in sorted(files.items()):
            member = tarfile.TarInfo(path)
            member.size = len(file.content)
            member.mode = 0o755 if file.is_executable or path.endswith(".sh") else 0o644
            tar.addfile(member, io.BytesIO(file.content))
    return archive.getvalue()


def _names(archive: bytes) -> list[str]:
    if not archive:
        return []
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return tar.getnames()


def _filter(archive: bytes, exclude: Sequence[str]) -> bytes:
    """Return a tar of at most so many regular files, without those that a pattern excludes."""
    if not archive:
        return b""
    target = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar, tarfile.open(fileobj=target, mode="w") as kept_files:
        for count, member in enumerate(tar):
            if count >= MAX_ARTIFACTS:
                raise DataError(f"artifacts: more than {MAX_ARTIFACTS} files; name less of them")
            names = (member.name, PurePosixPath(member.name).name)
            if member.isreg() and not any(fnmatch.fnmatch(name, pattern) for name in names for pattern in exclude):
                kept_files.addfile(member, tar.extractfile(member))
    return target.getvalue()


def _only_file(archive: bytes) -> bytes | None:
    if not archive:
        return None
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        member = tar.next()
        stream = tar.extractfile(member) if member is not None and member.isreg() else None
        return stream.read() if stream else None
