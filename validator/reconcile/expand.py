"""The cells whose fingerprints disagree, id by id.

Shape in: fact rows of those cells. Shape out: one row per cell with an `EXPANSION_TYPE` struct.
Per (cell, id), with e expected, p in results, l late, r rejected (SEMANTICS section 2):
processed = min(e, p); late = min(e - processed, l); rejected likewise of what is left; duplicate = max(0, p + l + r
- e)
where e > 0; else all observations are of an id that the cell does not expect.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from validator.codecs.columns import DECODED
from validator.reconcile.cells import EXPANSION_TYPE, contributions_of
from validator.reconcile.facts import Side

CELL: Final = ("window_start_us", "key")
ID: Final = ("id", "text_id")


def contributions(facts: DataFrame) -> DataFrame:
    """One row per contribution: cell, side, topic, partition, offset, id or text_id, and for results the record's
    position in its cell's order (``record``)."""
    rows = contributions_of(facts).select(
        *CELL, "side", "topic", "partition", "ids", "text_ids", "results", "first_offset", "batch"
    )
    base = [*CELL, "side", "topic", "partition"]
    no_text, no_id = F.lit(None).cast("string").alias("text_id"), F.lit(None).cast("bigint").alias("id")
    events = rows.select(*base, F.explode("ids").alias("item")).select(
        *base, F.col("item.offset").alias("offset"), F.col("item.id").alias("id"), no_text
    )
    texts = rows.where(F.size("text_ids") > 0).select(*base, F.explode("text_ids").alias("item"))
    text_events = texts.select(*base, F.col("item.offset").alias("offset"), no_id, F.col("item.id").alias("text_id"))
    results = rows.where(F.size("results") > 0).select(*base, F.explode("results").alias("item"))
    result_ids = results.select(*base, F.col("item.offset").alias("offset"), F.explode("item.ids").alias("id"), no_text)
    result_texts = results.where(F.size("item.text_ids") > 0).select(
        *base, F.col("item.offset").alias("offset"), no_id, F.explode("item.text_ids").alias("text_id")
    )
    return events.union(text_events).union(result_ids).union(result_texts.select(*base, "offset", "id", "text_id"))


def by_id(
    contributed: DataFrame,
    *,
    window_us: int,
    collapse: bool,
    reaches: DataFrame | None = None,
    places: DataFrame | None = None,
) -> DataFrame:
    """One row per (cell, id): multiplicities e, p, l, r, and how many of its input events came after their window could
    close (``e_late``) or at or past the engine's committed offset (``e_unconsumed``).

    ``reaches``: (topic, partition, reach_us, first_offset), from which offset on a window end was past;
    ``places``: (topic, partition, committed_offset, unprovable_below). Without them the counts are 0.
    ``e_unconsumed`` leaves out late copies, ``e_unprovable`` (its answer may have been gone before it could be read)
    leaves out both.
    """
    flagged = contributed
    if reaches is not None:
        flagged = flag_late(flagged, reaches, window_us)
    on_time = ~F.coalesce(F.col("late_input"), F.lit(False)) if reaches is not None else F.lit(True)
    if places is not None:
        flagged = flagged.join(F.broadcast(places), ["topic", "partition"], "left")
        unread = F.coalesce(F.col("offset") >= F.col("committed_offset"), F.lit(False))
        unsure = F.coalesce(F.col("offset") < F.col("unprovable_below"), F.lit(False))
        flagged = flagged.withColumns({"unconsumed": on_time & unread, "unprovable": on_time & ~unread & unsure})
    side = F.col("side")

    def times(wanted: Side, name: str) -> Column:
        return F.sum(F.when(side == wanted.value, F.lit(1)).otherwise(F.lit(0))).alias(name)

    given = side == Side.INPUT.value

    def inputs_with(flag: str, name: str) -> Column:
        if flag not in flagged.columns:
            return F.sum(F.lit(0)).alias(name)
        return F.sum(F.when(given & F.col(flag), F.lit(1)).otherwise(F.lit(0))).alias(name)

    counted = flagged.groupBy(*CELL, *ID).agg(
        times(Side.INPUT, "e"),
        times(Side.OUTPUT, "p"),
        times(Side.LATE, "l"),
        times(Side.REJECTED, "r"),
        inputs_with("late_input", "e_late"),
        inputs_with("unconsumed", "e_unconsumed"),
        inputs_with("unprovable", "e_unprovable"),
    )
    if collapse:
        counted = counted.withColumn("e", F.least("e", F.lit(1)))
    return counted


