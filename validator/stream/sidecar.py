"""One run of the sidecar: state lock, Spark session, signals, and an orderly shutdown."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

import validator
from validator.config.model import Config
from validator.model.classes import Verdict
from validator.model.signals import ending, set_from_handler
from validator.publish.notices import Notices
from validator.publish.notifier import SETTLE_SECONDS, Notifier
from validator.publish.progress import Progress
from validator.publish.publisher import EndpointError, Publisher
from validator.publish.report_types import Report
from validator.publish.stderr import to_stderr
from validator.state import folder, identity
from validator.state.lock import StateLock, acquire
from validator.state.tables import StateTables
from validator.stream import jars, rereading, scratch
from validator.stream.brokers import Brokers, BrokersUnreachable
from validator.stream.clients import for_java
from validator.stream.failures import CannotVerify, known_sentence, why_unwritable
from validator.stream.faults_topic import FaultsTopicReader
from validator.stream.generations import Generations
from validator.stream.outage import OutageNote
from validator.stream.recovery import take_over
from validator.stream.session import start
from validator.stream.sources import sources_of

EXIT_STATUS: Final = {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.UNKNOWN: 3}
INTERRUPTED: Final = 130
_LOCK_WAIT_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 28.0
"""Longest time from the first signal to the end of the process. 30 s are promised: a supervisor then kills it."""


def run(
    config: Config,
    *,
    once: bool = False,
    leave_open: bool = False,
    at_rest: bool = False,
    say: Callable[[str], None] | None = None,
    notices: Notices | Progress | None = None,
) -> int:
    """Judge the pipeline of ``config`` until SIGTERM, SIGINT or SIGHUP, or with ``once`` up to the ends of its topics.

    ``leave_open``: with ``once``, windows that the input watermark has not passed stay pending. ``at_rest``: treat the
    pipeline as at rest at the end of the run, without checking its topics. ``notices`` receives each report.
    Returns the exit status of the declared guarantee's verdict, or 130 if ``once`` was interrupted before the ends of
    the topics and the verdict so far is not FAIL.

    Raises `StateRefused`, `StateLocked`, `StateMismatch`, `StateDamaged`, `StateTaken`, `BrokersUnreachable`,
    `CannotVerify`, `OptionsRefused`, `PrerequisiteError`, `MasterUnreached` and `SessionUnfit`. The message of
    each is one sentence.
    """
    return Sidecar(config, once=once, leave_open=leave_open, at_rest=at_rest, say=say, notices=notices).run()


class Sidecar:
    """One run of the sidecar on one state folder.

    ``session``: an existing Spark session (`validator.stream.session.start`), which the run does not stop.
    """

    def __init__(
        self,
        config: Config,
        *,
        once: bool = False,
        leave_open: bool = False,
        at_rest: bool = False,
        say: Callable[[str], None] | None = None,
        session: SparkSession | None = None,
        notices: Notices | Progress | None = None,
    ) -> None:
        self._config = config
        self._notices = notices
        self._borrowed = session
        self._once = once
        self._leave_open = leave_open
        self._at_rest = at_rest
        self._say = say or to_stderr
        self._stop = threading.Event()
        self._stopping: threading.Timer | None = None
        self._generations: Generations | None = None
        self._state: Path = config.state.path
        self._tables = StateTables(self._state)

    def run(self) -> int:
        """As the function `run`."""
        folder.check(self._state)
        brokers = Brokers(self._config)
        for_java(self._config)
        try:
            # Unreachable brokers are reported before Spark is started.
            brokers.topics(source.topic for source in sources_of(self._config))
        except BrokersUnreachable:
            if folder.is_state(self._state):
                OutageNote(self._state).note()
            raise
        jvm_jars = jars.resolve(jars.SIDECAR_LOCK, say=self._say) if self._borrowed is None else []
        try:
            lock = acquire(self._state, wait=_patience(_LOCK_WAIT_SECONDS))
        except OSError as error:
            if error.errno not in folder.PASSING:
                raise
            raise CannotVerify(why_unwritable(error, self._state)) from error
        previous = self._take_signals()
        try:
            identity.check_or_write(self._state, self._config)
            take_over(self._tables)
            for topic in rereading.adopt(self._tables, self._config):
                self._say(f"the fields of topic {topic} were corrected: it is read again from its start")
            return self._run_locked(brokers, jvm_jars, lock)
        except CannotVerify:
            raise
        except Exception as error:
            # Once the state folder or the JVM is lost, any operation can fail, each with a different message.
            if (why := known_sentence(error, self._state)) is None:
                raise
            raise CannotVerify(why) from error
        finally:
            for name, handler in previous.items():
                signal.signal(name, handler)
            lock.release()
            if self._stopping is not None:
                self._stopping.cancel()

    def _take_signals(self) -> dict[signal.Signals, Any]:
        """Make SIGTERM, SIGINT and SIGHUP request an orderly end of the run. Returns the previous handlers.

        SIGHUP, the end of a terminal or ssh session, stays ignored if it is ignored (nohup).

        Only the main thread may set handlers: in another thread nothing is set, and the result is empty.
        """
        if threading.current_thread() is not threading.main_thread():
            return {}
        return {name: signal.signal(name, self._on_signal) for name in ending()}

    def stop(self) -> None:
        """Request an orderly end of the run. May be called from any thread."""
        self._stop.set()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        set_from_handler(self._stop)
        if self._stopping is None:
            self._stopping = threading.Timer(_STOP_SECONDS, self._end_at_once)
            self._stopping.daemon = True
            self._stopping.start()

    def _end_at_once(self) -> None:
        """End the process although the stop is not complete: on a busy machine a batch, or the end of Spark, can take
        longer than a supervisor waits. A process may end at any instruction, so nothing is lost."""
        generations = self._generations
        verdict = Verdict.UNKNOWN if generations is None else generations.shown_verdict
        doing = "Spark was starting or ending" if generations is None else generations.doing
        why = f"the stop was not complete after {_STOP_SECONDS:.0f} s: {doing}; the next start recovers the state"
        # A reader of stderr may have stopped reading.
        saying = threading.Thread(target=self._say, args=(why,), daemon=True)
        saying.start()
        saying.join(1.0)
        os._exit(INTERRUPTED if self._once and verdict is not Verdict.FAIL else EXIT_STATUS[verdict])

    def _run_locked(self, brokers: Brokers, jvm_jars: list[Path], lock: StateLock) -> int:
        config = self._config
        notifier = Notifier(config.notify, self._state, self._say, settle_seconds=0.0 if self._once else SETTLE_SECONDS)
        # Until a run with `--once` comes to its end, its report is `unknown` or `fail`.
        follow = _ignore if self._once else notifier.update
        publisher = Publisher(config, self._state, say=self._say, on_report=follow)
        self._say(f"streamproof {validator.__version__}: {config.pipeline}, {self._served(publisher)}")
        spark, temporary = self._borrowed, None
        faults = FaultsTopicReader(config, self._say) if config.faults is not None else None
        generations = Generations(
            config,
            self._tables,
            brokers,
            publisher,
            faults,
            once=self._once,
            leave_open=self._leave_open,
            at_rest=self._at_rest,
            say=self._say,
            stop=self._stop,
            notices=self._notices,
        )
        self._generations = generations
        try:
            if spark is None:
                options = {str(k): str(v) for k, v in config.spark.options.items()}
                temporary = scratch.emptied(self._state, options)
                spark = start(
                    config.pipeline,
                    config.spark.master,
                    jvm_jars,
                    options,
                    inherit=(lock.descriptor,),
                    withheld=config.secret_variables,
                    crash_folder=self._state.absolute(),
                    folder=temporary,
                )
            verdict = generations.run(spark)
        finally:
            generations.close()
            self._tables.close()
            publisher.stop()
            if spark is not None and self._borrowed is None:
                _stop_spark(spark)
            if temporary is not None:
                scratch.removed(temporary)
            if self._once and publisher.shown is not None and not generations.cut_short:
                notifier.update(publisher.shown)
            notifier.close()
        if generations.cut_short and verdict is not Verdict.FAIL:
            # Unread records may still violate the guarantee, so an interrupted run never passes.
            self._say("interrupted before the ends of the topics; the next start continues from here")
            return INTERRUPTED
        return EXIT_STATUS[verdict]

    def _served(self, publisher: Publisher) -> str:
        """Start serving; return where, as a clause. A run with `--once` needs no port. Raises EndpointError."""
        try:
            return f"status page and metrics at {publisher.start().url}"
        except EndpointError as error:
            if not self._once:
                raise
            publisher.send()
            return f"without a status page ({error.reason})"


def _ignore(_: Report) -> None:
    return


def _stop_spark(spark: SparkSession) -> None:
    try:
        spark.stop()
    except (Py4JError, ConnectionError, OSError):
        return


def _patience(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds

    def again() -> bool:
        if time.monotonic() >= end:
            return False
        time.sleep(0.1)
        return True

    return again
