"""The resources that the runs of a campaign share: brokers and a temporary folder, all removed at the end."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from testbed.broker import BrokerError, EmbeddedBroker
from testbed.campaign import counters, latencies, output_series, sampler, scheduled, sustained
from testbed.campaign.live import LiveMetrics
from testbed.campaign.matrix import Run
from testbed.campaign.one_run import OneRun
from testbed.campaign.plan import DELAYS, CampaignPlan
from testbed.campaign.result import RunResult
from testbed.campaign.sampler import Sample
from testbed.campaign.scheduled import ScheduledFaults
from testbed.demo.brokers import DemoBrokers
from testbed.demo.folder import DemoFolder
from testbed.node import NodeRelay
from testbed.stop import Stop
from validator.publish.atomic import replace_file

_LIST_SECONDS_MAX: Final = 10.0
_BROKER_SETTINGS: Final = {
    # Required by the papers' profiles: the default limits of a broker refuse PGVal's short sessions and OSPBench's long
    # transactions.
    "group.min.session.timeout.ms": "1000",
    "transaction.max.timeout.ms": "3600000",
}


class CampaignEnvironment:
    """A context manager in which `run` can be called repeatedly. The broker starts when it is first needed."""

    def __init__(
        self, plan: CampaignPlan, stop: Stop, say: Callable[[str], None], *, needs_relay: bool,
        live: LiveMetrics | None = None,
    ) -> None:  # fmt: skip
        """``live`` serves what is measured of the current run."""
        self._plan = plan
        self._live = live
        self._needs_relay = needs_relay
        self._stop = stop
        self._say = say
        self._scratch = DemoFolder()
        self._brokers: DemoBrokers | None = None
        self._clusters = 0
        self._relay: NodeRelay | None = None
        self._relays = 0

    def run(self, run: Run) -> RunResult:
        """Do one run and store its whole report beside its result. Raises the errors of `OneRun.do`."""
        return self.trial(run, sustained.plan_of(self._plan, run.cell))[0]

    def trial(self, run: Run, plan: CampaignPlan) -> tuple[RunResult, list[Sample], list[counters.Row]]:
        """Do one run by ``plan``, which differs in rate and phases; also return what its processes used, and what the
        engine counted."""
        if run.cell.fault in plan.schedules:
            one, (found, report) = self._with_schedule(run, plan)
        else:
            one, (found, report) = self._on_shared_broker(run, plan)
        reports = self._plan.results / "reports"
        reports.mkdir(parents=True, exist_ok=True)
        replace_file(reports / f"{run.name}.json", report)
        if one.outputs:
            output_series.write(output_series.path_of(self._plan.results, run.name), one.outputs)
        if one.latencies is not None:
            latencies.write(latencies.path_of(self._plan.results, run.name), one.latencies)
        if one.counters:
            counters.write(self._plan.results / "series" / f"{run.name}.counters.parquet", one.counters)
        if one.samples:
            sampler.write(self._plan.results / "series" / f"{run.name}.parquet", one.samples)
        return found, one.samples, one.counters

    def _on_shared_broker(self, run: Run, plan: CampaignPlan) -> tuple[OneRun, tuple[RunResult, str]]:
        brokers = self._running_brokers(plan.brokers)
        relay = self._running_relay() if run.cell.fault in DELAYS else None
        try:
            folder = self._scratch.path / run.name
            one = OneRun(run, plan, brokers.all, folder, self._stop, self._say, relay, live=self._live)
            return one, one.do()
        except BaseException:
            # The relay's journal may have a fault that is not healed; then no later run could start.
            self._end_relay()
            raise
        finally:
            self._clear(brokers.first)

    def _with_schedule(self, run: Run, plan: CampaignPlan) -> tuple[OneRun, tuple[RunResult, str]]:
        """Do a run with brokers of its own, which faults may hit. The shared one would take memory meanwhile."""
        self._end_broker()
        self._end_relay()
        faults = scheduled.scenario(run.cell, plan, run.seed)
        folder = self._scratch.path / run.name
        try:
            with ScheduledFaults(
                faults, folder, self._stop, self._say, Event(), _BROKER_SETTINGS, plan.brokers
            ) as given:
                one = OneRun(
                    run, plan, given.brokers.all, folder, self._stop, self._say, scheduled=given, live=self._live
                )
                return one, one.do()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(folder.with_name(f"{folder.name}-brokers"), ignore_errors=True)

    def _running_brokers(self, count: int) -> DemoBrokers:
        """The brokers; new ones if one has died, or for another ``count``."""
        if self._brokers is not None and self._brokers_run and len(self._brokers.all) == count:
            return self._brokers
        self._end_broker()
        self._clusters += 1
        folder: Path = self._scratch.path / f"brokers-{self._clusters}"
        relay = self._running_relay()
        hosts = () if relay is None else (relay.node.host,)
        brokers = DemoBrokers(folder, _BROKER_SETTINGS, hosts=hosts, count=count)
        try:
            with self._stop.at_once():
                brokers.start()
        except BaseException:
            brokers.kill()
            raise
        self._brokers = brokers
        return brokers

    @property
    def _brokers_run(self) -> bool:
        return self._brokers is not None and all(one.is_running for one in self._brokers.processes)

    def _running_relay(self) -> NodeRelay | None:
        """The relay, if a run of the plan needs it. It starts before the broker, which listens at its address."""
        if not self._needs_relay:
            return None
        if self._relay is None:
            self._relays += 1
            self._relay = NodeRelay(self._scratch.path / f"relay-{self._relays}")
        self._relay.start(self._stop)
        return self._relay

    def _clear(self, broker: EmbeddedBroker) -> None:
        """Delete all topics, including internal topics of engines. A broker on which this fails is not used again."""
        try:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
            for name in list(admin.list_topics(timeout=_LIST_SECONDS_MAX).topics):
                if not name.startswith("__"):
                    broker.delete_topic(name)
        except (KafkaException, BrokerError):
            self._end_broker()

    def _end_relay(self) -> None:
        if self._relay is not None:
            self._relay.end()
            self._relay = None

    def _end_broker(self) -> None:
        if self._brokers is not None:
            self._brokers.kill()
            self._brokers = None

    def __enter__(self) -> Self:
        self._scratch.__enter__()
        return self

    def __exit__(self, *how: object) -> None:
        self._end_broker()
        self._end_relay()
        self._scratch.__exit__(*how)
