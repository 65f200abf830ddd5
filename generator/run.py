"""``streamproof generate``: runs all producers in threads of one or several processes, and summarises the run."""

from __future__ import annotations

import json
import multiprocessing
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event as ProcessEvent
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from generator import journal
from generator.config import GeneratorConfig, GeneratorConfigError
from generator.producer import Counters, Totals, flush_windows, produce
from generator.sender import Target
from validator.model.kafka_options import librdkafka_options
from validator.model.kafka_refusals import TRANSIENT, ClientMessages, missing_right, refusal

PROGRESS_SECONDS: Final = 0.5
METADATA_TIMEOUT_SECONDS: Final = 10.0


class GeneratorRunError(Exception):
    """The run could not start or continue; the message is one sentence for the user."""


@dataclass(frozen=True)
class GenerationProgress:
    """Progress of a run. Counts are sends of all producers, including second copies."""

    seconds: float
    sent: int
    acknowledged: int


@dataclass(frozen=True)
class GenerationSummary:
    """Totals of a run. ``events`` counts distinct ids, including flush events; ``sends`` includes second copies."""

    topic: str
    seed: int
    start_ms: int
    """Start of event time, in milliseconds since the epoch."""
    events: int
    sends: int
    acknowledged: int
    rejected: int
    indeterminate: int
    kinds: Mapping[str, int]
    """Kind of send (plain, delayed, late, second_copy, flush) -> number of sends."""
    errors: Mapping[str, int]
    acknowledged_by_partition: Mapping[str, int]
    newest_time_ms: int
    seconds: float
    """Seconds from the start of the first producer to the last delivery report."""
    events_per_second: float
    journal: str | None
    fatal: tuple[str, ...]
    """Fatal errors of clients; empty after a successful run."""


OnProgress = Callable[[GenerationProgress], None]


def generate(
    config: GeneratorConfig,
    *,
    stop: threading.Event | None = None,
    on_progress: OnProgress | None = None,
) -> GenerationSummary:
    """Send the configured load until its limit is reached or ``stop`` is set; blocking.

    Writes ``summary.json`` into the journal folder. Calls ``on_progress`` about twice per second from the calling
    thread. Raises GeneratorRunError.
    """
    stop = stop or threading.Event()
    start_ms = _start_ms(config)
    targets = _targets(config)
    if config.journal is not None:
        _clear(config)
    started = time.monotonic()
    run = _in_threads if config.processes == 1 else _in_processes
    of_producers = run(config, start_ms, targets, stop, on_progress)
    totals = [one for streams in of_producers for one in streams]
    if config.flush_windows and any(t.sends for t in totals):
        newest = max(t.newest_time_ms for t in totals)
        for target, of_stream in zip(targets, list(zip(*of_producers, strict=True)), strict=True):
            totals.append(flush_windows(config, target, newest, max(t.next_number for t in of_stream)))
    summary = _summarise(config, start_ms, totals, time.monotonic() - started)
    if config.journal is not None:
        (config.journal / "summary.json").write_text(json.dumps(asdict(summary), indent=1) + "\n", encoding="utf-8")
    return summary


def _start_ms(config: GeneratorConfig) -> int:
    if config.start == "epoch":
        return 0
    if config.start == "now":
        return time.time_ns() // 1_000_000 // config.window * config.window
    return config.start


def _targets(config: GeneratorConfig) -> tuple[Target, ...]:
    return tuple(
        Target(topic, _partitions(config, topic), place) for place, topic in enumerate(config.topics_of_streams)
    )


def _partitions(config: GeneratorConfig, topic: str) -> int:
    """Number of partitions of the topic. Raises GeneratorRunError if the broker or the topic is not found."""
    options = librdkafka_options(config.kafka.options)
    heard = ClientMessages()
    connecting = {"bootstrap.servers": config.kafka.bootstrap_servers, **_connection_options(options)}
    try:
        admin = AdminClient(connecting | heard.options())
        topics = admin.list_topics(topic, timeout=METADATA_TIMEOUT_SECONDS).topics
    except KafkaException as error:
        admin.poll(0)
        why = refusal(heard.texts, options)
        if why is not None and why.kind not in TRANSIENT:
            raise GeneratorRunError(f"Cannot use the brokers at {config.kafka.bootstrap_servers}: {why}.") from error
        raise GeneratorRunError(
            f"No broker answered at {config.kafka.bootstrap_servers} ({error.args[0].name()}); check that it is "
            "running."
        ) from error
    found = topics.get(topic)
    if found is not None and found.error is not None and found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        missing = ": ".join(missing_right("WRITE", f"topic {topic}", options))
        raise GeneratorRunError(f"{missing}.")
    if found is None or found.error is not None or not found.partitions:
        raise GeneratorRunError(f"Topic {topic} does not exist at {config.kafka.bootstrap_servers}; create it first.")
    return len(found.partitions)


def _connection_options(options: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in options.items() if k.startswith(("security.", "sasl.", "ssl.", "socket.", "client."))}


