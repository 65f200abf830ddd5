"""The benchmarks: ``scripts/bench [PART...] [--events N] [--rate R] [--seconds S]``, with these parts.

Prints tables and writes docs/bench/PART.json and docs/bench/README.md.

once: a plain read of the topics, then `validate --once` on them, in one run. flat: the same from 3 M to 30 M events.
live: the live sidecar at a constant rate, with losses and duplicates to find. keys: a million keys per window.
shapes: as once, for each way in which topics write ids, times and names (``--shape``).
formats: as once, of the same events in each format, with a schema registry.
operations: as once, for a result per event, for windows that overlap and for joins.
restart: time and memory of a start with ``--cells`` settled cells (repeatable); idle: CPU of a batch without records.
day: memory over 24 hours of event time with 100,000 keys a minute, and a start with their 144 M cells (half an hour).
disk: bytes per event on disk, by the kind of its id.
many: memory and CPU of quiet sidecars, in processes of their own and in one.
generator: the generator's rate for each workload, with two processes, beside a plain write.
statements: CPU of Flink SQL, Spark SQL and Kafka Streams for results with a count, with sums over ids, and with ids.
outage: the broker is down for ``--seconds`` while a live sidecar waits for a result.
``scripts/bench campaign [NAME]`` runs a fault campaign instead, ``scripts/bench results`` writes the page of its
results: docs/campaigns.md.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench import campaign, generating, outage, results, sizing, statements, table
from bench.formats import event_cases
from bench.measuring import Sampler
from bench.operations import OPERATIONS
from bench.restart import day, idle, restart
from bench.writer import Load
from testbed.broker import EmbeddedBroker
from testbed.checkout import machine
from testbed.registry_stub import RegistryStub
from validator.state.tables import Table

ROOT: Final = Path(__file__).resolve().parent.parent
CONFIG: Final = """
pipeline: bench
guarantee: exactly_once
kafka: {{bootstrap_servers: "{servers}"}}
{registry}inputs: [{inputs}]
outputs: [{{topic: {outputs}, {output}}}]
oracle: {{{oracle}}}
timing: {{overdue_after: 5s, missing_after: 10s}}
state: {{path: {state}}}
metrics: {{port: 0}}
limits: {{records_per_batch: {batch}}}
"""
FIELDS: Final = "{{{id}key: {key}, event_time: timestamp}}"
IDS: Final = "fields: {key: page, window_start: windowStart, ids: [clickIds, updateIds]}"
VALUES: Final = "evidence: values, fields: {key: page, window_start: windowStart, values: {n: events, sum: amount}}"
RUNNING: Final = "evidence: values, emission: cumulative, fields: {key: page, values: {n: events}}"
WINDOWS: Final = "kind: tumbling_window, size: 60s"
SHAPES: Final[Mapping[str, Load]] = {
    "integers": Load("", "", "", 3_000_000),
    "uuids": Load("", "", "", 3_000_000, uuids=True, zoned=True),
    "parts": Load("", "", "", 3_000_000, uuids=True, in_parts=True),
    "escapes": Load("", "", "", 3_000_000, uuids=True, escapes=True),
    "cells": Load("", "", "", 1_000_000, pages=1_000_000, per_window=1, uuids=True),
    "values": Load("", "", "", 3_000_000, values=True),
    "values-uuids": Load("", "", "", 3_000_000, values=True, uuids=True, zoned=True),
    "values-cells": Load("", "", "", 1_000_000, pages=1_000_000, per_window=1, values=True),
    "words": Load("", "", "", 2_000_000, pages=1_000_000, per_window=1, running=True),
}
"""Shape -> its load. `uuids` has times with an offset, `parts` has ids in headers and keys in `$key`, `escapes` has
names with escapes, and `cells` has one event per cell. `values` has no ids, or does not read them: results state number
and sum. `words` is a running count of a million keys, with a result for each event."""
WITH_IDS: Final = {"values": "integers", "values-uuids": "integers", "values-cells": "cells"}
"""Shape without ids -> the one with ids to which its rate is compared."""
FORMAT_EVENTS: Final = 3_000_000
"""Events in each format; fewer with ``--events``."""
STATEMENT_EVENTS: Final = 2_000_000
"""Events that each statement reads; fewer with ``--events``."""
OPERATION_EVENTS: Final = 2_000_000
"""Events of each operation, on all inputs together; fewer with ``--events``."""
WARM_UP_SECONDS: Final = 30
"""Beginning of the live load, in which the JVM still compiles. Figures that exclude it have `after_warm_up` in their
name."""


def main() -> int:
    """Run the named parts."""
    if sys.argv[1:2] == ["campaign"]:
        return campaign.main(sys.argv[2:])
    if sys.argv[1:2] == ["results"]:
        return results.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("parts", nargs="*", default=["once", "live"])
    parser.add_argument("--events", type=int, default=12_000_000)
    parser.add_argument("--rate", type=int, default=150_000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--batch", type=int, default=2_000_000)
    parser.add_argument("--shape", action="append", choices=list(SHAPES), help="only this shape (repeatable)")
    parser.add_argument("--cells", action="append", type=int, metavar="N", help="settled cells of `restart` and `idle`")
    given = parser.parse_args()
    print(machine())
    for part in given.parts:
        found = _PARTS[part](given)
        kept = {"machine": machine(), "part": part, "asked": vars(given), "rows": found}
        folder = ROOT / "docs" / "bench"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{part}.json").write_text(json.dumps(kept, indent=1, default=str) + "\n")
        table.PAGE.write_text(table.page())
    return 0


def once(given: argparse.Namespace) -> list[dict[str, Any]]:
    """A plain read, then `validate --once`."""
    with EmbeddedBroker(heap_mb=1024) as broker:
        rows = [_once(broker, given.events, given.batch, Load("", "", "", 0))]
    _print(rows)
    return rows


def flat(given: argparse.Namespace) -> list[dict[str, Any]]:
    """As `once`, with 3 M to 30 M events, to see whether time per event and memory stay constant."""
    rows = []
    for events in (3_000_000, 10_000_000, 30_000_000):
        with EmbeddedBroker(heap_mb=1024) as broker:
            rows.append(_once(broker, events, given.batch, Load("", "", "", 0)))
    _print(rows)
    return rows


def keys(given: argparse.Namespace) -> list[dict[str, Any]]:
    """As `once`, with a million cells per window."""
    with EmbeddedBroker(heap_mb=1024) as broker:
        rows = [_once(broker, 2_000_000, given.batch, Load("", "", "", 0, pages=1_000_000, per_window=1))]
    _print(rows)
    return rows


def shapes(given: argparse.Namespace) -> list[dict[str, Any]]:
    """As `once`, for each shape."""
    rows: list[dict[str, Any]] = []
    for name in given.shape or SHAPES:
        shape = SHAPES[name]
        with EmbeddedBroker(heap_mb=1024) as broker:
            rows.append({"shape": name, **_once(broker, shape.events, given.batch, shape)})
        compare_with_ids(rows)
        _print(rows[-1:])
    return rows


def compare_with_ids(rows: Sequence[dict[str, Any]]) -> None:
    """Add the ratio of its rate to that of ids to the row of each shape without ids, if both were measured."""
    of_shape = {row["shape"]: row for row in rows}
    for name, with_ids in WITH_IDS.items():
        if name in of_shape and with_ids in of_shape:
            rate, base = (of_shape[one]["validate_events_per_second"] for one in (name, with_ids))
            of_shape[name]["rate_to_that_of_ids"] = round(rate / base, 2)


def formats(given: argparse.Namespace) -> list[dict[str, Any]]:
    """As `once`, of the same events in each format, with results in JSON; JSON is the first."""
    events = min(given.events, FORMAT_EVENTS)
    rows: list[dict[str, Any]] = []
    for name, case in event_cases().items():
        registry = RegistryStub()
        for number, schema in case.schemas.items():
            assert schema is not None, "a case has its schemas"
            registry.add(int(number), schema.text, schemaType=schema.kind)
        with EmbeddedBroker(heap_mb=1024) as broker:
            load = Load("", "", "", 0, format=name)
            row = {"format": name, **_once(broker, events, given.batch, load, registry.url)}
        registry.close()
        base = rows[0] if rows else row
        row["rate_to_that_of_json"] = round(row["validate_events_per_second"] / base["validate_events_per_second"], 2)
        row["cpu_to_that_of_json"] = round(row["all_cpu_seconds"] / base["all_cpu_seconds"], 2)
        rows.append(row)
        _print([row])
    return rows


def operations(given: argparse.Namespace) -> list[dict[str, Any]]:
    """As `once`, for each operation."""
    events = min(given.events, OPERATION_EVENTS)
    rows = []
    for name, of in OPERATIONS.items():
        with EmbeddedBroker(heap_mb=1024) as broker:
            broker.create_topics(dict.fromkeys([*of.inputs, "output"], 3))
            servers = broker.bootstrap_servers
            written = _json_line([sys.executable, "-m", "bench.operations", servers, name, str(events)])
            read = _json_line([sys.executable, "-m", "bench.plain_read", servers, *of.inputs, "output"])
            plain = {"writing": written["seconds"], "reading": read["seconds"]}
            make = partial(_write_config, broker=broker, batch=given.batch, sections=of.config())
            rows.append({"operation": name, **_judged(events, plain, make)})
        _print(rows[-1:])
    return rows


def evidence(given: argparse.Namespace) -> list[dict[str, Any]]:
    """What engines need for each evidence, one after the other on the same topic."""
    per_window = Load("", "", "", 0).pages * Load("", "", "", 0).per_window
    events = max(3, min(given.events, STATEMENT_EVENTS) // per_window) * per_window
    with EmbeddedBroker(heap_mb=1024) as broker, tempfile.TemporaryDirectory() as folder:
        broker.create_topics(dict.fromkeys([statements.INPUT, "ignored", *statements.outputs()], 1))
        # Else the broker writes the time of each record.
        broker.create_topics({statements.LONGS: 1}, {"message.timestamp.type": "CreateTime"})
        servers = broker.bootstrap_servers
        load = Load(servers, statements.INPUT, "ignored", events)
        _json_line([sys.executable, "-m", "bench.writer", json.dumps(asdict(load))])
        rows = [statements.of_flink(servers, states, events, Path(folder, states)) for states in statements.FLINK]
        rows += _json_line([sys.executable, "-m", "bench.statements", servers, str(events)])
        more = 4 * events  # its commits are a second apart, so a run must have many
        statements.write_longs(servers, more)
        for states in statements.STREAMS:
            rows.append(statements.of_kafka_streams(servers, states, more, Path(folder, f"streams-{states}")))
    for row in rows:
        ids = next(one for one in rows if one["engine_and_evidence"] == f"{row['engine_and_evidence'].split()[0]} ids")
        for name in ("cpu_seconds_per_million_events", "result_bytes_per_event"):
            row[f"{name.partition('_')[0]}_to_that_of_ids"] = round(row[name] / ids[name], 4)
    _print(rows)
    return rows


def disk(_: argparse.Namespace) -> list[dict[str, Any]]:
    """Bytes on disk per event and its result."""
    rows = [sizing.disk(kind, batches, events) for kind in sizing.KINDS for batches, events in sizing.SIZES]
    _print(rows)
    return rows


def many(_: argparse.Namespace) -> list[dict[str, Any]]:
    """Sidecars with little load, each in its own process, and all in one process."""
    with EmbeddedBroker(heap_mb=512) as broker:
        broker.create_topics({"click": 1, "output": 1})
        rows = [sizing.many(broker.bootstrap_servers, _with_ids, number, way) for number, way in sizing.WAYS]
    _print(rows)
    return rows


def away(given: argparse.Namespace) -> list[dict[str, Any]]:
    """An outage of the broker while a live sidecar waits for a result."""
    with EmbeddedBroker(heap_mb=512) as broker, tempfile.TemporaryDirectory() as folder:
        broker.create_topics({"click": 1, "output": 1})
        rows = [outage.outage(_config(folder, broker, given.batch), broker, given.seconds)]
    _print(rows)
    return rows


def _written(broker: EmbeddedBroker, events: int, shape: Load) -> Mapping[str, float]:
    """Write the topics, then read them plainly; the seconds of each."""
    # Events may have their time in the record's timestamp.
    broker.create_topics({"click": 3, "output": 3}, {"message.timestamp.type": "CreateTime"} if shape.format else None)
    load = {**asdict(shape), "servers": broker.bootstrap_servers, "inputs": "click", "outputs": "output"}
    written = _json_line([sys.executable, "-m", "bench.writer", json.dumps({**load, "events": events})])
    plain = _json_line([sys.executable, "-m", "bench.plain_read", broker.bootstrap_servers, "click", "output"])
    return {"writing": written["seconds"], "reading": plain["seconds"]}


def _once(broker: EmbeddedBroker, events: int, batch: int, shape: Load, registry: str = "") -> dict[str, Any]:
    """Write the topics, read them plainly, then `validate --once`."""
    plain = _written(broker, events, shape)
    return _judged(events, plain, lambda folder: _config(folder, broker, batch, shape, registry))


def _judged(events: int, plain: Mapping[str, float], config_in: Callable[[str], Path]) -> dict[str, Any]:
    """Run `validate --once`. ``plain``: as `_written` returns it. ``config_in``: writes a configuration to a folder."""
    with tempfile.TemporaryDirectory() as folder:
        config = config_in(folder)
        began = time.monotonic()
        command = [sys.executable, "-m", "validator.cli.main", "validate", str(config), "--once"]
        process = subprocess.Popen(command, cwd=ROOT)
        with Sampler(process.pid) as sampler:
            status = process.wait()
        whole = time.monotonic() - began
        report = json.loads((Path(folder) / "state" / "report.json").read_text())
        timings = json.loads((Path(folder) / "state" / "counters.json").read_text())["timings"]
        tables = [Path(folder) / "state" / table.value for table in Table]
        stored = sum(file.stat().st_size for table in tables for file in table.rglob("*") if file.is_file())
    java = sampler.busiest("java")
    reading = timings["last_batch_us"] / 1e6 - timings["first_batch_us"] / 1e6
    return {
        "events": events,
        "cells": report["cells"]["seen"],
        "outcome": report["outcome"],
        "status": status,
        "write_events_per_second": round(events / plain["writing"]),
        "plain_read_events_per_second": round(events / plain["reading"]),
        "validate_whole_seconds": round(whole, 1),
        "validate_query_seconds": round(reading, 1),
        "validate_events_per_second": round(events / reading),
        "whole_events_per_second": round(events / whole),
        "ratio_to_plain_read": round(plain["reading"] / reading, 3),
        "state_bytes_per_event": round(stored / events, 2),
        "batches": report["validator"]["batches"],
        "jvm_cpu_seconds": round(java.cpu_seconds, 1),
        "all_cpu_seconds": round(sampler.cpu_seconds, 1),
        "jvm_resident_max_mib": java.resident_max >> 20,
        "driver_resident_max_mib": sampler.of(process.pid).resident_max >> 20,
        "all_resident_max_mib": sampler.resident_max >> 20,
        "together_max_mib": sampler.together_max >> 20,
    }


def live(given: argparse.Namespace) -> list[dict[str, Any]]:
    """The live sidecar at a constant rate; the results contain losses and duplicates."""
    events = given.rate * given.seconds
    with EmbeddedBroker(heap_mb=1024) as broker, tempfile.TemporaryDirectory() as folder:
        broker.create_topics({"click": 3, "output": 3})
        config = _config(folder, broker, given.batch)
        began = time.monotonic()
        sidecar = subprocess.Popen([sys.executable, "-m", "validator.cli.main", "validate", str(config)])
        state = Path(folder) / "state"
        with Sampler(sidecar.pid) as sampler:
            try:
                _await_batches(state, 1, sidecar)
                before = _metrics(state)
                load = Load(
                    broker.bootstrap_servers,
                    "click",
                    "output",
                    events,
                    rate_per_second=given.rate,
                    drop_every=50,
                    repeat_every=70,
                )
                writer = subprocess.Popen(
                    [sys.executable, "-m", "bench.writer", json.dumps(asdict(load))], stdout=subprocess.PIPE, text=True
                )
                lags = []
                warm = ""
                while writer.poll() is None:
                    time.sleep(1.0)
                    report = _report(state)
                    lag = sum(p["lag_events"] for p in report["coverage"]["partitions"] if p["topic"] == "click")
                    lags.append((lag, report["validator"].get("batch_seconds")))
                    if not warm and len(lags) >= WARM_UP_SECONDS:
                        warm = _metrics(state)
                written = json.loads(writer.stdout.read())  # type: ignore[union-attr]
                expected = written["dropped"]
                deadline = time.monotonic() + 60
                while time.monotonic() < deadline:
                    report = _report(state)
                    if report["violations"]["confirmed"]["missing"] >= expected:
                        break
                    time.sleep(0.5)
                metrics = _metrics(state)
            finally:
                sidecar.terminate()
                status = sidecar.wait(timeout=40)
        ran_seconds = time.monotonic() - began
    java = sampler.busiest("java")
    batches = sorted(seconds for _, seconds in lags[WARM_UP_SECONDS:] if seconds)
    row = {
        "rate_asked": given.rate,
        "rate_written": round(written["events"] / written["seconds"]),
        "writer_cores": round(written["cpu_seconds"] / written["seconds"], 2),
        "sidecar_cores": round(sampler.cpu_seconds / ran_seconds, 2),
        "lag_events_last": lags[-1][0],
        "lag_events_max_after_warm_up": max(lag for lag, _ in lags[WARM_UP_SECONDS:]),
        "batch_seconds_p50": batches[len(batches) // 2],
        "batch_seconds_max": batches[-1],
        "detection_delay_seconds": report["validator"]["detection_delay_seconds"],
        "dropped": written["dropped"],
        "missing_found": report["violations"]["confirmed"]["missing"],
        "repeated": written["repeated"],
        "duplicate_found": report["violations"]["confirmed"]["duplicate"],
        "batches_over_2s": _over("batch_duration_seconds", 2.0, metrics, before),
        "found_after_5s": _over("detection_delay_seconds", 5.0, metrics, before),
        "after_warm_up_batches_over_2s": _over("batch_duration_seconds", 2.0, metrics, warm),
        "after_warm_up_found_after_5s": _over("detection_delay_seconds", 5.0, metrics, warm),
        "status": status,
        "jvm_resident_max_mib": java.resident_max >> 20,
        "all_resident_max_mib": sampler.resident_max >> 20,
        "together_max_mib": sampler.together_max >> 20,
    }
    _print([row])
    return [row]


def _over(name: str, bound: float, metrics: str, earlier: str) -> str:
    """How many of the values that histogram ``name`` gained between two scrapes of /metrics are above ``bound``."""
    whole, below = (_count(name, part, metrics) - _count(name, part, earlier) for part in (None, bound))
    return f"{whole - below:.0f} of {whole:.0f}"


def _count(name: str, bound: float | None, metrics: str) -> float:
    """The number of values of a histogram up to ``bound``; None: all values."""
    counts = {
        float(edge): float(count)
        for edge, count in re.findall(rf'streamproof_{name}_bucket\{{.*?le="([0-9.+Inf]+)".*?\}} ([0-9.e+]+)', metrics)
    }
    return counts[float("inf") if bound is None else bound]


def _metrics(state: Path) -> str:
    url = json.loads((state / "endpoint.json").read_text())["url"]
    found: bytes = urllib.request.urlopen(url + "metrics").read()
    return found.decode()


def _with_ids(**names: Any) -> str:
    """The configuration of a pipeline whose results list ids."""
    fields = FIELDS.format(id="id: id, ", key=names.pop("key"))
    inputs = f"{{topic: {names.pop('inputs')}, fields: {fields}}}"
    return CONFIG.format(registry="", inputs=inputs, output=IDS, oracle=WINDOWS, **names)


def _config(folder: str, broker: EmbeddedBroker, batch: int, shape: Load | None = None, registry: str = "") -> Path:
    in_parts = shape is not None and shape.in_parts
    id_, output, oracle = "id: $header.id, " if in_parts else "id: id, ", IDS, WINDOWS
    if shape is not None and shape.values:
        id_, output, oracle = "", VALUES, f"{oracle}, values: {{n: count, sum: sum(amount)}}"
    elif shape is not None and shape.running:
        id_, output, oracle = "", RUNNING, "kind: running_aggregate, values: {n: count}"
    fields, format_ = FIELDS.format(id=id_, key="$key" if in_parts else "page"), ""
    if shape is not None and shape.format:
        case = event_cases()[shape.format]
        fields, format_ = case.fields, f"format: {case.format}, key_format: {case.key_format}, "
    names = {
        "registry": f"schema_registry: {{url: '{registry}'}}\n" if registry else "",
        "inputs": f"{{topic: click, {format_}fields: {fields}}}",
        "output": output,
        "oracle": oracle,
    }
    return _write_config(folder, broker, batch, names)


def _write_config(folder: str, broker: EmbeddedBroker, batch: int, sections: Mapping[str, str]) -> Path:
    path, state = Path(folder) / "bench.yaml", Path(folder) / "state"
    more = {"registry": "", "outputs": "output", "servers": broker.bootstrap_servers, "state": state, "batch": batch}
    path.write_text(CONFIG.format(**{**more, **sections}))
    return path


def _json_line(command: list[str]) -> Any:
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    return json.loads(done.stdout.strip().splitlines()[-1])


def _report(state: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((state / "report.json").read_text())
    return found


def _await_batches(state: Path, batches: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        if (state / "report.json").exists() and _report(state)["validator"]["batches"] >= batches:
            return
        time.sleep(0.2)
    raise SystemExit("bench: the sidecar ended before its first batch")


def _print(rows: list[Mapping[str, Any]] | list[dict[str, Any]]) -> None:
    for row in rows:
        for name, value in row.items():
            print(f"  {name:36} {value:,}" if isinstance(value, int) else f"  {name:36} {value}")
        print()


def loads(given: argparse.Namespace) -> list[dict[str, Any]]:
    """The generator's rate for each workload."""
    rows = generating.rates(given.events)
    _print(rows)
    return rows


_PARTS: Final = {
    "once": once,
    "flat": flat,
    "live": live,
    "keys": keys,
    "shapes": shapes,
    "formats": formats,
    "operations": operations,
    "day": day,
    "restart": restart,
    "disk": disk,
    "many": many,
    "idle": idle,
    "outage": away,
    "generator": loads,
    "statements": evidence,
}


if __name__ == "__main__":
    raise SystemExit(main())
