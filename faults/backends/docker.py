"""Docker's Engine API: HTTP over a Unix socket, in a version that both sides support.

The calls are those of the Engine API's reference (containers: inspect, kill, pause, unpause, start, restart; networks:
connect, disconnect), which are the same in all versions from 1.25 to 1.55 (github.com/moby/moby, api/docs). Engines
before 1.25 do not report their version.
"""

from __future__ import annotations

import http.client
import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from faults.errors import FaultRefused, Unreachable

SOCKET: Final = Path("/var/run/docker.sock")
_ANSWER_SECONDS_MAX: Final = 30.0
_OLDEST: Final = (1, 25)
_NEWEST: Final = (1, 55)
"""The newest supported API version, which is also used with newer servers."""
Version = tuple[int, int]


@dataclass(frozen=True)
class Container:
    """A container as inspect reports it."""

    id: str
    is_running: bool
    is_paused: bool
    is_restarting: bool
    """The container ended, and Docker is about to start it again under its restart policy."""
    is_healthy: bool
    """Whether the container's own health check reports it as healthy; True if it has none."""
    is_removed_at_end: bool
    """Whether Docker removes the container when it ends (``docker run --rm``), so that it cannot be restarted."""
    layer: str | None
    """Folder of the container's writable layer; None if the storage driver reports none."""
    started: str
    endpoints: dict[str, str]
    """Network -> configuration of the endpoint, as the JSON that reconnects it."""


class NoSuchContainer(FaultRefused):
    """Docker has no container with that name or id."""


class _OverSocket(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("docker", timeout=_ANSWER_SECONDS_MAX)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class Docker:
    """Client of the Docker engine at the socket ``path``.

    Every call raises FaultRefused with Docker's message if Docker refuses it, Unreachable if Docker does not answer.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version: Version | None = None

    def version(self) -> Version:
        """The API version of the calls: that of the server, at most ``_NEWEST``. Raises FaultRefused if unsupported."""
        if self._version is None:
            status, headers, _ = self._send("GET", "/_ping")
            theirs = _parsed(headers.get("api-version", ""))
            if status != http.client.OK or theirs is None:
                raise FaultRefused(f"{self._path}: the server at this socket is not Docker; name Docker's socket.")
            if theirs < _OLDEST:
                raise FaultRefused(
                    f"{self._path}: Docker's API is {_shown(theirs)}; streamproof needs {_shown(_OLDEST)} or newer."
                )
            ours = min(theirs, _NEWEST)
            oldest = _parsed(str(self._json("GET", "/version").get("MinAPIVersion", "1.0"))) or ours
            if oldest > ours:
                raise FaultRefused(
                    f"{self._path}: Docker accepts API {_shown(oldest)} or newer; streamproof supports "
                    f"{_shown(_NEWEST)} at most; update streamproof."
                )
            self._version = ours
        return self._version

    def inspect(self, container: str) -> Container:
        """The container of this name or id. Raises NoSuchContainer."""
        # Docker reports names with a leading slash.
        said = self._call("GET", f"/containers/{quote(container.removeprefix('/'), safe='')}/json")
        try:
            return self._container(said)
        except (KeyError, TypeError, AttributeError) as error:
            raise FaultRefused(f"{self._path}: Docker's description of {container} has an unknown format.") from error

    def _container(self, said: dict[str, Any]) -> Container:
        state = said["State"]
        kept = ("IPAMConfig", "Links", "Aliases", "DriverOpts", "GwPriority")
        return Container(
            id=said["Id"],
            is_running=state["Running"] and not state.get("Restarting", False),
            is_paused=state["Paused"],
            is_restarting=state.get("Restarting", False),
            is_healthy=(state.get("Health") or {}).get("Status", "none") in ("none", "healthy"),
            is_removed_at_end=(said.get("HostConfig") or {}).get("AutoRemove", False),
            layer=((said.get("GraphDriver") or {}).get("Data") or {}).get("UpperDir"),
            started=state["StartedAt"],
            endpoints={
                network: json.dumps({key: endpoint[key] for key in kept if endpoint.get(key)})
                for network, endpoint in said["NetworkSettings"]["Networks"].items()
            },
        )

    def kill(self, container: str) -> None:
        """Send SIGKILL to the container."""
        self._call("POST", f"/containers/{container}/kill?signal=SIGKILL")

    def pause(self, container: str) -> None:
        """Freeze all processes of the container."""
        self._call("POST", f"/containers/{container}/pause")

    def unpause(self, container: str) -> None:
        """Let the processes of the container run again."""
        self._call("POST", f"/containers/{container}/unpause")

    def start(self, container: str) -> None:
        """Start the container. Does nothing if it runs."""
        self._call("POST", f"/containers/{container}/start")

    def restart(self, container: str, stop_seconds: int) -> None:
        """Stop the container, with SIGKILL after ``stop_seconds``, and start it. Returns when it is started."""
        self._call("POST", f"/containers/{container}/restart?t={stop_seconds}")

    def disconnect(self, container: str, network: str) -> None:
        """Disconnect the container from a network."""
        self._call("POST", f"/networks/{quote(network, safe='')}/disconnect", {"Container": container, "Force": False})

    def connect(self, container: str, network: str, endpoint: str) -> None:
        """Connect the container to a network, with the ``endpoint`` from :attr:`Container.endpoints`."""
        body = {"Container": container, "EndpointConfig": json.loads(endpoint)}
        self._call("POST", f"/networks/{quote(network, safe='')}/connect", body)

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._json(method, f"/v{_shown(self.version())}{path}", body)

    def _json(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        status, _, content = self._send(method, path, body)
        try:
            said = json.loads(content) if content.strip() else {}
        except ValueError:
            said = {}
        if status >= http.client.BAD_REQUEST:
            what = said.get("message") or f"status {status}"
            is_absent = status == http.client.NOT_FOUND and "no such container" in str(what).lower()
            kind = NoSuchContainer if is_absent else FaultRefused
            raise kind(f"Docker refused {method} {path}: {str(what).rstrip('.')}.")
        return said if isinstance(said, dict) else {}

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, str], bytes]:
        connection = _OverSocket(self._path)
        try:
            headers = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            advice = "start Docker, or name its socket"
            if isinstance(error, PermissionError):
                advice = "run the command as root, or as a member of the socket's group"
            raise Unreachable(f"{self._path}: no Docker answers there ({why}); {advice}.") from error
        finally:
            connection.close()


def why_not_here(path: Path = SOCKET) -> str | None:
    """Why Docker at ``path`` cannot be used; None if it can."""
    try:
        Docker(path).version()
    except FaultRefused as error:
        return str(error)
    return None


def _parsed(version: str) -> Version | None:
    major, _, minor = version.partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


def _shown(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
