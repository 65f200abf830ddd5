"""Packet loss by the kernel's packet filter, for kernels without netem: iptables (of either kind), or nft. IPv4 only.

An iptables rule carries a unique comment with the name of its fault, by which the rule is found. The caller has to
remember which program added a rule, since another process may choose another one.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from typing import Final

from faults.backends import namespaces, nftables
from faults.errors import FaultRefused

_NFT: Final = "nft"
_PROGRAMS: Final = ("iptables", "iptables-nft", "iptables-legacy")
_CHAIN: Final = "OUTPUT"
_WAIT: Final = ("-w", "5")


def why_not_here() -> str | None:
    """Why this host cannot drop packets by a packet filter; None if it can."""
    why_not = namespaces.why_not_here()
    if why_not is not None:
        return why_not
    no_iptables = _why_no_iptables()
    no_nft = no_iptables and nftables.why_not_here()
    return no_nft and f"{no_iptables}, and {no_nft}"


@functools.cache
def _why_no_iptables() -> str | None:
    program = _program()
    if program is None:
        return "iptables is not installed"
    trial = ["unshare", "--net", program, *_WAIT, "-A", _CHAIN, *_rule("lo", 50, "trial")]
    ran = subprocess.run(trial, check=False, capture_output=True, text=True)
    return f"the kernel cannot drop packets at random ({namespaces.first_line(ran.stderr)})" if ran.returncode else None


def why_no_loss() -> str | None:
    """Why neither netem nor a packet filter can drop the packets of a namespace on this host; None if one can."""
    no_netem, no_filter = namespaces.why_no_netem(), why_not_here()
    if no_netem is None or no_filter is None:
        return None
    return no_netem if no_netem == no_filter else f"{no_netem}, and {no_filter}"


def loss_program() -> str | None:
    """The program that drops packets on this host; None if there is none."""
    if _why_no_iptables() is None:
        return _program()
    return _NFT if nftables.why_not_here() is None else None


def drop_packets(program: str, namespace: str, device: str, percent: float, name: str) -> None:
    """Add a rule that drops ``percent`` of the packets that leave the namespace by the device. Raises FaultRefused."""
    if program == _NFT:
        nftables.drop_packets(namespace, device, percent, name)
        return
    _filter(program, namespace, "-A", _CHAIN, *_rule(device, percent, name))


def dropped_packets(program: str, namespace: str, name: str) -> int | None:
    """Number of packets that the rule ``name`` has dropped; None if it does not exist. Raises FaultRefused."""
    if program == _NFT:
        return nftables.dropped_packets(namespace, name)
    lines = _filter(program, namespace, "-nvxL", _CHAIN).splitlines()
    return next((int(line.split()[0]) for line in lines if f"/* {name} */" in line), None)


def remove(program: str, namespace: str, name: str) -> None:
    """Remove the rule ``name``, if it exists. Raises FaultRefused."""
    if program == _NFT:
        nftables.remove(namespace, name)
        return
    numbered = _filter(program, namespace, "-nL", _CHAIN, "--line-numbers").splitlines()
    numbers = [line.split()[0] for line in numbered if f"/* {name} */" in line]
    for number in reversed(numbers):
        _filter(program, namespace, "-D", _CHAIN, number)


def _rule(device: str, percent: float, name: str) -> tuple[str, ...]:
    share = ("-m", "statistic", "--mode", "random", "--probability", f"{percent / 100:.8f}")
    return ("-o", device, *share, "-m", "comment", "--comment", name, "-j", "DROP")


def _program() -> str | None:
    return next((found for program in _PROGRAMS if (found := shutil.which(program)) is not None), None)


def _filter(program: str, namespace: str, *arguments: str) -> str:
    command = ["ip", "netns", "exec", namespace, program, *_WAIT, *arguments]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    if ran.returncode:
        raise FaultRefused(f"namespace {namespace}: iptables failed ({namespaces.first_line(ran.stderr)}).")
    return ran.stdout
