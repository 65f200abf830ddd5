"""A server that implements the described parts of Docker's Engine API for one container, and records its requests.

It keeps the state that calls change: killing a stopped container is refused, and starting a running one is a 304. Each
request and each answer is checked against :mod:`tests.faults.engine_api_schema`, in the version that the request names.
``test_real_docker.py`` compares its answers with a real engine's, if the host can run one. For other versions, only the
descriptions are known.
"""

from __future__ import annotations

import http.server
import json
import re
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.engine_api_facts import Version
from tests.faults.engine_api_schema import VERSIONS, Operation, operation

Said = dict[str, Any] | str | None
"""An answer's body: an object, plain text, or None."""
ID = "4fa6e0f0c6786287e131c3852c58a2e01cc697a68231826813597e4994f1d6e2"
SHORT_ID = ID[:12]
NAME = "shop-web-1"
LAYER = f"/var/lib/docker/overlay2/{ID[::-1]}/diff"
_NO_SHORT_ID = (1, 45)
_ENDPOINT: dict[str, Any] = {"Aliases": ["web"], "IPAMConfig": None, "Links": None, "IPAddress": "172.18.0.2"}


@dataclass
class Engine:
    """The container, the versions that the engine supports, and the requests so far."""

    api_version: str = "1.43"
    oldest_version: str = "1.12"
    id: str = ID
    is_running: bool = True
    is_paused: bool = False
    is_restarting: bool = False
    starts: int = 1
    health: str | None = None
    """Docker's health status. Each start resets it to "starting"."""
    is_removed_at_end: bool = False
    networks: dict[str, dict[str, Any]] = field(default_factory=lambda: {"shop_default": dict(_ENDPOINT)})
    known_networks: tuple[str, ...] = ("shop_default", "back")
    requests: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    """Requests and answers that the description does not have."""

    def asked(self, method: str, path: str) -> tuple[Operation | None, str]:
        """Return the described call, or None, and its query. A path without a version is checked against the engine's
        own."""
        matched = re.fullmatch(r"(?:/v([0-9]+\.[0-9]+))?(/[^?]*)(?:\?(.*))?", path)
        assert matched is not None, path
        version = _version(matched[1] or self.api_version)
        if matched[1] is None:
            version = min(max(version, VERSIONS[0]), VERSIONS[-1])  # the engine's version has no description (yet)
        return operation(version, method, matched[2]) if version in VERSIONS else None, matched[3] or ""

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Said]:
        """Return status and body, as the description has them."""
        if path == "/_ping":
            return 200, "OK"
        if (method, path) == ("GET", "/version"):
            return 200, {"ApiVersion": self.api_version, "MinAPIVersion": self.oldest_version}
        matched = re.fullmatch(r"/v([0-9.]+)/(containers|networks)/([^/?]+)/([a-z]+)(?:\?(.*))?", path)
        if matched is None:
            return 404, {"message": "page not found"}
        version, kind, name, verb, query = matched.groups()
        if _version(version) > _version(self.api_version):
            highest = f"Maximum supported API version is {self.api_version}"
            return 400, {"message": f"client version {version} is too new. {highest}"}
        if kind == "networks":
            return self._network(method, name, verb, body)
        if name not in (self.id, NAME):
            what = f"Cannot kill container: {name}: " if verb == "kill" else ""
            return 404, {"message": f"{what}No such container: {name}"}
        status, said = self._container(method, verb, query, name, _version(version))
        call, _ = self.asked(method, path)
        is_known = call is None or status != 409 or call.has_status(409)
        return status if is_known else 500, said  # older versions answered a conflict with a server error

    def _container(self, method: str, verb: str, query: str | None, name: str, version: Version) -> tuple[int, Said]:
        match method, verb, query:
            case "GET", "json", None:
                return 200, self._inspected(version)
            case "POST", "kill", "signal=SIGKILL":
                if not self.is_running:
                    return 409, {"message": f"Cannot kill container: {name}: Container {self.id} is not running"}
                self.is_running = self.is_paused = False
                return 204, None
            case "POST", "start", None:
                return self._start()
            case "POST", "restart", "t=10":
                self.is_running = False
                return 204, self._start()[1]
            case "POST", "pause", None:
                if not self.is_running or self.is_paused:
                    state = "already paused" if self.is_paused else "not running"
                    return 409, {"message": f"Container {self.id} is {state}"}
                self.is_paused = True
                return 204, None
            case "POST", "unpause", None:
                if not self.is_paused:
                    return 500, {"message": f"Container {self.id} is not paused"}
                self.is_paused = False
                return 204, None
        return 404, {"message": "page not found"}

    def _start(self) -> tuple[int, Said]:
        if self.is_paused:
            return 409, {"message": "cannot start a paused container, try unpause instead"}
        if self.is_running:
            return 304, None
        self.is_running = True
        self.starts += 1
        self.health = self.health and "starting"
        return 204, None

    def _network(self, method: str, name: str, verb: str, body: dict[str, Any]) -> tuple[int, Said]:
        if method != "POST":
            return 404, {"message": "page not found"}
        if name not in self.known_networks:
            return 404, {"message": f"network {name} not found"}
        if body.get("Container") not in (self.id, NAME):
            return 404, {"message": f"No such container: {body.get('Container')}"}
        if verb == "disconnect":
            if name not in self.networks:
                return 500, {"message": f"container {self.id} is not connected to network {name}"}
            del self.networks[name]
            return 200, None
        if name in self.networks:
            return 403, {"message": f"endpoint with name {NAME} already exists in network {name}"}
        self.networks[name] = {**_ENDPOINT, **body["EndpointConfig"]}
        return 200, None

    def _inspected(self, version: Version) -> dict[str, Any]:
        state: dict[str, Any] = {
            "Running": self.is_running,
            "Paused": self.is_paused,
            "Restarting": self.is_restarting,
            "StartedAt": f"2026-11-21T10:00:{self.starts:02d}.000000001Z",
        }
        if self.health is not None:
            state["Health"] = {"Status": self.health}
        networks = {name: self._endpoint(endpoint, version) for name, endpoint in self.networks.items()}
        return {
            "Id": self.id,
            "Name": f"/{NAME}",
            "State": state,
            "HostConfig": {"AutoRemove": self.is_removed_at_end},
            "GraphDriver": {"Data": {"UpperDir": LAYER}},
            "NetworkSettings": {"Networks": networks},
        }

    def _endpoint(self, endpoint: dict[str, Any], version: Version) -> dict[str, Any]:
        """Return the endpoint. Until 1.44, the container's short id is one of its aliases, which a client may send
        back."""
        if version >= _NO_SHORT_ID:
            return endpoint
        given = [alias for alias in endpoint["Aliases"] if alias != SHORT_ID]
        return {**endpoint, "Aliases": [*given, SHORT_ID]}


