"""Events with keys that the oracle computes from the fields that inputs name (`Oracle.key`)."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.one_record import NULL_KEY, KeyRule
from validator.codecs.plain_events import Events
from validator.codecs.plain_fields import Keys, plain
from validator.codecs.plain_json import Bools
from validator.model.json_text import Unreadable


def with_keys(events: Events, rule: KeyRule, fields: int, most: int) -> tuple[Events, Bools]:
    """Return events with the keys that the rule computes, and which of them are skipped. Events whose key the rule
    refuses, or whose key has more than ``most`` bytes, are left out. ``fields``: the number of fields of ``events``'
    keys."""
    read, codes = events.keys, events.keys.codes
    texts: list[str | None] = [None] * len(read.texts)
    known, skipped = (np.zeros(len(read.texts) + 1, dtype=np.bool_) for _ in range(2))
    # A key occurs often, so the function is called once for it.
    for code in np.unique(codes[~events.ignored]).tolist():
        text = read.texts[code].as_py()
        try:
            found = rule([text] if fields == 1 else json.loads(text))
        except Unreadable:
            continue
        texts[code], known[code] = found, len((found or "").encode()) <= most
        skipped[code] = found is None and rule.keyless == "skipped"
    # Codes of ignored rows are any.
    places = np.where(events.ignored, len(read.texts), codes)
    known[-1] = True
    encoded = pa.array([NULL_KEY if one is None else one for one in texts], pa.string()).dictionary_encode()
    of_rows = np.where(events.ignored, 0, plain(encoded.indices)[codes] if texts else 0)
    owed = events.owed & ~skipped[places]
    addends = [column if owed.all() else pc.if_else(pa.array(owed), column, None) for column in events.addends]
    keys = Keys(of_rows, encoded.dictionary, read.known)
    kept = known[places]
    return replace(events, keys=keys, owed=owed, addends=addends).of(kept), skipped[places[kept]]
