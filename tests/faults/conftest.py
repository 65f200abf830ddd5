"""A stage for each test; one real Docker for all of them, if the host can run one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults import real_docker
from tests.faults.api_server import Cluster, served
from tests.faults.real_docker import NotStarted, RealDocker
from tests.faults.stage import Stage
from tests.faults.web_container import NAME, make_networks, run_web, target


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    try:
        yield made
    finally:
        made.clear()


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A stage with a link through the proxy, for all tests of a file. Clients connect to ``stage.link_port``."""
    made = Stage(tmp_path_factory.mktemp("linked"))
    with made.link():
        yield made


@pytest.fixture
def cluster(stage: Stage) -> Iterator[Cluster]:
    """A fake cluster, which the stage's target ``workers`` is in."""
    made = Cluster()
    with served(made) as address:
        stage.targets["workers"] = {"type": "pods", "namespace": "shop", "match": {"app": "worker"}, "server": address}
        yield made


@pytest.fixture(scope="session")
def dockerd() -> Iterator[RealDocker]:
    """A real Docker engine with two networks."""
    why_not = real_docker.why_not_here()
    if why_not is not None:
        pytest.skip(f"no real Docker here: {why_not}")
    try:
        with real_docker.running() as made:
            make_networks(made)
            yield made
    except NotStarted as error:
        pytest.skip(f"no real Docker here, it does not start: {error}")


@pytest.fixture
def docker(dockerd: RealDocker, stage: Stage) -> Iterator[RealDocker]:
    """The engine, with a web server as the target ``web``. At the test's end the engine runs, without containers."""
    target(stage, dockerd, "web", NAME)
    try:
        run_web(dockerd)
        yield dockerd
    finally:
        if not dockerd.answers():
            dockerd.start()
        dockerd.clear()
