"""Faults of Docker containers: kill, pause, restart, off the network. The probes are what Docker tells of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from faults.backends.docker import Container, Docker, NoSuchContainer
from faults.backends.own_container import own_containers
from faults.errors import FaultRefused
from faults.facts import Facts, KnownContainer
from faults.fault import Fault
from faults.kinds.base import for_each
from faults.parameters import ContainerRestartParameters, DisconnectParameters
from faults.targets import ContainerTarget

_NO_NETWORKS: Final = ("host", "none")
"""Docker's names for the host's own network, which no container can be taken off, and for none at all."""


class _OnContainers:
    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:  # noqa: ARG002 - one signature for all
        self.facts = facts
        targets = {n: t for n, t in fault.targets.items() if isinstance(t, ContainerTarget)}
        self._names = {name: target.container for name, target in targets.items()}
        self._dockers = {name: Docker(target.socket) for name, target in targets.items()}

    def prepare(self) -> None:
        """Find the containers. Raises FaultRefused where one does not run, is paused, is named twice, or is ours."""
        known: dict[str, KnownContainer] = {}
        ours = own_containers()
        for name, docker in self._dockers.items():
            seen = docker.inspect(self._names[name])
            if (state := _state_amiss(seen)) is not None:
                raise FaultRefused(f"{name}: the container {state}; mend that first.")
            if ours.has(seen.id, seen.layer):
                raise FaultRefused(
                    f"{name}: this would hit the fault runner itself, or take its network away; run the faults from "
                    "elsewhere."
                )
            if seen.id in known:
                raise FaultRefused(
                    f"{known[seen.id].target} and {name} both name container {seen.id[:12]}; hit one of them only."
                )
            self._check(name, seen)
            endpoints = self._endpoints(name, seen)
            known[seen.id] = KnownContainer(target=name, id=seen.id, started=seen.started, endpoints=endpoints)
        self.facts = Facts(containers=tuple(known.values()))

    def maintain(self) -> None:
        """Nothing to do meanwhile."""

    def _check(self, name: str, seen: Container) -> None:
        """Raise FaultRefused where this kind could not be mended."""

    def _endpoints(self, name: str, seen: Container) -> dict[str, str]:  # noqa: ARG002 - for those that need them
        return {}

    def _each(self) -> list[tuple[Docker, KnownContainer]]:
        return [(self._dockers[known.target], known) for known in self.facts.containers]

    def _all(self, holds: Callable[[KnownContainer, Container], bool]) -> bool:
        """Whether it holds of all that still exist; by their ids, so that no later ones are taken for them."""
        seen = [(known, _seen(docker, known)) for docker, known in self._each()]
        return all(now is None or holds(known, now) for known, now in seen)

    def _mend(self, mend: Callable[[Docker, KnownContainer, Container], None]) -> None:
        """Mend all that exist; one that was removed meanwhile is not ours to bring back."""

        def one(item: tuple[Docker, KnownContainer]) -> None:
            docker, known = item
            if (now := _seen(docker, known)) is not None:
                mend(docker, known, now)

        for_each(self._each(), one)


def _state_amiss(seen: Container) -> str | None:
    if seen.is_restarting:
        return "ended, and is about to be started again by Docker"
    if not seen.is_running:
        return "does not run"
    return "is paused" if seen.is_paused else None


def _check_health(name: str, seen: Container) -> None:
    if not seen.is_healthy:
        raise FaultRefused(
            f"{name}: the container is not healthy by its own check, by which it is seen to be healed; wait for that, "
            "or mend it first."
        )


def _seen(docker: Docker, known: KnownContainer) -> Container | None:
    try:
        return docker.inspect(known.id)
    except NoSuchContainer:
        return None


class ContainerKill(_OnContainers):
    """SIGKILL; started again to heal, unless Docker's restart policy did."""

    def _check(self, name: str, seen: Container) -> None:
        _check_health(name, seen)
        if seen.is_removed_at_end:
            raise FaultRefused(
                f"{name}: Docker removes the container when it ends (--rm), so that nothing could start it again; make "
                "it without --rm."
            )

    def inject(self) -> None:
        """Kill all."""
        for docker, known in self._each():
            docker.kill(known.id)

    def is_active(self) -> bool:
        """None runs as it ran before."""
        return self._all(lambda known, now: not now.is_running or now.started != known.started)

    def heal(self) -> None:
        """Start those that do not run. Raises FaultRefused where one was removed meanwhile."""

        def start(item: tuple[Docker, KnownContainer]) -> None:
            docker, known = item
            if (now := _seen(docker, known)) is None:
                raise FaultRefused(
                    f"{known.target}: its container {known.id[:12]} was removed meanwhile, so that nothing can start "
                    "it again; make it anew, then remove the state folder."
                )
            if not now.is_running:
                docker.start(known.id)

        for_each(self._each(), start)

    def is_healed(self) -> bool:
        """All run, and are healthy by their own check."""
        seen = [docker.inspect(known.id) for docker, known in self._each()]
        return all(now.is_running and not now.is_paused and now.is_healthy for now in seen)


