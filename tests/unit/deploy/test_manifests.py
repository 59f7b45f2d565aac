"""The manifests of Kubernetes: valid by its schemas, and in agreement with each other and with what they start."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner

from graftline.cli.main import main
from graftline.core.artifacts import open_artifacts
from graftline.core.config import load_yaml, put, validate
from graftline.core.paths import Paths
from graftline.core.secrets import EnvironmentSecrets, Secrets
from graftline.core.telemetry import TelemetrySettings
from graftline.harbor.service.serve import HarborSettings
from graftline.llm.fleet import load_fleet
from graftline.llm.servers.commands import Machine, launch_of
from graftline.pipeline.manifests import load_manifest
from tests.kubernetes_files import (
    CHECKOUT,
    DEPLOY,
    KUBERNETES,
    OVERLAY,
    Object,
    containers,
    conversations,
    documents,
    files,
    pod_spec,
    pods,
    rendered,
    selects,
    where,
)
from tests.pages import codes, section, table

VERSIONS = ("1.34.0", "1.37.0")
"""The oldest that has everything that is used (`hostUsers`, `procMount`), and the newest there is a schema of."""
OBJECTS = rendered()
WORKLOADS = [one for one in OBJECTS if pod_spec(one)]
CONTAINERS = [(one, container) for one in WORKLOADS for container in containers(one)]
NAMES = [where(one) for one in WORKLOADS]
LABELS = [f"{where(one)}/{container['name']}" for one, container in CONTAINERS]
OURS = [(one, container) for one, container in CONTAINERS if container["image"].startswith("graftline:")]
FOREIGN_CODE = "graftline-harbor"


def named(kind: str) -> set[tuple[str, str]]:
    return {(one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in OBJECTS if one["kind"] == kind}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", files(), ids=lambda path: path.relative_to(KUBERNETES).as_posix())
def test_every_object_fits_the_schema_and_says_nothing_that_is_not_in_it(path: Path, version: str) -> None:
    for found in documents(path):
        kubernetes_validate.validate(found, version, strict=True)


def test_a_key_that_is_misspelt_is_found() -> None:
    [found] = [one for one in OBJECTS if where(one) == "Deployment graftline/worker"]
    wrong = {**found, "spec": {**found["spec"], "replica": 3}}
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def test_every_file_is_part_of_the_overlay_and_no_object_is_there_twice() -> None:
    of_files = sorted(where(found) for path in files() for found in documents(path))
    assert sorted(map(where, OBJECTS)) == of_files == sorted(set(of_files))


def test_the_bucket_is_told_to_every_pod_of_ours_and_is_what_the_manifest_then_opens(tmp_path: Path) -> None:
    objects = rendered(OVERLAY, KUBERNETES / "components" / "bucket")
    for found in objects:
        kubernetes_validate.validate(found, VERSIONS[0], strict=True)
    [settings] = [one for one in objects if where(one) == "ConfigMap graftline/graftline-settings"]
    [before] = [one for one in OBJECTS if where(one) == where(settings)]
    [(variable, address)] = settings["data"].items() - before["data"].items()
    assert [one for one in objects if one not in OBJECTS] == [settings]
    [values] = documents(DEPLOY / "helm" / "values.yaml")
    [code] = values["dagster-user-deployments"]["deployments"]
    [worker] = [container for _, container in OURS if container["command"][1] == "worker"]
    assert {"name": settings["metadata"]["name"]} in code["envConfigMaps"]
    assert {"configMapRef": {"name": settings["metadata"]["name"]}} in worker["envFrom"]
    # the line that the page has people write
    [line] = re.findall(r"`artifacts: (\{[^`]+\})`", section("docs/kubernetes.md", "## Artifacts in a bucket"))
    config = load_manifest(Paths(CHECKOUT), "prod", {"artifacts": yaml.safe_load(line)}).artifacts
    assert open_artifacts(config, tmp_path, Secrets([EnvironmentSecrets({variable: address})])).label == address


def test_every_namespace_is_declared_and_enforces_a_level() -> None:
    used = {one["metadata"]["namespace"] for one in OBJECTS if one["kind"] != "Namespace"}
    levels = {
        one["metadata"]["name"]: one["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for one in OBJECTS
        if one["kind"] == "Namespace"
    }
    assert levels == {"graftline": "restricted", FOREIGN_CODE: "privileged"}
    assert used == levels.keys()


@pytest.mark.parametrize(("workload", "container"), CONTAINERS, ids=LABELS)
def test_containers_are_pinned_confined_and_have_room(workload: Object, container: Object) -> None:
    assert re.fullmatch(r"[a-z0-9./-]+:v?\d+(\.\d+)+(-[a-z]+)?", container["image"])
    own = container["securityContext"]
    assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert "memory" in container["resources"]["limits"]
    if workload["kind"] != "Job":
        assert {"startupProbe", "readinessProbe", "livenessProbe"} <= container.keys()


@pytest.mark.parametrize("workload", WORKLOADS, ids=NAMES)
def test_no_pod_is_root_or_has_a_token_of_the_cluster(workload: Object) -> None:
    spec = pod_spec(workload) or {}
    own = spec["securityContext"]
    assert (own["runAsNonRoot"], own["runAsUser"] > 0, spec["automountServiceAccountToken"]) == (True, True, False)
    is_jailer = where(workload) == f"Deployment {FOREIGN_CODE}/harbor"
    assert own["seccompProfile"]["type"] == ("Unconfined" if is_jailer else "RuntimeDefault")
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
    assert not [volume for volume in spec.get("volumes", []) if "hostPath" in volume]


def test_only_the_pod_that_jails_has_a_proc_of_its_own_and_its_users_are_nobody_on_the_node() -> None:
    unmasked = [where(one) for one, container in CONTAINERS if "procMount" in container["securityContext"]]
    assert unmasked == [f"Deployment {FOREIGN_CODE}/harbor"]
    assert [where(one) for one in WORKLOADS if (pod_spec(one) or {}).get("hostUsers") is False] == unmasked


def test_what_every_pod_names_is_there() -> None:
    accounts, maps, claims = named("ServiceAccount"), named("ConfigMap"), named("PersistentVolumeClaim")
    made_by_hand = {(row[0].strip("`"), codes(row[1])[0]) for row in table(section("docs/kubernetes.md", "## Secrets"))}
    missing = []
    for workload in WORKLOADS:
        spec, at = pod_spec(workload) or {}, workload["metadata"]["namespace"]
        if "serviceAccountName" in spec and (at, spec["serviceAccountName"]) not in accounts:
            missing.append(f"{where(workload)}: account {spec['serviceAccountName']}")
        for kind, name in references(workload):
            known = {"configMap": maps, "secret": made_by_hand, "claim": claims}[kind]
            if (at, name) not in known | made_by_hand:
                missing.append(f"{where(workload)}: {kind} {name}")
    assert missing == []


def references(workload: Object) -> Iterator[tuple[str, str]]:
    """Yield kind and name of what volumes and variables of a workload are taken from."""
    for volume in (pod_spec(workload) or {}).get("volumes", []):
        if "configMap" in volume:
            yield "configMap", volume["configMap"]["name"]
        if "secret" in volume:
            yield "secret", volume["secret"]["secretName"]
        if "persistentVolumeClaim" in volume:
            yield "claim", volume["persistentVolumeClaim"]["claimName"]
    for container in containers(workload):
        for variable in container.get("env", []):
            if "valueFrom" in variable:
                yield "secret", variable["valueFrom"]["secretKeyRef"]["name"]
        for source in container.get("envFrom", []):
            yield "configMap", source["configMapRef"]["name"]


def test_every_secret_that_is_used_is_documented_with_its_keys_and_no_other() -> None:
    used: dict[tuple[str, str], set[str]] = {("graftline", "graftline-postgres"): {"postgresql-password"}}
    for workload in WORKLOADS:
        at = workload["metadata"]["namespace"]
        for container in containers(workload):
            for variable in container.get("env", []):
                if "valueFrom" in variable:
                    key = variable["valueFrom"]["secretKeyRef"]
                    used.setdefault((at, key["name"]), set()).add(key["key"])
    used[("graftline", "graftline-redis")] = {"users.acl"}
    used[(FOREIGN_CODE, "harbor-tls")] = {"tls.crt", "tls.key"}
    used[("graftline", "graftline-ca")] = {"ca.crt"}
    [values] = documents(DEPLOY / "helm" / "values.yaml")
    for variable in values["dagster-user-deployments"]["deployments"][0]["env"]:
        key = variable["valueFrom"]["secretKeyRef"]
        used.setdefault(("graftline", key["name"]), set()).add(key["key"])
    rows = table(section("docs/kubernetes.md", "## Secrets"))
    assert {(row[0].strip("`"), codes(row[1])[0]): set(codes(row[2])) for row in rows} == used


@pytest.mark.parametrize(("workload", "container"), CONTAINERS, ids=LABELS)
def test_mounts_and_ports_that_are_named_exist(workload: Object, container: Object) -> None:
    spec = pod_spec(workload) or {}
    volumes = {volume["name"] for volume in spec.get("volumes", [])}
    volumes |= {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
    assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
    ports = {port["name"]: port["containerPort"] for one in containers(workload) for port in one.get("ports", [])}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        for way in ("httpGet", "tcpSocket"):
            if way in container.get(probe, {}):
                assert container[probe][way]["port"] in {*ports, *ports.values()}


def test_services_and_budgets_stand_for_pods_that_exist() -> None:
    for found in OBJECTS:
        if found["kind"] not in ("Service", "PodDisruptionBudget"):
            continue
        selector = dict(found["spec"]["selector"])
        # the name of a pod is a label that the cluster gives
        if name := selector.pop("statefulset.kubernetes.io/pod-name", ""):
            [fleet] = [one for one in WORKLOADS if one["kind"] == "StatefulSet" and name.startswith("actor-")][:1]
            start, count = fleet["spec"]["ordinals"]["start"], fleet["spec"]["replicas"]
            assert name in [f"{fleet['metadata']['name']}-{number}" for number in range(start, start + count)]
            continue
        chosen = [
            one
            for one in WORKLOADS
            if one["metadata"]["namespace"] == found["metadata"]["namespace"]
            and selects(selector, one["spec"]["template"]["metadata"]["labels"])
        ]
        assert len(chosen) == 1, where(found)
        for port in found["spec"].get("ports", []):
            known = [own["name"] for container in containers(chosen[0]) for own in container.get("ports", [])]
            assert port["targetPort"] in known


def test_a_selector_of_a_workload_fits_its_own_pods() -> None:
    for one in WORKLOADS:
        if one["kind"] != "Job":
            assert selects(one["spec"]["selector"], one["spec"]["template"]["metadata"]["labels"]), where(one)


def test_only_those_talk_that_have_to() -> None:
    assert set(conversations(OBJECTS)) == {
        ("dagster-webserver", "dagster-code", 3030),
        ("dagster-daemon", "dagster-code", 3030),
        ("dagster-webserver", "postgres", 5432),
        ("dagster-daemon", "postgres", 5432),
        ("dagster-code", "postgres", 5432),
        ("dagster-run", "postgres", 5432),
        ("dagster-code", "redis", 6379),
        ("dagster-run", "redis", 6379),
        ("dagster-code", "actor", 8000),
        ("dagster-run", "actor", 8000),
        ("dagster-code", "harbor", 8443),
        ("dagster-run", "harbor", 8443),
        ("worker", "redis", 6379),
        ("worker", "actor", 8000),
        ("harbor", "postgres", 5432),
        ("harbor-migrate", "postgres", 5432),
    }


def test_where_foreign_code_runs_nothing_reaches_the_internet() -> None:
    policies = [
        one for one in OBJECTS if one["kind"] == "NetworkPolicy" and one["metadata"]["namespace"] == FOREIGN_CODE
    ]
    egress = [rule for policy in policies for rule in policy["spec"].get("egress", [])]
    assert egress
    assert all("to" in rule and all("ipBlock" not in peer for peer in rule["to"]) for rule in egress)
    for namespace in ("graftline", FOREIGN_CODE):
        [closed] = [
            one for one in OBJECTS if where(one) == f"NetworkPolicy {namespace}/nothing" and one["spec"]["policyTypes"]
        ]
        assert closed["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}


def test_every_policy_is_about_pods_that_exist() -> None:
    everybody = pods(OBJECTS)
    for policy in OBJECTS:
        if policy["kind"] == "NetworkPolicy":
            at, selector = policy["metadata"]["namespace"], policy["spec"]["podSelector"]
            assert [pod.name for pod in everybody if pod.namespace == at and selects(selector, pod.labels)]


def test_every_variable_is_one_that_something_reads() -> None:
    text = section("docs/configuration.md", "## Environment")
    documented = {name for row in table(text) for name in codes(row[0])}
    documented |= {name for line in text.splitlines() if line.startswith("| `") for name in codes(line.split(" | ")[0])}
    given = {variable["name"] for _, container in OURS for variable in container.get("env", [])}
    given |= {name for one in OBJECTS if where(one) == "ConfigMap graftline/graftline-settings" for name in one["data"]}
    assert given <= documented


@pytest.mark.parametrize(
    "command", [container["command"] for _, container in OURS], ids=lambda command: " ".join(command[:3])
)
def test_every_command_of_ours_is_taken_with_its_options(command: list[str]) -> None:
    program, *words = command
    assert program == "graftline"
    found: click.Command = main
    context = click.Context(main)
    while isinstance(found, click.Group):
        name = words.pop(0)
        child = found.get_command(context, name)
        assert child is not None, name
        found = child
    found.make_context(found.name, [str(word) for word in words])


def test_the_worker_wires_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    [words] = [container["command"][1:] for _, container in OURS if container["command"][1] == "worker"]
    pairs = [words[number + 1] for number, word in enumerate(words) if word == "--set"]
    monkeypatch.setenv("GRAFTLINE_ROOT", str(CHECKOUT))
    asked = ["config", "--manifest", words[words.index("--manifest") + 1]]
    answer = CliRunner().invoke(main, [*asked, *(word for pair in pairs for word in ("--set", pair))])
    assert answer.exit_code == 0, answer.output


def test_the_service_is_told_settings_that_it_has() -> None:
    [words] = [container["command"] for _, container in OURS if container["command"][:3] == SERVE]
    given: dict[str, Any] = {"executor": {"kind": words[words.index("--executor") + 1]}}
    for number, word in enumerate(words):
        if word == "--set":
            key, _, value = words[number + 1].partition("=")
            put(given, key, int(value) if value.isdigit() else value, "--set")
    settings = validate(given, HarborSettings, "manifest")
    # it listens on the loopback of its pod, and nothing weaker than namespaces will do
    assert (settings.host, settings.executor.required_level) == ("127.0.0.1", "namespaces")


SERVE = ["graftline", "env", "serve"]


def test_actors_are_started_as_the_fleet_says_and_found_where_it_says() -> None:
    fleet = load_fleet(CHECKOUT / "configs", "gpu")
    [workload] = [one for one in WORKLOADS if where(one) == "StatefulSet graftline/actor"]
    [container] = containers(workload)
    machine = Machine(Path("python"), Path("/opt/graftline/vllm"), range(1))
    for actor in fleet.actors:
        launch = launch_of(fleet, actor, fleet.model, machine)
        assert without_address(launch.command[1:]) == without_address(container["command"][1:])
        given = {variable["name"]: variable.get("value") for variable in container["env"]}
        # which card it gets is for the cluster to say
        wanted = {name: value for name, value in launch.variables.items() if name != "CUDA_VISIBLE_DEVICES"}
        assert wanted.items() <= given.items()
        assert launch.key_variable in given
    services = {
        f"http://{one['metadata']['name']}:{port['port']}"
        for one in OBJECTS
        if one["kind"] == "Service"
        for port in one["spec"]["ports"]
    }
    assert {str(actor.url).rstrip("/") for actor in fleet.actors} <= services
    start, count = workload["spec"]["ordinals"]["start"], workload["spec"]["replicas"]
    assert [actor.name for actor in fleet.actors] == [f"actor-{number}" for number in range(start, start + count)]
    assert (pod_spec(workload) or {})["terminationGracePeriodSeconds"] > fleet.shutdown_s


def without_address(command: Any) -> list[str]:
    words = [str(word) for word in command]
    for option in ("--host", "--port"):
        at = words.index(option)
        del words[at : at + 2]
    return words


def test_a_worker_has_longer_to_end_than_its_attempts_get() -> None:
    [workload] = [one for one in WORKLOADS if where(one) == "Deployment graftline/worker"]
    [container] = containers(workload)
    words = container["command"]
    assert (pod_spec(workload) or {})["terminationGracePeriodSeconds"] > int(words[words.index("--drain-s") + 1])


def test_figures_are_served_where_the_probes_ask(tmp_path: Path) -> None:
    [told] = [one for one in OBJECTS if where(one) == "ConfigMap graftline/graftline-telemetry"]
    path = tmp_path / "telemetry.yaml"
    path.write_text(told["data"]["telemetry.yaml"], "utf-8")
    server = load_yaml(path, TelemetrySettings).server
    [container] = [container for one, container in CONTAINERS if one["metadata"]["name"] == "worker"]
    assert server is not None
    assert (server.host, server.port) == ("0.0.0.0", container["ports"][0]["containerPort"])
