"""A real kube-apiserver with its etcd and Chaos Mesh's kinds, without a kubelet or a scheduler.

Pods are objects whose readiness a test sets. :mod:`tests.faults.chaos_controller` plays Chaos Mesh.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, cast

import yaml

from faults.backends.chaos_mesh import API, ChaosKind, collection
from testbed.ports import free_port
from tests.faults.chaos_controller import Object, after_a_pass, holds
from tests.faults.chaos_mesh_schema import SPECS, STATUS
from tests.kubernetes_tools import built

API_SERVER: Final = os.environ.get("STREAMPROOF_KUBE_APISERVER") or built("kube-apiserver")
ETCD: Final = os.environ.get("STREAMPROOF_ETCD") or built("etcd")
DEFINITIONS: Final = os.environ.get("STREAMPROOF_CHAOS_MESH_CRDS", "")
"""A folder with Chaos Mesh's own definitions. If empty, definitions are made from the facts file."""
START_SECONDS: Final = 90.0
PODS: Final = "/api/v1/namespaces/shop/pods"
_USERS: Final = {"admin": "system:masters", "runner": "", "half": "", "stranger": ""}
_KINDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1/namespaces/shop"


class Refused(Exception):
    """The server's status and message."""

    def __init__(self, status: int, said: Object) -> None:
        super().__init__(f"{status}: {said.get('message')}")
        self.status = status


