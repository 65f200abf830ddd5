"""The sampler of a run's resources, on processes whose use is known."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from testbed.campaign.sampler import GROUP, MACHINE, Sampler, processor_seconds, write
from testbed.processes import OwnedProcess

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


def test_samples_add_up_to_what_the_processes_used_and_cost_little(tmp_path: Path) -> None:
    """A process that burns two seconds, half of them in a child, and writes 5 MB, beside ten idle ones."""
    written, done = tmp_path / "data", tmp_path / "done"
    with ExitStack() as stack:
        names = [f"idle-{i}" for i in range(10)]
        idle = {
            name: stack.enter_context(OwnedProcess(["sleep", "600"], log=tmp_path / f"{name}.log")) for name in names
        }
        pids: dict[str, int | None] = {name: process.pid for name, process in idle.items()}
        sampler = stack.enter_context(Sampler(lambda: dict(pids), lambda: 7))
        burner = stack.enter_context(
            OwnedProcess([sys.executable, "-c", BURNER, written, done], log=tmp_path / "burner.log")
        )
        pids["burner"] = burner.pid
        while not done.exists():
            time.sleep(0.05)
        after, began, used = len(sampler.samples), time.monotonic(), time.process_time()
        rows = len(pids) + 2
        while len(sampler.samples) < after + SAMPLES * rows:
            time.sleep(0.2)
        cores = (time.process_time() - used) / (time.monotonic() - began)
    burned = processor_seconds(sampler.samples)["burner"]
    # The child ended between two samples at the latest: what it burned after its last sample is not seen.
    assert BURNS <= burned <= 2 * BURNS + 0.5
    on_disk = sum(s.disk_written_bytes or 0 for s in sampler.samples if s.process == "burner")
    assert on_disk == 0 or on_disk >= 5_000_000, "0: the file system is in memory"
    assert processor_seconds(sampler.samples)["idle-0"] < 0.1
    assert {s.lag_events for s in sampler.samples if s.process == GROUP} == {7}
    assert all(s.network_received_bytes is not None for s in sampler.samples if s.process == MACHINE)
    # The aim is 2 % of a core; this process also runs the test.
    assert cores < 0.05
    write(tmp_path / "series.parquet", sampler.samples)
    table = pq.read_table(tmp_path / "series.parquet")
    assert table.num_rows == len(sampler.samples)
    assert table.column_names[:3] == ["time", "process", "processor_seconds"]
