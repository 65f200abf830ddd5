"""``streamproof broker``: a Kafka for one's own trial on this machine, until it is stopped."""

from __future__ import annotations

import argparse
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from testbed.broker import EmbeddedBroker
from testbed.ports import is_free
from testbed.stop import stop_on_signals

_POLL_SECONDS: Final = 0.5


class PortTaken(Exception):
    """Another process listens on the port."""

    exit_status = 2


class BrokerEnded(Exception):
    """The broker ended by itself."""

    exit_status = 3


def run(given: argparse.Namespace) -> int:
    """Run a broker until SIGINT, SIGTERM or SIGHUP; return exit status 0.

    Raises PortTaken, BrokerError, BrokerEnded, KafkaException and the errors of `validator.stream.jars.resolve`.
    """
    if given.port and not is_free(given.port):
        raise PortTaken(f"broker: another process listens on port {given.port}; write --port 0 for a free one.")
    topics, folder = dict(given.topics), given.folder
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        folder = folder.absolute()
    with stop_on_signals() as stop, EmbeddedBroker(folder=folder, port=given.port) as broker:
        _create(broker, topics)
        named = f", topics {', '.join(topics)}" if topics else ""
        fate = "its data is removed then" if folder is None else "its data stays there"
        print(f"Kafka listens at {broker.bootstrap_servers}{named}; its data is in {broker.folder}.", flush=True)
        print(f"Ctrl-C stops it; {fate}.", flush=True)
        process = broker.process
        while not stop.event.wait(_POLL_SECONDS):
            if not process.is_running:
                raise BrokerEnded(f"The broker ended with status {process.returncode}:\n{process.last_lines()}")
    return 0


def _create(broker: EmbeddedBroker, topics: dict[str, int]) -> None:
    for name, partitions in topics.items():
        try:
            broker.create_topics({name: partitions})
        except KafkaException as error:
            # With `--folder`, an earlier run may have created it.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
