"""The target container on a real Docker: a web server on two networks, with addresses, names and a link."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from faults.runner import run
from faults.schedule import timeline
from tests.faults.real_docker import SERVER, RealDocker
from tests.faults.stage import Stage, wait_until

SHOP, BACK = "shop net", "back"
"""Network names. A name may contain a space."""
WEB, WEB_BACK = "10.213.1.9", "10.213.2.9"
ADDRESSES = (WEB, WEB_BACK, "127.0.0.1:8080")
"""Addresses of the web server: on both networks, and its published port."""
NAME = "shop.web_1-a"
ENDPOINT = {"IPAMConfig": {"IPv4Address": WEB}, "Aliases": ["web", "shop-front"]}
LINKED = {"IPAMConfig": {"IPv4Address": WEB_BACK}, "Aliases": ["web-back"], "Links": [f"{NAME}:itself"]}
KINDS = ("container_kill", "container_pause", "container_restart", "container_disconnect")


def make_networks(docker: RealDocker) -> None:
    for name, subnet in ((SHOP, "10.213.1.0/24"), (BACK, "10.213.2.0/24")):
        docker.ask("POST", "/networks/create", {"Name": name, "IPAM": {"Config": [{"Subnet": subnet}]}})


def run_web(docker: RealDocker) -> None:
    """Start the web server on both networks; return when it answers."""
    published = {"PortBindings": {"80/tcp": [{"HostPort": "8080"}]}, "RestartPolicy": {"Name": "unless-stopped"}}
    docker.run(NAME, *SERVER, network=SHOP, endpoint=ENDPOINT, host=published, ExposedPorts={"80/tcp": {}})
    docker.ask("POST", f"/networks/{BACK}/connect", {"Container": NAME, "EndpointConfig": LINKED})
    wait_until(lambda: answers(docker), "the web server answers")


def target(stage: Stage, docker: RealDocker, name: str, container: str) -> None:
    stage.targets[name] = {"type": "container", "container": container, "socket": str(docker.socket)}


def log(docker: RealDocker, address: str = WEB) -> list[str] | None:
    """Return the web server's log of starts and ends; None if it does not answer."""
    said = docker.get(f"http://{address}/log")
    return None if said is None else said.split()


def answers(docker: RealDocker, address: str = WEB) -> bool:
    return log(docker, address) is not None


def during(stage: Stage, fault: dict[str, Any], look: Callable[[], object], **more: Any) -> None:
    """Run the fault, and call ``look`` while it is active."""
    config = stage.write(fault, **more)
    run(config, timeline(config), lambda line: look() if line.startswith("failure:") else None, threading.Event())