def _clear(config: GeneratorConfig) -> None:
    """Remove the journals of an earlier run from the folder, because the ground truth is that of a single run.

    Raises GeneratorConfigError if the folder has a ``summary.json`` that the generator did not write.
    """
    assert config.journal is not None
    config.journal.mkdir(parents=True, exist_ok=True)
    if (config.journal / "summary.json").exists() and not any(config.journal.glob("producer-*" + journal.SUFFIX)):
        raise GeneratorConfigError(
            f"journal: {config.journal} has a summary.json that the generator did not write; use another folder."
        )
    for pattern in ("producer-*" + journal.SUFFIX, "flush*" + journal.SUFFIX, "summary.json"):
        for old in config.journal.glob(pattern):
            old.unlink()


def _in_threads(
    config: GeneratorConfig,
    start_ms: int,
    targets: tuple[Target, ...],
    stop: threading.Event,
    on_progress: OnProgress | None,
) -> list[list[Totals]]:
    counters = [Counters() for _ in range(config.producers)]
    started = time.monotonic()

    def show() -> None:
        if on_progress is not None:
            sent, acknowledged = sum(c.sent for c in counters), sum(c.acknowledged for c in counters)
            on_progress(GenerationProgress(time.monotonic() - started, sent, acknowledged))

    return _threads(config, range(config.producers), start_ms, targets, stop.is_set, counters, show)


def _threads(
    config: GeneratorConfig,
    producers: Iterable[int],
    start_ms: int,
    targets: tuple[Target, ...],
    asked_to_stop: Callable[[], bool],
    counters: list[Counters],
    show: Callable[[], None],
) -> list[list[Totals]]:
    """Run each of ``producers`` in a thread. If one raises or the user interrupts, stop the others."""
    numbers = list(producers)
    abort = threading.Event()

    def stopped() -> bool:
        return abort.is_set() or asked_to_stop()

    with ThreadPoolExecutor(len(numbers), thread_name_prefix="producer") as pool:
        futures: list[Future[list[Totals]]] = [
            pool.submit(produce, config, number, start_ms, targets, stopped, counters[i])
            for i, number in enumerate(numbers)
        ]
        try:
            for future in futures:
                while not wait([future], timeout=PROGRESS_SECONDS).done:
                    show()
            return [future.result() for future in futures]
        finally:
            abort.set()
            show()


def _in_processes(
    config: GeneratorConfig,
    start_ms: int,
    targets: tuple[Target, ...],
    stop: threading.Event,
    on_progress: OnProgress | None,
) -> list[list[Totals]]:
    context = multiprocessing.get_context("spawn")
    stop_all = context.Event()
    shown = [(context.Value("q", 0), context.Value("q", 0)) for _ in range(config.processes)]
    started = time.monotonic()
    children, pipes = [], []
    for i in range(config.processes):
        reading, writing = context.Pipe(duplex=False)
        shares = tuple(range(i, config.producers, config.processes))
        child = context.Process(target=_child, args=(config, shares, start_ms, targets, stop_all, shown[i], writing))
        child.start()
        writing.close()
        children.append(child)
        pipes.append(reading)
    totals: list[list[Totals]] = []
    try:
        for pipe in pipes:
            while not pipe.poll(PROGRESS_SECONDS):
                if stop.is_set():
                    stop_all.set()
                if on_progress is not None:
                    sent, acknowledged = (sum(pair[side].value for pair in shown) for side in (0, 1))
                    on_progress(GenerationProgress(time.monotonic() - started, sent, acknowledged))
            try:
                totals.extend(pipe.recv())
            except EOFError as error:
                raise GeneratorRunError(
                    "A producer process died; its journal has the sends up to that point."
                ) from error
    finally:
        stop_all.set()
        for child in children:
            child.join()
    return totals


def _child(
    config: GeneratorConfig,
    producers: tuple[int, ...],
    start_ms: int,
    targets: tuple[Target, ...],
    stop: ProcessEvent,
    shown: tuple[Synchronized[int], Synchronized[int]],
    result: Any,
) -> None:
    # Ctrl-C reaches the whole process group; only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    counters = [Counters() for _ in producers]

    def asked_to_stop() -> bool:
        return stop.is_set() or (parent is not None and not parent.is_alive())

    def show() -> None:
        shown[0].value = sum(c.sent for c in counters)
        shown[1].value = sum(c.acknowledged for c in counters)

    result.send(_threads(config, producers, start_ms, targets, asked_to_stop, counters, show))


def _summarise(config: GeneratorConfig, start_ms: int, totals: list[Totals], seconds: float) -> GenerationSummary:
    kinds: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    partitions: Counter[str] = Counter()
    for t in totals:
        kinds.update(t.kinds)
        errors.update(t.errors)
        partitions.update(t.acknowledged_by_partition)
    acknowledged = sum(t.acknowledged for t in totals)
    return GenerationSummary(
        topic=config.topics_of_streams[0],
        seed=config.seed,
        start_ms=start_ms,
        events=sum(t.events for t in totals),
        sends=sum(t.sends for t in totals),
        acknowledged=acknowledged,
        rejected=sum(t.rejected for t in totals),
        indeterminate=sum(t.indeterminate for t in totals),
        kinds=dict(kinds),
        errors=dict(errors),
        acknowledged_by_partition=dict(sorted(partitions.items())),
        newest_time_ms=max((t.newest_time_ms for t in totals), default=-1),
        seconds=round(seconds, 3),
        events_per_second=round(acknowledged / seconds, 1) if seconds > 0 else 0.0,
        journal=None if config.journal is None else str(config.journal),
        fatal=tuple(t.fatal for t in totals if t.fatal is not None),
    )
