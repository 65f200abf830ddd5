"""An embedded broker with secured listeners and an authorizer, like a production cluster.

The plain listener remains: clients that connect there are the super user, for managing topics, users and rights.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeVar

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from testbed.broker import BrokerError, EmbeddedBroker
from testbed.broker_settings import Listeners, server_properties, written
from testbed.certificates import Authority
from testbed.ports import free_port

Listener = Literal["SCRAM", "MUTUAL", "EXPIRED", "OAUTH"]
PLAIN_USERS: Final = {"plain-user": 'it"s \\ plain'}
"""Users of SASL PLAIN with their passwords; users of SCRAM are created with `SecuredBroker.add_user`."""

_PROTOCOLS: Final[Mapping[Listener, str]] = {
    "SCRAM": "SASL_SSL",
    "MUTUAL": "SSL",
    "EXPIRED": "SASL_SSL",
    "OAUTH": "SASL_SSL",
}
_LOOPBACK: Final = "127.0.0.1"
_RIGHT_SECONDS_MAX: Final = 30.0
_Binding = TypeVar("_Binding", AclBinding, AclBindingFilter)


class SecuredBroker(EmbeddedBroker):
    """One broker with one listener each for SASL over TLS (PLAIN and SCRAM), mutual TLS, SASL behind an expired
    certificate, and OAUTHBEARER (unsecured tokens). Without an ACL only the super user has rights.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder=folder / "broker")
        self.authority = Authority(folder / "ca")
        self._certificates = {
            name: self.authority.issue(f"broker-{name.lower()}", address=_LOOPBACK, expired=name == "EXPIRED")
            for name in _PROTOCOLS
        }
        self._listener_ports: dict[Listener, int] = {}

    def servers_of(self, listener: Listener, host: str = _LOOPBACK) -> str:
        """``host:port`` of a secured listener; known once the broker has been started."""
        return f"{host}:{self._listener_ports[listener]}"

    def add_user(self, name: str, password: str) -> None:
        """Create a user of SCRAM-SHA-256 and SCRAM-SHA-512, or change its password."""
        admin = self._admin()
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            made = UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, 4096), password.encode())
            # One request each: if one request has two, brokers refuse the second.
            for done in admin.alter_user_scram_credentials([made]).values():
                done.result(30)

    def allow(self, user: str, operation: str, kind: str, name: str) -> None:
        """Grant a right: ``allow("x", "READ", "TOPIC", "clicks")``; for the cluster use ``"CLUSTER",
        "kafka-cluster"``.
        """
        admin = self._admin()
        for done in admin.create_acls([_acl(AclBinding, user, operation, kind, name)]).values():
            done.result(30)
        self._await_right(_acl(AclBindingFilter, user, operation, kind, name), held=True)

    def revoke(self, user: str, operation: str, kind: str, name: str) -> None:
        """Revoke a right that `allow` granted."""
        admin, right = self._admin(), _acl(AclBindingFilter, user, operation, kind, name)
        for done in admin.delete_acls([right]).values():
            assert done.result(30), f"{user} had no {operation} on {kind} {name}"
        self._await_right(right, held=False)

    def _await_right(self, right: AclBindingFilter, *, held: bool) -> None:
        """Wait until the broker, and not only its controller, applies the change."""
        admin, deadline = self._admin(), time.monotonic() + _RIGHT_SECONDS_MAX
        while bool(admin.describe_acls(right).result(30)) != held:
            if time.monotonic() > deadline:
                raise BrokerError(f"The broker did not apply the change of {right} within {_RIGHT_SECONDS_MAX:g} s.")

    def _server_properties(self) -> str:
        assert self._ports is not None
        if not self._listener_ports:
            self._listener_ports = {name: free_port() for name in _PROTOCOLS}
        listeners = Listeners(*self._ports)
        ours = server_properties(listeners, self.folder / "data", replicas=self.replicas)
        ours["listeners"] += "".join(f",{name}://{_LOOPBACK}:{port}" for name, port in self._listener_ports.items())
        protocols = ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT"]
        protocols += [f"{name}:{protocol}" for name, protocol in _PROTOCOLS.items()]
        ours["listener.security.protocol.map"] = ",".join(protocols)
        ours["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        ours["super.users"] = "User:ANONYMOUS"
        ours["ssl.truststore.type"] = "PEM"
        ours["ssl.truststore.location"] = str(self.authority.certificate)
        for name in _PROTOCOLS:
            ours.update(self._secured(name))
        return written({**ours, **self.settings})

    def _secured(self, name: Listener) -> dict[str, str]:
        below = f"listener.name.{name.lower()}."
        store = self.folder / f"{name.lower()}.pem"
        store.write_text(self._certificates[name].key_store, encoding="ascii")
        found = {f"{below}ssl.keystore.type": "PEM", f"{below}ssl.keystore.location": str(store)}
        if name == "MUTUAL":
            found[f"{below}ssl.client.auth"] = "required"
            found[f"{below}ssl.principal.mapping.rules"] = r"RULE:^CN=(.*?)$/$1/,DEFAULT"
        elif name == "OAUTH":
            module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
            found[f"{below}sasl.enabled.mechanisms"] = "OAUTHBEARER"
            found[f"{below}oauthbearer.sasl.jaas.config"] = f'{module} required unsecuredLoginStringClaim_sub="broker";'
        else:
            found[f"{below}sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
            users = "".join(f' user_{user}="{_quoted(password)}"' for user, password in PLAIN_USERS.items())
            security = "org.apache.kafka.common.security"
            found[f"{below}plain.sasl.jaas.config"] = f"{security}.plain.PlainLoginModule required{users};"
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                found[f"{below}{mechanism}.sasl.jaas.config"] = f"{security}.scram.ScramLoginModule required;"
        return {key: value.replace("\\", "\\\\") for key, value in found.items()}


def _quoted(password: str) -> str:
    return password.replace("\\", "\\\\").replace('"', '\\"')


def _acl(binding: type[_Binding], user: str, operation: str, kind: str, name: str) -> _Binding:
    # The client's resource type for the cluster has the name BROKER, by an error of the client.
    kinds = ResourceType.BROKER if kind == "CLUSTER" else ResourceType[kind]
    pattern, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return binding(kinds, name, pattern, f"User:{user}", "*", AclOperation[operation], allow)
