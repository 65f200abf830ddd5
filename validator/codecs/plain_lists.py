"""Lists of integers, cut out of JSON values as text and cast together: faster than Arrow's JSON reader.

From a value ``{"ids":[7,8],"page":"/a"}`` the text ``7,8`` is cut and replaced by the number of the list within the
value: ``{"ids":[0],"page":"/a"}``. The remaining value is read as any JSON (`validator.codecs.plain_json`). Its
``[0]`` stands for the list: the value has no other brackets, not even in a text. A list is only cut if all of it
is known to be valid JSON and every integer has at most 64 bits. All other records are left unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.fingerprints import Ints
from validator.codecs.plain_json import AT_ONCE, Bools, Bytes, Path, leaf, raw, rows_of

Words = npt.NDArray[np.uint64]

WORTHWHILE: Final = 200
"""Average size of a value, in bytes, from which cutting is faster."""
_AT_ONCE: Final = 2**19
"""Number of bytes that are processed together, so that they stay in the processor's cache."""
_MOST_LISTS: Final = 10
"""Largest number of lists in a value, so that the number of a list is one digit."""
_INDENT: Final = 64
"""Largest number of white-space characters that are accepted after an integer."""
_DIGITS: Final = 19
"""Digits of the longest 64-bit integer."""
_LARGEST: Final = np.uint64(2**63 - 1)
_WORD: Final = 8
_DIGITS_IN: Final = [np.clip(np.arange(_DIGITS + 1) - place, 0, 8).tolist() for place in range(0, _DIGITS, _WORD)]
_NIBBLES: Final = [
    np.array([0x0F0F0F0F0F0F0F0F >> 8 * (8 - n) << 8 * (8 - n) for n in digits], dtype=np.uint64)
    for digits in _DIGITS_IN
]
"""Masks that keep the digits among eight characters, as values from 0 to 9. The highest byte is the last character.
There is an array for the last eight characters of a number, one for the eight before these, and so on. The index in an
array is the length of the number."""
_EVERY_OTHER: Final = {8: np.uint64(0x00FF00FF00FF00FF), 16: np.uint64(0x0000FFFF0000FFFF)}
_BEFORE: Final = np.frombuffer(b"0" * 23 + b"]", np.uint8)
"""Padding before the first list, so that three words can be read before each place."""


class ExtractedLists(NamedTuple):
    """``values``: the values of ``rows``, with numbers in place of their lists. ``lists``: for each number, the list of
    each row."""

    rows: Ints
    values: pa.Array
    lists: list[pa.ListArray]

    def lists_at(self, table: pa.Table, rows: Ints, paths: Sequence[Path]) -> tuple[Bools, dict[Path, pa.ListArray]]:
        """Return which rows of ``table`` have the same list numbers at the ``paths`` as the first row, and the lists of
        these rows. ``rows``: for each row of ``table``, its index in ``values``."""
        good = np.ones(len(rows), dtype=np.bool_)
        numbers = []
        for path in paths:
            column = leaf(table, path)
            if column.type != pa.list_(pa.int64()):
                return np.zeros(len(rows), dtype=np.bool_), {}
            has_one = pc.fill_null(pc.equal(pc.list_value_length(column), 1), False).to_numpy(zero_copy_only=False)
            found = np.full(len(rows), -1, dtype=np.int64)
            items = pc.fill_null(column.filter(pa.array(has_one)).flatten(), -1)
            found[has_one] = items.to_numpy(zero_copy_only=False)
            numbers.append(int(found[np.argmax(has_one)]))
            good &= found == numbers[-1]
        if sorted(numbers) != list(range(len(self.lists))):
            return np.zeros(len(rows), dtype=np.bool_), {}
        chosen = rows[good]
        lists = [self.lists[number] for number in numbers]
        if len(chosen) < len(self.rows):
            lists = [each.take(pa.array(chosen)) for each in lists]
        return good, dict(zip(paths, lists, strict=True))


