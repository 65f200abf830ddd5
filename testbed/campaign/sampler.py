"""What the processes of a run use, once a second: processor time, memory, disk, network, and the lag of the engine.

Linux only (/proc). Network traffic is counted by network namespace: for a process in a namespace of its own it is the
process's, and the row `machine` has that of all others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from testbed.campaign.offsets import Offsets, Partition
from testbed.gc_log import GcLogs
from testbed.periodic import PeriodicSampler

MACHINE: Final = "machine"
GROUP: Final = "group"
"""The row with what the engine consumed of its inputs, and its lag."""
INPUT: Final = "input "
"""The begin of the rows with the same of one partition: the topic and the partition follow."""
ENGINE: Final = "engine"
_OTHERS: Final = ("broker", "sidecar", "generator", "campaign")
"""Sampled processes that are no part of the engine."""
_EVERY_SECONDS: Final = 1.0
_MEMBERS_EVERY: Final = 5
"""Samples after which the members of the process groups are looked up again: this reads all of /proc."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_PROC: Final = Path("/proc")


@dataclass(frozen=True)
class Sample:
    """One second of one process and its process group. Traffic and processor time are those since the sample before."""

    time_us: int
    process: str
    processor_seconds: float | None = None
    memory_bytes: int | None = None
    disk_read_bytes: int | None = None
    disk_written_bytes: int | None = None
    network_received_bytes: int | None = None
    network_sent_bytes: int | None = None
    heap_bytes: int | None = None
    """Of its JVMs, after their last collections."""
    collections: int | None = None
    collection_seconds: float | None = None
    lag_events: int | None = None
    produced_events: int | None = None
    """Events that the load appended to the inputs since the sample before."""
    consumed_events: int | None = None
    """Events whose offsets the engine committed since the sample before."""


@dataclass(frozen=True)
class _Counts:
    """The counters of one process since its start, except for its memory."""

    ticks: int = 0
    read: int = 0
    written: int = 0
    memory: int = 0


class Sampler(PeriodicSampler):
    """A context manager that samples in a thread. ``samples`` are those so far."""

    def __init__(
        self, processes: Callable[[], Mapping[str, int | None]], offsets: Callable[[], Offsets | None] | None = None,
        collectors: GcLogs | None = None, seen: Callable[[Sequence[Sample]], None] | None = None,
    ) -> None:  # fmt: skip
        """``processes``: name -> id of the leader of its process group, None if it does not run. ``offsets``: those of
        the engine's inputs, None if unknown. ``collectors``: the logs of the JVMs. ``seen`` gets each second's
        samples."""
        super().__init__("sampler", _EVERY_SECONDS)
        self.samples: list[Sample] = []
        self._processes = processes
        self._offsets = offsets
        self._inputs: dict[Partition, tuple[int, int]] = {}
        self._collectors = collectors or GcLogs(())
        self._seen = seen
        self._before: dict[tuple[int, str], _Counts] = {}
        self._members: dict[str, list[int]] = {}
        self._leaders: dict[str, int] = {}
        self._traffic: dict[str, tuple[int, int]] = {}
        self._taken = 0

    def __enter__(self) -> Self:
        """Take the first sample, from which the counters run, and start the thread."""
        self._sample()
        self.samples.clear()
        return super().__enter__()

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            # A machine that is busy for seconds must not get a burst of samples after it.
            due = max(due + _EVERY_SECONDS, time.monotonic())
            if self._end.wait(due - time.monotonic()):
                return
            self._sample()

    def _sample(self) -> None:
        now_us = time.time_ns() // 1000
        leaders = {name: pid for name, pid in self._processes().items() if pid is not None}
        if leaders != self._leaders or self._taken % _MEMBERS_EVERY == 0:
            self._leaders, self._members = leaders, _members(leaders)
        own = _namespace(os.getpid())
        found = [self._of_processes(now_us, name, own) for name in leaders]
        found.append(Sample(now_us, MACHINE, **self._network(MACHINE, os.getpid())))
        if self._offsets is not None:
            found += self._of_inputs(now_us, self._offsets())
        self.samples += found
        # The first sample, which is not kept, only starts the counters.
        if self._seen is not None and self._taken:
            self._seen(found)
        self._taken += 1

    def _of_inputs(self, now_us: int, now: Offsets | None) -> list[Sample]:
        """A row for each partition, and one with their sums."""
        if now is None:
            return [Sample(now_us, GROUP)]
        found: list[Sample] = []
        for partition, produced in sorted(now.produced.items()):
            # An engine that never committed has consumed nothing yet. One that starts again may commit lower offsets.
            committed = None if now.consumed is None else now.consumed.get(partition, 0)
            produced_before, committed_before = self._inputs.get(partition, (produced, committed or 0))
            self._inputs[partition] = (produced, max(committed or 0, committed_before))
            topic, number = partition
            appended = max(0, produced - produced_before)
            lag = None if committed is None else max(0, produced - committed)
            consumed = None if committed is None else max(0, committed - committed_before)
            name = f"{INPUT}{topic} {number}"
            found.append(Sample(now_us, name, lag_events=lag, produced_events=appended, consumed_events=consumed))
        names = ("lag_events", "produced_events", "consumed_events")
        values = {name: [value for one in found if (value := getattr(one, name)) is not None] for name in names}
        return [*found, Sample(now_us, GROUP, **{name: sum(of) for name, of in values.items() if of})]

    def _of_processes(self, now_us: int, name: str, own: str | None) -> Sample:
        ticks = read = written = memory = 0
        for pid in self._members[name]:
            seen = _counts(pid)
            if seen is None:
                continue
            started, counts = seen
            # A process that was not there at the first sample has started since: all of its counters are new.
            before = self._before.get((pid, started), counts if self._taken == 0 else _Counts())
            self._before[pid, started] = counts
            ticks += counts.ticks - before.ticks
            read += counts.read - before.read
            written += counts.written - before.written
            memory += counts.memory
        is_alone = _namespace(self._leaders[name]) not in (own, None)
        traffic = self._network(name, self._leaders[name]) if is_alone else {}
        collected = [found for pid in self._members[name] if (found := self._collectors.of(pid)) is not None]
        heaps = [found.heap_bytes for found in collected if found.heap_bytes is not None]
        return Sample(
            now_us, name, ticks / _TICKS, memory, read, written, **traffic,
            heap_bytes=sum(heaps) if heaps else None,
            collections=sum(found.count for found in collected) if collected else None,
            collection_seconds=sum(found.seconds for found in collected) if collected else None,
        )  # fmt: skip

    def _network(self, name: str, pid: int) -> dict[str, int]:
        counters = _traffic(pid)
        if counters is None:
            return {}
        before = self._traffic.get(name, counters)
        self._traffic[name] = counters
        return {
            "network_received_bytes": max(0, counters[0] - before[0]),
            "network_sent_bytes": max(0, counters[1] - before[1]),
        }


