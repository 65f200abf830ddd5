"""A stage for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.api_server import Cluster, served
from tests.faults.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    try:
        yield made
    finally:
        made.clear()


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A stage with a link through the proxy, for all tests of a file; ``stage.link_port`` is where clients connect."""
    made = Stage(tmp_path_factory.mktemp("linked"))
    with made.link():
        yield made


@pytest.fixture
def cluster(stage: Stage) -> Iterator[Cluster]:
    """A cluster that is played, with the stage's target ``workers`` in it."""
    made = Cluster()
    with served(made) as address:
        stage.targets["workers"] = {"type": "pods", "namespace": "shop", "match": {"app": "worker"}, "server": address}
        yield made