def _version(shown: str) -> Version:
    major, minor = shown.split(".")
    return int(major), int(minor)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    engine: Engine

    def handle_error(self, request: object, client_address: object) -> None:
        """A killed client may disconnect at any time. Any other error in this server fails the test."""
        if not isinstance(error := sys.exception(), OSError):
            self.engine.violations.append(f"the server could not go on: {error!r}")


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        engine = self.server.engine
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.loads(content) if content else None
        engine.requests.append(f"{self.command} {self.path}")
        if body:
            engine.bodies.append(body)
        call, query = engine.asked(self.command, self.path)
        found = ["no such call is described"] if call is None else []
        found += call.of_request(query, self.headers.get("Content-Type"), body) if call else []
        status, said = engine.answer(self.command, self.path, body or {})
        headers = {"Api-Version": engine.api_version} if self.path == "/_ping" else {}
        text = "text/plain; charset=utf-8"
        content_type = None if said is None else text if isinstance(said, str) else "application/json"
        found += call.of_answer(status, headers, content_type, said) if call else []
        # Added before the answer is sent: a client that has the answer finds its violations.
        engine.violations += [f"{self.command} {self.path}: {problem}" for problem in found]
        self._say(status, headers, content_type, said)

    def _say(self, status: int, headers: dict[str, str], content_type: str | None, said: Said) -> None:
        answer = b"" if said is None else (said if isinstance(said, str) else json.dumps(said)).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if content_type is not None:
            self.send_header("Content-Type", content_type)
        if status not in (204, 304):
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        if answer:  # a client that expects no body may have disconnected
            self.wfile.write(answer)

    def do_POST(self) -> None:
        self.do_GET()

    def address_string(self) -> str:
        return "client"  # a unix socket has no address

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(engine: Engine, path: Path) -> Iterator[None]:
    """Serve the engine on a unix socket. At the end, raise AssertionError if a request or an answer is not as
    described."""
    with _Server(str(path), _Handler) as server:
        server.engine = engine
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
    assert not engine.violations, "\n".join(["Docker does not describe:", *engine.violations])
