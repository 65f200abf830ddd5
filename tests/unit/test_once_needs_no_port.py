"""A run with `--once` does without its status page if another process has the port."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.publish.publisher import EndpointError, Publisher
from validator.stream.sidecar import Sidecar

pytestmark = pytest.mark.unit


def test_only_a_live_sidecar_needs_its_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = [f"metrics.port={port}", f"state.path={tmp_path}"]
        config = loads(EXAMPLES["clickstream"], tmp_path, settings, environment={})
        publisher = Publisher(config, tmp_path)
        said = Sidecar(config, once=True)._served(publisher)
        assert said.startswith(f"without a status page (port {port} on 127.0.0.1: ")
        publisher.stop()
        with pytest.raises(EndpointError):
            Sidecar(config)._served(Publisher(config, tmp_path))
    assert Sidecar(config, once=True)._served(publisher) == f"status page and metrics at http://127.0.0.1:{port}/"
    publisher.stop()
