"""The cost of a sidecar with little load, and of an event on disk: the figures of docs/sizing.md.

``python -m bench.sizing CONFIG...`` runs the sidecars of these files in one process, with one Spark session.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import DeltaTable

from bench.measuring import Sampler
from bench.writer import Load, uuid
from testbed.demo.memory import memory_usage_of
from validator.config.load import loads
from validator.reconcile.facts import Side, completed
from validator.state.tables import StateTables, Table, join_facts, path_of
from validator.stream.sources import readers_of, sources_of
from validator.stream.stage import Stage

CONFIG: Final = """
pipeline: disk
guarantee: exactly_once
kafka: {{bootstrap_servers: "{servers}"}}
inputs: [{{topic: click, fields: {{id: id, key: page, event_time: timestamp}}}}]
outputs: [{{topic: output, fields: {{key: page, window_start: windowStart, ids: [ids]}}}}]
oracle: {{kind: tumbling_window, size: 60s}}
state: {{path: {state}}}
"""

KINDS: Final[Mapping[str, Callable[[int], int | str]]] = {
    "integers": int,
    "UUIDs": uuid,
    "texts": "order-{:09}".format,
}
"""Kind of id -> function from a number to the id."""
SIZES: Final = ((10, 50_000), (100, 500))
"""Batches, and events in each."""
WAYS: Final = ((1, "processes"), (10, "processes"), (10, "one process"))
RATE: Final = 120
_WARM_SECONDS: Final = 20.0
_SECONDS: Final = 40.0


def disk(kind: str, batches: int, events: int) -> dict[str, Any]:
    """Bytes per event of all files of the table `facts`, and of its current files only (after a compaction).

    The sidecar's decoder, stage and tables write them. The load has six pages, windows of a minute, and one batch per
    second of event time."""
    config = loads(CONFIG.format(servers="none:1", state="state"), Path("/"), [], {})
    sources = sources_of(config)
    readers = readers_of(config, sources)
    of_sources = [(source.side, source.topic) for source in sources]
    numbers = {source.side: place for place, source in enumerate(sources)}
    with tempfile.TemporaryDirectory() as folder:
        tables = StateTables(Path(folder))
        tables.take_over()
        answers = 0
        for batch in range(batches):
            ids = [KINDS[kind](number) for number in range(batch * events, (batch + 1) * events)]
            second = datetime.fromtimestamp(batch, UTC).isoformat(timespec="milliseconds")
            clicks = [{"id": id_, "page": f"/page-{place % 6}", "timestamp": second} for place, id_ in enumerate(ids)]
            results = [
                {"page": f"/page-{page}", "windowStart": second[:17] + "00", "ids": ids[page::6]} for page in range(6)
            ]
            stage = Stage(readers, limit_us=1 << 62, with_first_event=False)
            parts = [
                *stage.facts(numbers[Side.INPUT], iter([_records(clicks, batch * events)])),
                *stage.facts(numbers[Side.OUTPUT], iter([_records(results, answers)])),
            ]
            answers += len(results)
            rows = completed(pa.concat_tables(parts), of_sources, batch=batch, lookup_us=batch * 1_000_000, epoch=0)
            tables.append(rows, Table.FACTS, writer="bench", version=batch)
        tables.close()
        table = DeltaTable(path_of(Path(folder), Table.FACTS))
        join_facts(Path(folder, "facts"), table)
        table.update_incremental()
        in_force = sum(pa.table(table.get_add_actions())["size_bytes"].to_pylist())
        facts = sum(path.stat().st_size for path in Path(folder, "facts").rglob("*") if path.is_file())
    whole = batches * events
    return {
        "ids": kind,
        "events_in_a_batch": events,
        "bytes_in_force_per_event": round(in_force / whole, 2),
        "bytes_until_vacuum_per_event": round(facts / whole, 2),
    }


def _records(values: Sequence[Mapping[str, object]], first_offset: int) -> pa.RecordBatch:
    size = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array([json.dumps(value).encode() for value in values], pa.binary()),
            "partition": pa.array([0] * size, pa.int32()),
            "offset": pa.array(range(first_offset, first_offset + size), pa.int64()),
            "time_us": pa.array([0] * size, pa.int64()),
        }
    )


def many(servers: str, config: Callable[..., str], number: int, way: str) -> dict[str, Any]:
    """Memory and CPU of ``number`` sidecars on one pair of topics. ``way``: `processes` or `one process`."""
    load = Load(servers, "click", "output", events=1 << 40, rate_per_second=RATE, per_window=RATE * 10)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        files, states = [], []
        for index in range(number):
            states.append(Path(folder, f"state-{index}"))
            text = config(
                servers=servers,
                inputs="click",
                outputs="output",
                key="page",
                batch=2_000_000,
                state=states[-1],
            )
            files.append(Path(folder, f"{index}.yaml"))
            files[-1].write_text(text)
        commands = (
            [[sys.executable, "-m", "validator.cli.main", "validate", "--quiet", str(file)] for file in files]
            if way == "processes"
            else [[sys.executable, "-m", "bench.sizing", *map(str, files)]]
        )
        writer = subprocess.Popen([sys.executable, "-m", "bench.writer", json.dumps(asdict(load))])
        running.callback(_ended, writer)
        began = time.monotonic()
        processes = [subprocess.Popen(command) for command in commands]
        for process in processes:
            running.callback(_ended, process)
        while not all(_batches(state) for state in states):
            _alive(processes)
            time.sleep(0.2)
        started = time.monotonic() - began
        time.sleep(_WARM_SECONDS)
        before = [_batches(state) for state in states]
        samplers = [running.enter_context(Sampler(process.pid)) for process in processes]
        time.sleep(1.0)
        cpu = sum(sampler.cpu_seconds for sampler in samplers)
        time.sleep(_SECONDS)
        used = sum(sampler.cpu_seconds for sampler in samplers) - cpu
        _alive(processes)
        batches = sum(map(_batches, states)) - sum(before)
        pss = sum(memory_usage_of(process.pid).bytes for process in processes)
        return {
            "sidecars": number,
            "as": way,
            "all_started_seconds": round(started, 1),
            "pss_mib": pss >> 20,
            "pss_mib_per_sidecar": round((pss >> 20) / number),
            "cores": round(used / _SECONDS, 2),
            "cores_per_sidecar": round(used / _SECONDS / number, 3),
            "seconds_per_batch": round(_SECONDS * number / max(1, batches), 2),
            "load_average": round(os.getloadavg()[0], 1),
        }


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()


def _alive(processes: list[subprocess.Popen[bytes]]) -> None:
    if any(process.poll() is not None for process in processes):
        raise SystemExit("bench: a sidecar ended")


def _batches(state: Path) -> int:
    path = state / "report.json"
    return int(json.loads(path.read_text())["validator"]["batches"]) if path.exists() else 0


def main() -> None:
    """Run sidecars in one process until SIGTERM."""
    import signal

    from validator.config.load import load
    from validator.stream import jars
    from validator.stream.session import start
    from validator.stream.sidecar import Sidecar

    spark = start("many", "local[*]", jars.resolve(jars.SIDECAR_LOCK), {})
    sidecars = [Sidecar(load(Path(file), []), say=lambda _: None, session=spark) for file in sys.argv[1:]]

    def stop(*_: object) -> None:
        for sidecar in sidecars:
            sidecar.stop()

    signal.signal(signal.SIGTERM, stop)
    threads = [threading.Thread(target=sidecar.run) for sidecar in sidecars]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
