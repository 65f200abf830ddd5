"""An example of a doubt, or of violations, as a clause: what was expected beside what a result names, and how they
differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from validator.config.model import Config
from validator.core.differences import of_instants, of_texts
from validator.core.fit import Fit, Pair
from validator.core.fit_sample import Expected, Named
from validator.model.arrays import ABSENT
from validator.model.classes import ViolationClass
from validator.model.cut import shorten
from validator.publish.times import rfc3339

_HIDDEN: Final = "(hidden)"


def pair_sentence(config: Config, pair: Pair) -> str:
    """The example ``pair`` as a clause. Ids and keys that are not published in plain form are hidden."""
    shows_ids, shows_keys = config.publish.ids == "plain", config.publish.keys == "plain"
    expected, named, id_ = pair.expected, pair.named, shorten(pair.id) if shows_ids else _HIDDEN
    at = f"the result at {named.topic}-{named.partition} offset {named.offset}" if named is not None else ""
    if expected is None:
        assert named is not None
        return f"{at} has id {id_} in the {shown_cell(config, named)}, and no event has this id"
    event = f"event {id_} of {expected.topic}"
    if named is None:
        return f"{event} belongs in the {shown_cell(config, expected)}, and no result has it there"
    if pair.id_named is not None:
        other = shorten(pair.id_named) if shows_ids else _HIDDEN
        why = of_texts(pair.id, pair.id_named) if shows_ids else None
        return f"{event} is in no result, and {at} has id {other}{_because(why)}"
    time, key = _differences(config, expected, named)
    said = f"{event} belongs in the {shown_cell(config, expected)}, and {at} has it in the {shown_cell(config, named)}"
    return said + _because(key if shows_keys else None, time)


def examples_of(config: Config, fit: Fit | None, confirmed: Mapping[str, int]) -> dict[str, str]:
    """Class -> an example of its confirmed violations, as a clause, if the sample has one."""
    pairs = (fit.pairs or {}).values() if fit is not None else ()
    moved = next((it for it in pairs if it.expected is not None and it.named is not None), None)
    found = {ViolationClass.MISPLACED: moved, ViolationClass.UNKNOWN_ID: fit.unlike if fit is not None else None}
    return {
        name.value: pair_sentence(config, pair)
        for name, pair in found.items()
        if pair is not None and confirmed.get(name.value)
    }


def _because(*differences: str | None) -> str:
    why = " and ".join(one for one in differences if one)
    return f": {why}" if why else ""


def _differences(config: Config, expected: Expected, named: Named) -> tuple[str | None, str | None]:
    """How the starts and the keys of two cells differ."""
    time = None
    if ABSENT not in (expected.start_us, named.start_us):
        time = of_instants(config.oracle, expected.start_us, named.start_us, named.time_us)
    if expected.key == named.key or expected.key is None or named.key is None:
        return time, None
    words = of_texts(expected.key, named.key)
    return time, f"the keys look alike, but {words}" if words else "the keys differ"


def shown_cell(config: Config, it: Expected | Named) -> str:
    """The cell as a noun. Its key is hidden if keys are not published in plain form."""
    key = "" if it.key is None else f" of key {shorten(it.key) if config.publish.keys == 'plain' else _HIDDEN}"
    if it.start_us == ABSENT:
        return f"{config.oracle.noun}{key}"
    time = rfc3339(it.start_us) or f"{it.start_us // 1_000_000} s after 1970"
    return f"{config.oracle.noun} {time.replace('.000000', '')}{key}"
