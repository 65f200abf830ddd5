"""The choice of a packet filter that loses packets, and its commands. Test programs stand in for the system's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.backends import namespaces, nftables, packet_filter
from faults.config import parse
from faults.facts import Facts
from faults.fault import Fault
from faults.kinds.registry import injection
from faults.schedule import timeline

NAME = "streamproof-1"
OURS = "netns exec node nft "
IP = """\
#!/bin/sh
echo "$*" >>{log}
case "$*" in
*"list tables"*) printf "table ip foreign\\ntable ip streamproof-1\\n" ;;
*"list table ip"*) echo 'oifname "e0" numgen random mod 1000000 <= 499999 counter packets 7 bytes 203 drop' ;;
*"-nL OUTPUT"*) echo "3 DROP 0 -- 0.0.0.0/0 0.0.0.0/0 /* streamproof-1 */" ;;
esac
"""
UNSHARE = """\
#!/bin/sh
case "$*" in *{refused}*) echo "no $2 here" >&2; exit 1 ;; esac
"""
Install = Callable[..., Callable[[], list[str]]]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """A function that sets up a host with these programs, one of which the kernel refuses. It returns the commands run
    in a namespace."""

    def make(*programs: str, refused: str = "nothing") -> Callable[[], list[str]]:
        log = tmp_path / "log"
        log.touch()
        scripts = {"ip": IP.format(log=log), "unshare": UNSHARE.format(refused=refused)}
        for name in (*scripts, *programs):
            (tmp_path / name).write_text(scripts.get(name, "#!/bin/sh\n"))
            (tmp_path / name).chmod(0o755)
        clear_cache()
        return lambda: log.read_text().splitlines()

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(namespaces, "why_not_here", lambda: None)
    yield make
    clear_cache()


def clear_cache() -> None:
    """Clear the cached checks, as in a new process."""
    packet_filter._why_no_iptables.cache_clear()
    nftables.why_not_here.cache_clear()


def chosen() -> str:
    program = packet_filter.loss_program()
    assert program is not None
    return program


@pytest.mark.parametrize(("percent", "last"), [(1.0, 9_999), (12.5, 124_999), (100.0, 999_999)])
def test_without_iptables_an_nft_table_drops_the_share_of_packets(install: Install, percent: float, last: int) -> None:
    done = install("nft")
    assert packet_filter.why_not_here() is None
    packet_filter.drop_packets(chosen(), "node", "e0", percent, NAME)
    (command,) = done()
    assert command == (
        f"{OURS}add table ip {NAME}; add chain ip {NAME} out {{ type filter hook output priority 0; }}; "
        f'add rule ip {NAME} out oifname "e0" numgen random mod 1000000 <= {last} counter drop'
    )


def test_packets_dropped_by_an_nft_table_are_counted_and_the_table_is_removed(install: Install) -> None:
    done = install("nft")
    assert packet_filter.dropped_packets(chosen(), "node", NAME) == 7
    assert packet_filter.dropped_packets(chosen(), "node", "streamproof-12") is None
    packet_filter.remove(chosen(), "node", NAME)
    assert done()[-1] == f"{OURS}delete table ip {NAME}"
    assert not any("streamproof-12" in command for command in done())


def test_an_absent_nft_table_needs_no_removal(install: Install) -> None:
    done = install("nft")
    packet_filter.remove(chosen(), "node", "streamproof-2")
    assert done() == [f"{OURS}list tables ip"]


def test_iptables_is_chosen_if_both_exist(install: Install) -> None:
    done = install("nft", "iptables")
    packet_filter.drop_packets(chosen(), "node", "e0", 50, NAME)
    (command,) = done()
    assert "iptables -w 5 -A OUTPUT -o e0 -m statistic --mode random --probability 0.50000000" in command


def test_nft_is_chosen_if_the_kernel_refuses_iptables(install: Install) -> None:
    done = install("nft", "iptables", refused="iptables")
    assert packet_filter.why_not_here() is None
    packet_filter.drop_packets(chosen(), "node", "e0", 50, NAME)
    assert done()[0].startswith(f"{OURS}add table")


@pytest.mark.parametrize(
    ("programs", "refused", "why"),
    [
        ((), "nothing", "iptables is not installed, and nft is not installed"),
        (("nft",), "nft", "iptables is not installed, and nftables cannot drop packets at random (no nft here)"),
    ],
)
def test_a_host_without_iptables_and_nft_gives_the_reason(
    install: Install, programs: tuple[str, ...], refused: str, why: str
) -> None:
    install(*programs, refused=refused)
    assert packet_filter.why_not_here() == why
    assert packet_filter.loss_program() is None


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Fault:
    """A packet loss in a namespace whose network responds, on a kernel without netem."""
    monkeypatch.setattr(namespaces, "why_no_netem", lambda: "no netem here")
    monkeypatch.setattr(namespaces, "connect_seconds", lambda *_: 0.01)
    monkeypatch.setattr(namespaces, "root_rule", lambda _: {})
    target = {"type": "namespace", "namespace": "node", "device": "e0", "probe": "127.0.0.1:1"}
    spec = {"kind": "namespace_loss", "target": "node", "parameters": {"percent": 50}}
    config = parse({"targets": {"node": target}, "schedule": {"faults": [spec]}})
    (step,) = timeline(config, id_of=lambda: NAME.removeprefix("streamproof-")).steps
    return step.fault


def injected(fault: Fault, state: Path) -> Facts:
    """The facts that the journal keeps of the injected fault."""
    made = injection(fault, state)
    made.prepare()
    made.inject()
    return Facts.model_validate_json(made.facts.model_dump_json())


@pytest.mark.parametrize(
    ("at_first", "at_healing", "removal"),
    [
        ("nothing", "iptables", "iptables -w 5 -D OUTPUT 3"),
        ("iptables", "nothing", f"nft delete table ip {NAME}"),
    ],
)
def test_a_rule_is_removed_by_the_program_that_added_it(
    tmp_path: Path, install: Install, fault: Fault, at_first: str, at_healing: str, removal: str
) -> None:
    done = install("nft", "iptables", refused=at_first)
    facts = injected(fault, tmp_path)
    install("nft", "iptables", refused=at_healing)
    injection(fault, tmp_path, facts).heal()
    assert done()[-1].endswith(removal)


def test_a_netem_rule_is_removed_if_netem_no_longer_works(
    tmp_path: Path, install: Install, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules: list[str] = []
    done = install("iptables")
    monkeypatch.setattr(namespaces, "add_rule", lambda _, *rule: rules.append(rule[0]))
    monkeypatch.setattr(namespaces, "remove_rule", lambda _: rules.append("removed"))
    with monkeypatch.context() as able:
        able.setattr(namespaces, "why_no_netem", lambda: None)
        facts = injected(fault, tmp_path)
    injection(fault, tmp_path, facts).heal()
    assert (rules, done()) == (["netem", "removed"], [])
