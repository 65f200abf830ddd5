"""A real Docker for tests: dockerd in separate namespaces, and a busybox image that needs no registry.

Its mounts, bridges, firewall rules and processes are in namespaces whose first process ends when its input closes.
Therefore even killed tests leave only a temporary folder and empty control groups.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.faults.stage import wait_until

IMAGE = "busybox"
_LIVES = "echo start >> /log; trap 'echo end >> /log; exit' TERM; busybox httpd -p 80 -h /"
SERVER = ("sh", "-c", f"{_LIVES}; while :; do busybox sleep 600 & wait $!; done")
"""A web server whose /log lists its starts and its clean shutdowns."""
_CGROUPS = Path("/sys/fs/cgroup")
_TOOLS = {"dockerd": "docker.io", "iptables": "iptables", "unshare": "util-linux", "nsenter": "util-linux"}
# A Docker or containerd of this host has its files in /run. The shell reaps orphaned processes.
_FIRST = "mount -t tmpfs tmpfs /run && ip link set lo up && echo ready && exec 3<&0 && { cat <&3 & wait $!; }"
_CLIENT = """
import json, sys, urllib.request
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
for url in sys.stdin:
    try:
        said = opener.open(url, timeout=0.5).read().decode()
    except OSError:
        said = None
    print(json.dumps(said), flush=True)
"""
"""Prints the response body of each URL as JSON; null if there is no answer within half a second."""


def why_not_here() -> str | None:
    """Return why no separate Docker can run here, and what to install; None if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "it needs Linux and root"
    lacking = {package for tool, package in _TOOLS.items() if shutil.which(tool) is None}
    if not _is_static(_busybox()):
        lacking.add("busybox-static")
    return f"apt-get install {' '.join(sorted(lacking))}" if lacking else None


def _busybox() -> Path:
    return Path(shutil.which("busybox") or "/bin/busybox")


def _is_static(program: Path) -> bool:
    """Return whether the program needs no dynamic loader. The loader's path is near the start of a program that needs
    one."""
    with suppress(OSError), program.open("rb") as file:
        return b"/ld-" not in file.read(4096)
    return False


class NotStarted(Exception):
    """dockerd cannot start on this host. The message is the last line of its log."""


class Refused(Exception):
    """Docker's status and message."""


