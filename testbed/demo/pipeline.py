"""The demo's run: start the pipeline, inject the faults, wait until everything is judged, print the report."""

from __future__ import annotations

import json
import shutil
import signal
import time
import webbrowser
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from faults.errors import FaultError
from testbed.broker import EmbeddedBroker
from testbed.checkout import python_path, streamproof
from testbed.demo import engine as engines
from testbed.demo.brokers import DemoBrokers
from testbed.demo.files import (
    BROKER_SETTINGS,
    EVENTS_PER_SECOND,
    GROUP,
    missing_after_seconds,
    start_prometheus,
    topics,
    window_seconds,
    write_load,
    write_sidecar,
)
from testbed.demo.load import load_until_stopped
from testbed.demo.memory import MemoryPeak
from testbed.demo.options import DemoPlan, epilogue
from testbed.demo.result_counter import ResultCounter
from testbed.demo.scenario_run import ScenarioRun, supervised_sidecar
from testbed.demo.screen import Screen
from testbed.demo.sidecar import DemoSidecar, is_settled
from testbed.demo.single_fault import DemoFault
from testbed.demo.stages import EarlierStages
from testbed.engines.base import ProcessEngine
from testbed.engines.real import RealEngine
from testbed.processes import OwnedProcess
from testbed.run_files import CONFIG_FILE
from testbed.stop import Stop
from validator.publish import text
from validator.publish.report_types import Report

LOAD_END_SECONDS_MAX: Final = 20.0
SETTLE_SECONDS_MAX: Final = 110.0
"""Additional wait after `missing_after`. An idle machine needs a few seconds; a busy one may still be starting Spark
when a short load ends."""
ENGINE_READY_SECONDS_MAX: Final = 120.0
FIRST_RESULT_SECONDS_MAX: Final = 120.0
TAIL_WINDOWS: Final = 3
"""Windows of load after the last recovery phase, so that events affected by the last fault get their results."""
LOOK_SECONDS: Final = 0.5
SIDECAR_END_SECONDS_MAX: Final = 30.0


class DemoFailed(Exception):
    """A process of the demo failed, so there is no verdict; the message quotes its log."""

    exit_status = 3


