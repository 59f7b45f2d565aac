"""The manifests of `deploy/kubernetes` as an overlay puts them together, and the pods that come of them.

Of kustomize it knows what is used there: resources, components, images, replicas, and patches that add. Whatever else a
kustomization says is a `KeyError`, so that nothing is left out unseen.
"""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

CHECKOUT = Path(__file__).resolve().parents[1]
DEPLOY = CHECKOUT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
OVERLAY = KUBERNETES / "overlays" / "prod"
_KNOWN = {"apiVersion", "kind", "resources", "components", "images", "replicas", "patches"}
_WORKLOADS = ("Deployment", "StatefulSet", "Job")

Object = dict[str, Any]


def documents(path: Path) -> list[Object]:
    return [found for found in yaml.safe_load_all(path.read_text("utf-8")) if found is not None]


def rendered(folder: Path = OVERLAY, *components: Path) -> list[Object]:
    """Return the objects of a kustomization, with `components` besides those that it names."""
    [told] = documents(folder / "kustomization.yaml")
    objects = _with(told, folder, [])
    for component in components:
        objects = _with(documents(component / "kustomization.yaml")[0], component, objects)
    return objects


def _with(told: Object, folder: Path, objects: list[Object]) -> list[Object]:
    """Return `objects` with what a kustomization adds; a component changes those that are there before it."""
    if unknown := told.keys() - _KNOWN:
        raise KeyError(f"{folder}: {sorted(unknown)}")
    for name in told.get("resources", []):
        path = (folder / name).resolve()
        objects = [*objects, *(rendered(path) if path.is_dir() else documents(path))]
    for name in told.get("components", []):
        path = (folder / name).resolve()
        objects = _with(documents(path / "kustomization.yaml")[0], path, objects)
    for image in told.get("images", []):
        _tag(objects, image["name"], image["newTag"])
    for replicas in told.get("replicas", []):
        [one] = [found for found in objects if _is(found, replicas["name"]) and "replicas" in found.get("spec", {})]
        one["spec"]["replicas"] = replicas["count"]
    for patch in told.get("patches", []):
        [one] = [found for found in objects if _is(found, patch["target"]["name"], patch["target"]["kind"])]
        for change in yaml.safe_load(patch["patch"]):
            _add(one, change)
    return objects


def _is(found: Object, name: str, kind: str = "") -> bool:
    return found["metadata"]["name"] == name and (not kind or found["kind"] == kind)


def _tag(objects: list[Object], name: str, tag: str) -> None:
    tagged = [container for one in objects for container in containers(one) if container["image"] == name]
    if not tagged:
        raise KeyError(f"image {name}: no container has it")
    for container in tagged:
        container["image"] = f"{name}:{tag}"


def _add(found: Object, change: Mapping[str, Any]) -> None:
    if change["op"] != "add":
        raise KeyError(change["op"])
    *parents, last = change["path"].strip("/").split("/")
    for parent in parents:
        found = found[parent]
    found[last] = deepcopy(change["value"])


def pod_spec(found: Object) -> Object | None:
    return found["spec"]["template"]["spec"] if found["kind"] in _WORKLOADS else None


def containers(found: Object) -> list[Object]:
    spec = pod_spec(found) or {}
    return [*spec.get("initContainers", []), *spec.get("containers", [])]


def files() -> list[Path]:
    """Return every file of `deploy/kubernetes` that holds objects."""
    return sorted(path for path in KUBERNETES.rglob("*.yaml") if path.name != "kustomization.yaml")


def where(found: Object) -> str:
    return f"{found['kind']} {found['metadata'].get('namespace', '')}/{found['metadata']['name']}"


@dataclass(frozen=True)
class Pod:
    """Pods of one kind, as policies and services see them."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    ports: frozenset[int] = field(default_factory=frozenset)


def pods(objects: list[Object]) -> list[Pod]:
    """Return a pod of every workload, and of everything that Dagster's chart starts."""
    found = [
        Pod(
            one["metadata"]["name"],
            one["metadata"]["namespace"],
            one["spec"]["template"]["metadata"]["labels"],
            frozenset(port["containerPort"] for container in containers(one) for port in container.get("ports", [])),
        )
        for one in objects
        if one["kind"] in _WORKLOADS
    ]
    [values] = documents(DEPLOY / "helm" / "values.yaml")
    [code] = values["dagster-user-deployments"]["deployments"]
    launcher = values["runLauncher"]["config"]["k8sRunLauncher"]
    web, daemon = values["dagsterWebserver"], values["dagsterDaemon"]
    return [
        *found,
        Pod("dagster-webserver", "graftline", web["labels"], frozenset({web["service"]["port"]})),
        Pod("dagster-daemon", "graftline", daemon["labels"]),
        Pod("dagster-code", "graftline", code["labels"], frozenset({code["port"]})),
        Pod("dagster-run", "graftline", launcher["labels"]),
    ]


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether a label selector, in either of its forms, fits `labels`."""
    plain = selector.get("matchLabels", {} if "matchExpressions" in selector else selector)
    for asked in selector.get("matchExpressions", []):
        if asked["operator"] != "In":
            raise KeyError(asked["operator"])
        if labels.get(asked["key"]) not in asked["values"]:
            return False
    return all(labels.get(key) == value for key, value in plain.items())


def _fits(peer: Mapping[str, Any], policy_namespace: str, pod: Pod) -> bool:
    if "ipBlock" in peer:
        return False
    if "namespaceSelector" in peer:
        is_there = selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": pod.namespace})
    else:
        is_there = policy_namespace == pod.namespace
    return is_there and selects(peer.get("podSelector", {}), pod.labels)


def _allows(policies: list[Object], way: str, here: Pod, there: Pod, port: int) -> bool:
    peers = {"Ingress": "from", "Egress": "to"}[way]
    rules = [
        (policy, rule)
        for policy in policies
        if policy["metadata"]["namespace"] == here.namespace
        and way in policy["spec"]["policyTypes"]
        and selects(policy["spec"]["podSelector"], here.labels)
        for rule in policy["spec"].get(way.lower(), [])
    ]
    return any(
        port in [allowed["port"] for allowed in rule["ports"]]
        and (peers not in rule or any(_fits(peer, policy["metadata"]["namespace"], there) for peer in rule[peers]))
        for policy, rule in rules
    )


def conversations(objects: list[Object]) -> Iterator[tuple[str, str, int]]:
    """Yield who may talk to whom, and at which port: what the one may send and the other may take."""
    policies = [one for one in objects if one["kind"] == "NetworkPolicy"]
    everybody = pods(objects)
    for here in everybody:
        for there in everybody:
            for port in sorted(there.ports):
                if _allows(policies, "Egress", here, there, port) and _allows(policies, "Ingress", there, here, port):
                    yield here.name, there.name, port
