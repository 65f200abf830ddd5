"""A server with the part of the Kubernetes API that the faults use. It plays Chaos Mesh, and records its requests.

Objects are checked strictly against :mod:`tests.faults.chaos_mesh_schema`. The passes of Chaos Mesh's controller
(:mod:`tests.faults.chaos_controller`) happen during a watch request. Statuses and refusal messages are those of
kube-apiserver 1.34, which ``test_real_api_server.py`` runs.
"""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.faults.chaos_controller import after_a_pass, holds
from tests.faults.chaos_mesh_schema import SPECS, refusals

_PLURALS = {kind.lower(): kind for kind in SPECS}
_PATH = re.compile(r"/apis/chaos-mesh\.org/v1alpha1/namespaces/shop/([a-z]+)(?:/([-a-z0-9]+))?")
_VERBS = {"POST": "create", "GET": "get", "PATCH": "patch", "DELETE": "delete"}
Answer = tuple[int, dict[str, Any] | str]


def _status(code: int, message: str) -> Answer:
    return code, {"kind": "Status", "status": "Failure", "message": message, "code": code}


@dataclass
class Cluster:
    """A namespace ``shop`` with pods and, during a fault, objects of Chaos Mesh."""

    token: str = ""
    has_chaos_mesh: bool = True
    is_selecting: bool = True
    ready_pods: int = 3
    failing: dict[str, str] = field(default_factory=dict)
    """Operation of Chaos Mesh -> why it fails on the second pod."""
    forbidden: frozenset[str] = frozenset()
    """Verbs on Chaos Mesh's objects that are forbidden to the caller."""
    is_away: Callable[[str], bool] = lambda _: False
    """Return whether the server cannot answer a request of this method now."""
    is_forgetful: bool = False
    """Whether the server has lost the earlier resource versions, as after a start: a watch from such a version ends
    with an error."""
    away_status: int = 503
    """Status while ``is_away``. A server that is starting answers 403."""
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    made: list[dict[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    is_recovered_before_deletion: list[bool] = field(default_factory=list)
    version: int = 1

    def answer(self, method: str, path: str, query: dict[str, str], kind: str, body: dict[str, Any]) -> Answer:
        """Return status and JSON."""
        if path == "/api/v1/namespaces/shop/pods" and query.get("labelSelector") == "app=worker":
            hurt = any(
                holds(o, "AllInjected") and o["spec"].get("action") == "pod-failure" for o in self.objects.values()
            )
            ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}, "metadata": {}}
            return 200, {"items": [ready] * (self.ready_pods - hurt)}
        if path == "/api/v1/namespaces/shop/pods":
            return 200, {"items": []}
        matched = _PATH.fullmatch(path)
        if matched is None or matched[1] not in _PLURALS or not self.has_chaos_mesh:
            return 404, "404 page not found\n"  # not JSON, as for every path that the server does not know
        plural, name = matched.groups()
        verb = "list" if name is None and method == "GET" else _VERBS[method]
        if verb in self.forbidden:
            what = f'{plural}.chaos-mesh.org is forbidden: User "runner" cannot {verb} resource "{plural}"'
            return _status(403, f'{what} in API group "chaos-mesh.org" in the namespace "shop"')
        if name is None:
            if method == "POST":
                return self._create(_PLURALS[plural], query, body)
            return 200, {"items": list(self.objects.values())}
        if name not in self.objects:
            return _status(404, f'{plural}.chaos-mesh.org "{name}" not found')
        seen = self.objects[name]
        if query.get("dryRun") == "All":
            return 200, seen
        match method:
            case "PATCH" if kind == "application/merge-patch+json":
                seen["metadata"].setdefault("annotations", {}).update(body["metadata"]["annotations"])
            case "DELETE":
                self.is_recovered_before_deletion.append(holds(seen, "AllRecovered"))
                if not seen["metadata"].get("finalizers"):
                    return 200, self.objects.pop(name)
                seen["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
            case "GET":
                return 200, seen
            case _:
                return _status(415, "unsupported")
        return 200, self._changed(seen)

    def _create(self, kind: str, query: dict[str, str], body: dict[str, Any]) -> Answer:
        wrong = refusals(body)
        if query.get("fieldValidation") != "Strict" or body["kind"] != kind or wrong:
            return _status(422, f"{kind} is invalid: {'; '.join(wrong)}")
        name = body["metadata"]["name"]
        if name in self.objects:
            return _status(409, f'"{name}" already exists')
        if query.get("dryRun") == "All":
            return 201, body
        self.made.append(body)
        self.objects[name] = json.loads(json.dumps(body))
        return 201, self._changed(self.objects[name])

    def _changed(self, seen: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        seen["metadata"]["resourceVersion"] = str(self.version)
        return seen

    def reconcile(self, name: str) -> dict[str, Any]:
        """Run one pass of Chaos Mesh's controller on the object; return the watch event."""
        pods = [f"shop/worker-{number}" for number in range(self.ready_pods if self.is_selecting else 0)]
        made = after_a_pass(self.objects[name], lambda _: pods, self._act)
        if "deletionTimestamp" in made["metadata"] and not made["metadata"]["finalizers"]:
            del self.objects[name]
            return {"type": "DELETED", "object": made}
        self.objects[name] = made
        return {"type": "MODIFIED", "object": self._changed(made)}

    def _act(self, operation: str, pod: str) -> str | None:
        return self.failing.get(operation) if pod == "shop/worker-1" else None


class _Server(http.server.ThreadingHTTPServer):
    cluster: Cluster


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        cluster, parts = self.server.cluster, urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.loads(content) if content else {}
        cluster.requests.append(f"{self.command} {parts.path}" + ("?dryRun" if "dryRun" in query else ""))
        if cluster.token and self.headers.get("Authorization") != f"Bearer {cluster.token}":
            return self._say(*_status(401, "Unauthorized"))
        if cluster.is_away(self.command):
            return self._say(*_status(cluster.away_status, "the server is currently unable to handle the request"))
        if "watch" in query:
            name = query["fieldSelector"].removeprefix("metadata.name=")
            if "watch" in cluster.forbidden:
                return self._say(*_status(403, 'User "runner" cannot watch resource'))
            if cluster.is_forgetful:
                return self._say(200, {"type": "ERROR", "object": _status(410, "too old resource version: 1 (300)")[1]})
            return self._say(200, cluster.reconcile(name) if name in cluster.objects else {})
        self._say(*cluster.answer(self.command, parts.path, query, self.headers["Content-Type"], body))
        return None

    def do_POST(self) -> None:
        self.do_GET()

    def do_PATCH(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def _say(self, status: int, said: dict[str, Any] | str) -> None:
        content = said.encode() if isinstance(said, str) else json.dumps(said).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(cluster: Cluster) -> Iterator[str]:
    """Serve the cluster's API; yield its address."""
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.cluster = cluster
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