def _members(leaders: Mapping[str, int]) -> dict[str, list[int]]:
    """The processes of each group. A leader in another one's group (Storm's worker) has its own row only."""
    names = {pid: name for name, pid in leaders.items()}
    members: dict[str, list[int]] = {name: [pid] for name, pid in leaders.items()}
    for pid in (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()):
        fields = None if pid in names else _stat(pid)
        if fields is not None and (name := names.get(int(fields[2]))) is not None:
            members[name].append(pid)
    return members


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name: state, parent, group ..."""
    text = _read(pid, "stat")
    return None if text is None else text.rpartition(")")[2].split()


def _read(pid: int, name: str) -> str | None:
    try:
        return (_PROC / str(pid) / name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None  # it has ended, or is another user's


def _counts(pid: int) -> tuple[str, _Counts] | None:
    """(start time, counters) of a process; None if it has ended."""
    fields = _stat(pid)
    if fields is None:
        return None
    io = dict(line.split(": ") for line in (_read(pid, "io") or "").splitlines())
    return fields[19], _Counts(
        int(fields[11]) + int(fields[12]), int(io.get("read_bytes", 0)), int(io.get("write_bytes", 0)),
        int(fields[21]) * _PAGE_BYTES,
    )  # fmt: skip


def _namespace(pid: int) -> str | None:
    try:
        return str((_PROC / str(pid) / "ns/net").readlink())
    except OSError:
        return None


def _traffic(pid: int) -> tuple[int, int] | None:
    """(received, sent) bytes of all interfaces in the network namespace of a process; None if it has ended."""
    text = _read(pid, "net/dev")
    if text is None:
        return None
    rows = [line.partition(":")[2].split() for line in text.splitlines() if ":" in line]
    return sum(int(row[0]) for row in rows), sum(int(row[8]) for row in rows)


def part_of(process: str) -> str | None:
    """The part of a run that a sampled process belongs to: the engine, the broker (of broker-2, too), the sidecar, the
    load generator or the campaign; None for the rows of the machine and of the inputs."""
    if process in (GROUP, MACHINE) or process.startswith(INPUT):
        return None
    part = process.partition("-")[0]
    return part if part in _OTHERS else ENGINE


def processor_seconds(samples: Sequence[Sample]) -> dict[str, float]:
    """Process -> processor seconds in all samples."""
    found: dict[str, float] = {}
    for sample in samples:
        if sample.processor_seconds is not None:
            found[sample.process] = found.get(sample.process, 0.0) + sample.processor_seconds
    return {name: round(seconds, 2) for name, seconds in found.items()}


def write(path: Path, samples: Sequence[Sample]) -> None:
    """Write the samples as Parquet, a row each. Raises OSError."""
    whole, number = pa.int64(), pa.float64()
    types = {"time_us": pa.timestamp("us", tz="UTC"), "process": pa.string(), "processor_seconds": number,
             "collection_seconds": number}  # fmt: skip
    names = list(Sample.__dataclass_fields__)
    columns = [pa.array([getattr(s, name) for s in samples], types.get(name, whole)) for name in names]
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".tmp")
    pq.write_table(pa.table(columns, names=["time", *names[1:]]), partial)
    partial.replace(path)
