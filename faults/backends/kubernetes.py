"""Client of a Kubernetes API server: creates, changes, watches and deletes objects, with the standard library.

Inside a cluster, it uses the pod's service account. Outside, ``kubectl proxy`` provides an address that needs neither
token nor certificates; a kubeconfig is not read.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from faults.errors import FaultRefused, Unreachable
from faults.targets import PodsTarget

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_READ_SECONDS_MAX: Final = 10.0
_WRITE_SECONDS_MAX: Final = 30.0  # the server calls webhooks, each with its own timeout
_MESSAGE_CHARACTERS_MAX: Final = 200
# Returned by a server that starts, stops, is overloaded, or waits for its store or a webhook, and by a proxy in front
# of a server that does not answer. A starting server has not loaded the permissions yet, and refuses every client.
_NOT_NOW: Final = (
    http.client.UNAUTHORIZED,
    http.client.FORBIDDEN,
    http.client.TOO_MANY_REQUESTS,
    http.client.INTERNAL_SERVER_ERROR,
    http.client.BAD_GATEWAY,
    http.client.SERVICE_UNAVAILABLE,
    http.client.GATEWAY_TIMEOUT,
)
Object = dict[str, Any]


@dataclass(frozen=True)
class Server:
    """The address of an API server, and the files of the token and of the CA."""

    address: str
    token_file: Path | None
    ca_file: Path | None


def server_of(target: PodsTarget) -> Server:
    """The server that the target names, else that of the surrounding cluster. Raises FaultRefused if there is none."""
    if target.server is not None:
        return Server(target.server, target.token_file, target.ca_file)
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    if host is None:
        raise FaultRefused(why_not_here() or "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    account = (target.token_file or _ACCOUNT / "token", target.ca_file or _ACCOUNT / "ca.crt")
    return Server(f"https://{f'[{host}]' if ':' in host else host}:{port}", *account)


def why_not_here() -> str | None:
    """Why there is no surrounding cluster; None if this process runs in one."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return None
    return "the runner does not run inside a cluster; set the target's server, e.g. to the address of `kubectl proxy`."


class Kubernetes:
    """Client of one server. Calls raise FaultRefused with the server's message, Unreachable if a retry may succeed."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Object | None:
        """The object at ``path``; None if it does not exist."""
        return self._call("GET", path, query, may_be_absent=True)

    def create(self, path: str, made: Object, query: Mapping[str, str]) -> None:
        """Create an object. The server refuses unknown fields."""
        self._call("POST", path, {"fieldValidation": "Strict", **query}, made)

    def annotate(self, path: str, annotations: Mapping[str, str], query: Mapping[str, str] | None = None) -> None:
        """Set annotations of the object at ``path``, if it exists."""
        self._call("PATCH", path, query, {"metadata": {"annotations": dict(annotations)}}, may_be_absent=True)

    def delete(self, path: str, query: Mapping[str, str] | None = None) -> None:
        """Delete the object at ``path``, if it exists. Its finalizers may delay the deletion."""
        self._call("DELETE", path, query, may_be_absent=True)

    def await_change(self, path: str, name: str, version: str, seconds: int) -> None:
        """Wait until object ``name`` of the collection ``path`` differs from ``version``, for at most ``seconds``."""
        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={name}",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        connection = self._connection(_READ_SECONDS_MAX)
        try:
            connection.request("GET", f"{path}?{urlencode(query)}", headers=self._headers())
            answer = connection.getresponse()
            event = _parsed(answer.readline() or b"{}")
            if answer.status != http.client.OK or event is None or event.get("type") == "ERROR":
                # The watch is not permitted, or a restarted server does not know the version. Without this wait, the
                # caller would request the object in a busy loop.
                time.sleep(seconds)
        except (OSError, http.client.HTTPException):
            return  # the caller's next request for the object reports the error
        finally:
            connection.close()

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Object | None = None,
        *,
        may_be_absent: bool = False,
    ) -> Object | None:
        address = self._server.address
        connection = self._connection(_READ_SECONDS_MAX if method == "GET" else _WRITE_SECONDS_MAX)
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, f"{path}?{urlencode(query)}" if query else path, content, self._headers(kind))
            answer = connection.getresponse()
            status, text = answer.status, answer.read()
        except ssl.SSLCertVerificationError as error:
            raise FaultRefused(
                f"{address}: its certificate is not accepted ({error.verify_message.rstrip('.')}); set ca_file: to "
                "the file with the cluster's CA."
            ) from error
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Unreachable(f"{address}: no API server answers there ({why}).") from error
        finally:
            connection.close()
        if status == http.client.NOT_FOUND and may_be_absent:
            return None
        said = _parsed(text)
        if status >= http.client.BAD_REQUEST or said is None:
            what = str((said or {}).get("message") or _first_line(text) or f"status {status}")
            refusal = f"{address}: the API server refused {method} {path}: {what.rstrip('.')}."
            # A PATCH conflicts if the controller wrote the object while the server applied the patch.
            is_passing = status in _NOT_NOW or (status == http.client.CONFLICT and method == "PATCH")
            raise (Unreachable if is_passing else FaultRefused)(refusal)
        return said

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        parts = urlsplit(self._server.address)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise FaultRefused(f"server: {self._server.address} is not an http:// or https:// address.")
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=seconds)
        try:
            context = ssl.create_default_context(cafile=self._server.ca_file)
        except OSError as error:
            raise FaultRefused(f"ca_file: {self._server.ca_file} cannot be used ({error.strerror}).") from error
        return http.client.HTTPSConnection(parts.hostname, parts.port or 443, timeout=seconds, context=context)

    def _headers(self, kind: str = "application/json") -> dict[str, str]:
        headers = {"Content-Type": kind, "Accept": "application/json"}
        if self._server.token_file is not None:
            # Read for each request, since the cluster rotates the token.
            headers["Authorization"] = f"Bearer {_token(self._server.token_file)}"
        return headers


def _token(file: Path) -> str:
    try:
        token = file.read_bytes().strip()
    except OSError as error:
        raise FaultRefused(f"token_file: {file} cannot be read ({error.strerror}).") from error
    if not token.isascii() or not token or len(token.split()) > 1:
        raise FaultRefused(f"token_file: {file} holds no token; write only the token to it (ASCII, no spaces).")
    return token.decode("ascii")


def _parsed(content: bytes) -> Object | None:
    try:
        said = json.loads(content)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def _first_line(content: bytes) -> str:
    """The first line of a response that is not JSON, such as that of another server; empty if there is none."""
    lines = content.decode(errors="replace").splitlines()
    return lines[0][:_MESSAGE_CHARACTERS_MAX] if lines else ""