def flag_late(contributed: DataFrame, reaches: DataFrame, window_us: int) -> DataFrame:
    """Adds ``late_input``: an earlier event of its own partition was past the end of the event's window."""
    end = F.col("window_start_us") + F.lit(window_us)
    first = Window.partitionBy("topic", "partition").orderBy(F.col("reach_us").desc())
    # From which offset on *at least* this window end was past.
    running = reaches.withColumn("past_from", F.min("first_offset").over(first))
    ends = contributed.select("topic", "partition", end.alias("end_us")).distinct()
    needed = (
        ends.join(F.broadcast(running.select("topic", "partition", "reach_us", "past_from")), ["topic", "partition"])
        .where(F.col("reach_us") >= F.col("end_us"))
        .groupBy("topic", "partition", "end_us")
        .agg(F.min("past_from").alias("past_from"))
    )
    rows = contributed.withColumn("end_us", end).join(F.broadcast(needed), ["topic", "partition", "end_us"], "left")
    return rows.withColumn("late_input", F.col("offset") > F.col("past_from")).drop("end_us", "past_from")


def classify(ids: DataFrame) -> DataFrame:
    """Per (cell, id): processed, late, rejected, duplicate, foreign, outstanding, dropped_late, unconsumed."""
    e, p, late, rejected = F.col("e"), F.col("p"), F.col("l"), F.col("r")
    processed = F.least(e, p)
    as_late = F.least(e - processed, late)
    as_rejected = F.least(e - processed - as_late, rejected)
    total = p + late + rejected
    outstanding = e - processed - as_late - as_rejected
    dropped = F.least(outstanding, F.col("e_late"))
    unconsumed = F.least(outstanding - dropped, F.col("e_unconsumed"))
    return ids.select(
        *CELL,
        *ID,
        e.alias("expected"),
        processed.alias("processed"),
        as_late.alias("late"),
        as_rejected.alias("rejected"),
        F.when(e > 0, F.greatest(F.lit(0), total - e)).otherwise(F.lit(0)).alias("duplicate"),
        F.when(e == 0, total).otherwise(F.lit(0)).alias("foreign"),
        outstanding.alias("outstanding"),
        dropped.alias("dropped_late"),
        unconsumed.alias("unconsumed"),
        F.least(outstanding - dropped - unconsumed, F.col("e_unprovable")).alias("unprovable"),
    )


def classify_results(contributed: DataFrame, classified: DataFrame, known: DataFrame) -> DataFrame:
    """Per cell: how many of its results are misplaced, excess, or neither (``sound``); the first that holds.

    Results stand in the order of (topic, partition, offset). A result is *misplaced* when it carries an id that its
    cell
    does not expect and some input has; *excess* when it carries one beyond the expected multiplicity, counting from
    the first result on. The sound ones are *incomplete* where the cell lacks something, else *correct*.
    """
    carried = contributed.where(F.col("side") == Side.OUTPUT.value)
    order = Window.partitionBy(*CELL, *ID).orderBy("topic", "partition", "offset")
    ranked = carried.withColumn("nth", F.row_number().over(order))
    expected = classified.select(*CELL, *ID, "expected")
    joined = ranked.alias("k").join(expected.alias("i"), _same("k", "i", (*CELL, *ID))).select("k.*", "i.expected")
    marked = joined.alias("k").join(known.withColumn("is_known", F.lit(True)).alias("n"), _same("k", "n", ID), "left")
    foreign = (F.col("expected") == 0) & F.coalesce(F.col("is_known"), F.lit(False))
    per_record = marked.groupBy(*[F.col(f"k.{name}") for name in (*CELL, "topic", "partition", "offset")]).agg(
        F.max(foreign.cast("int")).alias("foreign"),
        F.max((F.col("nth") > F.col("expected")).cast("int")).alias("surplus"),
    )
    misplaced = F.col("foreign") == 1
    excess = ~misplaced & (F.col("surplus") == 1)
    return per_record.groupBy(*CELL).agg(
        F.sum(misplaced.cast("bigint")).alias("misplaced_results"),
        F.sum(excess.cast("bigint")).alias("excess_results"),
    )


