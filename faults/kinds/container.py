"""Faults of Docker containers: kill, pause, restart, disconnect. The probes inspect the containers through Docker."""

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
"""Docker's names for the host's network and for no network. No container can leave the host's network."""


class _OnContainers:
    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:  # noqa: ARG002 - one signature for all
        self.facts = facts
        targets = {n: t for n, t in fault.targets.items() if isinstance(t, ContainerTarget)}
        self._names = {name: target.container for name, target in targets.items()}
        self._dockers = {name: Docker(target.socket) for name, target in targets.items()}

    def prepare(self) -> None:
        """Find the containers. Raises FaultRefused if one does not run, is paused or is named twice, or if the fault
        runner runs in it or uses its network."""
        known: dict[str, KnownContainer] = {}
        ours = own_containers()
        for name, docker in self._dockers.items():
            seen = docker.inspect(self._names[name])
            if (state := _state_problem(seen)) is not None:
                raise FaultRefused(f"{name}: the container {state}; fix that first.")
            if ours.has(seen.id, seen.layer):
                raise FaultRefused(
                    f"{name}: the fault would hit the fault runner itself, or its network; run the fault runner "
                    "outside this container."
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
        """Does nothing."""

    def _check(self, name: str, seen: Container) -> None:
        """Raise FaultRefused if a fault of this kind could not be healed."""

    def _endpoints(self, name: str, seen: Container) -> dict[str, str]:  # noqa: ARG002 - for those that need them
        return {}

    def _each(self) -> list[tuple[Docker, KnownContainer]]:
        return [(self._dockers[known.target], known) for known in self.facts.containers]

    def _all(self, holds: Callable[[KnownContainer, Container], bool]) -> bool:
        """Whether ``holds`` is True for all that still exist. They are identified by id, since names can be reused."""
        seen = [(known, _seen(docker, known)) for docker, known in self._each()]
        return all(now is None or holds(known, now) for known, now in seen)

    def _heal_each(self, heal_one: Callable[[Docker, KnownContainer, Container], None]) -> None:
        """Call ``heal_one`` for each container that still exists. One that was removed is not restored."""

        def one(item: tuple[Docker, KnownContainer]) -> None:
            docker, known = item
            if (now := _seen(docker, known)) is not None:
                heal_one(docker, known, now)

        for_each(self._each(), one)


def _state_problem(seen: Container) -> str | None:
    if seen.is_restarting:
        return "ended, and is about to be started again by Docker"
    if not seen.is_running:
        return "does not run"
    return "is paused" if seen.is_paused else None


def _check_health(name: str, seen: Container) -> None:
    if not seen.is_healthy:
        raise FaultRefused(
            f"{name}: the container's health check does not pass, and healing is verified by this check; wait until it "
            "passes, or fix the container first."
        )


def _seen(docker: Docker, known: KnownContainer) -> Container | None:
    try:
        return docker.inspect(known.id)
    except NoSuchContainer:
        return None


class ContainerKill(_OnContainers):
    """SIGKILL. Healing starts the container, unless Docker's restart policy has started it."""

    def _check(self, name: str, seen: Container) -> None:
        _check_health(name, seen)
        if seen.is_removed_at_end:
            raise FaultRefused(
                f"{name}: Docker removes the container when it ends (--rm), so it could not be started again; create "
                "it without --rm."
            )

    def inject(self) -> None:
        """Kill the containers."""
        for docker, known in self._each():
            docker.kill(known.id)

    def is_active(self) -> bool:
        """Whether each container has been ended by the fault: it does not run, or it was started again since."""
        return self._all(lambda known, now: not now.is_running or now.started != known.started)

    def heal(self) -> None:
        """Start the containers that do not run. Raises FaultRefused if one was removed during the fault."""

        def start(item: tuple[Docker, KnownContainer]) -> None:
            docker, known = item
            if (now := _seen(docker, known)) is None:
                raise FaultRefused(
                    f"{known.target}: its container {known.id[:12]} was removed during the fault and cannot be "
                    "started; create it again, then remove the state folder."
                )
            if not now.is_running:
                docker.start(known.id)

        for_each(self._each(), start)

    def is_healed(self) -> bool:
        """Whether all containers run, are not paused, and are healthy by their own health check."""
        seen = [docker.inspect(known.id) for docker, known in self._each()]
        return all(now.is_running and not now.is_paused and now.is_healthy for now in seen)


class ContainerRestart(ContainerKill):
    """Docker stops the container and starts it."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, ContainerRestartParameters)
        self._stop_seconds = round(fault.parameters.stop_within)

    def _check(self, name: str, seen: Container) -> None:
        _check_health(name, seen)

    def inject(self) -> None:
        """Restart the containers."""
        for docker, known in self._each():
            docker.restart(known.id, self._stop_seconds)


class ContainerPause(_OnContainers):
    """Docker freezes the processes of the container, and lets them run again."""

    def inject(self) -> None:
        """Pause the containers."""
        for docker, known in self._each():
            docker.pause(known.id)

    def is_active(self) -> bool:
        """Whether all containers are paused."""
        return all(docker.inspect(known.id).is_paused for docker, known in self._each())

    def heal(self) -> None:
        """Unpause the containers that are paused."""

        def unpause(docker: Docker, known: KnownContainer, now: Container) -> None:
            if now.is_paused:
                docker.unpause(known.id)

        self._heal_each(unpause)

    def is_healed(self) -> bool:
        """Whether no container is paused. One that ended or was removed during the fault is not restored."""
        return self._all(lambda _, now: not now.is_paused)


class ContainerDisconnect(_OnContainers):
    """The container is disconnected from its networks, or one of them, and reconnected with the same settings."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, DisconnectParameters)
        self._network = fault.parameters.network

    def _endpoints(self, name: str, seen: Container) -> dict[str, str]:
        taken = {n: e for n, e in seen.endpoints.items() if self._network in (None, n)}
        for none in _NO_NETWORKS:
            if none in taken:
                raise FaultRefused(f"{name}: the container is on the network {none} and cannot leave it.")
        if not taken:
            if self._network is None:
                raise FaultRefused(f"{name}: the container has no network to disconnect from; hit another container.")
            raise FaultRefused(f"{name}: the container is not on {self._network}; name a network that it is on.")
        return taken

    def inject(self) -> None:
        """Disconnect the containers."""
        for docker, known in self._each():
            for network in known.endpoints:
                docker.disconnect(known.id, network)

    def is_active(self) -> bool:
        """Whether no container is on a network from which it was disconnected."""
        return self._all(lambda known, now: not known.endpoints.keys() & now.endpoints.keys())

    def heal(self) -> None:
        """Connect each container again to all its networks."""

        def connect(docker: Docker, known: KnownContainer, now: Container) -> None:
            missing = [network for network in known.endpoints if network not in now.endpoints]
            for_each(missing, lambda network: docker.connect(known.id, network, known.endpoints[network]))

        self._heal_each(connect)

    def is_healed(self) -> bool:
        """Whether each container is on all its networks. One that was removed during the fault is not restored."""
        return self._all(lambda known, now: known.endpoints.keys() <= now.endpoints.keys())
