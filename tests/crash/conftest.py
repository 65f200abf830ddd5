"""Fixtures of the crash tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash import history
from tests.crash.sidecars import Sidecars
from tests.integration.sidecar_fixtures import pipeline, spark

if TYPE_CHECKING:
    from testbed.broker import EmbeddedBroker

__all__ = ["pipeline", "sidecars", "spark"]


@pytest.fixture
def sidecars(broker: EmbeddedBroker, tmp_path: Path) -> Sidecars:
    """Separate topics, and sidecars with states in a temporary folder."""
    name = f"crash-{tmp_path.name}"
    broker.create_topics({f"{name}-in": history.INPUT_PARTITIONS, f"{name}-out": 1, f"{name}-late": 1})
    return Sidecars(name, broker.bootstrap_servers, tmp_path)
