"""Leaders of a cluster with TLS, SASL and ACLs: the same options file as for the other faults of Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.backends.kafka_leaders import Leaders
from faults.errors import FaultRefused, Unreachable
from testbed.certificates import KEY_PASSWORD
from testbed.secured_broker import PLAIN_USERS, Listener, SecuredBroker

pytestmark = pytest.mark.full

PASSWORD = 'pass"word \\ 1='


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as broker:
        broker.add_user("mover", PASSWORD)
        broker.add_user("reader", PASSWORD)
        for user in ("mover", *PLAIN_USERS):
            for right in ("ALTER", "DESCRIBE"):
                broker.allow(user, right, "CLUSTER", "kafka-cluster")
        yield broker


@pytest.fixture
def leaders(secured: SecuredBroker, tmp_path: Path) -> Callable[..., Leaders]:
    """A client of a listener with these options, in the file that a target names."""

    def make(listener: Listener, protocol: str, **options: str) -> Leaders:
        given = {"security.protocol": protocol, "ssl.ca.location": str(secured.authority.certificate)}
        given |= {name.replace("_", "."): value for name, value in options.items()}
        file = tmp_path / "options"
        file.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
        return Leaders(secured.servers_of(listener), file)

    return make


@pytest.mark.parametrize("how", ["SCRAM-SHA-512", "PLAIN", "mutual TLS"])
def test_leaders_are_moved_through_a_secured_listener(
    secured: SecuredBroker, leaders: Callable[..., Leaders], tmp_path: Path, topic_names: Callable[[str], str], how: str
) -> None:
    if how == "mutual TLS":
        client = secured.authority.issue("mover")
        of_client = {"ssl_certificate_location": str(client.certificate), "ssl_key_location": str(client.encrypted_key)}
        made = leaders("MUTUAL", "SSL", **of_client, ssl_key_password=KEY_PASSWORD)
    else:
        name, password = next(iter(PLAIN_USERS.items())) if how == "PLAIN" else ("mover", PASSWORD)
        made = leaders("SCRAM", "SASL_SSL", sasl_mechanism=how, sasl_username=name, sasl_password=password)
    topic = topic_names("secured")
    secured.create_topics({topic: 2})
    places = [(topic, 0), (topic, 1)]
    assert made.being_reassigned(places) == []
    made.reorder_replicas(dict.fromkeys(places, (1,)))
    assert made.elect(places), "the only replica of each partition leads it already"
    assert not made.elect([(topic, 7)])
    with pytest.raises(FaultRefused, match=rf"refused the reassignment of {topic}/0 \(\w+\)"):
        made.reorder_replicas({(topic, 0): [9]})


def test_refusals_name_what_is_wrong(leaders: Callable[..., Leaders]) -> None:
    login = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "reader", "sasl_password": PASSWORD}
    with pytest.raises(FaultRefused, match=r"the broker refused the reassignment \(CLUSTER_AUTHORIZATION_FAILED\)"):
        leaders("SCRAM", "SASL_SSL", **login).reorder_replicas({("x", 0): [1]})
    with pytest.raises(Unreachable, match="the election"):
        leaders("SCRAM", "SASL_SSL", **{**login, "sasl_password": "wrong"}).elect([("x", 0)])
    with pytest.raises(FaultRefused, match=r"cannot be moved with ssl.curves.list; use security.protocol, "):
        leaders("SCRAM", "SASL_SSL", **login, ssl_curves_list="P-256")