def extract_lists(values: pa.Array, count: int, most: int) -> ExtractedLists | None:
    """Return the values of at most ``most`` bytes that have exactly ``count`` lists of integers and no other bracket.

    Returns None if there are none, or if values are short on average.
    """
    offsets, data = raw(values)
    if not 0 < count <= _MOST_LISTS or not WORTHWHILE * len(values) <= len(data) <= AT_ONCE:
        return None
    if not len(values) or _are_texts(data, offsets):
        return None
    opens, closes = _places(data, ord("[")), _places(data, ord("]"))
    of_opens, of_closes = rows_of(opens, offsets), rows_of(closes, offsets)
    chosen = (np.bincount(of_opens, minlength=len(values)) == count) & (np.diff(offsets) <= most)
    chosen &= np.bincount(of_closes, minlength=len(values)) == count
    if values.null_count:
        chosen &= values.is_valid().to_numpy(zero_copy_only=False)
    firsts = opens[chosen[of_opens]].reshape(-1, count) + 1
    lasts = closes[chosen[of_closes]].reshape(-1, count)
    in_order = (firsts <= lasts).all(axis=1) & (lasts[:, :-1] < firsts[:, 1:]).all(axis=1)
    rows = np.flatnonzero(chosen)
    if not in_order.all():
        rows, firsts, lasts = rows[in_order], firsts[in_order], lasts[in_order]
    if not len(rows):
        return None
    lists, good = [], np.ones(len(rows), dtype=np.bool_)
    for number in range(count):
        found, known = _lists(data, firsts[:, number], lasts[:, number])
        lists.append(found)
        good &= known
    if not good.all():
        rows, firsts, lasts = rows[good], firsts[good], lasts[good]
        lists = [each.filter(pa.array(good)) for each in lists]
    return (
        ExtractedLists(rows, _without(data, offsets[rows], offsets[rows + 1], firsts, lasts), lists)
        if len(rows)
        else None
    )


def _places(data: Bytes, character: int) -> Ints:
    starts = range(0, len(data), _AT_ONCE)
    found = [np.flatnonzero(data[start : start + _AT_ONCE] == character) + start for start in starts]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def _are_texts(data: Bytes, offsets: Ints) -> bool:
    """Return whether the first lists of three sampled values begin with a text."""
    looked_at = {0, (len(offsets) - 1) // 2, len(offsets) - 2}
    found = [data[offsets[row] : offsets[row + 1]].tobytes().partition(b"[")[2] for row in looked_at]
    return all(text.lstrip()[:1] == b'"' for text in found)


def _without(data: Bytes, starts: Ints, ends: Ints, firsts: Ints, lasts: Ints) -> pa.Array:
    """Return the values with numbers in place of their lists."""
    count = firsts.shape[1]
    # For each row: the part before each list, the list, the part after the last list, and the gap to the next row.
    places = np.empty((len(starts), 2 * count + 2), dtype=np.int32)
    places[:, 0], places[:, -1] = starts, ends
    places[:, 1:-1:2], places[:, 2:-1:2] = firsts, lasts
    buffers = [None, pa.py_buffer(np.append(places.ravel(), ends[-1:]).astype(np.int32)), pa.py_buffer(data)]
    parts = pa.Array.from_buffers(pa.binary(), places.size, buffers)
    joined: list[object] = []
    for number in range(count + 1):
        chosen = np.arange(2 * number, places.size, 2 * count + 2)
        joined += [parts.take(pa.array(chosen)), str(number).encode()]
    return pc.binary_join_element_wise(*joined[:-1], b"")


def _lists(data: Bytes, firsts: Ints, lasts: Ints) -> tuple[pa.ListArray, Bools]:
    """Return the lists with these texts, and which of them are lists of 64-bit integers."""
    # The closing bracket ends each text.
    ends = np.cumsum(lasts + 1 - firsts)
    groups = np.unique(np.append(np.searchsorted(ends, np.arange(_AT_ONCE, ends[-1], _AT_ONCE)), len(ends)))
    found = []
    start = 0
    for stop in groups.tolist():
        if stop > start:
            slices = zip(firsts[start:stop].tolist(), (lasts[start:stop] + 1).tolist(), strict=True)
            found.append(_cast(np.concatenate([_BEFORE, *[data[first:last] for first, last in slices]])))
            start = stop
    parts, counts, known = zip(*found, strict=True)
    lengths = np.concatenate(counts)
    places = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=places[1:])
    integers = pa.concat_arrays([pa.array(part) for part in parts])
    return pa.ListArray.from_arrays(pa.array(places), integers), np.concatenate(known)


