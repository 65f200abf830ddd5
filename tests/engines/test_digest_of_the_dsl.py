"""Sums over ids by the Kafka Streams DSL (docs/evidence.md), with a SIGKILL of an instance on the way.

The test adds up the ids of each key and window itself, modulo 2^64, and compares them with the newest result, or with
all of results that are written when a window closes (`suppress`). The sidecar says the same.
"""

from __future__ import annotations

import json
import struct
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Final

import pytest

from testbed.broker import EmbeddedBroker
from testbed.engines.real import RealEngineSettings
from testbed.engines.settings import Guarantee
from tests.engines.judged import judged
from tests.engines.reading import messages
from tests.engines.test_counts_without_ids import (
    GRACE_MS,
    READY_SECONDS_MAX,
    ROUNDS,
    WINDOW_MS,
    Cell,
    CountEngine,
    Counts,
)
from tests.engines.topics import until

pytestmark = [pytest.mark.full, pytest.mark.timeout(1100)]
FIRST_ID: Final = 1 << 61
"""Sums and squares of such ids wrap around."""
NOTHING: Final = (0, 0, 0)
Sums = tuple[int, int, int]
"""Count, sum and sum of squares of ids, modulo 2^64."""


def added(one: Sums, *others: Sums) -> Sums:
    """The sums of both, modulo 2^64."""
    n, ids, squares = (sum(parts) % 2**64 for parts in zip(one, *others, strict=True))
    return n, ids, squares


class DigestEngine(CountEngine):
    """The DSL's sums over ids."""

    def _options(self) -> dict[str, str]:
        return super()._options() | {"job.operator": "digests", "job.grace.ms": str(GRACE_MS)}


class Digests(Counts):
    """As `Counts`. The value of each event is its id."""

    next_id = FIRST_ID

    def value(self) -> bytes:
        self.next_id += 1
        return struct.pack(">q", self.next_id)

    def owed_sums(self) -> dict[Cell, Sums]:
        """The sums over the ids of each key and window that closes."""
        found = defaultdict[Cell, Sums](lambda: NOTHING)
        for message in messages(self.servers, self.input):
            at_ms, key, value = message.timestamp()[1], message.key() or b"", message.value() or b""
            if self.closed_ms and at_ms >= self.closed_ms:
                continue
            [id_] = struct.unpack(">q", value)
            cell = (key.decode(), self.start(at_ms))
            found[cell] = added(found[cell], (1, id_, id_ * id_))
        return dict(found)

    def stated_sums(self) -> dict[Cell, Sums]:
        """What the newest result of each key and window states, or all results together if each is final."""
        found = defaultdict[Cell, Sums](lambda: NOTHING)
        for message in messages(self.servers, self.output):
            key, given = message.key() or b"", json.loads(message.value() or b"")
            cell = (key[:-8].decode(), struct.unpack(">q", key[-8:])[0])
            sums = (given["n"], given["ids"], given["squares"])
            found[cell] = added(found[cell] if self.once else NOTHING, sums)
        return dict(found)

    def owed(self) -> Counter[Cell]:
        return Counter({cell: sums[0] for cell, sums in self.owed_sums().items()})

    def stated(self) -> Counter[Cell]:
        return Counter({cell: sums[0] for cell, sums in self.stated_sums().items()})

    def configuration(self, guarantee: Guarantee) -> dict[str, Any]:
        given = super().configuration(guarantee)
        [one], [output] = given["inputs"], given["outputs"]
        fields = {**one["fields"], "id": "$value"}
        stated = {**output["fields"], "values": {"n": "n", "ids": "ids", "squares": "squares"}}
        sums = {"n": "count", "ids": "sum_mod64($value)", "squares": "sum_squares_mod64($value)"}
        return {
            **given,
            "inputs": [{**one, "format": "long", "fields": fields}],
            "outputs": [{**output, "format": "json", "fields": stated}],
            "oracle": {**given["oracle"], "values": sums},
        }


@pytest.mark.parametrize("once", [False, True], ids=["updated", "suppressed"])
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_the_sidecar_agrees_with_the_sums_over_the_ids_of_the_topics(
    broker: EmbeddedBroker, tmp_path: Path, guarantee: Guarantee, *, once: bool
) -> None:
    run = Digests(broker, f"sums-{guarantee}-{once}", WINDOW_MS, once=once)
    settings = RealEngineSettings(
        input=run.input,
        output=run.output,
        late=f"{run.output}-late",
        group=run.input,
        window_ms=WINDOW_MS,
        bootstrap_servers=run.servers,
        parallelism=2,
        guarantee=guarantee,
    )
    with DigestEngine(settings, tmp_path / "engine") as engine:
        engine.once = once
        engine.start()
        engine.ready(READY_SECONDS_MAX)
        effective = engine.effective()
        run.send(ROUNDS // 2)
        engine.kill(0)
        engine.restart(0)
        run.send(ROUNDS // 2)
        engine.ready(READY_SECONDS_MAX)
        if once:
            run.close()
        until(lambda: not run.lacking(), READY_SECONDS_MAX, run.lacking)
        engine.stop()
    owed, stated = run.owed_sums(), run.stated_sums()
    expected = {"duplicate": run.repeated(), "missing": run.lacking()}
    assert guarantee == "at_least_once" or not any(expected.values())
    right = {cell: sums for cell, sums in owed.items() if stated[cell][0] == sums[0]}
    assert {cell: stated[cell] for cell in right} == right, "the statement of docs/evidence.md"
    status, report = judged(
        tmp_path / "sidecar", run.servers, run.configuration(guarantee), effective, leaves_open=once
    )
    found = report["contributions"]
    assert {name: found[name] for name in expected} == expected, report
    assert not report["results"]["wrong_value"], report
    assert status == 0, "the engine keeps its guarantee"
    assert found["processed"] == sum(run.owed().values())