def _same(left: str, right: str, names: tuple[str, ...]) -> Column:
    """Equality of columns of two aliased frames, null being equal to null."""
    condition = F.lit(True)
    for name in names:
        condition = condition & F.col(f"{left}.{name}").eqNullSafe(F.col(f"{right}.{name}"))
    return condition


def per_cell(classified: DataFrame, results: DataFrame, known: DataFrame, versions: DataFrame) -> DataFrame:
    """One row per cell: (window_start_us, key, expansion).

    ``known``: the (id, text_id) among the foreign ones that some input had. ``versions``: (window_start_us, key,
    version, results) of the cells that were expanded.
    """
    same = F.col("c.id").eqNullSafe(F.col("k.id")) & F.col("c.text_id").eqNullSafe(F.col("k.text_id"))
    marked = (
        classified.alias("c")
        .join(known.withColumn("is_known", F.lit(True)).alias("k"), same & (F.col("c.foreign") > 0), "left")
        .select("c.*", F.coalesce("k.is_known", F.lit(False)).alias("is_known"))
    )
    foreign = F.col("foreign")
    sums = marked.groupBy(*CELL).agg(
        *[
            F.sum(name).alias(name)
            for name in (
                "expected",
                "processed",
                "late",
                "rejected",
                "duplicate",
                "outstanding",
                "dropped_late",
                "unconsumed",
                "unprovable",
            )
        ],
        F.sum(F.when(F.col("is_known"), foreign).otherwise(F.lit(0))).alias("known"),
        F.sum(F.when(F.col("is_known"), F.lit(0)).otherwise(foreign)).alias("unknown"),
    )
    joined = versions.join(sums, list(CELL), "left").join(results, list(CELL), "left")

    def of(name: str) -> Column:
        return F.coalesce(F.col(name), F.lit(0))

    # A result without ids is sound: it says nothing of its own.
    sound = F.col("results") - of("misplaced_results") - of("excess_results")
    lacking = of("outstanding") > 0
    values = {
        **{name: of(name) for name in EXPANSION_TYPE.fieldNames()},
        "version": F.col("version"),
        "correct": F.when(lacking, F.lit(0)).otherwise(sound),
        "incomplete": F.when(lacking, sound).otherwise(F.lit(0)),
        "excess": of("excess_results"),
        "misplaced": of("misplaced_results"),
    }
    expansion = F.struct(*[values[name].cast("bigint").alias(name) for name in EXPANSION_TYPE.fieldNames()])
    return joined.select(*CELL, expansion.cast(EXPANSION_TYPE).alias("expansion"))


def reaches_of(facts: DataFrame) -> DataFrame:
    """(topic, partition, reach_us, first_offset): from which offset on a window end was past, by its own partition."""
    inputs = facts.where((F.col("side") == Side.INPUT.value) & (F.col("status") == DECODED))
    return (
        inputs.where(F.col("reach_us").isNotNull())
        .groupBy("topic", "partition", "reach_us")
        .agg(F.min("first_offset").alias("first_offset"))
    )
