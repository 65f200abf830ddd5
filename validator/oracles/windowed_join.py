"""The windowed join: which ids a cell owes, which it allows, and how its observations are read.

Source: docs/decisions/0090-windowed-join.md, "What is allowed, what is owed"; the names are its names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

CELL: Final = ("window_start_us", "key")


@dataclass(frozen=True)
class WindowedJoin:
    """Two inputs joined per key within tumbling windows.

    ``right_prefix``: what the ids of the right input begin with. ``left_alone``: a left join, whose left events need no
    partner.
    """

    right_prefix: str
    left_alone: bool


def shared_out(ids: DataFrame, join: WindowedJoin) -> DataFrame:
    """``ids``, one row per (cell, id), with the columns ``used``, ``aside``, ``owed`` (0 or 1), ``owed_now`` (owed, and
    not for waiting reasons only) and ``surplus``.

    Columns in: ``text_id``; how many copies were read (``n``), how many of them are ``sure``, and sure or ``waiting``;
    how many results (``p``), late (``l``) and rejected (``r``) records carry the id.
    """
    n, p, set_aside = F.col("n"), F.col("p"), F.col("l") + F.col("r")
    is_right = F.coalesce(F.col("text_id").startswith(join.right_prefix), F.lit(False))
    given = n > 0
    cell = Window.partitionBy(*CELL)
    facts = {
        "partner": given,
        "sure_partner": given & ((p > 0) | (F.col("sure") > set_aside)),
        "waiting_partner": given & ((p > 0) | (F.col("waiting") > set_aside)),
    }
    of_other = {
        name: F.when(is_right, _any(fact & ~is_right, cell)).otherwise(_any(fact & is_right, cell))
        for name, fact in facts.items()
    }
    alone = F.lit(join.left_alone) & ~is_right
    rows = ids.withColumns(of_other)
    used = F.when(given & (alone | F.col("partner")), F.least(p, F.lit(1))).otherwise(F.lit(0))
    rows = rows.withColumn("used", used)
    rows = rows.withColumn("aside", F.least(set_aside, n - F.col("used")))
    return rows.withColumns(
        {
            "owed": (given & (alone | F.col("waiting_partner"))).cast("int"),
            "owed_now": (given & (alone | F.col("sure_partner"))).cast("int"),
            "surplus": p + set_aside - F.col("used") - F.col("aside"),
        }
    ).drop(*of_other)


def _any(condition: Column, cell: object) -> Column:
    return F.max(condition.cast("int")).over(cell) == 1  # type: ignore[arg-type]  # a WindowSpec
