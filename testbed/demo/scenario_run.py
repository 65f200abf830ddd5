"""The run of a scenario: the links in front of the broker, the supervisor, and the fault runner in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from faults.backends import faketime
from faults.command import shown
from faults.errors import NotHealed
from faults.healing import HealPolicy
from faults.runner import run as run_timeline
from testbed import disk
from testbed.broker import BrokerError, EmbeddedBroker
from testbed.checkout import python_path, streamproof
from testbed.demo.brokers import DemoBrokers
from testbed.demo.scenario import Scenario
from testbed.demo.sidecar import DemoSidecar
from testbed.demo.supervisor import SupervisedProcess, Supervisor, supervised_processes
from testbed.demo.targets import (
    BROKER,
    BROKER_2,
    SIDECAR,
    RunContext,
    clock_file,
    disk_name,
    node_name,
    pid_file,
    state_folder,
)
from testbed.engines import clock_agent
from testbed.engines.base import EngineError, ProcessEngine
from testbed.engines.kafka_streams import KafkaStreamsEngine
from testbed.engines.real import RealEngine
from testbed.engines.settings import Clock, Node
from testbed.node import PROXY_READY, NodeRelay
from testbed.ports import free_port
from testbed.processes import OwnedProcess
from testbed.run_files import write_yaml
from testbed.stop import Stop

READY_SECONDS_MAX: Final = 180.0
_LOOK_SECONDS: Final = 0.1


class ScenarioRun:
    """The scenario of one demo, in its folder. Call `start_links`, then `start`, then `end`."""

    def __init__(self, scenario: Scenario, folder: Path, stop: threading.Event, say: Callable[[str], None]) -> None:
        self._scenario = scenario
        self._folder = folder
        self._stop = stop
        self._say = say
        self._context: RunContext | None = None
        self._supervisor: Supervisor | None = None
        self._running: Future[None] | None = None
        self.links = tuple(f"127.0.0.1:{free_port()}" for _ in scenario.link_names)
        """The addresses of the proxy, which the broker advertises to the engine."""
        self._relay = NodeRelay(state_folder(folder), node_name(scenario.engine)) if scenario.needs_node else None
        self._engine_servers = ""
        self._proxy: OwnedProcess | None = None
        """The proxy process, which serves the links or the relay."""

    @property
    def node(self) -> Node | None:
        """The first worker's separate network; None without one."""
        return None if self._relay is None else self._relay.node

    @property
    def hosts(self) -> tuple[str, ...]:
        """Additional addresses for the broker to listen on."""
        return () if self.node is None else (self.node.host,)

    def start_relay(self, stop: Stop) -> OwnedProcess | None:
        """Create the first worker's network, before the broker listens there; return the relay's process, or None
        without one."""
        if self._relay is None:
            return None
        process = self._proxy = self._relay.start(stop)
        self._say(f"{node_name(self._scenario.engine)}: the worker's packets pass through a relay")
        return process

    def end_relay(self) -> None:
        """Remove the network, after the engine has ended."""
        if self._relay is not None:
            self._relay.end()

    @property
    def engine_servers(self) -> str:
        """The engine's bootstrap servers: the relay if there is one, else its single link, else the broker's own."""
        assert self._context is not None
        if self._relay is not None:
            return self._engine_servers
        return self._context.links[0][0] if self._context.links else self._context.bootstrap_servers

    def targets_type(self, target_type: str) -> bool:
        """Return whether a fault has targets of this type. The end of such a process is not a failure of the demo."""
        return target_type in self._scenario.kinds

    def mount_disk(self, stack: ExitStack) -> None:
        """If a fault fills a disk, mount a separate file system for the engine's state, until ``stack`` ends."""
        if (folder := self._scenario.disk_folder) is not None:
            disk.mount(self._folder / folder)
            stack.callback(disk.unmount, self._folder / folder)
            size = disk.SIZE_BYTES >> 20
            self._say(f"{disk_name(self._scenario.engine)}: the engine's state is on a separate disk of {size} MiB")

    def start_links(self, brokers: DemoBrokers) -> OwnedProcess | None:
        """Write the fault configuration. If there are links, start the proxy and wait until it serves them."""
        broker, second = brokers.first, brokers.second
        links = tuple(zip(self.links, broker.link_upstreams, strict=True))
        node = None
        if self._relay is not None:
            (self._engine_servers,) = broker.host_servers
            node = self._relay.target(self._engine_servers)
        other = None if second is None else second.bootstrap_servers
        self._context = RunContext(self._folder, broker.bootstrap_servers, links, node, other)
        file = write_yaml(self._folder / "faults.yaml", self._scenario.content(self._context))
        if not links:
            return None
        state_folder(self._folder).mkdir(exist_ok=True)
        self._proxy = OwnedProcess(
            streamproof("faults", "proxy", file), log=self._folder / "proxy.log", name="proxy of the links",
            environment=python_path(), folder=self._folder,
        )  # fmt: skip
        return self._proxy

    def await_links(self, proxy: OwnedProcess, stop: Stop, meanwhile: Callable[[], None]) -> None:
        """Wait until the proxy serves; ``meanwhile`` raises if it has died."""
        while PROXY_READY not in proxy.last_lines():
            meanwhile()
            stop.pause()
        for name, (listen, upstream) in zip(self._scenario.link_names, self._links(), strict=True):
            self._say(f"{name}: the engine reaches the broker at {upstream} through {listen}")

    def assign_links_and_clocks(self, engine: ProcessEngine) -> None:
        """Set each instance's link (Kafka Streams) and clock (if a fault moves one). Call before the engine's start."""
        if isinstance(engine, KafkaStreamsEngine):
            engine.own_servers = tuple(listen for listen, _ in self._links())
        if self._scenario.needs_clocks:
            by = clock_agent.jar() if isinstance(engine, RealEngine) else faketime.installed()
            assert by is not None, "the preflight check has found it"
            engine.clocks = {n: self._clock(by, name) for n, name in enumerate(self._scenario.instance_names)}

    def _clock(self, by: Path, target: str) -> Clock:
        file = clock_file(self._folder, target)
        file.parent.mkdir(exist_ok=True)
        file.write_text("+0\n", encoding="utf-8")
        return Clock(by, file)

    def start(
        self,
        pool: ThreadPoolExecutor,
        engine: ProcessEngine,
        brokers: DemoBrokers,
        sidecar: Sequence[SupervisedProcess],
    ) -> Future[None]:
        """Run the timeline in a thread of ``pool``, once all targets are ready."""
        assert self._context is not None
        names = self._scenario.instance_names
        processes = supervised_processes(engine, names, lambda name: pid_file(self._folder, name))
        if self.targets_type("broker"):
            processes += map(self._supervised_broker, (BROKER, BROKER_2), brokers.all)
        if self.targets_type("sidecar"):
            processes += sidecar
        self._supervisor = Supervisor(processes, state_folder(self._folder), self._say)
        self._supervisor.start()
        self._running = pool.submit(self._run)
        return self._running

    def _run(self) -> None:
        assert self._context is not None
        assert self._supervisor is not None
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not self._supervisor.all_ready:
            if self._supervisor.failure is not None or self._stop.wait(_LOOK_SECONDS):
                return
            if time.monotonic() > deadline:
                raise EngineError(f"Not all processes of the pipeline were ready within {READY_SECONDS_MAX:g} s.")
        config, timeline = self._scenario.bound(self._context)
        for line in shown(timeline).splitlines():
            self._say(f"  {line}")
        patience = HealPolicy(config.limits.healed_within, self._check_healer, advice="the fault ends with the demo")
        run_timeline(config, timeline, self._report, self._stop, patience)

    def _report(self, line: str) -> None:
        self._say(f"FAULT {line}" if line.startswith("failure:") else line)

    def check(self) -> None:
        """Raise the exception that ended the supervisor, if any."""
        if self._supervisor is not None and self._supervisor.failure is not None:
            raise self._supervisor.failure

    def _check_healer(self) -> None:
        """Raise NotHealed if the supervisor, which restarts killed processes, or the relay has ended."""
        if self._supervisor is not None and self._supervisor.failure is not None:
            raise NotHealed(
                "the demo's supervisor, which would restart the process, has failed; the fault ends with the demo."
            )
        if self._proxy is not None and not self._proxy.is_running:
            raise NotHealed(f"the {self._proxy.name}, which carried all traffic, has ended; the demo ends, too.")

    def end(self) -> None:
        """Heal the active faults, even after an error, and stop the supervisor."""
        running, self._running = self._running, None
        if running is not None and not running.done():
            self._stop.set()
            self._say("healing what is broken")
        # After a stop, no caller waits for the result.
        if running is not None and self._stop.is_set() and (error := running.exception()) is not None:
            self._say(f"the faults ended with an error: {error}")
        if self._supervisor is not None:
            self._supervisor.stop()

    def _supervised_broker(self, name: str, broker: EmbeddedBroker) -> SupervisedProcess:
        def pid() -> int | None:
            try:
                return broker.process.pid if broker.process.is_running else None
            except BrokerError:
                return None  # being restarted

        return SupervisedProcess(name, pid, broker.restart, lambda: True, pid_file(self._folder, name))

    def _links(self) -> tuple[tuple[str, str], ...]:
        assert self._context is not None
        return self._context.links


def supervised_sidecar(sidecar: Callable[[], DemoSidecar], restart: Callable[[], None]) -> SupervisedProcess:
    """Return the sidecar as a supervised process. It is found by the lock of its state, so it needs no pid file."""

    def pid() -> int | None:
        process = sidecar().process
        return process.pid if process.is_running else None

    return SupervisedProcess(SIDECAR, pid, restart, lambda: True, None)