class RealDocker:
    """An engine that can be stopped and restarted. It listens on ``socket``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = folder / "s"
        self._group = f"tests-of-containers-{folder.name}"
        self._log = folder / "log"
        self._daemon: subprocess.Popen[bytes] | None = None
        self._client: subprocess.Popen[str] | None = None
        isolated = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._outer = subprocess.Popen(
            [*isolated, "sh", "-c", _FIRST],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C goes to the tests, which stop it
        )
        assert self._outer.stdout is not None
        said = self._outer.stdout.readline().decode()
        if said != "ready\n":
            self.end()
            raise NotStarted(f"no namespaces can be made: {said.strip()}")
        self._first = int(subprocess.check_output(["ps", "-o", "pid=", "--ppid", str(self._outer.pid)]))
        client = [*self._inside("net", "pid"), sys.executable, "-IS", "-c", _CLIENT]
        self._client = subprocess.Popen(
            client, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    def _inside(self, *namespaces: str) -> list[str]:
        return ["nsenter", "--target", str(self._first), *(f"--{name}" for name in namespaces)]

    def start(self) -> None:
        """Start dockerd; return when it answers. Raises NotStarted if it exits instead."""
        options = {
            "data-root": self.folder / "root",
            "exec-root": self.folder / "exec",
            "pidfile": self.folder / "pid",
            "host": f"unix://{self.socket}",
            "cgroup-parent": f"/{self._group}",
            "exec-opt": "native.cgroupdriver=cgroupfs",
            "userland-proxy": "false",
            "shutdown-timeout": "1",
        }
        command = [*self._inside("mount", "net", "pid"), "dockerd", *(f"--{k}={v}" for k, v in options.items())]
        with self._log.open("ab") as log:
            daemon = self._daemon = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        wait_until(lambda: self.answers() or daemon.poll() is not None, f"dockerd answers, or see {self._log}")
        if daemon.poll() is not None:
            raise NotStarted(self._log.read_text().splitlines()[-1])

    def answers(self) -> bool:
        try:
            self.ask("GET", "/_ping")
        except OSError:
            return False
        return True

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop dockerd. Its containers end now, or at its next start."""
        assert self._daemon is not None
        dockerd = (self.folder / "pid").read_text()
        subprocess.run([*self._inside("pid", "mount"), _busybox(), "kill", f"-{number.value}", dockerd], check=True)
        self._daemon.wait(20)

    def end(self) -> None:
        """End all processes in the namespaces, and the namespaces."""
        assert self._outer.stdin is not None
        self._outer.stdin.close()
        for process in (self._outer, self._client, self._daemon):
            if process is not None:
                process.wait(20)
        wait_until(self._has_no_groups, f"the control groups {self._group} can be removed")

    def _has_no_groups(self) -> bool:
        """Remove the control groups, which outlive their processes briefly; return whether all are removed."""
        tops = [top for top in (_CGROUPS / self._group, *_CGROUPS.glob(f"*/{self._group}")) if top.is_dir()]
        for top in tops:
            for folder, _, _ in os.walk(top, topdown=False):
                with suppress(OSError):
                    Path(folder).rmdir()
        return not any(top.exists() for top in tops)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return Docker's answer, decoded from JSON. Raises Refused, and OSError if Docker does not answer."""
        connection = http.client.HTTPConnection("docker", timeout=20)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.sock.settimeout(20)
            connection.sock.connect(str(self.socket))
            content = body if body is None or isinstance(body, bytes) else json.dumps(body)
            kind = "application/x-tar" if isinstance(body, bytes) else "application/json"
            connection.request(method, path, content, {"Content-Type": kind})
            answer = connection.getresponse()
            said = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= 400:
            raise Refused(answer.status, said)
        with suppress(ValueError):
            return json.loads(said)
        return said

    def run(self, name: str, *command: str, network: str = "bridge", **config: Any) -> str:
        """Start a container and return its id. In ``config``, ``host`` is its HostConfig, and ``endpoint`` its endpoint
        settings."""
        host = {"NetworkMode": network, **config.pop("host", {})}
        endpoint = config.pop("endpoint", {})
        networks = {} if network in ("none", "host") or ":" in network else {network: endpoint}
        body = {"Image": IMAGE, "Cmd": command, "HostConfig": host, **config}
        made = self.ask(
            "POST", f"/containers/create?name={name}", {**body, "NetworkingConfig": {"EndpointsConfig": networks}}
        )
        self.ask("POST", f"/containers/{made['Id']}/start")
        return str(made["Id"])

    def inspect(self, container: str) -> Any:
        return self.ask("GET", f"/containers/{container}/json")

    def status_of(self, name: str, *command: str, network: str = "bridge", **config: Any) -> tuple[int, str]:
        """Return the exit status and the output of a container that runs to its end."""
        made = self.run(name, *command, network=network, Tty=True, **config)
        status = self.ask("POST", f"/containers/{made}/wait")["StatusCode"]
        return int(status), self.ask("GET", f"/containers/{made}/logs?stdout=1&stderr=1")

    def network_of(self, container: str) -> set[str]:
        """Return a running container's addresses and routes from its kernel. Device names may change between calls."""
        sandbox = self.inspect(container)["NetworkSettings"]["SandboxKey"]
        within = [*self._inside("mount"), "nsenter", f"--net={sandbox}", str(_busybox())]
        said = [subprocess.check_output([*within, "ip", *a], text=True) for a in (("-o", "-4", "addr"), ("route",))]
        return {re.sub(r"^[0-9]+: |eth[0-9]+", "", line) for text in said for line in text.splitlines()}

    def clear(self) -> None:
        """Remove all containers."""
        for container in self.ask("GET", "/containers/json?all=1"):
            self.ask("DELETE", f"/containers/{container['Id']}?force=1")

    def get(self, url: str) -> str | None:
        """Return a web server's response to a client on Docker's host; None if there is no answer."""
        assert self._client is not None
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        self._client.stdin.write(f"{url}\n")
        self._client.stdin.flush()
        said: str | None = json.loads(self._client.stdout.readline())
        return said


def _image() -> bytes:
    """Return a tar of the image's only layer: busybox, and a shell."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.add(_busybox().resolve(), "bin/busybox")
        shell = tarfile.TarInfo("bin/sh")
        shell.type, shell.linkname = tarfile.SYMTYPE, "busybox"
        tar.addfile(shell)
    return content.getvalue()


@contextmanager
def running() -> Iterator[RealDocker]:
    """Run an engine with the image. Raises NotStarted if this host does not allow it."""
    # A unix socket's path must be short, and a test's folder may have a long one.
    with tempfile.TemporaryDirectory(prefix="spd") as folder:
        docker = RealDocker(Path(folder))
        try:
            docker.start()
            docker.ask("POST", f"/images/create?fromSrc=-&repo={IMAGE}", _image())
            yield docker
        finally:
            docker.end()
