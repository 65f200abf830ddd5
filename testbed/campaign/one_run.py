"""One run of a campaign: its own topics, sidecar, engine, load and fault, on the shared broker.

The load begins when engine and sidecar are ready, so that their starts do not disturb the control phase.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import yaml
from confluent_kafka import KafkaException

from generator.workloads.kinds import named
from testbed.broker import BrokerError, EmbeddedBroker
from testbed.campaign import counters, latencies, wrong
from testbed.campaign.counters import CounterSampler
from testbed.campaign.engine_watch import EngineWatch
from testbed.campaign.fault import READY_SECONDS_MAX, RunFault
from testbed.campaign.live import LiveMetrics
from testbed.campaign.matrix import Run
from testbed.campaign.offsets import InputOffsets, TopicEnd
from testbed.campaign.plan import RATE_WINDOWS, REFERENCE, CampaignPlan
from testbed.campaign.predicted import predicted
from testbed.campaign.reach import Reach
from testbed.campaign.result import ReadBack, RunResult, result_of
from testbed.campaign.sampler import Sample, Sampler, part_of, processor_seconds
from testbed.campaign.scheduled import ScheduledFaults
from testbed.campaign.stages import stages
from testbed.campaign.steady import OutputWatch
from testbed.campaign.utilisation import utilisation
from testbed.checkout import python_path
from testbed.demo.files import EFFECTIVE_FILE
from testbed.demo.load import load_until_stopped
from testbed.demo.sidecar import DemoSidecar, is_settled
from testbed.demo.stages import EarlierStages
from testbed.engines.base import ProcessEngine, ReferenceEngine
from testbed.engines.real import RealEngine, RealEngineSettings
from testbed.engines.registry import REGISTRY, make_engine
from testbed.engines.settings import Node
from testbed.engines.spark import SparkEngine
from testbed.gc_log import GcLogs
from testbed.node import NodeRelay
from testbed.processes import OwnedProcess
from testbed.run_files import CONFIG_FILE, SidecarFile, Topics, write_load, write_yaml
from testbed.stop import Stop
from validator.measure.output import Output
from validator.measure.recovery import Detector
from validator.publish.report import REPORT_FILE
from validator.publish.report_types import FaultOfReport, Report
from validator.stream.measuring import read_ledger

SIDECAR_READY_SECONDS_MAX: Final = 180.0
LOAD_END_SECONDS_MAX: Final = 30.0
HEAL_SECONDS_MAX: Final = 2 * READY_SECONDS_MAX
"""The load lasts through a healing of this length, and after a preload through a start of it. The campaign ends it."""
SETTLE_SECONDS_MAX: Final = 120.0
"""Added to the time that the sidecar waits for a result."""
SIDECAR_END_SECONDS_MAX: Final = 60.0
OVERDUE_AFTER_SECONDS: Final = 5.0
TRIGGER_MS: Final = 2000
"""Verdicts are not needed during a run, and the CPU is left to the engine."""
_LOOK_SECONDS: Final = 0.5


def is_measured(report: Report | None, faults: int = 1) -> bool:
    """Whether a report says of each of its ``faults`` that it has recovered or not, or that this cannot be measured."""
    return report is not None and len(report["faults"]) >= faults and all(map(_is_decided, report["faults"]))


def _is_decided(fault: FaultOfReport) -> bool:
    unknown = any(reason.startswith(("recovery unknown", "no control phase")) for reason in fault["absent_because"])
    return fault["healed"] is not None and (fault["recovered"] is not None or unknown)


class RunFailed(Exception):
    """A run without a result; the message has the reason."""

    exit_status = 3


class OutOfTime(RunFailed):
    """What the load asked for had not come in time: the rate may be too high. The message is a sentence."""


class OneRun:
    """A run in its folder, which is removed at the end. Its processes have ended when `do` returns or raises."""

    def __init__(
        self,
        run: Run,
        plan: CampaignPlan,
        brokers: Sequence[EmbeddedBroker],
        folder: Path,
        stop: Stop,
        say: Callable[[str], None],
        relay: NodeRelay | None = None,
        scheduled: ScheduledFaults | None = None,
        live: LiveMetrics | None = None,
    ) -> None:
        """``relay`` carries the packets of the worker that is delayed; the brokers also listen at its address.
        ``scheduled``: the faults of a schedule, whose brokers ``brokers`` are. ``live`` serves what is measured."""
        self._run = run
        self._plan = plan
        self._broker = brokers[0]
        self._brokers = tuple(brokers)
        self._folder = folder
        self._stop = stop
        self._say = say
        self._relay = relay
        self._scheduled = scheduled
        self._live = live or LiveMetrics()
        # On a broker of its own, a run has the topics whose names a schedule can know.
        self._topics = Topics(named(run.cell.workload), "" if scheduled else f"{run.name}-")
        self._watched: list[OwnedProcess] = []
        self._engine: ProcessEngine | None = None
        self._engine_watch: EngineWatch | None = None
        self.outputs: tuple[Output, ...] = ()
        """The output by second, as the sidecar measured it."""
        self.latencies: pa.Table | None = None
        """The latencies of each result."""
        self.counters: list[counters.Row] = []
        """What the engine counts of itself, and how long a connection to the broker takes."""
        self.samples: list[Sample] = []
        """What the processes used since the load began. Empty on a system without /proc."""
        self._ended = threading.Event() if scheduled is None else scheduled.ended
        """Set before the engine is killed, so that the fault's thread starts nothing more."""

    def do(self) -> tuple[RunResult, str]:
        """The result, and the text of the report that it is based on. Raises RunFailed, KeyboardInterrupt, and the
        errors of the parts.
        """
        self._folder.mkdir(parents=True, exist_ok=self._scheduled is not None)
        began, started = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
        try:
            with ExitStack() as stack:
                # Kill again after the fault's thread has ended: it may have been restarting a worker.
                stack.callback(self._kill_engine)
                stack.enter_context(self._live.of(self._run))
                pool = stack.enter_context(ThreadPoolExecutor(max_workers=1, thread_name_prefix="run"))
                self._broker.create_topics(self._partitions)
                earlier = self._start_earlier(stack)
                sidecar = self._start_sidecar(stack)
                load = self._preload(stack, sidecar)
                engine = self._start_engine(stack, pool)
                if self._scheduled is not None:
                    stack.callback(self._scheduled.run.end)
                self._until_reported(sidecar)
                load = load or self._start_load(stack)
                sampler = stack.enter_context(self._sampler(engine, sidecar, load)) if sys.platform == "linux" else None
                reach = stack.enter_context(Reach(self._engine_servers.partition(",")[0], self._node))
                stack.enter_context(CounterSampler(reach, partial(self._live.count, "reach"), self.counters))
                if isinstance(engine, RealEngine):
                    seen = partial(self._live.count, "engine")
                    stack.enter_context(CounterSampler(engine.counters, seen, self.counters))
                output = self._until_first_result()
                begin_us = time.time_ns() // 1000
                self._until_steady(output)
                read_back = self._break_it(engine, pool)
                # How long control phase and healing take is not known before.
                self._until_recovered(sidecar, load, time.monotonic() + self._plan.phases.recovery + self._plan.window)
                self._until_load_ends(load)
                summary: dict[str, Any] = json.loads((self._folder / "journal" / "summary.json").read_bytes())
                sent, offered = summary["acknowledged"], summary["events_per_second"]
                expected, left_open = self._until_passed_on(earlier, sent, summary["kinds"].get("flush", 0))
                settled = self._until_settled(sidecar, expected, left_open)
                self.samples = [] if sampler is None else list(sampler.samples)
                text = self._end_sidecar(sidecar)
            report: Report = json.loads(text)
            config, phases, faults = self._folder / CONFIG_FILE, report["phases"], report["faults"]
            self.latencies = latencies.of_state(config)
            load_end_us = max((one.time_us for one in self.samples if one.produced_events), default=begin_us)
            times = self._plan.timeouts_of(self._run.cell.engine)
            guarantee = self._run.cell.guarantee if read_back is None else read_back.guarantee
            return result_of(
                self._run, report, started=started, seconds=time.monotonic() - began, sent=sent,
                latencies=latencies.by_phase(self.latencies, phases, (begin_us, load_end_us)),
                stages=stages(
                    faults, self.latencies, self.samples, RATE_WINDOWS * self._plan.window, self.counters
                ),
                predicted=predicted(faults, self.samples, guarantee, times.commit_interval_seconds),
                wrong=wrong.of_state(config, latencies.micros(report["time"], load_end_us)),
                utilisation=utilisation(phases, self.samples, load_end_us, os.cpu_count() or 1),
                settled=settled, read_back=read_back, processor_seconds=self._used(),
                offered_per_second=offered, phases_begin_us=begin_us,
                passed_on=expected if earlier else None,
                planned_per_second=self._plan.rate if self._plan.rate_section is None else None,
            ), text  # fmt: skip
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _partitions(self) -> dict[str, int]:
        """Topic -> partitions: those of the plan, except for topics that always have one."""
        usual = self._topics.partitions.items()
        return {name: self._plan.partitions if count > 1 else count for name, count in usual}

    def _preload(self, stack: ExitStack, sidecar: DemoSidecar) -> OwnedProcess | None:
        """Start the load so much earlier than the engine; None if the plan wants the engine first."""
        if not self._plan.preload:
            return None
        self._until_reported(sidecar)
        load, until = self._start_load(stack), time.monotonic() + self._plan.preload
        while time.monotonic() < until:
            self._look()
            self._stop.pause()
        return load

    def _start_earlier(self, stack: ExitStack) -> EarlierStages:
        """Start the stages before the judged one."""
        earlier = EarlierStages(
            self._topics, self._partitions, self._plan.window_ms, group=self._run.name,
            bootstrap_servers=self._broker.bootstrap_servers, folder=self._folder,
        )  # fmt: skip
        stack.callback(earlier.kill)
        self._watched += earlier.start()
        return earlier

    def _start_sidecar(self, stack: ExitStack) -> DemoSidecar:
        plan, cell = self._plan, self._run.cell
        rate_over = RATE_WINDOWS * plan.window
        file = SidecarFile(
            pipeline=self._run.name,
            guarantee=cell.guarantee,
            engine=cell.engine,
            window_ms=plan.window_ms,
            overdue_after_ms=round(min(OVERDUE_AFTER_SECONDS, plan.missing_after) * 1000),
            missing_after_ms=round(plan.missing_after * 1000),
            topics=self._topics,
            grace_ms=plan.grace_ms,
            suppress=plan.suppress,
            trigger_ms=TRIGGER_MS,
            effective=EFFECTIVE_FILE if cell.engine in REGISTRY else None,
            measures={
                "warm_up": f"{plan.phases.warm_up:g}s",
                "control_least": f"{max(1.0, plan.phases.control / 2):g}s",
                "control_most": f"{max(plan.phases.control, 2 * rate_over):g}s",
                "moving_rate": f"{rate_over:g}s",
                "stable_for": f"{rate_over:g}s",
                "give_up_after": f"{max(plan.phases.recovery, plan.phases.recovery_at_most):g}s",
            },
        )
        sidecar = DemoSidecar(file.write(self._broker.bootstrap_servers, self._folder))
        stack.callback(sidecar.process.kill)
        self._live.ask(sidecar.url)
        self._watched.append(sidecar.process)
        shared = [one.process for one in self._brokers] if self._scheduled is None else self._scheduled.watched
        self._watched += shared
        if self._relay is not None:
            self._watched.append(self._relay.process)
        return sidecar

    def _start_engine(self, stack: ExitStack, pool: ThreadPoolExecutor) -> ProcessEngine:
        engine = self._engine = self._make_engine()
        stack.callback(self._kill_engine)
        if self._scheduled is not None:
            self._scheduled.run.assign_links_and_clocks(engine)
            self._scheduled.run.mount_disk(stack)
        engine.start()
        self._stop.result(pool.submit(engine.ready, READY_SECONDS_MAX), meanwhile=self._look)
        self._engine_watch = EngineWatch(engine, "control")
        self._say(f"{engine.name} is ready: {', '.join(i.role for i in engine.instances)}")
        return engine

    def _kill_engine(self) -> None:
        self._ended.set()
        if self._engine is not None:
            self._engine.kill()

    def _make_engine(self) -> ProcessEngine:
        plan, cell, topics = self._plan, self._run.cell, self._topics
        times, servers, folder = plan.timeouts_of(cell.engine), self._engine_servers, self._folder / "engine"
        node = self._node
        if cell.engine == REFERENCE:
            settings = topics.engine(
                servers, plan.window_ms, node=node,
                group=self._run.name, guarantee=cell.guarantee,
                idle_after_seconds=self._idle_after_seconds,
                commit_interval_seconds=times.commit_interval_seconds,
                transaction_timeout_seconds=times.transaction_timeout_seconds,
                session_timeout_seconds=times.session_timeout_seconds,
            )  # fmt: skip
            return ReferenceEngine(settings, folder, instances=plan.parallelism)
        real = RealEngineSettings(
            bootstrap_servers=servers, node=node, input=topics.inputs[0], output=topics.output, late=topics.late[0],
            workload=topics.workload.kind, parameters=topics.workload.parameters,
            update_input=topics.inputs[-1], late_updates=topics.late[-1],
            group=self._run.name, guarantee=cell.guarantee, parallelism=plan.parallelism, window_ms=plan.window_ms,
            standby=plan.standby, grace_ms=plan.grace_ms, suppress=plan.suppress,
            options=plan.engine_options.get(cell.engine, {}),
            max_disorder_ms=REGISTRY[cell.engine].slack_ms, timeouts=times, poison=plan.poison,
        )  # fmt: skip
        return make_engine(cell.engine, real, folder)

    @property
    def _idle_after_seconds(self) -> float:
        """An earlier stage writes once in a window, and on a busy machine in bursts, to one partition after the other:
        the engine must not take the other one for idle, which would make its events late."""
        if not self._topics.workload.follows:
            return 2.0
        return max(2.0 + self._plan.window, self._plan.missing_after / 3)

    @property
    def _node(self) -> Node | None:
        """The network of the worker that a fault hits, if it has one of its own."""
        if self._scheduled is not None:
            return self._scheduled.run.node
        return None if self._relay is None else self._relay.node

    @property
    def _engine_servers(self) -> str:
        if self._scheduled is not None:
            return self._scheduled.run.engine_servers
        return self._broker.bootstrap_servers if self._relay is None else self._broker.host_servers[0]

    def _until_reported(self, sidecar: DemoSidecar) -> None:
        deadline = time.monotonic() + SIDECAR_READY_SECONDS_MAX
        while sidecar.report() is None:
            if time.monotonic() > deadline:
                raise RunFailed(f"The sidecar gave no report in time:\n{sidecar.process.last_lines()}")
            self._look()
            self._stop.pause()

    def _until_first_result(self) -> OutputWatch:
        """Wait until the engine, which is slow at first, has written a result: the phases begin with it. The sidecar
        may read it later."""
        deadline, topic = time.monotonic() + READY_SECONDS_MAX, self._topics.output
        output = OutputWatch(TopicEnd(self._broker.bootstrap_servers, topic, self._partitions[topic]))
        while not output.look():
            if time.monotonic() > deadline:
                raise OutOfTime(f"The engine wrote no result within {READY_SECONDS_MAX:g} s of the load.")
            self._look()
            self._stop.pause(_LOOK_SECONDS)
        return output

    def _until_steady(self, output: OutputWatch) -> None:
        """Wait for the end of the control phase. It becomes longer until its newest part is steady, since an engine
        that has just started, or a busy machine, gives no baseline."""
        phases, window = self._plan.phases, self._plan.window
        # Another point of a window and of a commit in each repetition.
        until = time.monotonic() + phases.warm_up + phases.control + self._run.instant_within(window)
        most = until - phases.control + max(phases.control, phases.control_at_most)
        seconds, detector = round(phases.control), Detector(moving_seconds=max(1, round(RATE_WINDOWS * window)))
        while (now := time.monotonic()) < until or (now < most and not output.is_steady(seconds, detector)):
            output.look()
            self._look()
            self._stop.pause()

    def _start_load(self, stack: ExitStack) -> OwnedProcess:
        plan = self._plan
        seconds = plan.preload + plan.phases.seconds_most + plan.phases.control + 2 * HEAL_SECONDS_MAX
        if self._scheduled is not None:
            seconds += self._scheduled.seconds + self._scheduled.count * HEAL_SECONDS_MAX
        config = write_load(
            self._broker.bootstrap_servers, self._folder, topics=self._topics, window_ms=plan.window_ms,
            per_second=plan.rate, seconds=seconds, seed=self._run.seed, pages=plan.keys,
        )  # fmt: skip
        self._shape(config)
        load = OwnedProcess(
            load_until_stopped(config), log=self._folder / "load.log", name="load generator",
            environment=python_path(), folder=self._folder,
        )  # fmt: skip
        stack.callback(load.kill)
        return load

    def _shape(self, config: Path) -> None:
        """Add the producers, updates, skew and shape of the rate of the plan to the configuration of the load."""
        plan, load = self._plan, yaml.safe_load(config.read_text(encoding="utf-8"))
        load["producers"] = plan.producers
        # The generator's number is that of each producer.
        load["events_per_window"] //= plan.producers
        if plan.update_percent is not None and "update_topic" in load:
            load["update_percent"] = plan.update_percent
        if plan.hot_share is not None:
            of = load["workload"] if isinstance(load["workload"], dict) else {"kind": load["workload"]}
            load["workload"] = {**of, "hot_share": plan.hot_share}
        if (rate := plan.rate_section) is not None:
            load["rate"] = rate
        if plan.grace_ms is not None:
            # The events that close the windows must also end their grace period. None is late.
            load["lateness"] = {"beyond": f"{plan.grace_ms}ms"}
        write_yaml(config, load)

    def _sampler(self, engine: ProcessEngine, sidecar: DemoSidecar, load: OwnedProcess) -> Sampler:
        """Samples every process of the run, also this one. Flink commits offsets of its group at checkpoints."""

        def pid_of(broker: EmbeddedBroker) -> int | None:
            with suppress(BrokerError):  # a fault of the schedule has ended it
                return broker.process.pid
            return None

        def processes() -> dict[str, int | None]:
            found: dict[str, int | None] = {
                f"{one.role}-{one.number}": one.pid if one.alive else None for one in engine.instances
            }
            names = ("broker", *(f"broker-{number}" for number in range(2, len(self._brokers) + 1)))
            brokers = dict(zip(names, map(pid_of, self._brokers), strict=True))
            generator = load.pid if load.is_running else None
            return {
                **found, **brokers, "sidecar": sidecar.process.pid, "generator": generator, "campaign": os.getpid()
            }  # fmt: skip

        inputs = {name: self._partitions[name] for name in self._topics.inputs}
        logs = GcLogs((self._folder / "engine", self._folder, *(one.folder for one in self._brokers)))
        own = engine.consumed if isinstance(engine, SparkEngine) else None
        offsets = InputOffsets(self._broker.bootstrap_servers, self._run.name, inputs, own)
        return Sampler(processes, offsets, logs, self._live.add)

    def _used(self) -> dict[str, float]:
        """Part of the run, such as the engine -> its processor seconds; none without samples."""
        found: dict[str, float] = {}
        for name, seconds in processor_seconds(self.samples).items():
            part = part_of(name) or name
            found[part] = round(found.get(part, 0.0) + seconds, 2)
        return found

    def _break_it(self, engine: ProcessEngine, pool: ThreadPoolExecutor) -> ReadBack | None:
        """Read back the engine's effective guarantee, then run the fault."""
        phases, times = self._plan.phases, self._plan.timeouts_of(self._run.cell.engine)
        read_back = self._read_back(engine)
        if self._scheduled is not None:
            self._engine_watch = self._scheduled.watch(engine, self._plan.poison)
            faults = self._scheduled.run.start(pool, engine, self._scheduled.brokers, [])
            self._stop.result(faults, meanwhile=self._look)
            return read_back
        fault = RunFault(
            self._run, engine, lasts_seconds=phases.failure, timeout_seconds=times.session_timeout_seconds,
            bootstrap_servers=self._broker.bootstrap_servers, topic=self._topics.faults, stop=self._ended,
            say=self._say, relay=self._relay, probe=self._engine_servers,
        )  # fmt: skip
        self._engine_watch = EngineWatch(engine, "failure", but=fault.may_end)
        self._stop.result(pool.submit(fault.do), meanwhile=self._look)
        self._engine_watch = EngineWatch(engine, "recovery", but=fault.may_end_later)
        return read_back

    def _read_back(self, engine: ProcessEngine) -> ReadBack | None:
        """The effective guarantee of a real engine, which is also written for the sidecar."""
        if not isinstance(engine, RealEngine):
            return None
        effective = engine.effective()
        effective.write(self._folder / EFFECTIVE_FILE)
        return ReadBack.of(effective, self._run.cell.guarantee)

    def _until_recovered(self, sidecar: DemoSidecar, load: OwnedProcess, least: float) -> None:
        """Let the load continue until ``least`` (monotonic), and until the sidecar knows whether the rate has
        recovered, within the limit of the plan. Then end the load."""
        phases = self._plan.phases
        # The rate that returned last must also be stable. It spans at most half of the control phase.
        longest = max(phases.recovery, phases.recovery_at_most)
        most = time.monotonic() + longest + phases.control if longest > phases.recovery else least
        while load.is_running and time.monotonic() < most:
            faults = 1 if self._scheduled is None else self._scheduled.count
            if time.monotonic() >= least and is_measured(sidecar.report(), faults):
                break
            self._look()
            self._stop.pause(_LOOK_SECONDS)
        load.send_signal(signal.SIGTERM)

    def _until_load_ends(self, load: OwnedProcess) -> None:
        deadline = time.monotonic() + LOAD_END_SECONDS_MAX
        while load.is_running:
            if time.monotonic() > deadline:
                raise OutOfTime(f"The load generator did not end in time:\n{load.last_lines()}")
            self._look()
            self._stop.pause()
        if load.returncode != 0:
            raise RunFailed(f"The load generator ended with status {load.returncode}:\n{load.last_lines()}")

    def _until_passed_on(self, earlier: EarlierStages, sent: int, left_open: int) -> tuple[int, int]:
        """Wait until the earlier stages have read all ``sent`` events. Return how many events the judged stage has, and
        how many of them windows may leave open. Raises RunFailed."""
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        if not earlier:
            return sent, left_open
        try:
            while lag := earlier.lag():
                if time.monotonic() > deadline:
                    raise RunFailed(f"The earlier stages had {lag:,} events left to read; lower the rate.")
                self._look()
                self._stop.pause(_LOOK_SECONDS)
            return earlier.events()
        except KafkaException as error:
            raise RunFailed(f"The offsets of the earlier stages cannot be read ({error}).") from error

    def _until_settled(self, sidecar: DemoSidecar, sent: int, left_open: int) -> bool:
        """Wait until all ``sent`` events are read, and all but ``left_open`` judged. Returns whether this was in
        time."""
        deadline = time.monotonic() + self._plan.missing_after + SETTLE_SECONDS_MAX
        while time.monotonic() < deadline:
            self._look()
            report = sidecar.report()
            if report is not None and is_settled(report, sent, left_open):
                return True
            self._stop.pause(_LOOK_SECONDS)
        self._say("not all events were judged in time; the result records this")
        return False

    def _end_sidecar(self, sidecar: DemoSidecar) -> str:
        sidecar.request_stop()
        deadline = time.monotonic() + SIDECAR_END_SECONDS_MAX
        while sidecar.process.is_running:
            if time.monotonic() > deadline:
                raise OutOfTime(f"The sidecar did not end in time:\n{sidecar.process.last_lines()}")
            self._stop.pause()
        self.outputs = tuple(read_ledger(sidecar.state).series.outputs.values())
        path = sidecar.state / REPORT_FILE
        if not path.exists():
            raise RunFailed(f"The sidecar ended without a report:\n{sidecar.process.last_lines()}")
        return path.read_text(encoding="utf-8")

    def _look(self) -> None:
        """Raise RunFailed if a process that the run needs has died."""
        for process in self._watched:
            if not process.is_running:
                raise RunFailed(f"The {process.name} ended with status {process.returncode}:\n{process.last_lines()}")
        if self._scheduled is not None:
            self._scheduled.run.check()
        if self._engine_watch is not None and (death := self._engine_watch.death()) is not None:
            raise RunFailed(death)
