"""A killed proxy: the faults of its relays end, and the next proxy removes its namespace."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from faults.backends import relay
from faults.errors import NotVerified
from tests.faults.relay_stage import CUT, DELAY, HOST, connect_seconds, kill, node, served
from tests.faults.stage import WITHIN_SECONDS, Runner, Stage
from validator.cli.main import main

pytestmark = pytest.mark.skipif(relay.why_not_here() is not None, reason=f"packet relays: {relay.why_not_here()}")


@pytest.fixture
def empty(stage: Stage) -> Iterator[str]:
    """The name of a namespace of the stage, which exists neither before nor after the test."""
    name = f"spkilled{os.getpid()}"
    stage.targets["node"] = node(name)
    yield name
    is_left = Path("/run/netns", name).exists()
    if is_left:
        subprocess.run(["ip", "netns", "del", name], check=True)
    assert not is_left


@pytest.mark.full
def test_the_last_proxy_removes_the_namespace_of_a_killed_one(stage: Stage, empty: str) -> None:
    with served(stage) as proxy:
        kill(proxy)
        with ExitStack() as inside:
            with served(stage):
                command = ["ip", "netns", "exec", empty, "sh", "-c", "echo in; exec sleep 600"]
                process = inside.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
                inside.callback(process.kill)
                assert process.stdout is not None
                assert process.stdout.readline() == b"in\n"
            assert Path("/run/netns", empty).exists(), "somebody is in it"
        with served(stage):
            pass
    assert not Path("/run/netns", empty).exists()


@pytest.mark.full
def test_healing_removes_the_empty_namespace_of_a_killed_proxy(stage: Stage, empty: str) -> None:
    with served(stage) as proxy:
        assert main(["faults", "heal", str(stage.file)]) == 0
        assert Path("/run/netns", empty).exists(), "a proxy serves it"
        kill(proxy)
        assert main(["faults", "heal", str(stage.file)]) == 0
        assert not Path("/run/netns", empty).exists()


@pytest.mark.full
def test_a_foreign_namespace_stays(stage: Stage, empty: str) -> None:
    subprocess.run(["ip", "netns", "add", empty], check=True)
    with served(stage):
        pass
    assert main(["faults", "heal", str(stage.file)]) == 0
    subprocess.run(["ip", "netns", "del", empty], check=True)


@pytest.mark.full
def test_a_fault_whose_relay_was_started_again_ends_there(stage: Stage, empty: str) -> None:
    with ExitStack() as proxies:
        proxy = proxies.enter_context(served(stage))
        listener = proxies.enter_context(socket.create_server((HOST, 0), backlog=100))
        stage.targets["node"]["probe"] = f"{HOST}:{listener.getsockname()[1]}"

        def look() -> None:
            kill(proxy)
            proxies.enter_context(served(stage))

        with pytest.raises(NotVerified, match=r"namespace-delay on node: .* ended early"):
            stage.during({**DELAY, "for": "60s"}, look)
        assert stage.states() == ["injected", "verified", "heal_started", "healed"]
        assert connect_seconds(stage) < 0.15


@pytest.mark.full
@pytest.mark.parametrize("fault", [DELAY, CUT], ids=["delay", "cut"])
def test_a_run_whose_relay_was_killed_ends_with_the_next_one(
    stage: Stage, empty: str, fault: dict[str, object]
) -> None:
    """A fault that the kernel implements ends too, since its rule is removed with the device."""
    with ExitStack() as proxies:
        proxy = proxies.enter_context(served(stage))
        listener = proxies.enter_context(socket.create_server((HOST, 0), backlog=100))
        stage.targets["node"]["probe"] = f"{HOST}:{listener.getsockname()[1]}"
        stage.write({**fault, "for": "60s"})
        runner = Runner(stage)
        try:
            proxy.kill()
            assert "proxy does not answer" in runner.hear("over: ")
            runner.hear("waiting, 60 s at most: ")
            proxies.enter_context(served(stage))
            runner.hear("healed: ")
            assert runner.process.wait(WITHIN_SECONDS) == 3
        finally:
            runner.stop()
        assert stage.states() == ["injected", "verified", "heal_started", "healed"]
        assert connect_seconds(stage) < 0.15
