"""A server that speaks Docker's Engine API as its reference has it, for one container, and records what it is asked.

It answers only the documented paths, methods and statuses, and keeps the state that they change: killing what does not
run is a 409, starting what runs a 304, as the reference says.
"""

from __future__ import annotations

import http.server
import json
import re
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ID = "4fa6e0f0c6786287e131c3852c58a2e01cc697a68231826813597e4994f1d6e2"
NAME = "shop-web-1"
_ENDPOINT: dict[str, Any] = {"Aliases": ["web"], "IPAMConfig": None, "Links": None, "IPAddress": "172.18.0.2"}


@dataclass
class Engine:
    """The container, the versions that the engine speaks, and the requests so far."""

    api_version: str = "1.43"
    oldest_version: str = "1.12"
    is_running: bool = True
    is_paused: bool = False
    starts: int = 1
    health: str | None = None
    networks: dict[str, dict[str, Any]] = field(default_factory=lambda: {"shop_default": dict(_ENDPOINT)})
    requests: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Status and JSON, as the reference has them."""
        if path == "/_ping":
            return 200, {}
        if (method, path) == ("GET", "/version"):
            return 200, {"ApiVersion": self.api_version, "MinAPIVersion": self.oldest_version}
        matched = re.fullmatch(r"/v([0-9.]+)/(containers|networks)/([^/?]+)/([a-z]+)(?:\?(.*))?", path)
        if matched is None:
            return 404, {"message": "page not found"}
        version, kind, name, verb, query = matched.groups()
        if tuple(map(int, version.split("."))) > tuple(map(int, self.api_version.split("."))):
            return 400, {"message": f"client version {version} is too new. Maximum supported API version is ..."}
        if kind == "networks":
            return self._network(method, name, verb, body)
        if name not in (ID, NAME):
            return 404, {"message": f"No such container: {name}"}
        return self._container(method, verb, query)

    def _container(self, method: str, verb: str, query: str | None) -> tuple[int, dict[str, Any]]:
        match method, verb, query:
            case "GET", "json", None:
                return 200, self._inspected()
            case "POST", "kill", "signal=SIGKILL":
                if not self.is_running:
                    return 409, {"message": f"Container {ID} is not running"}
                self.is_running = self.is_paused = False
                return 204, {}
            case "POST", "start", None:
                return self._start()
            case "POST", "restart", "t=10":
                self.is_running = False
                return 204, self._start()[1]
            case "POST", ("pause" | "unpause"), None:
                if not self.is_running or self.is_paused == (verb == "pause"):
                    return 409, {"message": f"Container {ID} is not in a state for {verb}"}
                self.is_paused = verb == "pause"
                return 204, {}
        return 404, {"message": "page not found"}

    def _start(self) -> tuple[int, dict[str, Any]]:
        if self.is_running:
            return 304, {}
        self.is_running = True
        self.starts += 1
        return 204, {}

    def _network(self, method: str, name: str, verb: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if method != "POST" or body.get("Container") != ID:
            return 404, {"message": "No such container"}
        if verb == "disconnect":
            if name not in self.networks:
                return 403, {"message": f"container {ID} is not connected to network {name}"}
            del self.networks[name]
            return 200, {}
        if name in self.networks:
            return 403, {"message": f"endpoint with name {NAME} already exists in network {name}"}
        self.networks[name] = {**_ENDPOINT, **body["EndpointConfig"]}
        return 200, {}

    def _inspected(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "Running": self.is_running,
            "Paused": self.is_paused,
            "Restarting": False,
            "StartedAt": f"2026-11-21T10:00:{self.starts:02d}.000000001Z",
        }
        if self.health is not None:
            state["Health"] = {"Status": self.health}
        return {"Id": ID, "Name": f"/{NAME}", "State": state, "NetworkSettings": {"Networks": self.networks}}


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    engine: Engine


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        engine = self.server.engine
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.loads(content) if content else {}
        engine.requests.append(f"{self.command} {self.path}")
        if body:
            engine.bodies.append(body)
        status, said = engine.answer(self.command, self.path, body)
        answer = b"" if status in (204, 304) else json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Api-Version", engine.api_version)
        if status not in (204, 304):
            self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_POST(self) -> None:
        self.do_GET()

    def address_string(self) -> str:
        return "client"  # a unix socket has no address

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(engine: Engine, path: Path) -> Iterator[None]:
    """The engine on a unix socket."""
    with _Server(str(path), _Handler) as server:
        server.engine = engine
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