class Demo:
    """One run in its folder."""

    def __init__(self, plan: DemoPlan, folder: Path, screen: Screen, stop: Stop) -> None:
        self._plan = plan
        self._folder = folder
        self._screen = screen
        self._stop = stop
        self._pool: ThreadPoolExecutor | None = None
        self._watched: list[OwnedProcess] = []
        self._sidecar: DemoSidecar | None = None
        self._earlier: EarlierStages | None = None
        self._url: str | None = None
        self._report: Report | None = None
        self._looked_at = 0.0
        self._scenario = None if plan.scenario is None else ScenarioRun(plan.scenario, folder, stop.event, screen.say)
        self._fault_error: FaultError | None = None
        self._memory = MemoryPeak()

    def run(self) -> int:
        """Run the demo. All processes have ended when this returns or raises."""
        with ExitStack() as stack:
            pool = self._pool = stack.enter_context(ThreadPoolExecutor(max_workers=2, thread_name_prefix="demo"))
            stack.callback(self._stop.event.set)  # ends the waits in the fault's thread
            stack.enter_context(self._memory)
            try:
                return self._run_in(stack, pool)
            except KeyboardInterrupt:
                self._print_report("interrupted: this is the report of the last batch")
                raise

    def _run_in(self, stack: ExitStack, pool: ThreadPoolExecutor) -> int:
        brokers = self._start_brokers(stack, pool)
        earlier = self._earlier = EarlierStages(
            self._plan.topics, topics(self._plan), window_seconds(self._plan) * 1000, group=GROUP,
            bootstrap_servers=brokers.first.bootstrap_servers, folder=self._folder,
        )  # fmt: skip
        stack.callback(earlier.kill)
        self._watched += earlier.start()
        engine = self._start_engine(stack, brokers.first)
        if self._scenario is not None:
            load = self._run_scenario(stack, pool, brokers, engine, self._scenario)
        else:
            load = self._run_single_fault(stack, pool, brokers, engine)
        self._until_load_ends(load)
        self._until_settled()
        if self._scenario is not None:
            self._scenario.end()
        status = self._verdict()
        if self._fault_error is not None:
            raise self._fault_error
        return status

    def _run_single_fault(
        self, stack: ExitStack, pool: ThreadPoolExecutor, brokers: DemoBrokers, engine: ProcessEngine
    ) -> OwnedProcess:
        """Inject the fault half-way through the load. A real engine heals slowly: for it, the load continues after
        the healing for as long as before the fault."""
        # A slow machine would otherwise start Spark for as long as a short load lasts.
        self._await_first_batch()
        load = self._start_load(stack, brokers.first)
        self._await_first_result(brokers.first)
        self._watch_for(self._plan.seconds / 2)
        servers = brokers.first.bootstrap_servers
        fault = DemoFault(self._plan, engine, servers, self._stop.event, self._screen.say)
        self._stop.result(pool.submit(fault.run), meanwhile=self._look)
        if self._plan.ends_load:
            self._watch_for(self._plan.seconds / 2)
            load.send_signal(signal.SIGTERM)
        return load

    def _await_first_batch(self) -> None:
        """Wait until the sidecar has a report."""
        while self._report is None:
            self._look()
            if not (process := self._the_sidecar().process).is_running:  # a supervisor does not run yet
                raise DemoFailed(f"The {process.name} ended with status {process.returncode}:\n{process.last_lines()}")
            self._stop.pause()

    def _await_first_result(self, broker: EmbeddedBroker) -> None:
        """Wait for a real engine's first result: the time before it would distort the control phase."""
        if not self._plan.is_real:
            return
        deadline = time.monotonic() + FIRST_RESULT_SECONDS_MAX
        with ResultCounter(broker.bootstrap_servers, topics(self._plan)["output"]) as answers:
            while answers.count() == 0:
                if time.monotonic() > deadline:
                    raise DemoFailed(
                        f"{self._plan.engine} produced no result within {FIRST_RESULT_SECONDS_MAX:g} s of load."
                    )
                self._look()
                self._stop.pause()
        self._screen.say(f"{self._plan.engine} has produced its first results")

    def _run_scenario(
        self,
        stack: ExitStack,
        pool: ThreadPoolExecutor,
        brokers: DemoBrokers,
        engine: ProcessEngine,
        scenario: ScenarioRun,
    ) -> OwnedProcess:
        """Run the faults under load, once the sidecar has a report. Return the load, after it was asked to end."""
        self._await_first_batch()
        load = self._start_load(stack, brokers.first)
        self._await_first_result(brokers.first)
        stack.callback(scenario.end)
        sidecar = supervised_sidecar(self._the_sidecar, self._restart_sidecar)
        try:
            self._stop.result(scenario.start(pool, engine, brokers, [sidecar]), meanwhile=self._look)
        except FaultError as error:
            self._fault_error = error  # the report still shows the violations up to this point
            self._screen.say(f"the faults did not go as planned: {error}")
        else:
            self._screen.say("all faults are healed; the load ends some windows later")
        self._watch_for(TAIL_WINDOWS * window_seconds(self._plan))
        load.send_signal(signal.SIGTERM)
        return load

    def _start_brokers(self, stack: ExitStack, pool: ThreadPoolExecutor) -> DemoBrokers:
        """Start the broker and create its topics; start the sidecar, whose Spark starts meanwhile."""
        self._screen.say("starting a Kafka broker and the sidecar's Spark")
        links, hosts = ((), ()) if self._scenario is None else (self._scenario.links, self._scenario.hosts)
        if self._scenario is not None:
            stack.callback(self._scenario.end_relay)
            if (relay := self._scenario.start_relay(self._stop)) is not None:
                self._watched.append(relay)
        count = 2 if self._plan.scenario is not None and self._plan.scenario.has_two_brokers else 1
        brokers = DemoBrokers(self._folder, BROKER_SETTINGS, links=links, hosts=hosts, count=count)
        starting = pool.submit(brokers.start)
        stack.callback(brokers.end, starting)
        while (address := brokers.address) is None and not starting.done():
            self._stop.pause(0.02)
        if address is not None:
            self._start_sidecar(stack, address)
        self._stop.result(starting)
        broker = brokers.first
        if broker.bootstrap_servers != address:  # another process took the broker's port, and the broker moved
            self._start_sidecar(stack, broker.bootstrap_servers)
        broker.create_topics(topics(self._plan))
        if self._scenario is None or not self._scenario.targets_type("broker"):
            self._watched += brokers.processes
        self._screen.say(f"the broker is at {broker.bootstrap_servers}, topics {', '.join(topics(self._plan))}")
        if brokers.second is not None:
            self._screen.say(f"a second broker is at {brokers.second.bootstrap_servers}; each topic is on both")
        if self._scenario is not None and (proxy := self._scenario.start_links(brokers)) is not None:
            stack.callback(proxy.kill)
            self._watched.append(proxy)
            self._scenario.await_links(proxy, self._stop, self._look)
        return brokers

    def _start_sidecar(self, stack: ExitStack, bootstrap_servers: str) -> None:
        if self._sidecar is not None:
            self._sidecar.process.kill()
            self._watched = [process for process in self._watched if process is not self._sidecar.process]
        self._sidecar = DemoSidecar(write_sidecar(bootstrap_servers, self._plan, self._folder))
        stack.callback(self._kill_sidecar)
        if self._scenario is None or not self._scenario.targets_type("sidecar"):
            self._watched.append(self._sidecar.process)

    def _the_sidecar(self) -> DemoSidecar:
        assert self._sidecar is not None
        return self._sidecar

    def _kill_sidecar(self) -> None:
        self._the_sidecar().process.kill()

    def _restart_sidecar(self) -> None:
        """Restart the sidecar on the state that the previous one left."""
        self._the_sidecar().process.kill()  # the rest of its process group
        self._sidecar = DemoSidecar(self._folder / CONFIG_FILE)
        self._url = None

    def _start_engine(self, stack: ExitStack, broker: EmbeddedBroker) -> ProcessEngine:
        """Start the engine. The load waits until a real engine is ready."""
        if self._plan.is_real:
            self._screen.say(f"starting {self._plan.engine}")
        servers = broker.bootstrap_servers if self._scenario is None else self._scenario.engine_servers
        node = None if self._scenario is None else self._scenario.node
        engine = engines.make(self._plan, servers, self._folder, node)
        if self._scenario is not None:
            self._scenario.assign_links_and_clocks(engine)
            self._scenario.mount_disk(stack)
        stack.callback(engine.kill)
        engine.start()
        if self._plan.is_real or self._scenario is not None:
            assert self._pool is not None
            ready = self._pool.submit(engine.ready, ENGINE_READY_SECONDS_MAX)
            self._stop.result(ready, meanwhile=self._look)
        if isinstance(engine, RealEngine):
            engines.report_effective(engine, self._folder, self._screen.say)
        return engine

    def _start_load(self, stack: ExitStack, broker: EmbeddedBroker) -> OwnedProcess:
        config = write_load(self._plan, broker.bootstrap_servers, self._folder)
        load = OwnedProcess(
            load_until_stopped(config) if self._plan.ends_load else streamproof("generate", config),
            log=self._folder / "load.log",
            name="load generator",
            environment=python_path(),
            folder=self._folder,
        )
        stack.callback(load.kill)
        length = f"for {self._plan.seconds} s{self._plan.further_time}"
        self._screen.say(f"{EVENTS_PER_SECOND:,} events/s are sent {length}; the engine counts them")
        self._start_prometheus(stack)
        return load

    def _start_prometheus(self, stack: ExitStack) -> None:
        if shutil.which("prometheus") is None:
            self._screen.say(
                "Prometheus is not installed here, so the demo starts none; the sidecar still serves /metrics"
            )
            return
        while (url := self._the_sidecar().url()) is None:
            self._look()
            self._stop.pause()
        process, address = start_prometheus(url, self._folder)
        stack.callback(process.kill)
        self._screen.say(f"Prometheus: {address}")

    def _watch_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._look()
            self._stop.pause()

    def _until_load_ends(self, load: OwnedProcess) -> None:
        deadline = time.monotonic() + self._plan.seconds + LOAD_END_SECONDS_MAX
        while load.is_running:
            if time.monotonic() > deadline:
                raise DemoFailed(f"The load generator did not end in time:\n{load.last_lines()}")
            self._look()
            self._stop.pause()
        if load.returncode != 0:
            raise DemoFailed(f"The load generator ended with status {load.returncode}:\n{load.last_lines()}")

    def _until_settled(self) -> None:
        """Wait until everything sent is read and judged. The windows of the flushing events stay open."""
        sent = _load_json(self._folder / "journal" / "summary.json")
        expected, left_open = sent["acknowledged"], sent["kinds"].get("flush", 0)
        self._screen.say(f"the load has ended with {expected:,} events; waiting until the last windows are judged")
        patience = missing_after_seconds(self._plan) + SETTLE_SECONDS_MAX
        deadline = time.monotonic() + patience
        if self._earlier:
            while self._earlier.lag() and time.monotonic() < deadline:
                self._look()
                self._stop.pause()
            expected, left_open = self._earlier.events()
            self._screen.say(f"earlier stages have made {expected:,} events of it")
        while time.monotonic() < deadline:
            self._look()
            if self._report is not None and is_settled(self._report, expected, left_open):
                return
            self._stop.pause()
        self._screen.say(f"not all events were judged within {patience:g} s; the report shows what is outstanding")

    def _verdict(self) -> int:
        """Stop the sidecar with SIGTERM; print the last report that it wrote."""
        assert self._sidecar is not None
        self._screen.say("asking the sidecar to end (SIGTERM)")
        self._sidecar.request_stop()
        deadline = time.monotonic() + SIDECAR_END_SECONDS_MAX
        while self._sidecar.process.is_running:
            if time.monotonic() > deadline:
                raise DemoFailed(f"The sidecar did not end in time:\n{self._sidecar.process.last_lines()}")
            self._stop.pause(0.05)
        status = self._sidecar.process.returncode
        assert status is not None
        if not self._print_report(f"the sidecar ended with status {status}"):
            raise DemoFailed(f"The sidecar ended without a report:\n{self._sidecar.process.last_lines()}")
        return status

    def _print_report(self, why: str) -> bool:
        """Say ``why``, and print the report that the sidecar wrote last. Returns False if it wrote none."""
        published = None if self._sidecar is None else self._sidecar.read_report()
        if published is None:
            return False
        report, violations = published
        self._screen.say(why)
        self._screen.write("\n" + text.render(report, violations))
        lines = (*epilogue(self._plan, report), self._memory.line())
        self._screen.write("".join(f"\n{line}" for line in lines) + "\n")
        return True

    def _look(self) -> None:
        """Show the newest report at intervals. Raise DemoFailed if one of the demo's processes has ended."""
        for process in self._watched:
            if not process.is_running:
                raise DemoFailed(f"The {process.name} ended with status {process.returncode}:\n{process.last_lines()}")
        if self._scenario is not None:
            self._scenario.check()
        if self._sidecar is None:
            return
        if self._url is None and (url := self._sidecar.url()) is not None:
            self._url = url
            self._screen.say(f"status page: {url}")
            if self._plan.opens_page and not webbrowser.open(url):
                self._screen.say("no browser could be opened")
        if time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        self._report = self._sidecar.report() or self._report
        if self._report is not None:
            self._screen.show(self._report)


def _load_json(path: Path) -> dict[str, Any]:
    loaded = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(loaded, dict), path
    return loaded
