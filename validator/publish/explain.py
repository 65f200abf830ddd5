"""The history of one event or one cell, from the tables of a state: the records that were read, and the verdicts.

`run` only reads the state, so the sidecar may run at the same time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from pathlib import Path

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from validator.codecs.columns import UNOWED
from validator.model.cut import KEPT, LONGEST, full_text_of, shorten
from validator.model.terminal import plain
from validator.model.wording import plural
from validator.publish.redaction import DIGITS, HASHED, SECRET_FILE, secret_of
from validator.publish.times import rfc3339
from validator.reconcile.facts import Kind, Side
from validator.reconcile.judge import CONTRIBUTIONS
from validator.state.tables import Table, has_rows, read

_SIDE_PHRASES = {
    Side.INPUT.value: "read as an input event from",
    Side.OUTPUT.value: "carried by a result in",
    Side.LATE.value: "set aside as late in",
    Side.REJECTED.value: "rejected in",
}
_ROWS_MAX = 200
NO_WINDOW = "-"
"""Stands for the window of a cell without a window."""


def run(spark: SparkSession, state: Path, wanted: str | tuple[str, ...]) -> int:
    """Print the history of the id ``wanted``, or of the cell ``(window start, key)``.

    The window start is RFC 3339, microseconds or `NO_WINDOW`. Returns the exit status: 0, or 3 if the state has no
    record of it.
    """
    if isinstance(wanted, str):
        story = _of_id(spark, state, _unhashed(spark, state, wanted, _ids))
    else:
        story = _of_cell(spark, state, (wanted[0], _unhashed(spark, state, wanted[1], _keys)))
    for line in story:
        print(plain(line))
    if not story:
        what = f"with id {wanted}" if isinstance(wanted, str) else f"of cell {' '.join(wanted)}"
        print(plain(f"{state}: no record {what} was read (or the state's retention dropped it)"), file=sys.stderr)
        return 3
    return 0


def _unhashed(spark: SparkSession, state: Path, text: str, texts: Callable[[DataFrame], DataFrame]) -> str:
    """Return the text whose hash is ``text``; ``text`` itself if it is not a hash, or if no fact has such a text."""
    wanted = HASHED.fullmatch(text)
    if wanted is None or not (state / SECRET_FILE).exists():
        return text
    facts = read(spark, state, Table.FACTS).where(F.col("kind") == Kind.FACT.value)
    given = texts(facts).distinct().withColumn("published", _as_published(F.col("text")))
    # The text is hashed as bytes, so that half of a surrogate pair has the same hash as in Python.
    whole = F.concat(F.lit(secret_of(state)), F.col("published").cast("binary"))
    digest = F.substring(F.sha2(whole, 256), 1, DIGITS)
    found = given.where(digest == wanted[1]).limit(1).collect()
    return str(found[0]["text"]) if found else text


def _as_published(column: Column) -> Column:
    """Return the column as `validator.model.cut` publishes it."""
    length, digest = F.length(column), F.substring(F.sha2(column.cast("binary"), 256), 1, 16)
    mark = F.concat(F.lit("…("), F.format_number(length, 0), F.lit(" characters, sha256 "), digest, F.lit(")"))
    return F.when(length <= LONGEST, column).otherwise(F.concat(F.substring(column, 1, KEPT), mark))


def _ids(facts: DataFrame) -> DataFrame:
    events = (
        _events(facts, name).select(F.col("item.id").cast("string").alias("text")) for name in ("ids", "text_ids")
    )
    results = _results(facts)
    carried = (
        results.select(F.explode(f"item.{name}").alias("text")).select(F.col("text").cast("string"))
        for name in ("ids", "text_ids")
    )
    return reduce(DataFrame.union, (*events, *carried))


def _keys(facts: DataFrame) -> DataFrame:
    return facts.select(F.col("key").alias("text"))


def _of_id(spark: SparkSession, state: Path, text: str) -> list[str]:
    facts = read(spark, state, Table.FACTS).where(F.col("kind") == Kind.FACT.value)
    number = (
        int(text) if text.lstrip("-").isdigit() and str(int(text)) == text and -(2**63) <= int(text) < 2**63 else None
    )
    if number is not None:
        events = _events(facts, "ids").where(F.col("item.id") == number)
        same = F.filter(F.col("item.ids"), lambda listed: listed == number)
    else:
        events = _events(facts, "text_ids").where(_is(F.col("item.id"), text))
        same = F.filter(F.col("item.text_ids"), lambda listed: _is(listed, text))
    results = _results(facts).withColumn("times", F.size(same)).where(F.col("times") > 0)
    occurrences = _occurrences(events.withColumn("times", F.lit(1))).union(_occurrences(results))
    rows = occurrences.orderBy("batch", "side", "topic", "partition", "offset")
    found = rows.limit(_ROWS_MAX).collect()
    if not found:
        return []
    lines = [f"Event {shorten(text)}", *[f"  {_sentence(row)}" for row in found]]
    if not any(row["side"] == Side.INPUT.value for row in found):
        lines.append("  no input event with this id was read")
    cells = sorted({(row["window_start_us"], row["key"]) for row in found})
    for window_start_us, key in cells:
        lines += ["", *_cell_lines(spark, state, window_start_us, key)]
    return lines


def _of_cell(spark: SparkSession, state: Path, wanted: Sequence[str]) -> list[str]:
    from validator.publish.times import parse_rfc3339

    window, key = wanted
    start_us = None
    if window != NO_WINDOW:
        start_us = int(window) if window.lstrip("-").isdigit() else parse_rfc3339(window)
    facts = read(spark, state, Table.FACTS)
    own = _starts(start_us) & _is(F.col("key"), key) & (F.col("kind") == Kind.FACT.value)
    rows = facts.where(own).orderBy("batch", "side", "topic", "partition").limit(_ROWS_MAX).collect()
    if not rows:
        return []
    lines = _cell_lines(spark, state, start_us, rows[0]["key"])
    for row in rows:
        first, last = row["first_offset"], row["last_offset"]
        offsets = f"offset {first}" if first == last else f"offsets {first} to {last}"
        lines.append(
            f"  {rfc3339(row['lookup_us'])} batch {row['batch']}: {plural(row['contributions'], 'contribution')} in "
            f"{plural(row['records'], row['side'] + ' record')} of {row['topic']}-{row['partition']}, {offsets}"
        )
    return lines


def _starts(window_start_us: int | None) -> Column:
    return F.col("window_start_us").eqNullSafe(F.lit(window_start_us).cast("long"))


def _cell_lines(spark: SparkSession, state: Path, window_start_us: int | None, key: str) -> list[str]:
    """Return the verdicts and violations of a cell, oldest first."""
    own = _starts(window_start_us) & (F.col("key") == key)
    window = "" if window_start_us is None else f" of the window that starts at {rfc3339(window_start_us)}"
    lines = [f"Cell {shorten(key)}{window}"]
    if has_rows(state, Table.VERDICTS):
        for row in read(spark, state, Table.VERDICTS).where(own).orderBy("batch").limit(_ROWS_MAX).collect():
            counts = ", ".join(f"{row[name]} {name}" for name in CONTRIBUTIONS if row[name])
            lines.append(f"  {rfc3339(row['lookup_us'])} batch {row['batch']}: verdict: {counts or 'no contributions'}")
    if len(lines) == 1:
        lines.append("  not judged yet: the cell is open, or closed too recently to be overdue")
    if has_rows(state, Table.VIOLATIONS):
        found = read(spark, state, Table.VIOLATIONS).where(own).orderBy("batch", "class").limit(_ROWS_MAX)
        lines += [f"  {_violation(row)}" for row in found.collect()]
    return lines


def _violation(row: Row) -> str:
    control = "after the recovery from fault" if row["fault"] else "before any fault"
    during = {"control": control, "failure": "during fault", "recovery": "after fault"}[row["phase"]]
    fault = f" {row['fault']}" if row["fault"] else ""
    ids = f" (ids {_listed(row['ids'])})" if row["ids"] else ""
    return (
        f"{rfc3339(row['lookup_us'])} violation {row['violation']}: {row['class']} {row['state']}, {during}{fault}: "
        f"{row['explanation']}{ids}"
    )


def _listed(ids: Iterable[str]) -> str:
    return ", ".join(map(shorten, ids))


def _is(column: Column, text: str) -> Column:
    """Return the condition that a column is ``text``, or a text whose shortened form is ``text``."""
    whole = full_text_of(text)
    if whole is None:
        return column == text
    hashed = F.sha2(column.cast("binary"), 256).startswith(whole.digest)
    return (column == text) | ((F.length(column) == whole.length) & hashed)


def _events(facts: DataFrame, column: str) -> DataFrame:
    return facts.where(F.size(column) > 0).withColumn("item", F.explode(column))


def _results(facts: DataFrame) -> DataFrame:
    return facts.where(F.size("results") > 0).withColumn("item", F.explode("results"))


def _occurrences(rows: DataFrame) -> DataFrame:
    return rows.select(
        "batch",
        "lookup_us",
        "side",
        "topic",
        "partition",
        "status",
        F.col("item.offset").alias("offset"),
        "window_start_us",
        "key",
        "times",
    )


def _sentence(row: Row) -> str:
    owing = (
        "; the condition of the oracle does not hold for this event, so no result is expected"
        if row["status"] == UNOWED
        else ""
    )
    window = "" if row["window_start_us"] is None else f" of {rfc3339(row['window_start_us'])}"
    times = "" if row["times"] == 1 else f" (contains the id {row['times']} times)"
    return (
        f"{rfc3339(row['lookup_us'])} batch {row['batch']}: {_SIDE_PHRASES[row['side']]} "
        f"{row['topic']}-{row['partition']} at offset {row['offset']}{times}, "
        f"for cell {shorten(row['key'])}{window}{owing}"
    )