class ContainerRestart(ContainerKill):
    """Docker stops it and starts it."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, ContainerRestartParameters)
        self._stop_seconds = round(fault.parameters.stop_within)

    def _check(self, name: str, seen: Container) -> None:
        _check_health(name, seen)

    def inject(self) -> None:
        """Restart all."""
        for docker, known in self._each():
            docker.restart(known.id, self._stop_seconds)


class ContainerPause(_OnContainers):
    """Frozen by Docker, and let go."""

    def inject(self) -> None:
        """Pause all."""
        for docker, known in self._each():
            docker.pause(known.id)

    def is_active(self) -> bool:
        """All are paused."""
        return all(docker.inspect(known.id).is_paused for docker, known in self._each())

    def heal(self) -> None:
        """Unpause those that are paused."""

        def unpause(docker: Docker, known: KnownContainer, now: Container) -> None:
            if now.is_paused:
                docker.unpause(known.id)

        self._mend(unpause)

    def is_healed(self) -> bool:
        """None is paused; one that ended or was removed meanwhile is not ours to bring back."""
        return self._all(lambda _, now: not now.is_paused)


class ContainerDisconnect(_OnContainers):
    """Taken off its networks, or one of them, and put back with the same names and addresses."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, DisconnectParameters)
        self._network = fault.parameters.network

    def _endpoints(self, name: str, seen: Container) -> dict[str, str]:
        taken = {n: e for n, e in seen.endpoints.items() if self._network in (None, n)}
        for none in _NO_NETWORKS:
            if none in taken:
                raise FaultRefused(f"{name}: the container is on the network {none}, which it cannot be taken off.")
        if not taken:
            where = "any network of its own" if self._network is None else self._network
            raise FaultRefused(f"{name}: the container is not on {where}; name a network that it is on.")
        return taken

    def inject(self) -> None:
        """Disconnect all."""
        for docker, known in self._each():
            for network in known.endpoints:
                docker.disconnect(known.id, network)

    def is_active(self) -> bool:
        """None is on a network that was taken."""
        return self._all(lambda known, now: not known.endpoints.keys() & now.endpoints.keys())

    def heal(self) -> None:
        """Connect all again, each to all its networks."""

        def connect(docker: Docker, known: KnownContainer, now: Container) -> None:
            missing = [network for network in known.endpoints if network not in now.endpoints]
            for_each(missing, lambda network: docker.connect(known.id, network, known.endpoints[network]))

        self._mend(connect)

    def is_healed(self) -> bool:
        """All are on all of them again; one that was removed meanwhile is not ours to bring back."""
        return self._all(lambda known, now: known.endpoints.keys() <= now.endpoints.keys())
