"""Dagster on Kubernetes: what the chart is told, the instance beside it, and the job that a run becomes."""

import re
import subprocess
import tomllib
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kubernetes
import kubernetes_validate
import pytest
from dagster._config import process_config
from dagster._core.code_pointer import FileCodePointer
from dagster._core.instance.config import dagster_instance_config_schema
from dagster._core.instance.ref import InstanceRef
from dagster._core.origin import JobPythonOrigin, RepositoryPythonOrigin
from dagster._core.storage.dagster_run import DagsterRun

from tests.kubernetes_files import CHECKOUT, DEPLOY, documents, rendered

pytest.importorskip("dagster_k8s", reason="pip install 'graftline[kubernetes]'")

from dagster_k8s.container_context import K8sContainerContext
from dagster_k8s.job import construct_dagster_k8s_job
from dagster_k8s.launcher import K8sRunLauncher

[VALUES] = documents(DEPLOY / "helm" / "values.yaml")
INSTANCE = DEPLOY / "dagster" / "dagster.kubernetes.yaml"
[TOLD] = documents(INSTANCE)
[CODE] = VALUES["dagster-user-deployments"]["deployments"]
LAUNCHER = VALUES["runLauncher"]["config"]["k8sRunLauncher"]
KUBERNETES = "1.34.0"
POD_KEYS = {
    "annotations", "affinity", "env", "envConfigMaps", "envSecrets", "image", "labels", "livenessProbe", "nodeSelector",
    "podSecurityContext", "readinessProbe", "resources", "schedulerName", "securityContext", "startupProbe",
    "tolerations", "volumeMounts", "volumes",
}  # fmt: skip
CHART: Mapping[str, set[str]] = {
    "": {
        "additionalInstanceConfig", "busybox", "computeLogManager", "concurrency", "dagster-user-deployments",
        "dagsterDaemon", "dagsterWebserver", "flower", "fullnameOverride", "generateCeleryConfigSecret",
        "generatePostgresqlPasswordSecret", "global", "imagePullSecrets", "ingress", "migrate", "nameOverride",
        "pipelineRun", "postgresql", "pythonLogs", "rabbitmq", "rbacEnabled", "redis", "retention", "runLauncher",
        "scheduler", "serviceAccount", "telemetry",
    },
    "global": {"celeryConfigSecretName", "dagsterHome", "postgresqlSecretName", "serviceAccountName"},
    "dagsterWebserver": {
        *POD_KEYS, "dbPoolRecycle", "dbStatementTimeout", "deploymentLabels", "enableReadOnly", "logLevel",
        "nameOverride", "pathPrefix", "replicaCount", "service", "workspace",
    },
    "dagsterDaemon": {
        *POD_KEYS, "deploymentLabels", "enabled", "heartbeatTolerance", "runCoordinator", "runMonitoring", "runRetries",
        "schedules", "sensors",
    },
    "dagsterDaemon.runCoordinator.config.queuedRunCoordinator": {
        "dequeueIntervalSeconds", "dequeueNumWorkers", "dequeueUseThreads", "maxConcurrentRuns", "tagConcurrencyLimits",
    },
    "dagsterDaemon.runMonitoring": {
        "cancelTimeoutSeconds", "enabled", "freeSlotsAfterRunEndSeconds", "maxResumeRunAttempts",
        "pollIntervalSeconds", "startTimeoutSeconds",
    },
    "concurrency": {"enabled", "pools", "runs"},
    "concurrency.pools": {"defaultLimit", "granularity", "opGranularityRunBuffer"},
    "concurrency.runs": {"maxConcurrentRuns", "tagConcurrencyLimits"},
    "dagster-user-deployments": {"deployments", "enableSubchart", "enabled", "imagePullSecrets"},
    "postgresql": {
        "enabled", "image", "postgresqlDatabase", "postgresqlHost", "postgresqlParams", "postgresqlPassword",
        "postgresqlScheme", "postgresqlUsername", "service",
    },
    "runLauncher": {"config", "type"},
    "runLauncher.config.k8sRunLauncher": {
        "envConfigMaps", "envSecrets", "envVars", "failPodOnRunFailure", "image", "imagePullPolicy", "jobNamespace",
        "kubeconfigFile", "labels", "loadInclusterConfig", "resources", "runK8sConfig", "schedulerName",
        "securityContext", "volumeMounts", "volumes",
    },
    "runLauncher.config.k8sRunLauncher.runK8sConfig": {
        "containerConfig", "jobMetadata", "jobSpecConfig", "podSpecConfig", "podTemplateSpecMetadata",
    },
}  # fmt: skip
"""The keys that the schema of the chart, `values.schema.json` of 1.13, knows in the sections that are used."""
DEPLOYMENT_KEYS = {
    *POD_KEYS, "codeServerArgs", "dagsterApiGrpcArgs", "includeConfigInLaunchedRuns", "initContainers", "name", "port",
}  # fmt: skip


