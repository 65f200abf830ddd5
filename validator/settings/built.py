"""Combinations of settings that this version does not implement yet.

The model refuses them with a sentence instead of ignoring them. To implement one, delete its entry here. The reference
and the refusals follow from this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Combination:
    """Values that are refused only in combination with others.

    ``settings``: the settings concerned. ``refused``: their refused values, as Markdown. ``problem``: the text of the
    error."""

    settings: tuple[str, ...]
    refused: str
    problem: str


MIXED_DUPLICATES: Final = Combination(
    ("inputs.duplicates",),
    "different values for different inputs",
    "different values for different inputs are not supported yet",
)
ID_SPACES: Final = Combination(
    ("outputs.fields.ids", "late.input", "rejected.input"),
    "an `input`, with an oracle whose inputs share one id space (every oracle but the join)",
    "inputs with id spaces of their own are not supported yet for this oracle",
)
CUMULATIVE: Final = Combination(
    ("outputs.emission",),
    "`cumulative` where results name the time of an event",
    "cumulative is not supported yet for this oracle",
)
MIXED_EMISSIONS: Final = Combination(
    ("outputs.emission",),
    "`cumulative` for some outputs but not for all",
    "emission cumulative for only some outputs is not supported yet",
)
FINAL_ONLY: Final = "let the engine write each result of a window once, when the window closes, and write final"
"""How to fix `CUMULATIVE`. With updates that are read as final, a correct engine would seem to repeat every event."""
ABSENT_KEYS: Final = Combination(
    ("inputs.missing_key",),
    "`skip` for sessions, joins and oracles without windows; `owed` for joins, which never match null",
    "this meaning of an absent key is not supported yet for this oracle",
)
WHERE: Final = Combination(
    ("oracle.where",),
    "late or rejected topics, with sessions, joins and running aggregates",
    "where is not supported yet for this oracle with late or rejected topics",
)
SHARED_CHANGES: Final = Combination(
    ("outputs.where",),
    "emission `cumulative`",
    "where is not supported yet for results that replace each other",
)
HAVING: Final = Combination(
    ("oracle.having",),
    "all evidence but `values`; emission `incremental`; all oracles but tumbling and sliding windows; values of `sum`, "
    "`min` and `avg`",
    "having is supported only for tumbling and sliding windows whose results state values, without emission "
    "incremental",
)
COLLAPSED_VALUES: Final = Combination(
    ("inputs.duplicates",),
    "`collapse` with evidence `values`, for sessions, joins and running aggregates, with `having` or `explode`, and "
    "with late or rejected topics",
    "collapse is not supported yet for these results without ids",
)
VALUES_BESIDE_IDS: Final = Combination(
    ("oracle.values",),
    "with ids, all oracles but tumbling, sliding and session windows",
    "values beside ids are not supported yet for this oracle",
)
EXPLODE: Final = Combination(
    ("inputs.explode",),
    "all evidence but `values`; keys of several fields; fields of an array's items; joins; late and rejected topics",
    "words are counted only in values, for a key of one field and without joins, late or rejected topics",
)
TABLES: Final = Combination(
    ("inputs.table",),
    "with all but a count, sums and averages of keys without windows; with `explode`, late or rejected topics",
    "the rows of a table are judged only by results that state their number, sums and averages, without windows",
)
COMBINATIONS: Final = (
    *(CUMULATIVE, MIXED_EMISSIONS, MIXED_DUPLICATES, ID_SPACES, ABSENT_KEYS, TABLES),
    *(WHERE, SHARED_CHANGES, EXPLODE, VALUES_BESIDE_IDS, HAVING, COLLAPSED_VALUES),
)
"""The refused combinations that do not depend on the oracle. Those of one oracle are in its `refuses`."""
