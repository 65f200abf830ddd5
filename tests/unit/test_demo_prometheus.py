"""The demo's Prometheus beside another one: it takes a free port and reports that port."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from testbed.demo import files
from testbed.demo.files import start_prometheus
from testbed.ports import free_port


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for the demo's files, with a `prometheus` on the PATH that prints its arguments."""
    program = tmp_path / "bin" / "prometheus"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nfor given; do echo "$given"; done\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    return tmp_path


def addresses_of(folder: Path) -> tuple[str, str]:
    """The reported URL, and the listen address in the program's arguments."""
    process, url = start_prometheus("http://127.0.0.1:1/", folder)
    process.wait(10)
    [given] = [line for line in process.last_lines().splitlines() if "--web.listen-address=" in line]
    return url, given.split("--web.listen-address=")[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"][: 2 + socket.has_dualstack_ipv6()])
def test_a_port_in_use_is_not_chosen(started: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    # Debian's service listens on all addresses.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family, dualstack_ipv6=":" in host) as other:
        port = other.getsockname()[1]
        monkeypatch.setattr(files, "PROMETHEUS_PORT", port)
        url, address = addresses_of(started)
    assert url == f"http://{address}/"
    assert not address.endswith(f":{port}")


def test_a_free_port_is_chosen(started: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setattr(files, "PROMETHEUS_PORT", port)
    assert addresses_of(started) == (f"http://127.0.0.1:{port}/", f"127.0.0.1:{port}")
