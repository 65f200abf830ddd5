"""A Kubernetes API server: objects made, changed, watched and deleted over HTTP, with the standard library.

Inside a cluster the pod's service account is used; outside, ``kubectl proxy`` gives an address that needs neither
token nor certificates.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from faults.errors import FaultRefused
from faults.targets import PodsTarget

_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ANSWER_SECONDS_MAX: Final = 30.0
Object = dict[str, Any]


@dataclass(frozen=True)
class Server:
    """Where the API server is, and what it wants to see."""

    address: str
    token_file: Path | None
    ca_file: Path | None


def server_of(target: PodsTarget) -> Server:
    """The server that the target names, else the cluster that we run in. Raises FaultRefused where there is none."""
    if target.server is not None:
        return Server(target.server, target.token_file, target.ca_file)
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    if host is None:
        raise FaultRefused(why_not_here() or "")
    port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    account = (target.token_file or _ACCOUNT / "token", target.ca_file or _ACCOUNT / "ca.crt")
    return Server(f"https://{f'[{host}]' if ':' in host else host}:{port}", *account)


def why_not_here() -> str | None:
    """Why there is no cluster around us; None where there is."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return None
    return "we do not run inside a cluster; give the target a server, such as the address of `kubectl proxy`."


class Kubernetes:
    """The API of one server. Calls raise FaultRefused with what the server said."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Object | None:
        """The object at ``path``; None where there is none."""
        return self._call("GET", path, query, may_be_absent=True)

    def create(self, path: str, made: Object, query: Mapping[str, str]) -> None:
        """Make an object; no field that the server does not know passes."""
        self._call("POST", path, {"fieldValidation": "Strict", **query}, made)

    def annotate(self, path: str, annotations: Mapping[str, str]) -> None:
        """Set annotations of the object at ``path``, if there is one."""
        self._call("PATCH", path, None, {"metadata": {"annotations": dict(annotations)}}, may_be_absent=True)

    def delete(self, path: str) -> None:
        """Delete the object at ``path``, if there is one; its finalizers may keep it for a while."""
        self._call("DELETE", path, None, may_be_absent=True)

    def await_change(self, path: str, name: str, version: str, seconds: int) -> None:
        """Return when the object ``name`` of the collection ``path`` is another than ``version``, or after a time."""
        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={name}",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        connection = self._connection()
        try:
            connection.request("GET", f"{path}?{urlencode(query)}", headers=self._headers())
            connection.getresponse().readline()
        except (OSError, http.client.HTTPException):
            return  # the next look at the object says what is wrong
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
        connection = self._connection()
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, f"{path}?{urlencode(query)}" if query else path, content, self._headers(kind))
            answer = connection.getresponse()
            status, said = answer.status, _parsed(answer.read())
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise FaultRefused(f"{address}: no API server answers there ({why}).") from error
        finally:
            connection.close()
        if status == http.client.NOT_FOUND and may_be_absent:
            return None
        if status >= http.client.BAD_REQUEST or said is None:
            what = (said or {}).get("message") or f"status {status}"
            raise FaultRefused(f"{address}: the API server refused {method} {path}: {str(what).rstrip('.')}.")
        return said

    def _connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self._server.address)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise FaultRefused(f"server: {self._server.address} is no http:// or https:// address.")
        if parts.scheme == "http":
            return http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=_ANSWER_SECONDS_MAX)
        try:
            context = ssl.create_default_context(cafile=self._server.ca_file)
        except OSError as error:
            raise FaultRefused(f"ca_file: {self._server.ca_file} cannot be used ({error.strerror}).") from error
        return http.client.HTTPSConnection(
            parts.hostname, parts.port or 443, timeout=_ANSWER_SECONDS_MAX, context=context
        )

    def _headers(self, kind: str = "application/json") -> dict[str, str]:
        headers = {"Content-Type": kind, "Accept": "application/json"}
        if self._server.token_file is not None:
            try:
                # Read anew each time: a cluster changes it while we run.
                headers["Authorization"] = f"Bearer {self._server.token_file.read_text(encoding='utf-8').strip()}"
            except OSError as error:
                raise FaultRefused(
                    f"token_file: {self._server.token_file} cannot be read ({error.strerror})."
                ) from error
        return headers


def _parsed(content: bytes) -> Object | None:
    try:
        said = json.loads(content)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None
