"""Failure cost in seconds from PGVal's Table 4, for comparison.

From the paper (jawadtahir/DSPF-BM): three nodes, phases of 90 s, windows of 60 s; in the failure phase the packets of
one worker are delayed by 500 ms or 5 s, or the worker is removed. The published scripts use failure phases of 60 s.
There is no value for Storm under exactly once, which Storm does not support.
"""

from __future__ import annotations

from typing import Final

from testbed.campaign.cell import Cell
from testbed.campaign.plan import FaultName
from testbed.engines.settings import Guarantee

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


def failure_cost_seconds(cell: Cell) -> int | None:
    """PGVal's value for the same engine, workload and guarantee under the corresponding fault; None: not measured."""
    rows = _TABLE_4.get((cell.workload, cell.guarantee))
    if rows is None or cell.engine not in _ENGINES or cell.fault not in _COLUMNS:
        return None
    return rows[_COLUMNS[cell.fault]][_ENGINES.index(cell.engine)]
