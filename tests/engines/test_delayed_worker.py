"""PGVal's PD>TO: a worker's packets are delayed beyond its session timeout, so it is considered dead but is alive.

The expectations were written before the first run. Nothing is missing, whichever worker takes over and whatever the
delayed packets say. With exactly once, no id occurs twice, since the old worker is fenced. The sidecar's counts equal
the topics' count. Without the bolt that aligns its partitions, Storm lost 939 of 40,056 clicks, and
treated 10,435 as late. One of the three partitions has four of the six pages. After the delay, its events were behind
those of the others by more than the lag of the windows (docs/engines.md). Spark may drop late clicks under its
guarantee, so its load has none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed import node
from testbed.broker import EmbeddedBroker
from testbed.campaign.delay import ABOVE_TIMEOUT, delay
from testbed.engines.real import LOCAL
from testbed.engines.settings import Guarantee
from testbed.node import NodeRelay
from testbed.stop import Stop
from tests.engines.killed_run import FLUSHING_EVENTS, READY_SECONDS_MAX, KilledRun

_DELAY_SECONDS = ABOVE_TIMEOUT * LOCAL.session_timeout_seconds
_LASTS_SECONDS = 1.5 * LOCAL.session_timeout_seconds
_FAULTS = "delayed-faults"

pytestmark = pytest.mark.skipif(node.why_not_here() is not None, reason=f"networks of their own: {node.why_not_here()}")


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeRelay]:
    """A network for the first worker."""
    network = NodeRelay(tmp_path_factory.mktemp("relay"))
    network.start(Stop())
    yield network
    network.end()


@pytest.fixture(scope="module")
def listening(relay: NodeRelay) -> Iterator[EmbeddedBroker]:
    """A broker that can be reached from that network."""
    with EmbeddedBroker(hosts=(relay.node.host,)) as broker:
        broker.create_topics({_FAULTS: 1})
        yield broker


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "guarantee"),
    [
        ("kafka_streams", "exactly_once"),
        ("kafka_streams", "at_least_once"),
        ("flink", "exactly_once"),
        ("flink", "at_least_once"),
        ("storm", "at_least_once"),
        ("spark", "at_least_once"),
    ],
)
def test_a_delayed_worker_loses_nothing(
    listening: EmbeddedBroker,
    relay: NodeRelay,
    topic_names: Callable[[str], str],
    tmp_path: Path,
    name: str,
    guarantee: Guarantee,
) -> None:
    run = KilledRun(listening, topic_names, load_seconds=24)
    (servers,) = listening.host_servers
    said: list[str] = []
    with run.engine(
        name, tmp_path / "engine", guarantee=guarantee, bootstrap_servers=servers, node=relay.node
    ) as engine:  # fmt: skip
        engine.start()
        engine.ready(READY_SECONDS_MAX)
        effective = engine.effective()
        run.start_load()
        run.await_half_way()
        delay(
            relay, name="delay", delay_seconds=_DELAY_SECONDS, lasts_seconds=_LASTS_SECONDS, probe=servers,
            bootstrap_servers=listening.bootstrap_servers, topic=_FAULTS, seed=1, stop=threading.Event(),
            say=said.append,
        )  # fmt: skip
        run.finish()
        engine.stop()
    counted = run.agreed(tmp_path / "sidecar", guarantee, effective)
    print(name, guarantee, counted, said)
    assert counted.events == run.sent() - FLUSHING_EVENTS
    assert counted.misplaced == 0, counted
    assert counted.missing == 0, counted
    if guarantee == "exactly_once":
        assert counted.duplicates == 0, counted