def _cast(text: Bytes) -> tuple[Ints, Ints, Bools]:
    """Return the integers of all lists in ``text``, the number of integers in each list, and which lists are lists of
    64-bit integers. ``text``: `_BEFORE`, then the lists, each ended by a bracket."""
    marks = np.flatnonzero((text - np.uint8(ord("0"))) > 9)
    kinds = text[marks]
    separating = (kinds == ord(",")) | (kinds == ord("]"))
    wrong: list[Ints]
    if separating.all():
        before, after = marks[:-1], marks[1:]
        negative, wrong = None, []
        kinds = kinds[1:]
    else:
        before, after, negative, wrong = _trimmed(marks, kinds, separating)
        kinds = kinds[separating][1:]
    lengths = after - before - 1
    closing = np.flatnonzero(kinds == ord("]"))
    counts = np.diff(closing, prepend=-1)
    empty = np.flatnonzero(lengths == 0)
    alone = counts[np.searchsorted(closing, empty)] == 1
    wrong.append(empty[~alone])
    wrong.append(np.flatnonzero(lengths > _DIGITS))
    lengths = np.minimum(lengths, _DIGITS)
    numbers = _numbers(text, after, lengths)
    zeros = np.flatnonzero(text[before + 1] == ord("0"))
    wrong.append(zeros[lengths[zeros] > 1])
    if lengths.max() == _DIGITS:
        wrong.append(np.flatnonzero(numbers > (_LARGEST if negative is None else _LARGEST + negative)))
    integers = numbers.view(np.int64)
    if negative is not None:
        integers = np.where(negative, -integers, integers)
        wrong.append(empty[negative[empty]])
    good = np.ones(len(counts), dtype=np.bool_)
    good[np.searchsorted(closing, np.concatenate(wrong))] = False
    if len(empty):
        counts[np.searchsorted(closing, empty[alone])] = 0
        integers = np.delete(integers, empty[alone])
    return integers, counts, good


def _trimmed(marks: Ints, kinds: Bytes, separating: Bools) -> tuple[Ints, Ints, Bools, list[Ints]]:
    """Return, for each item, the mark before its digits, the mark after them, and whether it is negative. Also return
    which items are wrong. The lists have white space or signs.

    ``marks``: the places of all bytes that are not digits. ``kinds``: these bytes. ``separating``: which of them are
    commas and brackets.
    """
    separators = np.flatnonzero(separating)
    previous, stops = separators[:-1], separators[1:]
    after = stops.copy()
    for _ in range(_INDENT):
        # White space after the digits.
        spaced = np.flatnonzero((marks[after] - marks[after - 1] == 1) & (after - 1 > previous))
        if not len(spaced):
            break
        after[spaced] -= 1
    before = after - 1
    negative = kinds[before] == ord("-")
    in_place = separating | (kinds == ord(" ")) | (kinds == ord("\n")) | (kinds == ord("\r")) | (kinds == ord("\t"))
    in_place[before[negative]] = True
    # If two consecutive marks are not adjacent bytes, there are digits between them.
    elsewhere = (marks[before] - marks[previous] != before - previous) | (marks[stops] - marks[after] != stops - after)
    wrong = [np.searchsorted(stops, np.flatnonzero(~in_place)), np.flatnonzero(elsewhere)]
    return marks[before], marks[after], negative, wrong


def _numbers(text: Bytes, ends: Ints, lengths: Ints) -> Words:
    """Return the numbers whose ``lengths`` digits are before ``ends``."""
    words: Words = np.ndarray((len(text) - _WORD + 1,), "<u8", text.data, strides=(1,))
    total: Words = np.zeros(len(ends), dtype=np.uint64)
    for place in range(0, int(lengths.max()), _WORD):
        word = words[ends - (place + _WORD)]
        word &= _NIBBLES[place // _WORD].take(lengths)
        # Two neighbours become one number: first digits, then pairs, then groups of four.
        for width, factor in ((8, 10), (16, 100), (32, 10_000)):
            word *= np.uint64((factor << width) + 1)
            word >>= np.uint64(width)
            if width < _WORD * 4:
                word &= _EVERY_OTHER[width]
        total = word if place == 0 else total + word * np.uint64(10**place)
    return total
