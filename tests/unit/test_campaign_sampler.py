"""The sampler of a run's resources, on processes whose use is known."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from faults.backends.namespaces import why_not_here
from testbed.campaign import counters
from testbed.campaign.offsets import Offsets
from testbed.campaign.reach import Reach
from testbed.campaign.sampler import GROUP, MACHINE, Sampler, processor_seconds, write
from testbed.engines.base import EngineError
from testbed.engines.real import logged_counters
from testbed.engines.settings import Node
from testbed.engines.spark import committed_offsets
from testbed.gc_log import Collections, GcLogs
from testbed.processes import OwnedProcess
from tests.process_end import await_end

pytestmark = [pytest.mark.unit, pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")]

BURNS = 1.0
BURNER = f"""
import os, subprocess, sys, time
def burn():
    while time.process_time() < {BURNS}: pass
subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < {BURNS}: pass"])
burn()
data = b"x" * 5_000_000
with open(sys.argv[1], "wb") as file:
    file.write(data); file.flush(); os.fsync(file.fileno())
open(sys.argv[2], "w").close()
time.sleep(600)
"""
SAMPLES = 4


GC = """[0.010s][info][gc] Using Serial
[1.200s][info][gc] GC(0) Pause Young (Allocation Failure) 20M->4M(60M) 5.000ms
[2.000s][info][gc] GC(1) Pause Full (System.gc()) 30M->9M(60M) 15.000ms
[2.500s][info][gc] GC(2) Pause Young (Allocation"""


def test_the_heap_is_what_the_last_collection_left(tmp_path: Path) -> None:
    log, logs = tmp_path / "gc-7.log", GcLogs([tmp_path / "none", tmp_path])
    assert logs.of(7) is None
    log.write_text(GC, encoding="utf-8")
    first = logs.of(7)
    assert first is not None
    assert (first.heap_bytes, first.count, first.seconds) == (9 << 20, 2, pytest.approx(0.02))
    assert logs.of(7) == Collections(9 << 20, 0, 0.0), "a line that is not whole is read later"
    log.write_text(GC + " Failure) 40M->11M(60M) 1.500ms\n", encoding="utf-8")
    assert logs.of(7) == Collections(11 << 20, 1, 0.0015)
    log.unlink()
    assert logs.of(7) is None


def test_samples_have_the_heaps_of_a_process_group(tmp_path: Path) -> None:
    with OwnedProcess(["sleep", "600"], log=tmp_path / "jvm.log") as process:
        pids: dict[str, int | None] = {"worker-0": process.pid, "worker-1": os.getpid()}
        (tmp_path / f"gc-{process.pid}.log").write_text(GC, encoding="utf-8")
        with Sampler(lambda: pids, None, GcLogs([tmp_path])) as sampler:
            while len(sampler.samples) < 2:
                time.sleep(0.05)
    write(tmp_path / "series.parquet", sampler.samples)
    rows = {row["process"]: row for row in pq.read_table(tmp_path / "series.parquet").to_pylist()}
    # The first sample, which is not kept, has the collections before the load.
    assert (rows["worker-0"]["heap_bytes"], rows["worker-0"]["collections"]) == (9 << 20, 0)
    assert (rows["worker-1"]["heap_bytes"], rows["worker-1"]["collections"]) == (None, None)


def test_counters_are_asked_each_second_also_of_an_engine_that_does_not_answer(tmp_path: Path) -> None:
    log, calls = tmp_path / "job.log", iter(range(10**6))
    log.write_text(
        "state RUNNING\ncounters process-total=7 commit-total=3\nready\ncounters process-to", encoding="utf-8"
    )

    def asked() -> dict[str, dict[str, float]]:
        if next(calls) == 0:
            raise EngineError("it restarts")
        return {"worker-0": logged_counters(log)}

    with counters.CounterSampler(asked) as sampler:
        while not sampler.rows:
            time.sleep(0.05)
    counters.write(tmp_path / "counters.parquet", sampler.rows)
    found = pq.read_table(tmp_path / "counters.parquet").to_pylist()
    assert [(row["part"], row["name"], row["value"]) for row in found[:2]] == [
        ("worker-0", "process-total", 7.0), ("worker-0", "commit-total", 3.0),
    ]  # fmt: skip


def test_a_batch_of_spark_is_consumed_when_it_is_committed_and_not_when_it_is_planned(tmp_path: Path) -> None:
    commits, offsets = tmp_path / "commits", tmp_path / "offsets"
    for folder in (commits, offsets):
        folder.mkdir()
        (folder / ".9.crc").touch()
    assert committed_offsets(tmp_path) is None
    (offsets / "9").write_text('v1\n{"batchWatermarkMs":0}\n{"click":{"0":40,"1":2}}\n-\n', encoding="utf-8")
    (offsets / "10").write_text('v1\n{}\n{"click":{"0":90,"1":9}}\n{"update":{"0":7}}\n', encoding="utf-8")
    assert committed_offsets(tmp_path) is None
    (commits / "9").touch()
    assert committed_offsets(tmp_path) == {("click", 0): 40, ("click", 1): 2}
    (commits / "10").touch()
    assert committed_offsets(tmp_path) == {("click", 0): 90, ("click", 1): 9, ("update", 0): 7}


def test_samples_add_up_to_what_the_processes_used_and_cost_little(tmp_path: Path) -> None:
    """A process that burns two seconds, half of them in a child, and writes 5 MB, beside ten idle ones."""
    written, done = tmp_path / "data", tmp_path / "done"
    with ExitStack() as stack:
        names = [f"idle-{i}" for i in range(10)]
        idle = {
            name: stack.enter_context(OwnedProcess(["sleep", "600"], log=tmp_path / f"{name}.log")) for name in names
        }
        pids: dict[str, int | None] = {name: process.pid for name, process in idle.items()}

        def of(first: int, other: int, second: int, behind: int = 0) -> dict[tuple[str, int], int]:
            return {("click", 0): first * second - behind, ("click", 1): other * second}

        inputs = iter(Offsets(of(6, 4, second), of(6, 4, second, 7)) for second in range(1, 10**6))
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        reach = stack.enter_context(Reach(f"127.0.0.1:{server.getsockname()[1]}", None))
        reach()
        pids["reach"] = reach.pid
        sampler = stack.enter_context(Sampler(lambda: dict(pids), lambda: next(inputs)))
        connections = stack.enter_context(counters.CounterSampler(reach))
        burner = stack.enter_context(
            OwnedProcess([sys.executable, "-c", BURNER, written, done], log=tmp_path / "burner.log")
        )
        pids["burner"] = burner.pid
        while not done.exists():
            time.sleep(0.05)
        after, began, used = len(sampler.samples), time.monotonic(), time.process_time()
        rows = len(pids) + 4
        while len(sampler.samples) < after + SAMPLES * rows:
            time.sleep(0.2)
        elapsed, own = time.monotonic() - began, time.process_time() - used
    of_reach = sum(s.processor_seconds or 0 for s in sampler.samples[after:] if s.process == "reach")
    cores = (own + of_reach) / elapsed
    assert len(connections.rows) >= 2 * (SAMPLES - 1)
    burned = processor_seconds(sampler.samples)["burner"]
    # The child ended between two samples at the latest: what it burned after its last sample is not seen.
    assert BURNS <= burned <= 2 * BURNS + 0.5
    on_disk = sum(s.disk_written_bytes or 0 for s in sampler.samples if s.process == "burner")
    assert on_disk == 0 or on_disk >= 5_000_000, "0: the file system is in memory"
    assert processor_seconds(sampler.samples)["idle-0"] < 0.1
    group = [(s.lag_events, s.produced_events, s.consumed_events) for s in sampler.samples if s.process == GROUP]
    assert set(group) == {(7, 10, 10)}
    of_one = [s for s in sampler.samples if s.process == "input click 0"]
    assert {(s.lag_events, s.produced_events, s.consumed_events) for s in of_one} == {(7, 6, 6)}
    assert all(s.network_received_bytes is not None for s in sampler.samples if s.process == MACHINE)
    # The aim is 2 % of a core; this process also runs the test.
    assert cores < 0.05
    write(tmp_path / "series.parquet", sampler.samples)
    table = pq.read_table(tmp_path / "series.parquet")
    assert table.num_rows == len(sampler.samples)
    assert table.column_names[:3] == ["time", "process", "processor_seconds"]


def test_a_broker_that_accepts_no_connection_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, Reach(f"127.0.0.1:{server.getsockname()[1]}", None) as reach:
        found = reach()["reach"]
        pinger = reach.pid
        assert pinger is not None
        assert 0 <= found["connect-seconds"] < 5
        assert found["unreachable"] == 0
        server.close()
        assert reach() == reach() == {"reach": {"unreachable": 1.0}}
        assert pinger == reach.pid, "a process for each connection costs more than all samples"
        os.kill(pinger, signal.SIGKILL)
        await_end(pinger)
        with suppress(OSError):  # it had not yet ended when it was asked
            reach()
        assert reach() == {"reach": {"unreachable": 1.0}}
        assert reach.pid != pinger


@pytest.mark.skipif(why_not_here() is not None, reason=f"network namespaces: {why_not_here()}")
def test_a_broker_is_reached_from_the_network_of_the_worker() -> None:
    name = f"spr{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
            with Reach(address, Node(namespace=name, host="127.0.0.1", address="127.0.0.1")) as reach:
                assert reach() == {"reach": {"unreachable": 1.0}}
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)
