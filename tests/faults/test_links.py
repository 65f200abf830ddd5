"""Faults of a link, seen by a client that connects through it to the test's echo server."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from faults.backends.proxy import ProxyControl
from faults.errors import FaultRefused, NotHealed, NotVerified
from faults.journal import read
from tests.faults.stage import ROOT, STREAMPROOF, WITHIN_SECONDS, Runner, Stage, echo_seconds, wait_until
from validator.cli.main import main

SILENCE_SECONDS = 0.3


def test_bytes_pass_unchanged_in_both_directions(linked: Stage) -> None:
    content = os.urandom(3_000_000)
    with socket.create_connection(("127.0.0.1", linked.link_port), WITHIN_SECONDS) as connection:
        got = bytearray()
        for at in range(0, len(content), 100_000):
            part = content[at : at + 100_000]
            connection.sendall(part)
            while len(got) < at + len(part):
                got += connection.recv(65536)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""  # the end of the stream passes too
    assert bytes(got) == content
    wait_until(lambda: ProxyControl(linked.folder / "st").status()["link"].connections == 0, "connections end")


@pytest.mark.full
def test_a_state_folder_may_have_a_longer_path_than_a_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30)
    folder.mkdir()
    stage = Stage(folder)
    try:
        with stage.link():
            times: list[float] = []
            fault = {"kind": "net_delay", "target": "link", "parameters": {"delay": "200ms"}}
            stage.during(fault, lambda: times.append(echo_seconds(stage.link_port)))
            assert times[0] >= 0.2
            assert stage.states()[-1] == "healed"
            assert ProxyControl(folder / "st").status()["link"].connections == 0
    finally:
        stage.clear()
    assert not (folder / "st" / "proxy.sock").exists()


@pytest.mark.parametrize(
    ("parameters", "least", "most"),
    [
        ({"delay": "200ms"}, 0.2, 0.4),
        ({"delay": "200ms", "direction": "both"}, 0.4, 0.8),
        ({"delay": "200ms", "jitter": "100ms", "direction": "to_client"}, 0.1, 0.5),
    ],
)
def test_a_delayed_link_is_slower_by_the_delay(
    linked: Stage, parameters: dict[str, Any], least: float, most: float
) -> None:
    times: list[float] = []
    fault = {"kind": "net_delay", "target": "link", "parameters": parameters}
    linked.during(fault, lambda: times.extend(echo_seconds(linked.link_port) for _ in range(3)))
    assert least <= min(times) <= most
    assert echo_seconds(linked.link_port) < least / 2


@pytest.mark.full
def test_an_open_connection_is_delayed_and_released(linked: Stage) -> None:
    with socket.create_connection(("127.0.0.1", linked.link_port), WITHIN_SECONDS) as connection:
        connection.sendall(b"before")
        assert connection.recv(100) == b"before"
        sent_at = []

        def look() -> None:
            connection.sendall(b"during")
            sent_at.append(time.monotonic())

        linked.during({"kind": "net_delay", "target": "link", "parameters": {"delay": "1s"}}, look)
        # The healing releases the waiting bytes at once: they do not wait for their full delay.
        assert connection.recv(100) == b"during"
        assert time.monotonic() - sent_at[0] < 0.9


@pytest.mark.parametrize("direction", ["both", "to_upstream", "to_client"])
def test_no_byte_passes_a_partition_and_all_arrive_after_it(linked: Stage, direction: str) -> None:
    with socket.create_connection(("127.0.0.1", linked.link_port), WITHIN_SECONDS) as connection:
        connection.sendall(b"1")
        assert connection.recv(10) == b"1"

        def look() -> None:
            connection.sendall(b"2")
            connection.settimeout(SILENCE_SECONDS)
            with pytest.raises(TimeoutError):
                connection.recv(10)
            connection.settimeout(WITHIN_SECONDS)

        linked.during({"kind": "net_partition", "target": "link", "parameters": {"direction": direction}}, look)
        assert connection.recv(10) == b"2"
    assert echo_seconds(linked.link_port) < 1


@pytest.mark.full
def test_a_narrow_link_passes_no_more_than_its_rate(linked: Stage) -> None:
    content = bytes(100_000)
    times: list[float] = []
    fault = {"kind": "net_bandwidth", "target": "link", "parameters": {"bytes_per_second": "100KB"}}
    linked.during(fault, lambda: times.append(echo_seconds(linked.link_port, content)))
    assert 0.95 <= times[0] < 3
    assert echo_seconds(linked.link_port, content) < 0.5


def test_connections_of_a_reset_link_are_reset(linked: Stage) -> None:
    with socket.create_connection(("127.0.0.1", linked.link_port), WITHIN_SECONDS) as old:
        old.sendall(b"1")
        assert old.recv(10) == b"1"

        def look() -> None:
            with pytest.raises(ConnectionResetError):
                old.recv(10)
            with pytest.raises(ConnectionError):
                echo_seconds(linked.link_port)

        linked.during({"kind": "net_reset", "target": "link"}, look)
    assert echo_seconds(linked.link_port) < 1


def test_a_link_without_its_proxy_is_refused(stage: Stage) -> None:
    stage.targets["link"] = {"type": "link", "listen": "127.0.0.1:9", "upstream": "127.0.0.1:9"}
    with pytest.raises(FaultRefused, match="start `streamproof faults proxy CONFIG`"):
        stage.during({"kind": "net_reset", "target": "link"}, lambda: None)


@pytest.mark.full
def test_a_second_proxy_is_refused(linked: Stage) -> None:
    second = subprocess.run(
        [*STREAMPROOF, "proxy", linked.file],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WITHIN_SECONDS,
        check=False,
    )
    assert second.returncode == 2
    assert "a proxy is running" in second.stderr
    assert echo_seconds(linked.link_port) < 1


@pytest.mark.full
def test_a_link_whose_proxy_died_stays_open_until_one_serves_it_again(stage: Stage) -> None:
    with stage.link():

        def look() -> None:
            stage.proxies[0].kill()
            stage.proxies[0].wait(WITHIN_SECONDS)

        limits = {"healed_within": "200ms"}
        with pytest.raises(NotHealed, match=r"no proxy answers; .* 0\.2 s; "):
            stage.during({"kind": "net_partition", "target": "link"}, look, limits=limits)
        assert stage.unhealed() == ["net-partition"]
        stage.write(limits=limits)
        assert main(["faults", "heal", str(stage.file)]) == 3
        assert stage.states() == ["injected", "verified", "heal_started"]
        with stage.proxy(stage.link_port, stage.targets["link"]["upstream"]):
            assert main(["faults", "heal", str(stage.file)]) == 0
            assert echo_seconds(stage.link_port) < 1
        assert stage.unhealed() == []


@pytest.mark.full
def test_a_run_whose_proxy_was_killed_reports_it_and_ends_with_the_next_proxy(stage: Stage) -> None:
    with stage.link(), ExitStack() as again:
        stage.write({"kind": "net_delay", "target": "link", "for": "60s", "parameters": {"delay": "300ms"}})
        runner = Runner(stage)
        try:
            stage.proxies[0].kill()
            said = runner.hear("over: ")
            assert re.search("on link: .*proxy does not answer", said)
            assert "start `streamproof faults proxy CONFIG`" in runner.hear("waiting, 60 s at most: ")
            assert stage.seen() == ["injected", "verified", "heal_started"]
            with pytest.raises(OSError, match="refused"):
                echo_seconds(stage.link_port)
            again.enter_context(stage.proxy(stage.link_port, stage.targets["link"]["upstream"]))
            runner.hear("healed: ")
            assert echo_seconds(stage.link_port) < 0.3
            assert runner.process.wait(WITHIN_SECONDS) == 3
        finally:
            runner.stop()
        (entry,) = read(stage.folder / "st").values()
        assert entry.is_healed
        assert entry.over_because is not None
        assert "proxy does not answer" in entry.over_because


@pytest.mark.full
def test_healing_waits_for_the_proxy_that_a_killed_run_lacks(stage: Stage) -> None:
    """Runner, watchdog and proxy are killed. ``faults heal`` starts before a new proxy does."""
    with stage.link(), ExitStack() as again:
        stage.write({"kind": "net_partition", "target": "link", "for": "60s"})
        runner = Runner(stage)
        os.kill(runner.watchdog(), signal.SIGKILL)
        runner.kill()
        runner.stop()
        stage.proxies[0].kill()
        stage.proxies[0].wait(WITHIN_SECONDS)
        healing = subprocess.Popen([*STREAMPROOF, "heal", stage.file], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert healing.stdout is not None
        assert healing.stdout.readline().startswith("waiting, 60 s at most: net-partition on link ")
        again.enter_context(stage.proxy(stage.link_port, stage.targets["link"]["upstream"]))
        assert healing.communicate(timeout=WITHIN_SECONDS)[0] == "net-partition on link: healed and verified.\n"
        assert healing.returncode == 0
        assert echo_seconds(stage.link_port) < 1
        assert stage.unhealed() == []


@pytest.mark.full
def test_a_fault_whose_proxy_was_started_again_ends_there(stage: Stage) -> None:
    with stage.link(), ExitStack() as again:

        def look() -> None:
            stage.proxies[0].kill()
            stage.proxies[0].wait(WITHIN_SECONDS)
            again.enter_context(stage.proxy(stage.link_port, stage.targets["link"]["upstream"]))

        delay = {"kind": "net_delay", "target": "link", "for": "60s", "parameters": {"delay": "300ms"}}
        began = time.monotonic()
        with pytest.raises(NotVerified, match=r"net-delay on link: .* ended early"):
            stage.during(delay, look)
        assert time.monotonic() - began < WITHIN_SECONDS
        assert stage.states() == ["injected", "verified", "heal_started", "healed"]
