"""The cells of a windowed join, id by id: `validator.reconcile.expand` for the oracle whose events owe each other.

Only here does a join differ from a window: its cells are all compared, and this is how.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from validator.oracles.windowed_join import WindowedJoin, shared_out
from validator.reconcile.expand import CELL, ID, flag_late
from validator.reconcile.facts import Side


def by_id(
    contributed: DataFrame,
    join: WindowedJoin,
    *,
    window_us: int,
    drops_late: bool,
    reaches: DataFrame,
    places: DataFrame | None = None,
) -> DataFrame:
    """One row per (cell, id): what `shared_out` takes and gives, and how many copies are excused, each for the first
    reason that holds: ``n_dropped`` (late, and policy `drop`), ``n_unconsumed``, ``n_unprovable``.

    ``contributed``, ``reaches`` and ``places`` as in `validator.reconcile.expand.by_id`.
    """
    flagged = flag_late(contributed, reaches, window_us)
    unread, unsure = F.lit(False), F.lit(False)
    if places is not None:
        flagged = flagged.join(F.broadcast(places), ["topic", "partition"], "left")
        unread = F.coalesce(F.col("offset") >= F.col("committed_offset"), F.lit(False))
        unsure = F.coalesce(F.col("offset") < F.col("unprovable_below"), F.lit(False))
    late = F.coalesce(F.col("late_input"), F.lit(False))
    dropped = late & F.lit(drops_late)

    def times(side: Side, name: str, condition: Column | None = None) -> Column:
        mine = F.col("side") == side.value
        return F.count(F.when(mine if condition is None else mine & condition, F.lit(1))).alias(name)

    counted = flagged.groupBy(*CELL, *ID).agg(
        times(Side.INPUT, "n"),
        times(Side.OUTPUT, "p"),
        times(Side.LATE, "l"),
        times(Side.REJECTED, "r"),
        times(Side.INPUT, "sure", ~late & ~unread & ~unsure),
        times(Side.INPUT, "waiting", ~late & (unread | ~unsure)),
        times(Side.INPUT, "n_dropped", dropped),
        times(Side.INPUT, "n_unconsumed", ~dropped & unread),
        times(Side.INPUT, "n_unprovable", ~dropped & ~unread & unsure),
    )
    return shared_out(counted, join)


def classify(ids: DataFrame) -> DataFrame:
    """Per (cell, id) the columns of `validator.reconcile.expand.classify`."""
    used, aside, surplus = F.col("used"), F.col("aside"), F.col("surplus")
    e = F.greatest(F.col("owed").cast("bigint"), used + aside)
    as_late = F.least(F.col("l"), aside)
    outstanding = e - used - aside
    dropped = F.least(outstanding, F.col("n_dropped"))
    # Owed for waiting reasons only: the engine has not read its partner.
    unread = F.greatest(F.col("n_unconsumed"), F.when(F.col("owed_now") == 0, F.lit(1)).otherwise(F.lit(0)))
    unconsumed = F.least(outstanding - dropped, unread)
    return ids.select(
        *CELL,
        *ID,
        e.alias("expected"),
        used.alias("processed"),
        as_late.alias("late"),
        (aside - as_late).alias("rejected"),
        F.when(e > 0, surplus).otherwise(F.lit(0)).alias("duplicate"),
        F.when(e == 0, surplus).otherwise(F.lit(0)).alias("foreign"),
        outstanding.alias("outstanding"),
        dropped.alias("dropped_late"),
        unconsumed.alias("unconsumed"),
        F.least(outstanding - dropped - unconsumed, F.col("n_unprovable")).alias("unprovable"),
    )
