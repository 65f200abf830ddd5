"""Access to a sidecar's port: the accepted host names, the bearer token, and the certificate of the port."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import socket
import ssl
from hmac import compare_digest
from pathlib import Path
from typing import Final

from validator.config.model import TOKEN_MIN, Authorization, Metrics, TlsServer
from validator.publish.published_files import Say

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Paths that are served without a token. A kubelet or supervisor probes them without a secret, and they only show
whether the process lives and when it committed a batch."""
CHALLENGE: Final = 'Bearer realm="streamproof", Basic realm="streamproof", charset="UTF-8"'
"""A browser prompts for the second scheme: any user name, and the token as the password."""


class AccessError(Exception):
    """A file that `metrics` names cannot be used."""

    exit_status = 2


_AUTHORITY: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{0,5})?")
"""A host and perhaps a port (RFC 9110, 7.2); no user: `evil@127.0.0.1` names 127.0.0.1 to some readers only."""


class Access:
    """The configured access rules of one port."""

    def __init__(self, metrics: Metrics, say: Say) -> None:
        """Raises AccessError for a file that cannot be used. ``say`` gets a message if a file cannot be read again."""
        self._allowed = tuple(name.lower() for name in metrics.allowed_hosts)
        self._authorization = metrics.authorization
        self._token()
        self._certificate = None if metrics.tls_server_config is None else Certificate(metrics.tls_server_config, say)

    def encryption(self) -> ssl.SSLContext | None:
        """Return the TLS context of a new connection; None for plain HTTP."""
        return None if self._certificate is None else self._certificate.context()

    def accepts_host(self, authority: str) -> bool:
        """Return whether requests with `Host: authority` are accepted.

        An IP address is always accepted: in a DNS rebinding attack, the browser sends the host name of the attacker's
        page, never an address.
        """
        found = _AUTHORITY.fullmatch(authority)
        if found is None:
            return False
        host = found["host"].strip("[]").lower().removesuffix(".")  # a final dot names the same host
        if host == "localhost" or host == socket.gethostname().lower() or _is_address(host):
            return True
        return any(_fits(host, allowed) for allowed in self._allowed)

    def admits(self, path: str, authorization: str) -> bool:
        """Return whether a request for ``path`` with this `Authorization` may be answered. Raises AccessError."""
        if path in OPEN_PATHS:
            return True
        token = self._token()
        return token is None or compare_digest(_presented(authorization), token.encode())

    def _token(self) -> str | None:
        # The token is read for each request, so that a change takes effect at once, as in Prometheus.
        return None if self._authorization is None else token_of(self._authorization)


class Certificate:
    """The certificate and key of the port, read again when one of the files changes."""

    def __init__(self, files: TlsServer, say: Say) -> None:
        self._files = files
        self._say = say
        self._seen = self._changed()
        self._context = self._read()

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of a new connection. If the files cannot be used, the previous context stays."""
        try:
            seen = self._changed()
            if seen != self._seen:
                self._seen = seen
                self._context = self._read()
        except AccessError as error:
            self._say(f"{error} The sidecar keeps the previous certificate in use.")
        return self._context

    def _changed(self) -> tuple[int, ...]:
        try:
            states = [path.stat() for path in (self._files.cert_file, self._files.key_file)]
        except OSError:
            return ()  # `_read` reports the reason
        return tuple(part for state in states for part in (state.st_mtime_ns, state.st_size, state.st_ino))

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # An encrypted key must not prompt on a terminal.
            context.load_cert_chain(self._files.cert_file, self._files.key_file, password="")
        except OSError as error:  # includes SSLError
            which = f"{self._files.cert_file} and {self._files.key_file}"
            reason = error.strerror or type(error).__name__
            raise AccessError(
                f"metrics.tls_server_config: {which} cannot be used ({reason}); set cert_file to a PEM certificate "
                "chain and key_file to its unencrypted key."
            ) from None
        return context


def token_of(authorization: Authorization) -> str:
    """Return the token that readers must present. Raises AccessError."""
    if authorization.credentials is not None:
        return authorization.credentials.get_secret_value()
    path = authorization.credentials_file
    assert path is not None
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not ASCII text"
        raise AccessError(
            f"metrics.authorization.credentials_file: {path} cannot be read ({reason}); make it readable ASCII text."
        ) from None
    if len(token) < TOKEN_MIN:
        said = f"the token in {path} has fewer than {TOKEN_MIN} characters"
        fix = "write a longer token, for example the output of `openssl rand -hex 32`"
        raise AccessError(f"metrics.authorization.credentials_file: {said}; {fix}.")
    return token


def _presented(authorization: str) -> bytes:
    """Return the token in a header `Authorization` of either scheme; empty for anything else."""
    scheme, _, given = authorization.strip().partition(" ")
    if scheme.lower() == "bearer":
        return given.strip().encode("utf-8", "surrogateescape")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(given, validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _fits(host: str, allowed: str) -> bool:
    return allowed in ("*", host) or (allowed.startswith("*.") and host.endswith(allowed[1:]))
