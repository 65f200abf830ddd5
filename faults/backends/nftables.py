"""Packet loss by nftables, which :mod:`faults.backends.packet_filter` uses if iptables cannot do it. IPv4 only.

Each fault has its own table, named after it. Deleting the table deletes its chain and rule.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from typing import Final

from faults.backends import namespaces
from faults.errors import FaultRefused

_PARTS: Final = 1_000_000
_COUNTED: Final = re.compile(r"\bcounter packets ([0-9]+) ")


@functools.cache
def why_not_here() -> str | None:
    """Why this host cannot drop packets by nftables; None if it can."""
    if shutil.which("nft") is None:
        return "nft is not installed"
    trial = ["unshare", "--net", "nft", _table("lo", 50, "trial")]
    ran = subprocess.run(trial, check=False, capture_output=True, text=True)
    return f"nftables cannot drop packets at random ({namespaces.first_line(ran.stderr)})" if ran.returncode else None


def drop_packets(namespace: str, device: str, percent: float, name: str) -> None:
    """Add a table that drops ``percent`` of the packets that leave the namespace by the device. Raises FaultRefused."""
    _nft(namespace, _table(device, percent, name))


def dropped_packets(namespace: str, name: str) -> int | None:
    """Number of packets that the table ``name`` has dropped; None if it does not exist. Raises FaultRefused."""
    if f"table ip {name}" not in _nft(namespace, "list tables ip").splitlines():
        return None
    counted = _COUNTED.search(_nft(namespace, f"list table ip {name}"))
    return 0 if counted is None else int(counted[1])


def remove(namespace: str, name: str) -> None:
    """Remove the table ``name``, if it exists. Raises FaultRefused."""
    if dropped_packets(namespace, name) is not None:
        _nft(namespace, f"delete table ip {name}")


def _table(device: str, percent: float, name: str) -> str:
    """The command that creates the table. The kernel applies all of it or nothing."""
    last = round(percent / 100 * _PARTS) - 1  # nft refuses `< _PARTS` (100%): numgen never returns _PARTS
    share = f"numgen random mod {_PARTS} <= {last}"
    return (
        f"add table ip {name}; add chain ip {name} out {{ type filter hook output priority 0; }}; "
        f'add rule ip {name} out oifname "{device}" {share} counter drop'
    )


def _nft(namespace: str, command: str) -> str:
    ran = subprocess.run(
        ["ip", "netns", "exec", namespace, "nft", command], check=False, capture_output=True, text=True
    )
    if ran.returncode:
        raise FaultRefused(f"namespace {namespace}: nft failed ({namespaces.first_line(ran.stderr)}).")
    return ran.stdout
