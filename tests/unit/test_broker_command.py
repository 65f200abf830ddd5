"""The command `broker` refuses a port that is in use before it starts anything."""

from __future__ import annotations

import socket
from argparse import Namespace

import pytest

from testbed import broker_command
from testbed.broker_command import PortTaken, run

pytestmark = pytest.mark.unit


def test_a_port_in_use_is_refused_before_a_broker_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(broker_command, "EmbeddedBroker", lambda **given: started.append(given))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"listens on port {port}; write --port 0"):
            run(Namespace(port=port, topics=[], folder=None))
    assert started == []
    assert PortTaken.exit_status == 2
