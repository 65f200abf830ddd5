"""Published numbers, for comparison with those of a campaign.

PGVal (jawadtahir/DSPF-BM), table 4: three nodes, phases of 90 s, windows of 60 s; in the failure phase the packets of
one worker are delayed by 500 ms or 5 s, or the worker is removed. The published scripts use failure phases of 60 s.
There is no value for Storm under exactly once, which Storm does not support.

OSPBench, failure of a worker: five workers, about 18,000 events/s, Structured Streaming for Spark. Recovery times are
those of its notebook, counted from the gap in the output. Downtimes and the cost of exactly once are those of the text.

Lopez et al.: a virtual machine is switched off. The share of events that were not analysed; a difference of counts, so
that duplicates hide losses.

StreamBench, fault tolerance suite: a node is killed at half of the run and does not return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from testbed.campaign.cell import Cell
from testbed.campaign.plan import FaultName
from testbed.engines.settings import Guarantee

PGVAL: Final = "PGVal"
OSPBENCH: Final = "OSPBench"
LOPEZ: Final = "Lopez"
STREAMBENCH: Final = "StreamBench"


@dataclass(frozen=True)
class Published:
    """A paper's number for a measure of a cell: the same engine, guarantee and kind of fault, with another load."""

    paper: str
    measure: str
    value: float


_ENGINES: Final = ("kafka_streams", "storm", "flink")
_BELOW, _ABOVE, _CRASH = range(3)
_COLUMNS: Final[dict[FaultName, int]] = {
    "delay_below_timeout": _BELOW,
    "pause_below_timeout": _BELOW,
    "delay_above_timeout": _ABOVE,
    "pause_above_timeout": _ABOVE,
    "crash": _CRASH,
}
"""Fault -> PD<TO, PD>TO or crash. A pause is not PGVal's fault, but the closest one that does not need root."""
_TABLE_4: Final[dict[tuple[str, Guarantee], tuple[tuple[int | None, ...], ...]]] = {
    ("sst", "at_least_once"): ((28, 164, 54), (3, 168, 71), (2, 427, 78)),
    ("sst", "exactly_once"): ((27, None, 54), (3, None, 66), (4, None, 65)),
    ("mst", "at_least_once"): ((29, 168, 67), (2, 178, 71), (3, 440, 81)),
    ("mst", "exactly_once"): ((27, None, 58), (2, None, 69), (3, None, 75)),
}
_CRASHES: Final[Mapping[tuple[str, str, Guarantee], Mapping[str, float]]] = {
    (OSPBENCH, "recovery_seconds", "at_least_once"): {"flink": 53, "kafka_streams": 21, "spark": 20},
    (OSPBENCH, "recovery_seconds", "exactly_once"): {"flink": 58, "kafka_streams": 32},
    (OSPBENCH, "downtime_seconds", "at_least_once"): {"flink": 50, "kafka_streams": 2, "spark": 4},
    (LOPEZ, "lost_ratio", "at_least_once"): {"flink": 0.128, "storm": 0.222, "spark": 0.0, "spark_dstreams": 0.0},
}
"""(paper, measure, guarantee) -> engine -> value in the crash of a worker."""
MEASURES: Final = (
    (PGVAL, "failure_cost_seconds"),
    *dict.fromkeys((paper, measure) for paper, measure, _ in _CRASHES),
)
"""The papers, and the columns of a campaign's table of which they have a number."""
EXACTLY_ONCE: Final[Mapping[str, tuple[float, float | None]]] = {
    "kafka_streams": (2400 / 730, 30 / 20), "flink": (827 / 797, None),
}  # fmt: skip
"""OSPBench: engine -> median latency and processor time under exactly once, as multiples of those under at least once.
"""
_OF_SPARK: Final = "TPF 0.9 to 1.17, LPF about 1"
PENALTIES: Final[Mapping[str, str]] = {
    "storm": "TPF 0.66, LPF 5.3", "spark": _OF_SPARK, "spark_dstreams": _OF_SPARK,
}  # fmt: skip
"""StreamBench: engine -> its penalties. Its Spark, like Lopez', ran DStreams."""


def published(cell: Cell) -> tuple[Published, ...]:
    """The numbers that papers have for the engine, guarantee and fault of a cell; PGVal's also for its workload."""
    found: list[Published] = []
    rows = _TABLE_4.get((cell.workload, cell.guarantee))
    if rows is not None and cell.engine in _ENGINES and cell.fault in _COLUMNS:
        cost = rows[_COLUMNS[cell.fault]][_ENGINES.index(cell.engine)]
        found += [] if cost is None else [Published(PGVAL, "failure_cost_seconds", cost)]
    if cell.fault == "crash":
        found += [
            Published(paper, measure, of[cell.engine])
            for (paper, measure, guarantee), of in _CRASHES.items()
            if guarantee == cell.guarantee and cell.engine in of
        ]
    return tuple(found)
