"""Which packet filter loses packets, and by which commands; programs of our own stand in for the system's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults.backends import namespaces, nftables, packet_filter

NAME = "streamproof-1"
OURS = "netns exec node nft "
IP = """\
#!/bin/sh
echo "$*" >>{log}
case "$*" in
*"list tables"*) printf "table ip foreign\\ntable ip streamproof-1\\n" ;;
*"list table ip"*) echo 'oifname "e0" numgen random mod 1000000 <= 499999 counter packets 7 bytes 203 drop' ;;
esac
"""
UNSHARE = """\
#!/bin/sh
case "$*" in *{refused}*) echo "no $2 here" >&2; exit 1 ;; esac
"""
Install = Callable[..., Callable[[], list[str]]]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Makes a host that has these programs, of which the kernel refuses one; tells what was done in a namespace."""
    cached = (packet_filter._why_no_iptables, nftables.why_not_here)

    def make(*programs: str, refused: str = "nothing") -> Callable[[], list[str]]:
        log = tmp_path / "log"
        log.touch()
        scripts = {"ip": IP.format(log=log), "unshare": UNSHARE.format(refused=refused)}
        for name in (*scripts, *programs):
            (tmp_path / name).write_text(scripts.get(name, "#!/bin/sh\n"))
            (tmp_path / name).chmod(0o755)
        return lambda: log.read_text().splitlines()

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(namespaces, "why_not_here", lambda: None)
    for asked in cached:
        asked.cache_clear()
    yield make
    for asked in cached:
        asked.cache_clear()


@pytest.mark.parametrize(("percent", "last"), [(1.0, 9_999), (12.5, 124_999), (100.0, 999_999)])
def test_without_iptables_a_share_is_lost_by_a_table_of_nft(install: Install, percent: float, last: int) -> None:
    done = install("nft")
    assert packet_filter.why_not_here() is None
    packet_filter.lose("node", "e0", percent, NAME)
    (command,) = done()
    assert command == (
        f"{OURS}add table ip {NAME}; add chain ip {NAME} out {{ type filter hook output priority 0; }}; "
        f'add rule ip {NAME} out oifname "e0" numgen random mod 1000000 <= {last} counter drop'
    )


def test_what_a_table_of_nft_lost_is_counted_and_it_is_removed(install: Install) -> None:
    done = install("nft")
    assert packet_filter.lost("node", NAME) == 7
    assert packet_filter.lost("node", "streamproof-12") is None
    packet_filter.remove("node", NAME)
    assert done()[-1] == f"{OURS}delete table ip {NAME}"
    assert not any("streamproof-12" in command for command in done())


def test_a_table_of_nft_that_is_not_there_needs_no_removal(install: Install) -> None:
    done = install("nft")
    packet_filter.remove("node", "streamproof-2")
    assert done() == [f"{OURS}list tables ip"]


def test_iptables_is_taken_where_both_are(install: Install) -> None:
    done = install("nft", "iptables")
    packet_filter.lose("node", "e0", 50, NAME)
    (command,) = done()
    assert "iptables -w 5 -A OUTPUT -o e0 -m statistic --mode random --probability 0.50000000" in command


def test_nft_is_taken_where_the_kernel_refuses_iptables(install: Install) -> None:
    done = install("nft", "iptables", refused="iptables")
    assert packet_filter.why_not_here() is None
    packet_filter.lose("node", "e0", 50, NAME)
    assert done()[0].startswith(f"{OURS}add table")


@pytest.mark.parametrize(
    ("programs", "refused", "why"),
    [
        ((), "nothing", "iptables is not installed, and nft is not installed"),
        (("nft",), "nft", "iptables is not installed, and nftables takes no random loss (no nft here)"),
    ],
)
def test_a_host_without_either_says_why(install: Install, programs: tuple[str, ...], refused: str, why: str) -> None:
    install(*programs, refused=refused)
    assert packet_filter.why_not_here() == why
