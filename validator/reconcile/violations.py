"""Verdict changes to violation rows: suspected, confirmed, retracted (SEMANTICS section 2).

A violation is a cell and a class; its count moves as facts arrive. What adds to it is confirmed, what takes away is
retracted: the sums of both over all rows are the history, and retractions are the measured false-alarm rate.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from validator.reconcile.cells import KEYS
from validator.reconcile.judge import VIOLATIONS, Rules

IDS_KEPT: Final = 20
"""Ids kept as evidence per violation; the rest is counted."""

_OF_CLASS: Final = {"missing": "outstanding", "duplicate": "duplicate", "misplaced": "foreign", "unknown_id": "foreign"}


def violation_id(name: str, window_start_us: Column, key: Column) -> Column:
    """A stable short name of the violation of class ``name`` at a cell."""
    return F.substring(F.sha2(F.concat_ws("|", F.lit(name), window_start_us, key), 256), 1, 16)


def moved(judged: DataFrame, rules: Rules, *, suspected: frozenset[str]) -> DataFrame:
    """One row per (cell, class) whose violation count differs from what was recorded.

    ``suspected``: classes that stay suspected, because input or answers that cannot be read may explain them.
    """
    parts = []
    for name in VIOLATIONS:
        before = F.coalesce(F.col(f"published.{name}"), F.lit(0))
        delta = F.col(name) - before
        provable = (
            F.greatest("closed_us", "expected_us") + F.lit(rules.missing_after_us)
            if name == "missing"
            else F.col("observed_us")
        )
        # A run with --once proves at its end, not after a delay.
        provable = F.when(F.coalesce(F.col("rest_us") >= F.col("closed_us"), F.lit(False)), F.col("rest_us")).otherwise(
            provable
        )
        parts.append(
            judged.where(delta != 0).select(
                violation_id(name, F.col("window_start_us"), F.col("key")).alias("violation"),
                F.lit(name).alias("class"),
                *KEYS,
                F.when(F.col(name) == 0, F.lit("retracted"))
                .when(F.lit(name in suspected), F.lit("suspected"))
                .otherwise(F.lit("confirmed"))
                .alias("state"),
                F.col(name).alias("count"),
                F.greatest(delta, F.lit(0)).alias("confirmed"),
                F.greatest(-delta, F.lit(0)).alias("retracted"),
                provable.alias("provable_us"),
                F.coalesce(F.col("observed_us") if name != "missing" else F.col("closed_us"), "closed_us").alias(
                    "at_us"
                ),
                F.col("expected_count"),
            )
        )
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.union(part)
    return rows


def evidence(classified: DataFrame) -> DataFrame:
    """(window_start_us, key, class, ids): the smallest ids of each violation, as texts, at most `IDS_KEPT`."""
    text = F.coalesce(F.col("id").cast("string"), F.col("text_id"))
    parts = []
    for name, column in _OF_CLASS.items():
        of_class = classified.where(F.col(column) > 0).groupBy(*KEYS)
        ordered = F.slice(F.sort_array(F.collect_set(F.struct(F.col("id"), text.alias("text")))), 1, IDS_KEPT)
        ids = F.transform(ordered, lambda item: item["text"])
        parts.append(of_class.agg(ids.alias("ids")).select(*KEYS, F.lit(name).alias("class"), "ids"))
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.union(part)
    return rows


def explain() -> Column:
    """One sentence on a violation row."""
    said = {
        "missing": "%d of %d expected contributions are in no result and no late record",
        "duplicate": "%d contributions beyond the %d expected ones were counted again",
        "misplaced": "%d ids are in this cell's results and do not belong there (it expects %d)",
        "unknown_id": "%d ids are in this cell's results and in no input (it expects %d)",
    }
    sentence = F.lit("")
    for name, form in said.items():
        sentence = F.when(F.col("class") == name, F.format_string(form, "count", "expected_count")).otherwise(sentence)
    return F.when(F.col("count") == 0, F.lit("explained by what was read later")).otherwise(sentence)
