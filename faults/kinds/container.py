"""Faults of Docker containers: kill, pause, restart, off the network. The probes are what Docker tells of them."""

from __future__ import annotations

import socket
from pathlib import Path

from faults.backends.docker import Container, Docker
from faults.errors import FaultRefused
from faults.facts import Facts, KnownContainer
from faults.fault import Fault
from faults.kinds.base import for_each
from faults.parameters import ContainerRestartParameters, DisconnectParameters
from faults.targets import ContainerTarget


class _OnContainers:
    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:  # noqa: ARG002 - one signature for all
        self.facts = facts
        targets = {n: t for n, t in fault.targets.items() if isinstance(t, ContainerTarget)}
        self._names = {name: target.container for name, target in targets.items()}
        self._dockers = {name: Docker(target.socket) for name, target in targets.items()}

    def prepare(self) -> None:
        """Find the containers. Raises FaultRefused where one does not run, is paused, or is ours."""
        known = []
        for name, docker in self._dockers.items():
            seen = docker.inspect(self._names[name])
            if not seen.is_running or seen.is_paused:
                raise FaultRefused(f"{name}: the container does not run, or is paused; mend that first.")
            if seen.id.startswith(socket.gethostname()):
                raise FaultRefused(f"{name}: this would hit the fault runner itself; run the faults from elsewhere.")
            known.append(
                KnownContainer(target=name, id=seen.id, started=seen.started, endpoints=self._endpoints(name, seen))
            )
        self.facts = Facts(containers=tuple(known))

    def hold(self) -> None:
        """Nothing to do meanwhile."""

    def _endpoints(self, name: str, seen: Container) -> dict[str, str]:  # noqa: ARG002 - for those that need them
        return {}

    def _each(self) -> list[tuple[Docker, KnownContainer, Container]]:
        """Docker, what we know of the container, and how it is now; by its id, so that no later one is taken for it."""
        return [self._one(known) for known in self.facts.containers]

    def _one(self, known: KnownContainer) -> tuple[Docker, KnownContainer, Container]:
        docker = self._dockers[known.target]
        return docker, known, docker.inspect(known.id)

    def heal(self) -> None:
        """Mend all, also where another one was removed meanwhile. Raises FaultRefused."""
        for_each(self.facts.containers, lambda known: self._mend(*self._one(known)))

    def _mend(self, docker: Docker, known: KnownContainer, now: Container) -> None:
        raise NotImplementedError


class ContainerKill(_OnContainers):
    """SIGKILL; started again to heal, unless Docker's restart policy did."""

    def inject(self) -> None:
        """Kill all."""
        for docker, known, _ in self._each():
            docker.kill(known.id)

    def is_in(self) -> bool:
        """None runs as it ran before."""
        return all(not now.is_running or now.started != known.started for _, known, now in self._each())

    def _mend(self, docker: Docker, known: KnownContainer, now: Container) -> None:
        if not now.is_running:
            docker.start(known.id)

    def is_gone(self) -> bool:
        """All run, and are healthy by their own check."""
        return all(now.is_running and not now.is_paused and now.is_healthy for _, _, now in self._each())


class ContainerRestart(ContainerKill):
    """Docker stops it and starts it."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, ContainerRestartParameters)
        self._stop_seconds = round(fault.parameters.stop_within)

    def inject(self) -> None:
        """Restart all."""
        for docker, known, _ in self._each():
            docker.restart(known.id, self._stop_seconds)


class ContainerPause(_OnContainers):
    """Frozen by Docker, and let go."""

    def inject(self) -> None:
        """Pause all."""
        for docker, known, _ in self._each():
            docker.pause(known.id)

    def is_in(self) -> bool:
        """All are paused."""
        return all(now.is_paused for _, _, now in self._each())

    def _mend(self, docker: Docker, known: KnownContainer, now: Container) -> None:
        if now.is_paused:
            docker.unpause(known.id)

    def is_gone(self) -> bool:
        """None is paused, and all run."""
        return all(now.is_running and not now.is_paused for _, _, now in self._each())


class ContainerDisconnect(_OnContainers):
    """Taken off its networks, or one of them, and put back with the same names and addresses."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, DisconnectParameters)
        self._network = fault.parameters.network

    def _endpoints(self, name: str, seen: Container) -> dict[str, str]:
        taken = {n: e for n, e in seen.endpoints.items() if self._network in (None, n)}
        if not taken:
            where = "any network" if self._network is None else self._network
            raise FaultRefused(f"{name}: the container is not on {where}; name a network that it is on.")
        return taken

    def inject(self) -> None:
        """Disconnect all."""
        for docker, known, _ in self._each():
            for network in known.endpoints:
                docker.disconnect(known.id, network)

    def is_in(self) -> bool:
        """None is on a network that was taken."""
        return all(not known.endpoints.keys() & now.endpoints.keys() for _, known, now in self._each())

    def _mend(self, docker: Docker, known: KnownContainer, now: Container) -> None:
        lacking = [network for network in known.endpoints if network not in now.endpoints]
        for_each(lacking, lambda network: docker.connect(known.id, network, known.endpoints[network]))

    def is_gone(self) -> bool:
        """All are on all of them again."""
        return all(known.endpoints.keys() <= now.endpoints.keys() for _, known, now in self._each())
