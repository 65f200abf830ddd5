"""The proxy: a separate process that serves the links and relays of a configuration, and takes requests over a socket.

It is not a child of the fault runner. A proxy that ended with the runner would break every connection of the pipeline:
a fault that no schedule contains, and that the runner could not heal.

A request is one line of JSON, ``{"do": "status"}`` or ``{"do": "impair", "link": ..., "impairment": {...}}``. The
response is one line of JSON: link name -> status, or ``{"error": ...}``.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from faults.backends.impairment import Impairment, LinkStatus
from faults.backends.link import Link
from faults.backends.relay import Relay
from faults.errors import FaultRefused, Unreachable
from faults.targets import LinkTarget, NamespaceTarget
from validator.model.signals import ending

_SOCKET_FILE: Final = "proxy.sock"
_PATH_BYTES_MAX: Final = 100
"""The system's limit is 104 on macOS and 108 on Linux."""
_DESCRIPTORS: Final = Path("/proc/self/fd")
_ANSWER_SECONDS: Final = 5.0


def socket_path(state: Path) -> Path:
    """The control socket of the proxy of a state folder. Raises FaultRefused if the path is too long for a socket."""
    path = state / _SOCKET_FILE
    if len(os.fsencode(path)) > _PATH_BYTES_MAX and not _DESCRIPTORS.is_dir():
        raise FaultRefused(f"{path}: is too long for a Unix socket; set state: to a folder with a shorter path.")
    return path


@contextmanager
def _named(path: Path) -> Iterator[str]:
    """An address of the socket: its path or, if that is too long, a path through a descriptor of its folder (Linux)."""
    if len(os.fsencode(path)) <= _PATH_BYTES_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield str(_DESCRIPTORS / str(folder) / path.name)
    finally:
        os.close(folder)


async def serve(
    links: Mapping[str, LinkTarget | NamespaceTarget], state: Path, ready: Callable[[dict[str, LinkStatus]], None]
) -> dict[str, LinkStatus]:
    """Serve until a signal ends the proxy. ``ready`` is called when all links listen. Returns each link's last status.

    Raises FaultRefused.
    """
    if not links:
        raise FaultRefused(
            "The configuration has no link target and no namespace with a relay, so the proxy has nothing to serve; "
            "add one of them under targets."
        )
    state.mkdir(parents=True, exist_ok=True)
    path = socket_path(state)
    if _is_served(path):
        raise FaultRefused(f"{path}: a proxy is running for this configuration already; end it first.")
    path.unlink(missing_ok=True)
    served: dict[str, Link | Relay] = {
        name: Link(target.listen, target.upstream) if isinstance(target, LinkTarget) else Relay(target)
        for name, target in links.items()
    }
    ended = asyncio.Event()
    for number in ending():
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    try:
        for name, link in served.items():
            try:
                await link.start()
            except OSError as error:
                raise FaultRefused(f"{name}: cannot listen at {link.listen} ({error.strerror}).") from error
        with _named(path) as address:
            control = await asyncio.start_unix_server(lambda r, w: _obey(r, w, served), address)
            path.chmod(0o600)
            ready({name: link.status() for name, link in served.items()})
            await ended.wait()
            control.close()
        last = {name: link.status() for name, link in served.items()}
    finally:
        for link in served.values():
            await link.stop()
    path.unlink(missing_ok=True)
    return last


def _is_served(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX) as probe, _named(path) as address:
            probe.connect(address)
    except OSError:
        return False
    return True


async def _obey(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, links: Mapping[str, Link | Relay]) -> None:
    answer: dict[str, object]
    try:
        order = json.loads(await reader.readline())
        if order["do"] == "impair":
            links[order["link"]].impair(Impairment.model_validate(order["impairment"]))
        answer = {name: link.status().model_dump(mode="json") for name, link in links.items()}
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    writer.write(json.dumps(answer).encode() + b"\n")
    writer.close()


class ProxyControl:
    """Client of a running proxy."""

    def __init__(self, state: Path) -> None:
        self._path = socket_path(state)

    def status(self) -> dict[str, LinkStatus]:
        """Link name -> status. Raises Unreachable if no proxy answers."""
        return self._request({"do": "status"})

    def impair(self, link: str, impairment: Impairment) -> None:
        """Set the impairment of a link. Raises Unreachable if no proxy answers, or if the proxy reports an error."""
        self._request({"do": "impair", "link": link, "impairment": impairment.model_dump(mode="json")})

    def _request(self, order: Mapping[str, object]) -> dict[str, LinkStatus]:
        try:
            with socket.socket(socket.AF_UNIX) as control, _named(self._path) as address:
                control.settimeout(_ANSWER_SECONDS)
                control.connect(address)
                control.sendall(json.dumps(order).encode() + b"\n")
                answer = json.loads(control.makefile("rb").read())
        except (OSError, ValueError) as error:
            raise Unreachable(
                f"{self._path}: no proxy answers; start `streamproof faults proxy CONFIG` and connect the "
                "pipeline through it."
            ) from error
        if "error" in answer:
            raise Unreachable(f"{self._path}: the proxy refused a request ({answer['error']}); restart it.")
        return {name: LinkStatus.model_validate(status) for name, status in answer.items()}
