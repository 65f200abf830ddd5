"""The start of a demo removes the network of a killed demo. A network with a live owner or a process in it stays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from faults.backends.processes import status_of
from testbed import node
from testbed.demo.folder import DemoFolder
from tests.faults.stage import ROOT, wait_until

_OWNER = """
import sys, threading
from pathlib import Path
from testbed.stop import Stop
from testbed.node import NodeRelay
made = NodeRelay(Path(sys.argv[1]))
made.start(Stop())
print(made.node.namespace, made.process.pid, flush=True)
threading.Event().wait()
"""
_NAMESPACES = Path("/run/netns")

pytestmark = pytest.mark.skipif(node.why_not_here() is not None, reason=f"networks of their own: {node.why_not_here()}")


def the_next_demo_starts() -> None:
    with DemoFolder():
        pass


@pytest.mark.full
def test_the_next_demo_removes_the_network_of_a_killed_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _OWNER, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout is not None
            name, relay = owner.stdout.readline().split()
            the_next_demo_starts()
            assert (_NAMESPACES / name).exists(), "its owner lives"
        finally:
            owner.kill()
    wait_until(lambda: status_of(int(relay)) is None, "the relay has died with its owner")
    assert (_NAMESPACES / name).exists()
    # Threads of the killed relay may still be ending. Until they end, its device is up and the network is in use.
    wait_until(lambda: device_of(name) is None, "the device has gone with the relay")
    the_next_demo_starts()
    assert not (_NAMESPACES / name).exists()


def device_of(name: str) -> str | None:
    """Return a device of the network that is up, other than the loopback; None if there is none."""
    said = subprocess.run(["ip", "-n", name, "-o", "link", "show", "up"], check=True, capture_output=True, text=True)
    return next((line for line in said.stdout.splitlines() if " lo: " not in line), None)


@contextmanager
def made(name: str) -> Iterator[Path]:
    path = _NAMESPACES / name
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        yield path
    finally:
        if path.exists():
            subprocess.run(["ip", "netns", "del", name], check=True)


def test_an_owner_is_identified_by_its_id_and_start_time() -> None:
    """The process id may belong to another process by now."""
    own = status_of(os.getpid())
    assert own is not None
    with made(f"streamproof-{own.pid}-{own.started}") as mine, made(f"streamproof-{own.pid}-1") as others:
        the_next_demo_starts()
        assert (mine.exists(), others.exists()) == (True, False)


@pytest.mark.full
def test_an_abandoned_network_stays_while_a_process_is_in_it() -> None:
    with made(f"streamproof-{os.getpid()}-1") as path:
        with ExitStack() as inside:
            command = ["ip", "netns", "exec", path.name, "sh", "-c", "echo in; exec sleep 600"]
            process = inside.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
            inside.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == b"in\n"
            the_next_demo_starts()
            assert path.exists()
        the_next_demo_starts()
        assert not path.exists()
