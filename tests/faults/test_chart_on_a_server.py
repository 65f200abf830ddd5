"""The chart on a real kube-apiserver: install, upgrade, rollback, uninstall, and the rights that it grants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.faults.real_cluster import API_SERVER, ETCD, RealCluster, Refused
from tests.faults.stage import wait_until
from tests.kubernetes_tools import CHART, helm, needed

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not (API_SERVER and ETCD), reason="scripts/kubernetes-tools has built no kube-apiserver and etcd"
    ),
]
SECURED = CHART / "ci" / "secured-values.yaml"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_IN = "namespaces/observing"
_OF_A_RELEASE = (
    ("/apis/apps/v1", "statefulsets"),
    ("/api/v1", "services"),
    ("/api/v1", "persistentvolumeclaims"),
    ("/apis/batch/v1", "cronjobs"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    made = RealCluster(tmp_path_factory.mktemp("cluster"))
    with made.running():
        for kind in ("servicemonitors", "prometheusrules"):
            text = (needed("crds") / f"monitoring.coreos.com_{kind}.yaml").read_text(encoding="utf-8")
            made.call("POST", _CRDS, yaml.load(text, yaml.CSafeLoader))
            wait_until(lambda kind=kind: knows(made, f"/apis/monitoring.coreos.com/v1/{kind}"), f"{kind} are known")
        made.call("POST", "/api/v1/namespaces", {"metadata": {"name": "observing"}})
        (made.folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(made)), encoding="utf-8")
        yield made


def kubeconfig(server: RealCluster) -> dict[str, Any]:
    return {
        "clusters": [
            {"name": "it", "cluster": {"server": server.address, "certificate-authority": str(server.ca_file)}}
        ],
        "users": [{"name": "admin", "user": {"token": "admin-token"}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "admin"}}],
        "current-context": "it",
    }


def knows(server: RealCluster, path: str) -> bool:
    try:
        server.call("GET", path)
    except Refused:
        return False
    return True


def release(server: RealCluster, namespace: str, *arguments: str | Path) -> str:
    done = helm(*arguments, "--namespace", namespace, "--kubeconfig", server.folder / "kubeconfig")
    assert done.returncode == 0, done.stderr
    return done.stdout


def may(server: RealCluster, account: str, verb: str, group: str, resource: str, namespace: str) -> bool:
    asked = {"verb": verb, "group": group, "resource": resource, "namespace": namespace}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": f"system:serviceaccount:{account}", "resourceAttributes": asked},
    }
    return bool(server.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"]["allowed"])


def collections(server: RealCluster, version: str) -> dict[str, str]:
    """Return kind -> path of its objects' collection, with a placeholder for the namespace."""
    above = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    return {
        found["kind"]: f"{above}/namespaces/%s/{found['name']}"
        for found in server.call("GET", above)["resources"]
        if "/" not in found["name"]
    }


def test_a_server_accepts_a_release_of_the_chart(server: RealCluster) -> None:
    release(server, "observing", "install", "trial", CHART, "--values", SECURED)
    pod = f"/apis/apps/v1/{_IN}/statefulsets/trial-streamproof"
    first = server.call("GET", pod)["spec"]["template"]
    # Without a kubelet no pod runs. The server stores each object unchanged, and accepts no unknown field.
    for made in yaml.load_all(release(server, "observing", "get", "manifest", "trial"), yaml.CSafeLoader):
        path = collections(server, made["apiVersion"])[made["kind"]] % made["metadata"].get("namespace", "observing")
        made["metadata"]["name"] += "-2"
        server.call("POST", f"{path}?dryRun=All&fieldValidation=Strict", made)

    later = [
        "upgrade",
        "trial",
        CHART,
        "--values",
        SECURED,
        "--set",
        "config.timing.missing_after=5m",
    ]
    bad = helm(
        *later,
        "--set",
        "config.timing.missing_afterr=1m",
        "--kubeconfig",
        server.folder / "kubeconfig",
        "-n",
        "observing",
    )
    assert "additional properties 'missing_afterr' not allowed" in bad.stderr
    release(server, "observing", *later)
    assert server.call("GET", pod)["spec"]["template"]["metadata"]["annotations"] != first["metadata"]["annotations"]
    config = server.call("GET", f"/api/v1/{_IN}/configmaps/trial-streamproof")["data"]["pipeline.yaml"]
    assert json.loads(config)["timing"]["missing_after"] == "5m"

    release(server, "observing", "rollback", "trial", "1")
    assert server.call("GET", pod)["spec"]["template"] == first
    history = json.loads(release(server, "observing", "history", "trial", "--output", "json"))
    assert [entry["description"] for entry in history] == ["Install complete", "Upgrade complete", "Rollback to 1"]

    account = "observing:trial-streamproof-faults"
    assert may(server, account, "create", "chaos-mesh.org", "podchaos", "shop")
    assert may(server, account, "list", "", "pods", "shop")
    assert not may(server, account, "delete", "", "pods", "shop")
    assert not may(server, account, "get", "", "secrets", "observing")
    for namespace in ("observing", "default", "kube-system"):
        assert not may(server, account, "create", "chaos-mesh.org", "podchaos", namespace)
    assert not may(server, "observing:trial-streamproof", "list", "", "pods", "observing")

    release(server, "observing", "uninstall", "trial")
    left = {
        found["metadata"]["name"]
        for path in (*(f"{above}/{_IN}/{kinds}" for above, kinds in _OF_A_RELEASE), f"{_RBAC}/namespaces/shop/roles")
        for found in server.call("GET", path)["items"]
    }
    assert left == {"trial-streamproof-state", "trial-streamproof-faults", "runner", "half"}