def at(path: str) -> dict[str, Any]:
    found = VALUES
    for key in filter(None, path.split(".")):
        found = found[key]
    return found


@pytest.mark.parametrize("path", CHART)
def test_the_chart_is_told_nothing_that_it_does_not_know(path: str) -> None:
    assert at(path).keys() - CHART[path] == set()


def test_the_code_location_is_told_nothing_that_the_chart_does_not_know() -> None:
    assert CODE.keys() - DEPLOYMENT_KEYS == set()


def test_chart_and_libraries_are_of_one_release() -> None:
    text = (DEPLOY / "helm" / "values.yaml").read_text("utf-8")
    releases = set(
        re.findall(r"\b1\.\d+\.\d+\b", "\n".join(line for line in text.splitlines() if line.startswith("#")))
    )
    page = (CHECKOUT / "docs" / "kubernetes.md").read_text("utf-8")
    assert releases | set(re.findall(r"--version (\S+)", page)) == {version("dagster")}


def snake(found: Any) -> Any:
    if isinstance(found, dict):
        return {
            re.sub(r"(?<=[a-z0-9])([A-Z])", lambda m: f"_{m[1].lower()}", key): snake(one) for key, one in found.items()
        }
    return found


def test_the_instance_beside_the_chart_is_the_one_that_the_chart_makes() -> None:
    daemon, launcher = VALUES["dagsterDaemon"], TOLD["run_launcher"]["config"]
    assert TOLD["run_monitoring"] == snake(daemon["runMonitoring"])
    assert TOLD["run_retries"] == snake(daemon["runRetries"])
    assert (TOLD["sensors"], TOLD["schedules"]) == (snake(daemon["sensors"]), snake(daemon["schedules"]))
    assert TOLD["run_coordinator"]["config"] == snake(daemon["runCoordinator"]["config"]["queuedRunCoordinator"])
    assert {"enabled": True, **TOLD["concurrency"]} == snake(VALUES["concurrency"])
    assert TOLD["python_logs"] == snake(VALUES["pythonLogs"])
    assert {"enabled": True, **TOLD["retention"]} == snake(VALUES["retention"])
    assert launcher["run_k8s_config"] == {
        snake({key: 0}).popitem()[0]: one for key, one in LAUNCHER["runK8sConfig"].items()
    }
    assert (launcher["labels"], launcher["security_context"]) == (LAUNCHER["labels"], LAUNCHER["securityContext"])
    assert launcher["dagster_home"] == VALUES["global"]["dagsterHome"]
    assert launcher["service_account_name"] == VALUES["global"]["serviceAccountName"]
    assert launcher["postgres_password_secret"] == VALUES["global"]["postgresqlSecretName"]
    database, chart = TOLD["storage"]["postgres"]["postgres_db"], VALUES["postgresql"]
    assert (database["hostname"], database["port"]) == (chart["postgresqlHost"], chart["service"]["port"])
    assert (database["username"], database["db_name"]) == (chart["postgresqlUsername"], chart["postgresqlDatabase"])
    assert database["password"] == {"env": "DAGSTER_PG_PASSWORD"}


def test_the_instance_fits_the_schema_of_dagster_and_of_its_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("dagster_postgres", reason="pip install dagster-postgres")
    monkeypatch.setenv("DAGSTER_PG_PASSWORD", "nothing")
    assert TOLD.keys() <= dagster_instance_config_schema().keys()
    (tmp_path / "dagster.yaml").write_bytes(INSTANCE.read_bytes())
    reference = InstanceRef.from_dir(str(tmp_path))
    launcher = reference.run_launcher_data
    assert launcher is not None
    assert (launcher.module_name, launcher.class_name) == ("dagster_k8s", "K8sRunLauncher")


@pytest.fixture
def launcher(tmp_path: Path) -> K8sRunLauncher:
    """The launcher of the instance, which would ask a cluster that is not there."""
    access = tmp_path / "access.yaml"
    access.write_text(
        """{"apiVersion": "v1", "kind": "Config", "current-context": "none",
        "contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}], "users": [{"name": "none", "user": {}}],
        "clusters": [{"name": "none", "cluster": {"server": "https://127.0.0.1:1"}}]}""",
        "utf-8",
    )
    told = {**TOLD["run_launcher"]["config"], "load_incluster_config": False, "kubeconfig_file": str(access)}
    checked = process_config(K8sRunLauncher.config_type(), told)
    assert checked.success, checked.errors
    return K8sRunLauncher(**checked.value)


