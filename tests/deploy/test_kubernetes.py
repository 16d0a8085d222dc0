"""The manifests for Kubernetes: valid, restricted, and about each other."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml
from containerfile import ROOT, stages

from accountant.config.settings import Settings

FOLDER = ROOT / "deploy" / "kubernetes"
FILES = sorted(path for path in FOLDER.glob("*.yaml") if path.name != "kustomization.yaml")


def documents(path: Path) -> list[dict[str, Any]]:
    """The resources of a file."""
    return list(yaml.safe_load_all(path.read_text()))


ALL = list(chain.from_iterable(map(documents, FILES)))
PODS = [one["spec"]["template"] for one in ALL if one["kind"] in ("Deployment", "Job")]


def only(kind: str, name: str = "") -> dict[str, Any]:
    """The one resource of a kind."""
    [found] = [one for one in ALL if one["kind"] == kind and name in ("", one["metadata"]["name"])]
    return found


def test_each_file_is_applied() -> None:
    """The kustomization names every file, and the image that the pods name."""
    made = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    assert sorted(made["resources"]) == [path.name for path in FILES]
    assert made["namespace"] == only("Namespace")["metadata"]["name"]
    images = {pod["spec"]["containers"][0]["image"] for pod in PODS}
    assert images == {one["name"] for one in made["images"]} == {"accountant"}


@pytest.mark.parametrize("one", ALL, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_it_is_valid(one: dict[str, Any]) -> None:
    """Each resource is valid by the schema of its version, where a package has it."""
    schemas = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is missing")
    schemas.validate(one, schemas.latest_version(), strict=True)


def test_the_namespace_takes_restricted_pods_alone() -> None:
    """The pod security standard "restricted" is enforced, not only warned of."""
    labels = only("Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("pod", PODS, ids=["first", "second"])
def test_a_pod_is_restricted(pod: dict[str, Any]) -> None:
    """What the standard asks of a pod, and beyond that a root file system that is read only, no
    token of the cluster, and the image's own user.
    """
    spec = pod["spec"]
    security = spec["securityContext"]
    assert security["runAsNonRoot"] is True
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    user = stages()[-1].all("USER")[0].rest
    assert f"{security['runAsUser']}:{security['runAsGroup']}" == user
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}
    kinds = {kind for volume in spec["volumes"] for kind in volume.keys() - {"name"}}
    assert kinds <= {"secret", "emptyDir", "persistentVolumeClaim", "configMap"}
    [container] = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "memory" in container["resources"]["limits"]
    mounts = {one["name"] for one in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in spec["volumes"]}
    names = {one["name"] for one in container["env"]} | {*only("ConfigMap")["data"]}
    fields = {f"ACCOUNTANT_{name.upper()}" for name in Settings.__dataclass_fields__}
    assert names <= fields
    files = [one["value"] for one in container["env"] if one["name"].endswith("_FILE")]
    places = [one["mountPath"] for one in container["volumeMounts"] if one.get("readOnly")]
    assert sorted(path.rpartition("/")[0] for path in files) == sorted(places)


def test_the_service_alone_has_no_owner_of_the_tables() -> None:
    """The owner's URL is the migration's; the service never sees it."""
    spec = only("Deployment")["spec"]["template"]["spec"]
    assert "owner" not in yaml.safe_dump(spec)
    assert "owner" in yaml.safe_dump(only("Job"))


def test_selectors_find_their_pods() -> None:
    """Service, disruption budget, network policy and deployment select the pods that are made."""
    made = only("Deployment")
    labels = made["spec"]["template"]["metadata"]["labels"]
    for chosen in (
        made["spec"]["selector"]["matchLabels"],
        only("Service")["spec"]["selector"],
        only("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ):
        assert chosen.items() <= labels.items()
        assert not chosen.items() <= only("Job")["spec"]["template"]["metadata"]["labels"].items()
    policy = only("NetworkPolicy", "accountant")["spec"]
    for pod in PODS:
        assert policy["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


def test_probes_and_ports() -> None:
    """The pod is ready when /readyz says so, is given minutes to read its ledgers, and is not
    killed for a database that is away; the ports are those of the image.
    """
    [container] = only("Deployment")["spec"]["template"]["spec"]["containers"]
    exposed = int(stages()[-1].all("EXPOSE")[0].rest)
    assert container["ports"] == [{"name": "http", "containerPort": exposed}]
    for probe, path in (("startup", "/readyz"), ("readiness", "/readyz"), ("liveness", "/healthz")):
        assert container[f"{probe}Probe"]["httpGet"] == {"path": path, "port": "http"}
    start = container["startupProbe"]
    assert start["periodSeconds"] * start["failureThreshold"] >= 600
    assert only("Service")["spec"]["ports"][0]["targetPort"] == "http"


def test_nothing_passes_that_is_not_named() -> None:
    """All traffic of the namespace is denied first; then the clients' port, names and PostgreSQL
    are let through.
    """
    denied = only("NetworkPolicy", "nothing-else")["spec"]
    assert denied == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    let = only("NetworkPolicy", "accountant")["spec"]
    assert [port["port"] for one in let["ingress"] for port in one["ports"]] == [8321]
    assert all(one["from"] for one in let["ingress"])
    assert {port["port"] for one in let["egress"] for port in one["ports"]} == {53, 5432}


def test_one_service_at_a_time_has_the_vault() -> None:
    """One pod, stopped before its successor starts, on a volume that one pod can have; and a node
    can still be drained.
    """
    spec = only("Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert only("PersistentVolumeClaim")["spec"]["accessModes"] == ["ReadWriteOncePod"]
    assert only("PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