class RealCluster:
    """The API server of one folder. It can be stopped and restarted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._etcd_port, peers = free_port(), free_port(), free_port()
        self.address = f"https://127.0.0.1:{self.port}"
        self.ca_file = folder / "certificates" / "apiserver.crt"
        self.recovered_at_deletion: dict[str, bool] = {}
        """Name of an object -> whether it was recovered when its deletion was requested."""
        self.is_idle = threading.Event()
        """If set, Chaos Mesh's controller is not played."""
        self._users = folder / "users.csv"
        self._users.write_text("".join(f'{u}-token,{u},{u},"{groups}"\n' for u, groups in _USERS.items()))
        for user in _USERS:
            (folder / f"{user}.token").write_text(f"{user}-token\n")
        subprocess.run(["openssl", "genrsa", "-out", folder / "accounts.key", "2048"], check=True, capture_output=True)
        clients = f"http://127.0.0.1:{self._etcd_port}"
        self._etcd_command = [
            ETCD, "--data-dir", str(folder / "etcd"),
            "--listen-client-urls", clients, "--advertise-client-urls", clients,
            "--listen-peer-urls", f"http://127.0.0.1:{peers}", "--initial-advertise-peer-urls", f"http://127.0.0.1:{peers}",
            "--initial-cluster", f"default=http://127.0.0.1:{peers}",
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run etcd and the server, with a namespace ``shop``, Chaos Mesh's kinds and the users' rights."""
        with ExitStack() as ends:
            log = ends.enter_context((self.folder / "etcd.log").open("wb"))
            etcd = subprocess.Popen(self._etcd_command, stdout=log, stderr=log)
            ends.callback(_end, etcd)
            ends.callback(self.stop)
            self.start()
            self.call("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
            for kind in SPECS:
                self.define(kind)
            self._allow("runner", ["create", "get", "list", "watch", "patch", "delete"])
            self._allow("half", ["create", "get", "list"])
            yield

    def start(self) -> None:
        """Start the server on its existing data; return when it is ready."""
        command = [
            API_SERVER, f"--etcd-servers=http://127.0.0.1:{self._etcd_port}", "--bind-address=127.0.0.1",
            f"--secure-port={self.port}", f"--cert-dir={self.ca_file.parent}", f"--token-auth-file={self._users}",
            "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
            "--service-account-issuer=https://shop.test", f"--service-account-key-file={self.folder}/accounts.key",
            f"--service-account-signing-key-file={self.folder}/accounts.key", "--service-cluster-ip-range=10.96.0.0/24",
            "--endpoint-reconciler-type=none",
        ]  # fmt: skip
        with (self.folder / "apiserver.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        _until(self._is_ready, "the API server is ready")

    def stop(self) -> None:
        """Kill the server: a clean shutdown would wait for its watches."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def call(self, method: str, path: str, body: Object | None = None, kind: str = "application/json") -> Object:
        """Send a request as the administrator. Raises Refused, OSError."""
        context = ssl.create_default_context(cafile=self.ca_file)
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20, context=context)
        headers = {"Authorization": "Bearer admin-token", "Content-Type": kind}
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        try:
            said = json.loads(content)
        except ValueError:
            said = {"message": content.decode(errors="replace")}
        if answer.status >= 400:
            raise Refused(answer.status, said)
        return said if isinstance(said, dict) else {}

    def define(self, kind: str) -> None:
        """Define one of Chaos Mesh's kinds; return when the server serves it."""
        self.call("POST", _KINDS, _definition(kind))
        _until(lambda: self._lists(kind), f"{kind} is known")

    def forget(self, kind: str) -> None:
        """Remove the kind's definition, as if Chaos Mesh were not installed."""
        self.call("DELETE", f"{_KINDS}/{kind.lower()}.chaos-mesh.org")
        _until(lambda: not self._lists(kind), f"{kind} is unknown")

    def takes(self, kind: str, spec: object) -> bool:
        """Return whether the server would create an object with ``spec`` under strict field validation."""
        made = {"apiVersion": API, "kind": kind, "metadata": {"name": "one"}, "spec": spec}
        try:
            self.call("POST", f"{collection(cast('ChaosKind', kind), 'shop')}?dryRun=All&fieldValidation=Strict", made)
        except Refused:
            return False
        return True

    def add_pod(self, name: str, labels: dict[str, str]) -> None:
        """Add a pod in phase Running, with condition Ready."""
        containers = [{"name": "main", "image": "none"}]
        self.call("POST", PODS, {"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers}})
        self.say_ready(name, is_ready=True)

    def say_ready(self, name: str, *, is_ready: bool, phase: str = "Running") -> None:
        conditions = [{"type": "Ready", "status": str(is_ready)}]
        change = {"status": {"phase": phase, "conditions": conditions}}
        self.call("PATCH", f"{PODS}/{name}/status", change, "application/merge-patch+json")

    def objects(self) -> list[Object]:
        """Return all objects of Chaos Mesh in ``shop``."""
        return [found for kind in SPECS if self._lists(kind) for found in self._list(kind)]

    @contextmanager
    def controlled(self) -> Iterator[None]:
        """Play Chaos Mesh's controller in a thread during the block."""
        is_over = threading.Event()

        def control() -> None:
            while not is_over.wait(0.05):
                with suppress(OSError, http.client.HTTPException, Refused):
                    for seen in [] if self.is_idle.is_set() else self.objects():
                        self._reconcile(seen)

        thread = threading.Thread(target=control)
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()

    def _reconcile(self, seen: Object) -> None:
        name = seen["metadata"]["name"]
        if "deletionTimestamp" in seen["metadata"]:
            self.recovered_at_deletion.setdefault(name, holds(seen, "AllRecovered"))
        made = after_a_pass(seen, self._select, lambda operation, pod: self._act(seen, operation, pod))
        if made != seen:
            with suppress(Refused):  # the object was changed or deleted meanwhile: the next pass reads it again
                self.call("PUT", f"{collection(seen['kind'], 'shop')}/{name}", made)

    def _select(self, spec: Object) -> list[str]:
        wanted = spec["selector"]["labelSelectors"]
        phases = spec["selector"].get("podPhaseSelectors")
        found = [
            f"shop/{pod['metadata']['name']}"
            for pod in self.call("GET", PODS)["items"]
            if wanted.items() <= pod["metadata"].get("labels", {}).items()
            and (not phases or pod["status"]["phase"] in phases)
        ]
        most = {"one": 1, "fixed": spec.get("value")}.get(spec["mode"])
        return found if most is None else found[: int(most)]

    def _act(self, seen: Object, operation: str, pod: str) -> None:
        name, action = pod.removeprefix("shop/"), seen["spec"].get("action")
        with suppress(Refused):
            if action == "pod-failure":
                self.say_ready(name, is_ready=operation == "Recover")
            elif action == "pod-kill" and operation == "Apply":
                labels = self.call("GET", f"{PODS}/{name}")["metadata"]["labels"]
                self.call("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
                self.add_pod(f"{name}-again", labels)  # a Deployment would create a replacement

    def _list(self, kind: str) -> list[Object]:
        found: list[Object] = self.call("GET", collection(cast("ChaosKind", kind), "shop"))["items"]
        return found

    def _lists(self, kind: str) -> bool:
        with suppress(Refused):
            self._list(kind)
            return True
        return False

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "apiserver.log").read_text()[-2000:]
        with suppress(OSError, http.client.HTTPException, Refused):
            self.call("GET", "/readyz")
            return True
        return False

    def _allow(self, user: str, verbs: list[str]) -> None:
        rules = [
            {"apiGroups": ["chaos-mesh.org"], "resources": ["*"], "verbs": verbs},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        ]
        self.call("POST", f"{_RBAC}/roles", {"metadata": {"name": user}, "rules": rules})
        binding = {
            "metadata": {"name": user},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }
        self.call("POST", f"{_RBAC}/rolebindings", binding)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _until(holds_now: Callable[[], bool], what: str) -> None:
    pause = threading.Event()
    for _ in range(int(START_SECONDS / 0.1)):
        if holds_now():
            return
        pause.wait(0.1)
    raise AssertionError(f"not within {START_SECONDS:g} s: {what}")


def _definition(kind: str) -> Object:
    """Return Chaos Mesh's own definition, if a folder has it, else one made from the facts file."""
    if DEFINITIONS:
        text = Path(DEFINITIONS, f"chaos-mesh.org_{kind.lower()}.yaml").read_text(encoding="utf-8")
        (own,) = (found for found in yaml.safe_load_all(text) if found)
        assert isinstance(own, dict)
        return own
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": SPECS[kind], "status": STATUS}}
    names = {"kind": kind, "listKind": f"{kind}List", "plural": kind.lower(), "singular": kind.lower()}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.lower()}.chaos-mesh.org"},
        "spec": {"group": "chaos-mesh.org", "names": names, "scope": "Namespaced", "versions": [version]},
    }