def launched(launcher: K8sRunLauncher, component: str = "run_worker", **executor: Any) -> dict[str, Any]:
    """Return the job of a run of the code location, or of a step of it, the way the cluster is sent it."""
    of_code = {
        "image_pull_policy": CODE["image"]["pullPolicy"],
        "env_config_maps": [one["name"] for one in CODE["envConfigMaps"]],
        "env": CODE["env"],
        "volumes": CODE["volumes"],
        "volume_mounts": CODE["volumeMounts"],
        "labels": CODE["labels"],
        "resources": CODE.get("resources", {}),
        "security_context": CODE["securityContext"],
        "namespace": "graftline",
    }
    origin = RepositoryPythonOrigin(
        executable_path="python",
        code_pointer=FileCodePointer("orchestration/definitions.py", "defs"),
        container_image=f"{CODE['image']['repository']}:{CODE['image']['tag']}",
        container_context={"k8s": of_code},
    )
    run = DagsterRun(job_name="lineage", job_code_origin=JobPythonOrigin("lineage", origin))
    context = K8sContainerContext.create_for_run(run, launcher, include_run_tags=component == "run_worker")
    context = context.merge(K8sContainerContext.create_from_config({"k8s": executor}))
    job = construct_dagster_k8s_job(
        context.get_k8s_job_config(origin.container_image, launcher),
        ["dagster", "api", "execute_run" if component == "run_worker" else "execute_step"],
        "dagster-run-1",
        context.run_k8s_config,
        component=component,
    )
    sent: dict[str, Any] = kubernetes.client.ApiClient().sanitize_for_serialization(job)
    return sent


def test_a_run_becomes_a_job_that_the_cluster_takes(launcher: K8sRunLauncher) -> None:
    job = launched(launcher)
    kubernetes_validate.validate(job, KUBERNETES, strict=True)
    spec = job["spec"]["template"]["spec"]
    [container] = spec["containers"]
    assert job["spec"]["backoffLimit"] == 0
    # the level `restricted`, which the namespace enforces
    assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["seccompProfile"]) == (
        True,
        {"type": "RuntimeDefault"},
    )
    assert container["securityContext"] == LAUNCHER["securityContext"]
    assert container["resources"] == LAUNCHER["runK8sConfig"]["containerConfig"]["resources"]
    assert job["spec"]["template"]["metadata"]["labels"]["graftline.io/asks"] == "runs"
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted <= {volume["name"] for volume in spec["volumes"]}
    named = {variable["name"] for variable in container["env"]}
    assert {"DAGSTER_PG_PASSWORD", "GRAFTLINE_REDIS_URL", "GRAFTLINE_HARBOR_KEY", "VLLM_API_KEY"} <= named


