"""The sidecar's Spark with `k8s://` on a real kube-apiserver, with the chart's configuration and only its rights.

Neither a kubelet nor a scheduler runs: the executors' pods are objects, and none of them starts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.ports import free_port
from tests.faults.real_cluster import API_SERVER, ETCD, RealCluster
from tests.faults.stage import wait_until
from tests.faults.test_chart_on_a_server import kubeconfig, may, release
from tests.kubernetes_tools import CHART

pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not (API_SERVER and ETCD), reason="scripts/kubernetes-tools has built no kube-apiserver and etcd"
    ),
]
VALUES = CHART / "ci" / "spark-kubernetes-values.yaml"
_CORE = "/api/v1/namespaces/observing"
_NAME = "trial-streamproof"
_DRIVER = """
import json, sys
from validator.stream import jars, session
given = json.loads(sys.stdin.readline())
spark = session.start("clicks", given["master"], jars.resolve(jars.SIDECAR_LOCK), given["options"])
sys.stdin.read()
spark.stop()
"""
"""Ends when its input closes."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RealCluster]:
    made = RealCluster(tmp_path)
    with made.running():
        made.call("POST", "/api/v1/namespaces", {"metadata": {"name": "observing"}})
        (made.folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(made)), encoding="utf-8")
        release(made, "observing", "install", "trial", CHART, "--values", VALUES)
        yield made


@contextmanager
def driver(server: RealCluster, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the sidecar's Spark session as the chart configures it, with the token of the chart's account. It runs on
    this host, so host names of the pod and the cluster, and paths in the pod, are replaced."""
    data = server.call("GET", f"{_CORE}/configmaps/{_NAME}")["data"]
    config = json.loads(data["pipeline.yaml"])
    (folder / "executor.yaml").write_text(data["executor.yaml"], encoding="utf-8")
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token = server.call("POST", f"{_CORE}/serviceaccounts/{_NAME}/token", asked)["status"]["token"]
    (folder / "token").write_text(token, encoding="utf-8")
    options = config["spark"]["options"] | {
        "spark.kubernetes.authenticate.caCertFile": str(server.ca_file),
        "spark.kubernetes.authenticate.oauthTokenFile": str(folder / "token"),
        "spark.kubernetes.executor.podTemplateFile": str(folder / "executor.yaml"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.port": str(free_port()),
        "spark.blockManager.port": str(free_port()),
        "spark.driver.memory": "512m",
    }
    assert config["spark"]["master"] == "k8s://https://kubernetes.default.svc"
    command = [sys.executable, "-c", _DRIVER]
    log = (folder / "driver.log").open("w", encoding="utf-8")
    with log, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps({"master": f"k8s://{server.address}", "options": options}) + "\n")
            process.stdin.flush()
            yield process
        finally:
            process.kill()


def executors(server: RealCluster) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.call("GET", f"{_CORE}/pods?labelSelector=spark-role%3Dexecutor")["items"]
    return found


def test_executors_are_created_as_the_chart_says(server: RealCluster, tmp_path: Path) -> None:
    """The test creates the StatefulSet's pod, since no controller does. Spark has only the chart's Role."""
    template = server.call("GET", f"/apis/apps/v1/namespaces/observing/statefulsets/{_NAME}")["spec"]["template"]
    own = server.call("POST", f"{_CORE}/pods", {**template, "metadata": {**template["metadata"], "name": f"{_NAME}-0"}})
    with driver(server, tmp_path) as process:
        # On a busy machine the JVM alone takes longer to start than the default limit for faults.
        wait_until(lambda: process.poll() is not None or len(executors(server)) == 4, "four executors are made", 90)
        said = (tmp_path / "driver.log").read_text(encoding="utf-8")
        assert process.poll() is None, said
        for pod in executors(server):
            meta, spec = pod["metadata"], pod["spec"]
            labels = {
                f"app.kubernetes.io/{name}": of for name, of in [("name", "streamproof"), ("component", "executor")]
            }
            assert labels.items() <= meta["labels"].items()
            assert meta["name"].startswith(f"{_NAME}-exec-")
            assert [(owner["kind"], owner["uid"]) for owner in meta["ownerReferences"]] == [
                ("Pod", own["metadata"]["uid"])
            ]
            assert spec["automountServiceAccountToken"] is False
            assert spec.get("serviceAccountName", "default") == "default"
            assert spec["securityContext"]["runAsUser"] == 10001
            assert spec["securityContext"]["runAsNonRoot"] is True
            [container] = spec["containers"]
            assert container["image"] == "registry.example/spark:4.2.0-python3.13"
            assert container["imagePullPolicy"] == "IfNotPresent"
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
            # Spark writes 5120Mi; the server returns the same quantity in canonical form.
            assert container["resources"]["requests"] == {"cpu": "2", "memory": "5Gi"}
            assert container["resources"]["limits"]["memory"] == "5Gi"
            assert {"name": "config", "mountPath": "/etc/streamproof", "readOnly": True} in container["volumeMounts"]
            [config] = [volume["projected"] for volume in spec["volumes"] if volume["name"] == "config"]
            assert [source for source in config["sources"] if "secret" in source] == [
                {"secret": {"name": "kafka-ca", "items": [{"key": "ca.crt", "path": "ca.pem"}]}}
            ]
            # An executor has only the secret that Spark needs for authentication, and no token of the cluster.
            assert not [
                source
                for volume in spec["volumes"]
                for source in volume.get("projected", {}).get("sources", [])
                if "serviceAccountToken" in source
            ]
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(60) == 0, (tmp_path / "driver.log").read_text(encoding="utf-8")
    said = (tmp_path / "driver.log").read_text(encoding="utf-8")
    assert "forbidden" not in said.lower()
    assert executors(server) == []
    left = [found["metadata"]["name"] for found in server.call("GET", f"{_CORE}/configmaps")["items"]]
    assert [name for name in left if "spark" in name] == []


def test_the_driver_has_no_further_right(server: RealCluster) -> None:
    account = f"observing:{_NAME}"
    for verb, resource in [("create", "pods"), ("deletecollection", "pods"), ("create", "configmaps")]:
        assert may(server, account, verb, "", resource, "observing")
        assert not may(server, account, verb, "", resource, "default")
        assert not may(server, "observing:default", verb, "", resource, "observing")
    for verb, resource in [("get", "secrets"), ("create", "pods/exec"), ("create", "serviceaccounts/token")]:
        assert not may(server, account, verb, "", resource, "observing")
    assert not may(server, account, "create", "rbac.authorization.k8s.io", "roles", "observing")
    assert not may(server, account, "delete", "apps", "statefulsets", "observing")