def test_a_step_of_the_executor_k8s_job_becomes_a_job_like_that_of_its_run(launcher: K8sRunLauncher) -> None:
    of_steps = {"container_config": {"resources": {"limits": {"memory": "4Gi"}}}}
    of_run, of_step = launched(launcher), launched(launcher, "step_worker", run_k8s_config=of_steps)
    kubernetes_validate.validate(of_step, KUBERNETES, strict=True)
    [container] = of_step["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["memory"] == "4Gi"
    for job in (of_run, of_step):
        [own] = job["spec"]["template"]["spec"]["containers"]
        for key in ("args", "name", "resources"):
            del own[key]
        del job["metadata"]["labels"], job["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
    # what the policies let it talk to, what it may do and what it sees are the same
    assert of_step == of_run


PODS = {"code location": CODE, "daemon": VALUES["dagsterDaemon"], "web server": VALUES["dagsterWebserver"]}


def deployed(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the deployment that the chart makes of a section: what it passes on as it is, at its place in the pod."""
    probes = {
        name: {**{key: value for key, value in told[name].items() if key != "enabled"}, "exec": {"command": ["asked"]}}
        for name in ("livenessProbe", "readinessProbe", "startupProbe")
        if name in told
    }
    image = told["image"]
    container = {
        "name": "dagster",
        "image": f"{image['repository']}:{image['tag']}",
        "imagePullPolicy": image["pullPolicy"],
        "args": told.get("dagsterApiGrpcArgs", []),
        "env": told.get("env", []),
        "envFrom": [{"configMapRef": one} for one in told.get("envConfigMaps", [])],
        "ports": [{"containerPort": told["port"]}] if "port" in told else [],
        "resources": told.get("resources", {}),
        "securityContext": told["securityContext"],
        "volumeMounts": told["volumeMounts"],
        **probes,
    }
    pod = {
        "securityContext": told["podSecurityContext"],
        "volumes": told["volumes"],
        "initContainers": told.get("initContainers", []),
        "containers": [container],
    }
    template = {"metadata": {"labels": told["labels"]}, "spec": pod}
    spec = {"replicas": told.get("replicaCount", 1), "selector": {"matchLabels": told["labels"]}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "dagster"}, "spec": spec}


@pytest.mark.parametrize("name", PODS)
def test_what_the_chart_passes_on_to_pods_is_what_the_cluster_takes(name: str) -> None:
    found = deployed(PODS[name])
    kubernetes_validate.validate(found, KUBERNETES, strict=True)
    pod = found["spec"]["template"]["spec"]
    mounts = [mount for one in (*pod["initContainers"], *pod["containers"]) for mount in one["volumeMounts"]]
    assert {mount["name"] for mount in mounts} <= {volume["name"] for volume in pod["volumes"]}


def test_what_the_volume_hides_of_the_image_is_brought_to_it(launcher: K8sRunLauncher, tmp_path: Path) -> None:
    [catalog] = documents(CHECKOUT / "configs" / "datasets.yaml")
    urls = {dataset.get("url") for dataset in catalog["datasets"].values()}
    root, volume = "/opt/graftline", tmp_path / "volume"
    volume.mkdir()
    for pod in (deployed(CODE)["spec"]["template"]["spec"], launched(launcher)["spec"]["template"]["spec"]):
        [first], [own] = pod["initContainers"], pod["containers"]
        assert first["image"] == own["image"]
        [hiding] = [mount for mount in own["volumeMounts"] if mount["mountPath"] == f"{root}/data"]
        assert first["volumeMounts"] == [{**hiding, "mountPath": "/volume"}]
        *copied, source, target = first["command"]
        assert (source.removeprefix(f"{root}/") in urls, target) == (True, "/volume")
        shipped = CHECKOUT / source.removeprefix(f"{root}/")
        subprocess.run([*copied, shipped, volume], check=True)
        for path in shipped.iterdir():
            assert (volume / shipped.name / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("replicaCount", "2"),
        ("volumes", [{"name": "home", "emptydir": {}}]),
        ("resources", {"limit": {"memory": "1Gi"}}),
        ("podSecurityContext", {"runAsUser": "10001"}),
    ],
)
def test_a_wrong_type_or_key_below_a_section_is_found(key: str, wrong: Any) -> None:
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployed({**PODS["web server"], key: wrong}), KUBERNETES, strict=True)


def test_the_account_of_dagster_exists_and_may_start_jobs_and_nothing_that_is_not_needed() -> None:
    objects = {(one["kind"], one["metadata"]["name"]): one for one in rendered()}
    name = VALUES["global"]["serviceAccountName"]
    assert ("ServiceAccount", name) in objects
    assert objects["RoleBinding", "graftline-runs"]["subjects"] == [
        {"kind": "ServiceAccount", "name": name, "namespace": "graftline"}
    ]
    rules = objects["Role", "graftline-runs"]["rules"]
    assert {resource for rule in rules for resource in rule["resources"]} == {
        "jobs", "jobs/status", "pods", "pods/log", "pods/status", "events",
    }  # fmt: skip
    assert {verb for rule in rules if "jobs" not in rule["resources"] for verb in rule["verbs"]} == {
        "get",
        "list",
        "watch",
    }


def test_every_variable_and_volume_of_the_code_location_is_there() -> None:
    objects = {(one["kind"], one["metadata"]["name"]) for one in rendered()}
    assert {("ConfigMap", one["name"]) for one in CODE["envConfigMaps"]} <= objects
    claims = [one["persistentVolumeClaim"]["claimName"] for one in CODE["volumes"] if "persistentVolumeClaim" in one]
    assert [("PersistentVolumeClaim", name) in objects for name in claims] == [True]
    page = (CHECKOUT / "docs" / "configuration.md").read_text("utf-8")
    assert [one["name"] for one in CODE["env"] if f"`{one['name']}`" not in page] == []


def test_the_code_location_loads_what_the_workspace_of_a_checkout_loads() -> None:
    [workspace] = documents(CHECKOUT / "workspace.yaml")
    loaded = workspace["load_from"][0]["python_file"]["relative_path"]
    arguments = CODE["dagsterApiGrpcArgs"]
    assert arguments[arguments.index("--python-file") + 1] == loaded
    # the code location is called the same on a laptop and on a cluster, so that schedules and sensors are the same
    assert CODE["name"] == workspace["load_from"][0]["python_file"]["location_name"]


def test_images_are_those_of_the_overlay() -> None:
    [overlay] = documents(DEPLOY / "kubernetes" / "overlays" / "prod" / "kustomization.yaml")
    tags = {image["name"]: image["newTag"] for image in overlay["images"]}
    used = [
        VALUES["dagsterWebserver"]["image"],
        VALUES["dagsterDaemon"]["image"],
        CODE["image"],
        VALUES["postgresql"]["image"],
    ]
    assert {image["repository"]: image["tag"] for image in used} == {
        name: tags[name] for name in ("graftline", "postgres")
    }
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]
    assert tags["graftline"] == project["version"]
